//! TLS by rustls: the handshake that the driver leaves to others.
//!
//! Decides nothing. The certificate has to be for the host of the connection string, and as the configuration asks for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};

use crate::Socket;

/// TLS by rustls, for [`PoolBuilder::build_with`](crate::PoolBuilder::build_with).
#[derive(Clone)]
pub struct Rustls(TlsConnector);

/// A handshake with a server of one name.
pub struct RustlsTo(TlsConnector, ServerName<'static>);

/// A connection after its handshake.
pub struct RustlsStream(tokio_rustls::client::TlsStream<Socket>);

impl Rustls {
    /// With this configuration, which says whose certificates are believed.
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self(TlsConnector::from(config))
    }
}

impl MakeTlsConnect<Socket> for Rustls {
    type Stream = RustlsStream;
    type TlsConnect = RustlsTo;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<RustlsTo, Self::Error> {
        Ok(RustlsTo(self.0.clone(), ServerName::try_from(domain.to_owned())?))
    }
}

impl TlsConnect<Socket> for RustlsTo {
    type Stream = RustlsStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<RustlsStream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(RustlsStream(self.0.connect(self.1, socket).await?)) })
    }
}

impl TlsStream for RustlsStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for RustlsStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for RustlsStream {
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
