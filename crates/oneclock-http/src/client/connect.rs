//! From a host name to a connected socket.
//!
//! Resolving and connecting are two stages, so they are two steps here: hyper-util's connector, with its race between
//! address families, is given addresses that are resolved already.

use std::future::{Ready, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::head::Base;
use crate::body::BoxError;

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
pub(super) async fn connect(
    base: &Base,
    addresses: Vec<SocketAddr>,
    within: Duration,
) -> Result<TokioIo<TcpStream>, BoxError> {
    let mut connector = HttpConnector::new_with_resolver(Resolved(addresses));
    connector.set_nodelay(true); // a head that waits for an acknowledgement spends the budget
    connector.set_connect_timeout(Some(within));
    let uri = http::Uri::builder()
        .scheme(base.scheme.clone())
        .authority(format!("resolved:{}", base.port))
        .path_and_query("/")
        .build()?;
    Ok(connector.call(uri).await?)
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
