//! From a host name to a connected socket, and what a connection is from then on.
//!
//! Resolving and connecting are two stages, so they are two steps here: hyper-util's connector, with its race between
//! address families, is given addresses that are resolved already. Securing is the third, in `tls`.

use std::future::{Ready, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

use super::head::Base;
use super::tls::Secured;
use crate::body::BoxError;

/// What a connection of ours is.
pub(super) enum Io {
    Plain(TcpStream),
    Secured(Secured),
}

/// Gives every name the same addresses.
#[derive(Clone)]
struct Resolved(Vec<SocketAddr>);

/// The address in `base` itself, if it is one: nothing to resolve.
pub(super) fn literal(base: &Base) -> Option<Vec<SocketAddr>> {
    let ip: IpAddr = base.host.parse().ok()?;
    Some(vec![SocketAddr::new(ip, base.port)])
}

/// Asks the system's resolver. It runs on a blocking thread, which goes on if this is dropped, and gives its answer to
/// nobody.
pub(super) async fn resolve(base: &Base) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<_> = tokio::net::lookup_host((&*base.host, base.port)).await?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

/// Connects to one of `addresses`. `within` is shared between them, so that one dead address does not use it up.
pub(super) async fn connect(base: &Base, addresses: Vec<SocketAddr>, within: Duration) -> Result<TcpStream, BoxError> {
    let mut connector = HttpConnector::new_with_resolver(Resolved(addresses));
    connector.set_nodelay(true); // a head that waits for an acknowledgement spends the budget
    connector.set_connect_timeout(Some(within));
    let uri = http::Uri::builder()
        .scheme(Scheme::HTTP) // of this step: what is secured is so after it
        .authority(format!("resolved:{}", base.port))
        .path_and_query("/")
        .build()?;
    Ok(connector.call(uri).await?.into_inner())
}

impl Service<Name> for Resolved {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok(self.0.clone().into_iter()))
    }
}

// === Io ===

impl Io {
    /// Whether its two sides agreed on HTTP/2 while they were securing it; `None` where nobody was asked.
    pub(super) fn agreed_on_http2(&self) -> Option<bool> {
        match self {
            Self::Plain(_) => None,
            Self::Secured(secured) => Some(secured.is_http2()),
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Secured(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Self::Secured(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, bytes),
            Self::Secured(io) => Pin::new(io).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Secured(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Secured(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Secured(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
