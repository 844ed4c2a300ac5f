//! TLS to a PostgreSQL server: the handshake that its driver leaves to others.
//!
//! Decides nothing. The certificate has to be for the host of the URL, and from the roots that the configuration names.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use oneclock_http::rustls::ClientConfig;
use oneclock_http::rustls::pki_types::{InvalidDnsNameError, ServerName};
use oneclock_postgres::Socket;
use oneclock_postgres::tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;

/// Shakes hands with servers.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

/// With one of this name.
pub(super) struct Named(TlsConnector, ServerName<'static>);

/// A connection after its handshake.
pub(super) struct Secured(tokio_rustls::client::TlsStream<Socket>);

impl Tls {
    pub(super) fn new(config: Arc<ClientConfig>) -> Self {
        Self(TlsConnector::from(config))
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Secured;
    type TlsConnect = Named;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Named, Self::Error> {
        Ok(Named(self.0.clone(), ServerName::try_from(domain.to_owned())?))
    }
}

impl TlsConnect<Socket> for Named {
    type Stream = Secured;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(Secured(self.0.connect(self.1, socket).await?)) })
    }
}

impl TlsStream for Secured {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Secured {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
