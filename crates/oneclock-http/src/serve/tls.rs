//! TLS under the accept loop: a listener around another one.
//!
//! Decides when the handshake is over, what is known of the peer from then on, how a peer that says goodbye inside of TLS
//! is noticed behind bytes that nobody reads (contract N3), and that an answer which breaks off ends without
//! `close_notify` (contract X3). Deliberately absent: when a handshake takes too long; that is the loop's decision.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use oneclock_core::Trust;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ProtocolVersion, ServerConfig, ServerConnection};
use tokio_rustls::server::TlsStream;

use super::listener::{Introduction, Listener};

/// How much is read ahead of a handler that reads nothing, to find the peer's goodbye behind it, in bytes.
const AHEAD: usize = 64 * 1024;

/// How much is read of a peer whose handshake failed, so that it reads why, in bytes.
const LAST_WORDS: usize = 64 * 1024;

/// Speaks TLS with the peers of `listener`. Hand it to [`serve`](crate::serve): everything that holds there holds over
/// TLS. (Arrivals are stamped when the head was read, callers that leave are noticed, deadlines reach the socket.)
///
/// A handshake runs in its connection's own task, on one of the [places](crate::ServeLimits::max_connections), within
/// [`ServeLimits::handshake`](crate::ServeLimits::handshake): accepting never waits for one. What cannot shake hands is
/// told why (an alert), and closed.
///
/// Both HTTP/2 and HTTP/1.1 are offered (ALPN), unless `config` says otherwise. A peer that asks for neither is refused.
///
/// Leaving is `close_notify`, FIN or RST, whichever comes first. With [`half_close`](crate::Serve::half_close) a peer that
/// only stops sending has to say so with `close_notify`; a FIN without it may have been forged, and ends the connection.
///
/// ```
/// # use {std::time::Duration, tokio::net::TcpListener};
/// # fn identity() -> (oneclock_http::rustls::pki_types::CertificateDer<'static>, oneclock_http::rustls::pki_types::PrivateKeyDer<'static>) {
/// #     let made = rcgen::generate_simple_self_signed(["inventory".to_owned()]).unwrap();
/// #     (made.cert.into(), oneclock_http::rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()))
/// # }
/// use oneclock_http::rustls::ServerConfig;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (certificate, key) = identity();
/// let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
/// let listener = oneclock_http::tls(TcpListener::bind("127.0.0.1:0").await?, config);
/// let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" }));
/// # let done = async {};
/// oneclock_http::serve(listener, app).shutdown(done, Duration::from_secs(5)).await?;
/// # Ok(()) }
/// ```
pub fn tls<L: Listener>(listener: L, config: impl Into<Arc<ServerConfig>>) -> Tls<L> {
    let mut config = config.into();
    if config.alpn_protocols.is_empty() {
        let mut with_alpn = Arc::unwrap_or_clone(config);
        with_alpn.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config = Arc::new(with_alpn);
    }
    Tls { listener, acceptor: TlsAcceptor::from(config), trust: None }
}

/// A listener whose connections are secured. Made by [`tls`].
#[must_use = "a listener does nothing unless served"]
pub struct Tls<L> {
    listener: L,
    acceptor: TlsAcceptor,
    trust: Option<Arc<Judge>>,
}

type Judge = dyn Fn(&TlsPeer) -> Trust + Send + Sync;

/// What TLS tells of a peer. In the extensions of every request that came over [`tls`].
#[derive(Clone)]
pub struct TlsPeer(Arc<Facts>);

struct Facts {
    certificates: Vec<CertificateDer<'static>>,
    server_name: Option<String>,
    alpn: Option<Vec<u8>>,
    version: Option<ProtocolVersion>,
}

/// A connection under TLS. Its parts are in one task; the lock is for the future that watches for the peer's leaving,
/// which owns no part of the connection.
pub struct TlsIo<Io>(Arc<Mutex<Side<Io>>>);

#[expect(clippy::large_enum_variant, reason = "it is on the heap already, and small only until its handshake is over")]
enum Side<Io> {
    Accepted(Option<(Io, TlsAcceptor, Option<Arc<Judge>>)>), // none: its handshake is under way, or failed
    Open(Open<Io>),
}

