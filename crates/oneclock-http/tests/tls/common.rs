//! Servers of ours and of others under TLS, and peers that shake hands themselves.

use std::error::Error;
use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::Request;
use axum::routing::{MethodRouter, any, get};
use bytes::Bytes;
use http_body::{Body, Frame};
use oneclock_core::Policy;
use oneclock_http::rustls::pki_types::ServerName;
use oneclock_http::rustls::{ClientConfig, ServerConfig};
use oneclock_http::{Client, ClientBuilder, IngressLayer, Listener, Serve, Tls, Watched, serve, tls};
use oneclock_test::{Probe, ProbeGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certificates;

/// Nothing here takes as long, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The promise for callers that leave is 50 ms; this is with what a loaded machine may add.
pub(crate) const NOTICED: Duration = Duration::from_millis(500);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The runtime's clock, as the fixtures use it.
pub(crate) fn now() -> Instant {
    #[allow(clippy::disallowed_methods)]
    Instant::now()
}

// === Servers ===

/// Counts the connections that are accepted, and how often they are read.
pub(crate) struct Counted {
    listener: TcpListener,
    pub(crate) accepted: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

pub(crate) struct CountedIo(Watched<TcpStream>, Arc<AtomicUsize>);

impl Listener for Counted {
    type Io = CountedIo;

    async fn accept(&mut self) -> io::Result<(CountedIo, Option<SocketAddr>)> {
        let (io, peer) = Listener::accept(&mut self.listener).await?;
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Ok((CountedIo(io, Arc::clone(&self.reads)), peer))
    }

    fn peer_left(io: &CountedIo, half_close: bool) -> impl Future<Output = ()> + Send + use<> + 'static {
        <TcpListener as Listener>::peer_left(&io.0, half_close)
    }

    fn reset(io: &CountedIo) {
        <TcpListener as Listener>::reset(&io.0);
    }
}

impl AsyncRead for CountedIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedIo {
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

pub(crate) type Serving = Serve<Tls<Counted>, Router>;

/// Ours.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<io::Result<()>>,
}

impl Server {
    pub(crate) async fn of(app: Router) -> Self {
        Self::with(app, certificates::server(certificates::loopback()), |listener| listener, |serve| serve).await
    }

    pub(crate) async fn limited(app: Router, limit: impl FnOnce(Serving) -> Serving) -> Self {
        Self::with(app, certificates::server(certificates::loopback()), |listener| listener, limit).await
    }

    pub(crate) async fn with(
        app: Router,
        config: ServerConfig,
        listen: impl FnOnce(Tls<Counted>) -> Tls<Counted>,
        limit: impl FnOnce(Serving) -> Serving,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (accepted, reads) = (Arc::default(), Arc::default());
        let counted = Counted { listener, accepted: Arc::clone(&accepted), reads: Arc::clone(&reads) };
        let (stop, stopped) = oneshot::channel();
        let serving = limit(serve(listen(tls(counted, config)), app)).shutdown(stopped, ms(0));
        Self { addr, accepted, reads, stop, task: tokio::spawn(serving.into_future()) }
    }

    /// How many connections were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// How often sockets were read.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    pub(crate) async fn lives(&self) {
        let mut stream = connect(self.addr).await;
        stream.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let (bytes, end) = until_closed(&mut stream).await;
        assert!(end.is_ok() && bytes.ends_with(b"hello"), "{end:?} {:?}", String::from_utf8_lossy(&bytes));
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        timeout(PATIENCE, self.task).await.expect("it stops").unwrap().unwrap();
    }
}

pub(crate) fn hello() -> Router {
    Router::new().route("/hello", any(|| async { "hello" }))
}

/// With `/hang`, which never answers and never reads its body.
pub(crate) fn hangs(probe: &Probe) -> Router {
    hello().route("/hang", hang(probe))
}

pub(crate) fn hang(probe: &Probe) -> MethodRouter {
    let probe = probe.clone();
    any(move |_unread: Request| async move { probe.never().await })
}

/// With `/flood`, whose body is always ready.
pub(crate) fn floods(probe: &Probe) -> Router {
    let probe = probe.clone();
    hello().route("/flood", get(move || async move { AxumBody::new(Flood { _guard: probe.enter() }) }))
}

struct Flood {
    _guard: ProbeGuard,
}

impl Body for Flood {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 256 * 1024])))))
    }
}

pub(crate) fn within(budget: Duration) -> IngressLayer {
    IngressLayer::new(Policy::named("test").when_absent(budget).ceiling(budget).build().unwrap())
}

// === Callers ===

/// A client of ours that knows our certificates.
pub(crate) fn client(addr: SocketAddr) -> ClientBuilder {
    Client::builder("inventory", format!("https://{addr}")).tls(certificates::client())
}

/// What is in the way, down to the last reason.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        words = format!("{words}: {source}");
        next = source.source();
    }
    words
}

pub(crate) async fn connect(addr: SocketAddr) -> TlsStream<TcpStream> {
    connect_with(addr, certificates::client()).await.unwrap()
}

pub(crate) async fn connect_with(addr: SocketAddr, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    secure(TcpStream::connect(addr).await?, config).await
}

pub(crate) async fn secure(socket: TcpStream, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    let server = ServerName::try_from("127.0.0.1").unwrap();
    timeout(PATIENCE, TlsConnector::from(Arc::new(config)).connect(server, socket)).await.expect("an end")
}

/// A connection of HTTP/2.
pub(crate) async fn h2(addr: SocketAddr) -> (h2::client::SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let mut config = certificates::client();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = connect_with(addr, config).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    (send, tokio::spawn(connection))
}

/// What comes until the other side closes or resets. Only `close_notify` is an end without an error.
pub(crate) async fn until_closed<S: AsyncRead + Unpin>(stream: &mut S) -> (Vec<u8>, io::Result<usize>) {
    let mut bytes = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it is closed");
    (bytes, end)
}
