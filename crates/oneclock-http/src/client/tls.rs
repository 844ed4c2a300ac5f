//! TLS, as a client of it: who the far side has to be, and which protocol the two agree on.
//!
//! Decides what is offered (ALPN), what counts as an agreement, and what a failed handshake is called. Nothing in it
//! blocks: the roots are data of this program, and no file is read.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use oneclock_core::Name;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, Error as RustlsError, RootCertStore, crypto};

use super::builder::Offers;
use super::refused::NotAClient;
use crate::body::BoxError;

const H2: &[u8] = b"h2";
const HTTP11: &[u8] = b"http/1.1";

/// A client configuration of one's own, if there is one.
pub(super) type Given = Option<Arc<ClientConfig>>;

/// How connections of one destination are secured.
pub(super) struct Tls {
    connector: TlsConnector,
    server: ServerName<'static>,
    needs_h2: bool,
}

/// A connection after its handshake.
pub(super) struct Secured(Box<TlsStream<TcpStream>>); // on the heap, since most connections are none of these

/// The TLS handshake of a call failed: nothing of the request was sent, and the outcome is
/// [`NotSent`](oneclock_core::Outcome::NotSent).
///
/// It is the source of a [`CallFailed`](crate::CallFailed). Its own source is the reason: a
/// [`rustls::Error`](tokio_rustls::rustls::Error) if TLS itself refused (the certificate, the version, an alert of the
/// far side), an [`io::Error`] if the connection broke.
///
/// ```no_run
/// # use oneclock_http::{CallError, HandshakeFailed, rustls};
/// fn is_expired(error: &CallError) -> bool {
///     let CallError::Failed(failed) = error else { return false };
///     let Some(handshake) = failed.source.downcast_ref::<HandshakeFailed>() else { return false };
///     matches!(
///         handshake.tls(),
///         Some(rustls::Error::InvalidCertificate(rustls::CertificateError::ExpiredContext { .. })),
///     )
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[error("the TLS handshake with {server} failed")]
pub struct HandshakeFailed {
    server: String,
    source: BoxError,
}

/// Two sides that speak TLS, but not HTTP/2 in it.
#[derive(Debug, thiserror::Error)]
#[error("it did not agree to h2 (ALPN), which is all that this client speaks (http2_only)")]
struct NoH2;

// === Tls ===

impl Tls {
    /// Checks everything that could fail in every handshake.
    pub(super) fn new(client: &Name, host: &str, given: Given, offers: Offers) -> Result<Self, NotAClient> {
        let server = ServerName::try_from(host.to_owned())
            .map_err(|_| NotAClient::ServerName { client: client.clone(), host: host.to_owned() })?;
        let mut config = match given {
            Some(config) => Arc::unwrap_or_clone(config),
            None => trusting_the_web(client)?,
        };
        let ours: &[&[u8]] = match offers {
            Offers::Http1 => &[HTTP11],
            Offers::Http2 => &[H2],
            Offers::Either => &[H2, HTTP11],
        };
        if config.alpn_protocols.is_empty() {
            config.alpn_protocols = ours.iter().map(|protocol| protocol.to_vec()).collect();
        } else {
            config.alpn_protocols.retain(|protocol| ours.contains(&&**protocol));
        }
        if config.alpn_protocols.is_empty() {
            return Err(NotAClient::Alpn { client: client.clone() });
        }
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server, needs_h2: offers == Offers::Http2 })
    }

    /// Shakes hands over `io`.
    ///
    /// # Errors
    /// [`HandshakeFailed`].
    ///
    /// # Cancel safety
    /// Dropped, it closes the connection. Nothing of a request has left.
    pub(super) async fn secure(&self, io: TcpStream) -> Result<Secured, BoxError> {
        // On the heap: a call that is not secured has no room for this in its future.
        let stream = Box::pin(self.connector.connect(self.server.clone(), io));
        let secured = match stream.await {
            Ok(stream) => Secured(Box::new(stream)),
            Err(error) => return Err(self.failed(reason(error))),
        };
        if self.needs_h2 && !secured.is_http2() {
            return Err(self.failed(NoH2.into()));
        }
        Ok(secured)
    }

    fn failed(&self, source: BoxError) -> BoxError {
        HandshakeFailed { server: self.server.to_str().into_owned(), source }.into()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server", &self.server).finish_non_exhaustive()
    }
}

fn trusting_the_web(client: &Name) -> Result<ClientConfig, NotAClient> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|source| NotAClient::Tls { client: client.clone(), source: source.into() })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// What is in the way, without what it was wrapped in.
fn reason(error: io::Error) -> BoxError {
    match error.downcast::<RustlsError>() {
        Ok(error) => error.into(),
        Err(error) => error.into(),
    }
}

// === Secured ===

impl Secured {
    /// Whether the two agreed on HTTP/2. A far side that says nothing speaks HTTP/1.1.
    pub(super) fn is_http2(&self) -> bool {
        self.0.get_ref().1.alpn_protocol() == Some(H2)
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

// === HandshakeFailed ===

impl HandshakeFailed {
    /// Whom the far side had to be.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Why TLS refused, if it was TLS, and not a connection that broke.
    pub fn tls(&self) -> Option<&RustlsError> {
        self.source.downcast_ref()
    }
}