struct Open<Io> {
    stream: TlsStream<Io>,
    peer: TlsPeer,
    trust: Option<Trust>,
    ahead: BytesMut,
    /// How reading ended, if that was found while reading ahead.
    end: Option<io::Result<()>>,
    /// Whoever reads waits for more: it will see by itself what comes.
    reader_waits: bool,
}

// === Tls ===

impl<L> Tls<L> {
    /// How far a peer is trusted, from what TLS tells of it (contract C2); instead of [`Serve::trust`](crate::Serve::trust),
    /// which is for all peers of a listener. Asked once for each connection, after the handshake.
    ///
    /// ```no_run
    /// # use {oneclock_core::Trust, oneclock_http::{Tls, rustls::ServerConfig}, tokio::net::TcpListener};
    /// # fn f(listener: TcpListener, asks_for_certificates: ServerConfig) -> Tls<TcpListener> {
    /// // Services show a certificate of our CA, for which `asks_for_certificates` has a verifier; browsers show none.
    /// oneclock_http::tls(listener, asks_for_certificates)
    ///     .trust(|peer| if peer.is_verified() { Trust::Inside } else { Trust::Outside })
    /// # }
    /// ```
    pub fn trust(mut self, judge: impl Fn(&TlsPeer) -> Trust + Send + Sync + 'static) -> Self {
        self.trust = Some(Arc::new(judge));
        self
    }

    /// The listener below.
    pub fn get_ref(&self) -> &L {
        &self.listener
    }
}

impl<L: Listener> Listener for Tls<L> {
    type Io = TlsIo<L::Io>;

    async fn accept(&mut self) -> io::Result<(Self::Io, Option<SocketAddr>)> {
        let (io, peer) = self.listener.accept().await?;
        let accepted = Side::Accepted(Some((io, self.acceptor.clone(), self.trust.clone())));
        Ok((TlsIo(Arc::new(Mutex::new(accepted))), peer))
    }

    async fn handshake(io: &mut Self::Io) -> io::Result<()> {
        let accepted = match &mut *io.side() {
            Side::Accepted(accepted) => accepted.take(),
            Side::Open(_) => return Ok(()),
        };
        let Some((mut below, acceptor, judge)) = accepted else { return Err(not_open()) };
        let opening = async {
            L::handshake(&mut below).await?;
            match acceptor.accept(below).into_fallible().await {
                Ok(stream) => Ok(stream),
                Err((error, below)) => {
                    say_goodbye(below).await;
                    Err(error)
                }
            }
        };
        let stream = Box::pin(opening).await?; // the handshake's buffers are not kept with the connection
        let peer = TlsPeer::of(stream.get_ref().1);
        let trust = judge.map(|judge| judge(&peer));
        *io.side() = Side::Open(Open { stream, peer, trust, ahead: BytesMut::new(), end: None, reader_waits: false });
        Ok(())
    }

    fn introduce(io: &Self::Io) -> Introduction {
        match &*io.side() {
            Side::Accepted(_) => Introduction::default(),
            Side::Open(open) => {
                let mut introduction = L::introduce(open.stream.get_ref().0);
                introduction.trust = open.trust.or(introduction.trust);
                introduction.extensions.insert(open.peer.clone());
                introduction
            }
        }
    }

    fn peer_left(io: &Self::Io, half_close: bool) -> impl Future<Output = ()> + Send + use<L> + 'static {
        let below = match &*io.side() {
            Side::Accepted(_) => None,
            Side::Open(open) => Some(L::peer_left(open.stream.get_ref().0, half_close)),
        };
        let io = TlsIo(Arc::clone(&io.0));
        async move {
            let Some(below) = below else { return std::future::pending().await };
            let mut below = pin!(below);
            poll_fn(|cx| {
                if !half_close && io.look_ahead(cx).is_ready() {
                    return Poll::Ready(());
                }
                below.as_mut().poll(cx)
            })
            .await;
        }
    }

    fn reset(io: &Self::Io) {
        if let Side::Open(open) = &*io.side() {
            L::reset(open.stream.get_ref().0);
        }
    }
}

impl<L: fmt::Debug> fmt::Debug for Tls<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// A socket that is closed with unread bytes is reset, and its peer may lose the alert that says why.
async fn say_goodbye<Io: AsyncRead + AsyncWrite + Unpin>(mut io: Io) {
    let mut rest = [0; 1024];
    let mut bytes = 0;
    if io.shutdown().await.is_err() {
        return;
    }
    while bytes < LAST_WORDS {
        match io.read(&mut rest).await {
            Ok(0) | Err(_) => return,
            Ok(n) => bytes += n,
        }
    }
}

fn not_open() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "its TLS handshake is not over")
}

// === TlsPeer ===

impl TlsPeer {
    fn of(connection: &ServerConnection) -> Self {
        let certificates = connection.peer_certificates().unwrap_or_default();
        Self(Arc::new(Facts {
            certificates: certificates.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            server_name: connection.server_name().map(str::to_owned),
            alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
            version: connection.protocol_version(),
        }))
    }

    /// Whether it showed a certificate, which the configuration's verifier accepted: what that means is up to the verifier.
    /// A resumed connection shows what the one before it showed.
    pub fn is_verified(&self) -> bool {
        !self.0.certificates.is_empty()
    }

    /// The certificates that it showed, its own first; none if it was not asked, or has none.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0.certificates
    }

    /// Whom it wants to speak to (SNI), if it says so.
    pub fn server_name(&self) -> Option<&str> {
        self.0.server_name.as_deref()
    }

    /// The protocol that was agreed on (ALPN), if any was.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.0.alpn.as_deref()
    }

    /// The version of TLS.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.0.version
    }
}

impl fmt::Debug for TlsPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPeer")
            .field("certificates", &self.0.certificates.len())
            .field("server_name", &self.0.server_name)
            .field("version", &self.0.version)
            .finish_non_exhaustive()
    }
}

// === TlsIo ===

impl<Io> TlsIo<Io> {
    fn side(&self) -> MutexGuard<'_, Side<Io>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> TlsIo<Io> {
    fn look_ahead(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.side() {
            Side::Accepted(_) => Poll::Pending,
            Side::Open(open) => open.look_ahead(cx),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Open<Io>) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &mut *self.side() {
            Side::Accepted(_) => Poll::Ready(Err(not_open())),
            Side::Open(open) => work(open),
        }
    }
}

impl<Io> fmt::Debug for TlsIo<Io> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIo").finish_non_exhaustive()
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsIo<Io> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|open| open.poll_read(cx, buf))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsIo<Io> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|open| Pin::new(&mut open.stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|open| Pin::new(&mut open.stream).poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|open| Pin::new(&mut open.stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|open| Pin::new(&mut open.stream).poll_shutdown(cx))
    }
}

// === Open ===

impl<Io: AsyncRead + AsyncWrite + Unpin> Open<Io> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.reader_waits = false;
        if !self.ahead.is_empty() {
            let n = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead[..n]);
            self.ahead.advance(n);
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = self.end.take() {
            self.ahead = BytesMut::new(); // its room, too
            return Poll::Ready(end); // said once more by the stream, should anybody ask again
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.reader_waits = read.is_pending();
        read
    }

    /// Ready once the peer's side has ended. Reads on where nobody else does: what stands behind unread bytes would not be
    /// seen otherwise, since only TLS can tell a goodbye from data.
    fn look_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.reader_waits && self.end.is_none() && self.ahead.len() < AHEAD {
            let mut piece = [0; 4096];
            let most = piece.len().min(AHEAD - self.ahead.len());
            let mut piece = ReadBuf::new(&mut piece[..most]);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece)) {
                Ok(()) if piece.filled().is_empty() => self.end = Some(Ok(())),
                Ok(()) => self.ahead.extend_from_slice(piece.filled()),
                Err(error) => self.end = Some(Err(error)),
            }
        }
        if self.end.is_some() { Poll::Ready(()) } else { Poll::Pending }
    }
}
