//! The accept loop over real sockets: whatever a peer does, its work stops, its answer is whole or visibly cut off, and
//! the server lives on. For what hyper and `axum::serve` do by themselves, the same test fails once, on purpose.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
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
use oneclock::events::Counting;
use oneclock::{Operation, Shutdown};
use oneclock_core::{Policy, Trust};
use oneclock_http::{Arrival, IngressLayer, Listener, Serve, ServeLimits, Watched, serve};
use oneclock_test::caller::{Caller, H1End, H1Outcome, H2Outcome, How};
use oneclock_test::{Baseline, Ended, Probe, ProbeGuard, Reason, Wakes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Nothing here takes as long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// The promise for callers that leave.
const NOTICED: Duration = Duration::from_millis(50);
/// What a loaded machine may add.
const LOAD: Duration = Duration::from_millis(150);
const FRAME: usize = 8 << 20;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The runtime's clock, as the fixtures use it.
fn now() -> Instant {
    #[allow(clippy::disallowed_methods)]
    Instant::now()
}

struct Server {
    addr: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    async fn of(app: Router, change: impl FnOnce(Serve<TcpListener, Router>) -> Serve<TcpListener, Router>) -> Self {
        Self::with_grace(app, ms(0), change).await
    }

    async fn with_grace(
        app: Router,
        grace: Duration,
        change: impl FnOnce(Serve<TcpListener, Router>) -> Serve<TcpListener, Router>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(change(serve(listener, app).shutdown(stopped, grace)).into_future());
        Self { addr, stop, task }
    }

    async fn lives(&self) {
        match Caller::h1(self.addr).get("/hello").answer().await.unwrap() {
            H1Outcome::Complete { status, body, .. } => assert_eq!((status.as_u16(), &body[..]), (200, &b"hello"[..])),
            other => panic!("{other:?}"),
        }
    }

    async fn stop(self) {
        drop(self.stop);
        timeout(PATIENCE, self.task).await.expect("it stops").unwrap().unwrap();
    }
}

fn hello() -> Router {
    Router::new().route("/hello", any(|| async { "hello" }))
}

/// With `/hang`, which never answers and never reads its body.
fn hangs(probe: &Probe) -> Router {
    hello().route("/hang", hang(probe))
}

fn hang(probe: &Probe) -> MethodRouter {
    let probe = probe.clone();
    any(move |_unread: Request| async move { probe.never().await })
}

/// With `/flood`, whose body is always ready.
fn floods(probe: &Probe, frame: usize) -> Router {
    let probe = probe.clone();
    hello().route(
        "/flood",
        get(move || async move { AxumBody::new(Flood { frame: Bytes::from(vec![b'x'; frame]), _guard: probe.enter() }) }),
    )
}

struct Flood {
    frame: Bytes,
    _guard: ProbeGuard,
}

impl Body for Flood {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(self.frame.clone()))))
    }
}

fn within(budget: Duration) -> IngressLayer {
    let policy = Policy::named("test").when_absent(budget).ceiling(budget).build().unwrap();
    IngressLayer::new(policy)
}

async fn raw(addr: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    socket
}

/// What comes until the other side closes or resets, and how long that took.
async fn until_closed(socket: &mut TcpStream) -> (Vec<u8>, io::Result<usize>, Duration) {
    let since = now();
    let mut bytes = Vec::new();
    let end = timeout(PATIENCE, socket.read_to_end(&mut bytes)).await.expect("it is closed");
    (bytes, end, now() - since)
}

// === The head ===

#[tokio::test]
async fn k1_c2_every_request_is_stamped_with_its_arrival() {
    let app = Router::new().route(
        "/",
        get(|request: Request| async move {
            let arrival = request.extensions().get::<Arrival>().expect("stamped");
            format!("{:?} {} {}", arrival.trust, arrival.peer.is_some(), arrival.at <= oneclock::clock::now())
        }),
    );
    let server = Server::of(app, |serve| serve.trust(Trust::Inside)).await;
    match Caller::h1(server.addr).get("/").answer().await.unwrap() {
        H1Outcome::Complete { body, .. } => assert_eq!(&body[..], b"Inside true true"),
        other => panic!("{other:?}"),
    }
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    match caller.get("/").send().await.unwrap().answer().await {
        H2Outcome::Complete { body, .. } => assert_eq!(&body[..], b"Inside true true"),
        other => panic!("{other:?}"),
    }
    server.stop().await;
}

#[tokio::test]
async fn hostile_ten_thousand_fields_and_a_megabyte_value_are_refused_and_the_server_lives_on() {
    let server = Server::of(hello(), |serve| serve).await;
    let many = || (0..10_000).map(|n| format!("x-field-{n}"));
    let large = vec![b'v'; 1 << 20];

    let request = many().fold(Caller::h1(server.addr).get("/hello"), |request, name| request.header(name, "v"));
    refused_h1(request.answer().await.unwrap());
    refused_h1(Caller::h1(server.addr).get("/hello").header("x-large", &large).answer().await.unwrap());

    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let request = many().fold(caller.get("/hello"), |request, name| request.header(name, "v"));
    refused_h2(request.send().await.unwrap().answer().await);
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    refused_h2(caller.get("/hello").header("x-large", &large).send().await.unwrap().answer().await);

    server.lives().await;
    server.stop().await;
}

#[track_caller]
fn refused_h1(outcome: H1Outcome) {
    match outcome {
        H1Outcome::Complete { status, .. } => assert!([400, 431].contains(&status.as_u16()), "{status}"),
        other => panic!("{other:?}"),
    }
}

/// A 431, or a GOAWAY; never an answer of the service.
#[track_caller]
fn refused_h2(outcome: H2Outcome) {
    match outcome {
        H2Outcome::Complete { status, .. } => assert_eq!(status.as_u16(), 431),
        H2Outcome::Reset { status, .. } => assert!(status.is_none_or(|status| status == 431), "{status:?}"),
        H2Outcome::ConnectionLost { status: None, .. } => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn hostile_a_slow_head_is_cut_whatever_it_began_with() {
    let server = Server::of(hello(), |serve| serve.header_read_timeout(ms(300))).await;
    for begun in [&b""[..], b"GET /hello HT", b"GET /hello HTTP/1.1\r\nhost: a\r\nx-slow: ", b"PRI * HTTP/2.0\r\n"] {
        let mut socket = raw(server.addr, begun).await;
        let (bytes, _, took) = until_closed(&mut socket).await;
        assert_eq!(String::from_utf8_lossy(&bytes), "", "{begun:?}");
        assert!(took > ms(200) && took < ms(300) + LOAD + LOAD, "{begun:?} after {took:?}");
    }
    // A byte now and then does not help.
    let mut socket = raw(server.addr, b"GET /hello HTTP/1.1\r\nx-slow: ").await;
    let since = now();
    while socket.write_all(b"x").await.is_ok() && now() - since < PATIENCE {
        tokio::time::sleep(ms(20)).await;
    }
    assert!(now() - since < ms(300) + LOAD + LOAD, "{:?}", now() - since);
    // The second head of a connection has the same timer, although the connection may be idle for longer.
    let mut socket = raw(server.addr, b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").await;
    tokio::time::sleep(ms(500)).await;
    socket.write_all(b"GET /hello HTTP/1.1\r\n").await.unwrap();
    let (bytes, _, took) = until_closed(&mut socket).await;
    assert!(bytes.ends_with(b"hello") && took > ms(200) && took < ms(300) + LOAD + LOAD, "{took:?}");
    server.lives().await;
    server.stop().await;
}

/// The naive way: `axum::serve` has no timer, so half a head stays for ever.
#[tokio::test]
async fn naive_axum_serve_waits_for_a_slow_head() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(axum::serve(listener, hello()).into_future());
    let mut socket = raw(addr, b"GET /hello HT").await;
    assert!(timeout(ms(1000), socket.read_u8()).await.is_err(), "still open");
    task.abort();
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_order() {
    let server = Server::of(hello(), |serve| serve.idle(ms(300))).await;
    let mut socket = raw(server.addr, b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let (bytes, end, took) = until_closed(&mut socket).await;
    assert!(bytes.ends_with(b"hello") && end.is_ok(), "{end:?}");
    assert!(took > ms(200) && took < ms(300) + LOAD + LOAD, "{took:?}");

    let mut h2 = goaway_of(server.addr).await;
    assert_eq!(timeout(PATIENCE, &mut h2).await.expect("closed").unwrap(), Ok(()));
    server.stop().await;
}

/// An idle HTTP/2 connection; resolves to how it ended.
async fn goaway_of(addr: SocketAddr) -> JoinHandle<Result<(), String>> {
    let socket = TcpStream::connect(addr).await.unwrap();
    let (mut send, connection) = h2::client::handshake(socket).await.unwrap();
    let task = tokio::spawn(async move { connection.await.map_err(|error| error.to_string()) });
    let request = http::Request::get(format!("http://{addr}/hello")).body(()).unwrap();
    let (answer, _) = send.send_request(request, true).unwrap();
    let mut body = answer.await.unwrap().into_body();
    while body.data().await.is_some() {}
    // Kept open by its handle, until the server says goodbye.
    tokio::spawn(async move {
        let _ = std::future::poll_fn(|cx| send.poll_ready(cx)).await;
        tokio::time::sleep(PATIENCE).await;
        drop(send);
    });
    task
}

/// CVE-2023-44487: streams that are opened and reset in one go, a thousand in each write.
#[tokio::test]
async fn hostile_rapid_reset_ends_the_connection_and_not_the_server() {
    let probe = Probe::new();
    let server = Server::of(Router::new().fallback(hang(&probe)).merge(hello()), |serve| serve).await;
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    flood.extend(frame(4, 0, 0, &[])); // SETTINGS
    for stream in (1..2000).step_by(2) {
        flood.extend(frame(1, 0x5, stream, &[0x82, 0x86, 0x84, 0x41, 1, b'a'])); // HEADERS: GET http://a/, whole
        flood.extend(frame(3, 0, stream, &[0, 0, 0, 8])); // RST_STREAM CANCEL
    }
    let mut socket = raw(server.addr, &flood).await;
    let (bytes, _, _) = until_closed(&mut socket).await;
    assert_eq!(goaway(&bytes), Some(0xb), "ENHANCE_YOUR_CALM");
    server.lives().await;
    server.stop().await;
    assert_eq!(probe.running(), 0);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The code of the last GOAWAY among these frames.
fn goaway(mut bytes: &[u8]) -> Option<u32> {
    let mut code = None;
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let (payload, rest) = rest.split_at(u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize);
        if head[3] == 7 {
            code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        bytes = rest;
    }
    code
}

// === ServeLimits ===

#[tokio::test]
async fn hostile_idle_connections_take_no_more_than_their_places() {
    let server = Server::of(hello(), |serve| serve.max_connections(20).header_read_timeout(ms(300))).await;
    let before = Baseline::tasks_only();
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(server.addr).await.unwrap());
    }
    // Twenty are accepted, the others wait where they cost nothing.
    tokio::time::sleep(ms(100)).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (low, high) = (before.back_now().expect_err("they are served").tasks_before, tasks);
    assert!(high - low <= 20, "{} tasks for 200 connections", high - low);
    // A good one gets its turn once those before it have been cut, twenty after each 300 ms.
    timeout(PATIENCE, server.lives()).await.expect("served");
    drop(idle);
    server.stop().await;
}

/// A listener that has trouble, then connections, then is gone.
struct Scripted(VecDeque<io::Result<DuplexStream>>);

impl Listener for Scripted {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, Option<SocketAddr>)> {
        match self.0.pop_front() {
            Some(accepted) => accepted.map(|io| (io, None)),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_accept_is_tried_again_and_a_broken_listener_is_an_error() {
    let (mut ours, theirs) = duplex(64 * 1024);
    let no_descriptors = || Err(io::Error::from_raw_os_error(24));
    let script = [
        no_descriptors(),
        Err(io::ErrorKind::ConnectionAborted.into()),
        no_descriptors(),
        Ok(theirs),
        Err(io::ErrorKind::BrokenPipe.into()),
    ];
    let since = now();
    let task = tokio::spawn(
        serve(Scripted(script.into()), hello()).shutdown(std::future::pending::<()>(), ms(1000)).into_future(),
    );
    ours.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).await.unwrap();
    drop(ours);
    let broken = task.await.unwrap().expect_err("for good");
    assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    // The listener broke in the same moment as the connection came: what had not begun by then may be closed unserved.
    assert!(answer.is_empty() || answer.ends_with(b"hello"), "{answer:?}");
    assert_eq!((now() - since).as_millis(), 100, "two pauses");
}

#[tokio::test(start_paused = true)]
async fn a_connection_in_memory_is_served_in_paused_time() {
    let (mut ours, theirs) = duplex(64 * 1024);
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(serve(Scripted([Ok(theirs)].into()), hello()).shutdown(stopped, ms(0)).into_future());
    ours.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    ours.read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(b"hello"));
    drop(stop);
    task.await.unwrap().unwrap();
}

// === The caller leaves ===

/// Ways to leave that the kernel tells us of.
const LEAVING: [How; 5] = [How::Close, How::Reset, How::HalfClose, How::WithUnreadUpload(UNREAD), How::Pipelined];

/// An upload that the kernel takes whole although nobody reads it, so that what stands behind it is seen.
const UNREAD: usize = 50_000;

#[tokio::test]
async fn n3_the_handler_is_dropped_within_50_ms_however_the_caller_leaves() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe), |serve| serve).await;
    for (n, how) in (1..).zip(LEAVING) {
        let sent = Caller::h1(server.addr).post("/hang", "").send(how).await.unwrap();
        probe.started(n).await.unwrap();
        let gone = sent.leave().await.unwrap();
        let ended = probe.ended(n).await.unwrap();
        assert_eq!(ended.how, Ended::Dropped);
        assert!(ended.at - gone.at < NOTICED + LOAD, "{how:?}: noticed after {:?}", ended.at - gone.at);
    }
    let started = LEAVING.len();
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let call = caller.post("/hang", vec![b'x'; 300_000]).send().await.unwrap();
    probe.started(started + 1).await.unwrap();
    let at = call.reset(Reason::CANCEL);
    assert!(probe.ended(started + 1).await.unwrap().at - at < NOTICED + LOAD);
    let _call = caller.post("/hang", vec![b'x'; 300_000]).send().await.unwrap();
    probe.started(started + 2).await.unwrap();
    let at = caller.leave().await;
    assert!(probe.ended(started + 2).await.unwrap().at - at < NOTICED + LOAD);
    server.lives().await;
    server.stop().await;
}

/// A larger upload fills the socket, and what stands behind it stays with the peer's kernel: the timer covers that.
#[tokio::test]
async fn n3_behind_an_upload_that_fills_the_socket_the_deadline_ends_the_work() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe).layer(within(ms(400))), |serve| serve).await;
    let sent = Caller::h1(server.addr).post("/hang", "").send(How::WithUnreadUpload(8 << 20)).await.unwrap();
    let started = probe.started(1).await.unwrap();
    sent.leave().await.unwrap();
    let ended = probe.ended(1).await.unwrap();
    assert!(ended.at - started < ms(400) + LOAD, "{:?}", ended.at - started);
    server.stop().await;
}

/// Counts how often a socket is read.
struct Counted(TcpListener, Arc<AtomicUsize>);

struct CountedIo(Watched<TcpStream>, Arc<AtomicUsize>);

impl Listener for Counted {
    type Io = CountedIo;

    async fn accept(&mut self) -> io::Result<(CountedIo, Option<SocketAddr>)> {
        let (io, peer) = Listener::accept(&mut self.0).await?;
        Ok((CountedIo(io, Arc::clone(&self.1)), peer))
    }

    fn peer_left(io: &CountedIo, half_close: bool) -> impl Future<Output = ()> + Send + use<> + 'static {
        <TcpListener as Listener>::peer_left(&io.0, half_close)
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

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A connection whose peer left while nothing was in flight, or which has bytes that nobody reads, must not go round in
/// circles. The listener is wrapped, as one for TLS would be.
#[tokio::test]
async fn n3_a_connection_with_unread_bytes_waits_quietly() {
    let probe = Probe::new();
    let reads = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let counted = Counted(listener, Arc::clone(&reads));
    let task = tokio::spawn(serve(counted, hangs(&probe)).half_close(true).shutdown(stopped, ms(0)).into_future());
    let sent = Caller::h1(addr).get("/hang").send(How::WithUnreadUpload(UNREAD)).await.unwrap();
    let gone = Caller::h1(addr).get("/hang").leave(How::HalfClose).await.unwrap();
    probe.started(2).await.unwrap();
    tokio::time::sleep(ms(50)).await;
    let before = reads.load(Ordering::Relaxed);
    tokio::time::sleep(ms(500)).await;
    let after = reads.load(Ordering::Relaxed);
    assert!(after - before < 10, "{before}, then {after} reads");
    drop((sent, gone, stop));
    timeout(PATIENCE, task).await.unwrap().unwrap().unwrap();
}

/// The naive way: hyper reads on only once what it has read is taken, so the FIN behind it is not seen.
#[tokio::test]
async fn naive_axum_serve_does_not_notice_behind_unread_bytes() {
    let probe = Probe::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(axum::serve(listener, hangs(&probe)).into_future());
    for (n, how) in [(1, How::WithUnreadUpload(UNREAD)), (2, How::Pipelined)] {
        let sent = Caller::h1(addr).get("/hang").send(how).await.unwrap();
        probe.started(n).await.unwrap();
        sent.leave().await.unwrap();
    }
    tokio::time::sleep(ms(500)).await;
    assert_eq!(probe.running(), 2, "both handlers work for nobody");
    task.abort();
}

#[tokio::test]
async fn n3_with_half_close_a_caller_that_only_stops_sending_gets_its_answer() {
    let probe = Probe::new();
    let app = hangs(&probe).route(
        "/slow",
        get(|| async {
            tokio::time::sleep(ms(200)).await;
            "slow"
        }),
    );
    let server = Server::of(app, |serve| serve.half_close(true)).await;
    let gone = Caller::h1(server.addr).get("/slow").leave(How::HalfClose).await.unwrap();
    match gone.answer().await.unwrap() {
        H1Outcome::Complete { status, body, .. } => assert_eq!((status.as_u16(), &body[..]), (200, &b"slow"[..])),
        other => panic!("{other:?}"),
    }
    // A reset is still a leaving, with an upload unread as well.
    let mut socket = raw(server.addr, b"POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 300000\r\n\r\n").await;
    socket.write_all(&[b'x'; 100_000]).await.unwrap();
    probe.started(1).await.unwrap();
    socket.set_zero_linger().unwrap();
    drop(socket);
    let at = now();
    assert!(probe.ended(1).await.unwrap().at - at < NOTICED + LOAD);
    server.stop().await;
}

#[tokio::test]
async fn n3_watching_for_the_leaving_waits_quietly_behind_unread_bytes() {
    let mut listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut socket = raw(addr, b"unread").await;
    let (io, _) = Listener::accept(&mut listener).await.unwrap();
    let mut left = pin!(<TcpListener as Listener>::peer_left(&io, false));
    let wakes = Wakes::new();
    assert_eq!(wakes.poll(left.as_mut()), Poll::Pending);
    for _ in 0..10 {
        socket.write_all(&[b'x'; 1000]).await.unwrap();
        tokio::time::sleep(ms(10)).await;
        assert_eq!(wakes.poll(left.as_mut()), Poll::Pending);
    }
    assert_eq!(wakes.count(), 0, "bytes are not a leaving");
    drop(socket);
    timeout(PATIENCE, left).await.expect("seen");
}

#[cfg(unix)]
#[tokio::test]
async fn n3_a_unix_socket_tells_too() {
    let path = std::env::temp_dir().join(format!("oneclock-serve-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let probe = Probe::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(serve(listener, hangs(&probe)).shutdown(stopped, ms(0)).into_future());
    let mut socket = tokio::net::UnixStream::connect(&path).await.unwrap();
    socket.write_all(b"POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 300000\r\n\r\nxxx").await.unwrap();
    probe.started(1).await.unwrap();
    drop(socket);
    let at = now();
    assert!(probe.ended(1).await.unwrap().at - at < NOTICED + LOAD);
    drop(stop);
    timeout(PATIENCE, task).await.unwrap().unwrap().unwrap();
    let _ = std::fs::remove_file(&path);
}

// === The deadline reaches the socket ===

#[tokio::test]
async fn x3_x8_at_the_deadline_a_stream_that_nobody_reads_is_reset_with_cancel() {
    let probe = Probe::new();
    let server = Server::of(floods(&probe, FRAME).layer(within(ms(400))), |serve| serve).await;
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let since = now();
    let mut call = caller.get("/flood").send().await.unwrap();
    call.head().await.unwrap();
    match call.ended_by_server().await.unwrap() {
        H2Outcome::Reset { reason, .. } => assert_eq!(reason, Reason::CANCEL),
        other => panic!("{other:?}"),
    }
    assert!(now() - since < ms(400) + LOAD, "{:?}", now() - since);
    assert_eq!(probe.ended(1).await.unwrap().how, Ended::Dropped);
    // The connection goes on. (What the caller did not read is in the way of everything on it until it lets go.)
    drop(call);
    match caller.get("/hello").send().await.unwrap().answer().await {
        H2Outcome::Complete { status, .. } => assert_eq!(status.as_u16(), 200),
        other => panic!("{other:?}"),
    }
    server.stop().await;
}

#[tokio::test]
async fn x3_x8_at_the_deadline_an_http1_answer_that_nobody_reads_is_cut_off() {
    let probe = Probe::new();
    let server = Server::of(floods(&probe, FRAME).layer(within(ms(400))), |serve| serve).await;
    let since = now();
    let gone = Caller::h1(server.addr).get("/flood").leave(How::StopsReading).await.unwrap();
    let ended = probe.ended(1).await.unwrap();
    assert!(ended.at - since < ms(400) + LOAD, "{:?}", ended.at - since);
    match gone.answer().await.unwrap() {
        H1Outcome::Truncated { .. } | H1Outcome::NoAnswer(H1End::Failed(_)) => {}
        other => panic!("{other:?}"),
    }
    server.stop().await;
}

#[tokio::test]
async fn x3_an_answer_that_ends_with_its_connection_is_reset_so_that_it_does_not_look_complete() {
    let probe = Probe::new();
    let guard = probe.clone();
    let app = hello().route(
        "/trickles",
        get(move || async move {
            let guard = guard.enter();
            AxumBody::from_stream(futures_util::stream::unfold(guard, |guard| async move {
                tokio::time::sleep(ms(20)).await;
                Some((Ok::<_, io::Error>(Bytes::from_static(b"part")), guard))
            }))
        }),
    );
    let server = Server::of(app.layer(within(ms(300))), |serve| serve).await;
    let mut socket = raw(server.addr, b"GET /trickles HTTP/1.0\r\n\r\n").await;
    let (bytes, end, _) = until_closed(&mut socket).await;
    assert!(bytes.starts_with(b"HTTP/1.0 200") || bytes.is_empty(), "{:?}", String::from_utf8_lossy(&bytes));
    assert_eq!(end.expect_err("cut off").kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(probe.ended(1).await.unwrap().how, Ended::Dropped);
    server.stop().await;
}

/// With `/halves`: a body without a length, which on HTTP/1.0 ends with its connection. Half of it comes at once; then it
/// waits for `then`, and panics.
fn halves(probe: &Probe, then: &Arc<Semaphore>) -> Router {
    let (probe, then) = (probe.clone(), Arc::clone(then));
    hello().route(
        "/halves",
        get(move || async move {
            let state = (true, then, probe.enter());
            AxumBody::from_stream(futures_util::stream::unfold(state, |(is_first, then, guard)| async move {
                if !is_first {
                    drop(then.acquire().await);
                    panic!("on purpose");
                }
                Some((Ok::<_, io::Error>(Bytes::from_static(b"half")), (false, then, guard)))
            }))
        }),
    )
}

async fn until_half(addr: SocketAddr) -> TcpStream {
    let mut socket = raw(addr, b"GET /halves HTTP/1.0\r\n\r\n").await;
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"half") {
        assert_ne!(timeout(PATIENCE, socket.read_buf(&mut bytes)).await.expect("it comes").unwrap(), 0);
    }
    socket
}

/// A close would be the end of the answer.
async fn is_reset(mut socket: TcpStream) {
    let (_, end, _) = until_closed(&mut socket).await;
    assert_eq!(end.expect_err("cut off").kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn x3_an_answer_whose_body_panics_does_not_look_complete() {
    let (probe, then) = (Probe::new(), Arc::new(Semaphore::new(0)));
    let server = Server::of(halves(&probe, &then), |serve| serve).await;
    let socket = until_half(server.addr).await;
    then.add_permits(1);
    is_reset(socket).await;
    server.lives().await;
    server.stop().await;
}

#[tokio::test]
async fn x3_an_answer_whose_server_is_dropped_does_not_look_complete() {
    let probe = Probe::new();
    let server = Server::of(halves(&probe, &Arc::new(Semaphore::new(0))), |serve| serve).await;
    let socket = until_half(server.addr).await;
    server.task.abort();
    is_reset(socket).await;
    assert_eq!(probe.ended(1).await.unwrap().how, Ended::Dropped);
}

/// One frame, its last, more than the socket takes. Its length is not told.
struct Large(Option<Bytes>);

impl Body for Large {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        assert!(self.0.is_none(), "handed over as a whole");
    }
}

/// The handler and its body are done, hyper has it all. The peer has not.
#[tokio::test]
async fn x3_a_whole_answer_that_has_not_left_does_not_look_complete() {
    let app = hello().route("/large", get(|| async { AxumBody::new(Large(Some(vec![b'x'; 4 * FRAME].into()))) }));
    let server = Server::of(app, |serve| serve).await;
    let mut socket = raw(server.addr, b"GET /large HTTP/1.0\r\n\r\n").await;
    assert_eq!(timeout(PATIENCE, socket.read_u8()).await.expect("it comes").unwrap(), b'H');
    server.task.abort();
    is_reset(socket).await;
}

// === Answers without a body ===

/// HEAD, 204, 304: there is nothing to write after the head. The operation is over then, and neither its deadline nor a
/// shutdown cuts the connection that goes on.
#[tokio::test]
async fn x8_an_answer_without_a_body_leaves_nothing_under_way() {
    let counting = Arc::new(Counting::default());
    let status = |status: u16| get(move || async move { http::StatusCode::from_u16(status).expect("a status") });
    let streamed = || AxumBody::from_stream(futures_util::stream::pending::<Result<Bytes, io::Error>>());
    let app = hello()
        .route("/204", status(204))
        .route("/304", status(304))
        .route("/streamed", get(move || async move { streamed() }))
        .layer(within(ms(300)).observed_by(counting.clone()));
    let server = Server::of(app, |serve| serve).await;
    let calls = [("HEAD", "/hello", 200), ("HEAD", "/streamed", 200), ("GET", "/204", 204), ("GET", "/304", 304)];

    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    for (method, path, status) in calls {
        let begin = counting.sum("ended");
        socket.write_all(format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
        let head = head_of(&mut socket).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        ended(&counting, begin + 1).await;
    }
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    for (method, path, expected) in calls {
        let begin = counting.sum("ended");
        match caller.method(method.parse().unwrap(), path).send().await.unwrap().answer().await {
            H2Outcome::Complete { status, body, .. } => assert_eq!((status.as_u16(), body.len()), (expected, 0)),
            other => panic!("{method} {path}: {other:?}"),
        }
        ended(&counting, begin + 1).await;
    }
    assert_eq!(counting.count("ended ok"), 2 * calls.len() as u64, "{counting:?}");

    // Past every deadline both connections go on.
    tokio::time::sleep(ms(500)).await;
    socket.write_all(b"GET /204 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(head_of(&mut socket).await.starts_with("HTTP/1.1 204"));
    match caller.get("/hello").send().await.unwrap().answer().await {
        H2Outcome::Complete { status, .. } => assert_eq!(status.as_u16(), 200),
        other => panic!("{other:?}"),
    }
    server.stop().await;
}

/// 100: an announcement is no answer. The operation goes on behind it, and ends with the one that follows.
#[tokio::test]
async fn x1_a_caller_that_waits_to_be_asked_for_its_upload_is_asked_and_answered() {
    let counting = Arc::new(Counting::default());
    let app = Router::new().route("/", any(|upload: Bytes| async move { upload }));
    let server = Server::of(app.layer(within(PATIENCE).observed_by(counting.clone())), |serve| serve).await;
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    for n in 1..=2 {
        socket
            .write_all(b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
            .await
            .unwrap();
        assert!(head_of(&mut socket).await.starts_with("HTTP/1.1 100"));
        assert_eq!(counting.sum("ended"), n - 1);
        socket.write_all(b"ok").await.unwrap();
        assert!(head_of(&mut socket).await.starts_with("HTTP/1.1 200"));
        let mut body = [0; 2];
        socket.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"ok");
        ended(&counting, n).await;
    }
    assert_eq!(counting.count("ended ok"), 2, "{counting:?}");
    server.stop().await;
}

/// Exactly the head of an answer: a body after it would be the beginning of the next head.
async fn head_of(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, socket.read_u8()).await.expect("it comes").unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Waits until so many operations have ended: long before their deadline.
async fn ended(counting: &Counting, operations: u64) {
    let since = now();
    while counting.sum("ended") < operations {
        assert!(now() - since < PATIENCE, "an operation goes on: {counting:?}");
        tokio::task::yield_now().await;
    }
}

// === Peers that take nothing ===

#[tokio::test]
async fn x8_a_peer_that_stops_reading_is_cut_without_any_deadline_layer() {
    let probe = Probe::new();
    let server = Server::of(floods(&probe, FRAME), |serve| serve.write_progress(ms(400))).await;

    let gone = Caller::h1(server.addr).get("/flood").leave(How::StopsReading).await.unwrap();
    let ended = probe.ended(1).await.unwrap();
    assert!(ended.at - gone.at < ms(400) + LOAD + LOAD, "HTTP/1: {:?}", ended.at - gone.at);

    // HTTP/2, no window: the socket could be written, but nothing may be.
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let since = now();
    let mut call = caller.get("/flood").send().await.unwrap();
    call.head().await.unwrap();
    match call.ended_by_server().await.unwrap() {
        H2Outcome::Reset { reason, .. } => assert_eq!(reason, Reason::CANCEL),
        other => panic!("{other:?}"),
    }
    assert!(probe.ended(2).await.unwrap().at - since < ms(400) + LOAD + LOAD);

    // HTTP/2, all the window there is: the socket cannot be written.
    let caller = Caller::h2(server.addr).window((1 << 31) - 1).max_frame(FRAME as u32).connect().await.unwrap();
    let _call = caller.get("/flood").send().await.unwrap();
    probe.started(3).await.unwrap();
    let since = now();
    let frozen = caller.freeze().await;
    assert!(probe.ended(3).await.unwrap().at - since < ms(400) + LOAD + LOAD);
    drop(frozen);
    server.lives().await;
    server.stop().await;
}

/// The naive way: an answer that nobody reads holds its handler's body for as long as the peer likes.
#[tokio::test]
async fn naive_axum_serve_holds_what_nobody_reads() {
    let probe = Probe::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(axum::serve(listener, floods(&probe, FRAME)).into_future());
    let _gone = Caller::h1(addr).get("/flood").leave(How::StopsReading).await.unwrap();
    let caller = Caller::h2(addr).connect().await.unwrap();
    let mut call = caller.get("/flood").send().await.unwrap();
    call.head().await.unwrap();
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(probe.running(), 2);
    task.abort();
}

#[tokio::test]
async fn x8_a_peer_that_reads_slowly_is_not_cut() {
    let probe = Probe::new();
    let size = 256 * 1024;
    let app = hello().route("/large", get(move || async move { vec![b'x'; size] }));
    let server = Server::of(app, |serve| serve.write_progress(ms(300))).await;

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut socket = socket.connect(server.addr).await.unwrap();
    socket.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut read = 0;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        tokio::time::sleep(ms(30)).await;
        match socket.read(&mut buffer).await.expect("not reset") {
            0 => break,
            n => read += n,
        }
    }
    assert!(read > size);

    let caller = Caller::h2(server.addr).window(16 * 1024).connect().await.unwrap();
    let mut call = caller.get("/large").send().await.unwrap();
    call.head().await.unwrap();
    let mut read = 0;
    while let Some(data) = call.data().await.expect("not reset") {
        read += data.len();
        tokio::time::sleep(ms(50)).await;
    }
    assert_eq!(read, size);
    let _ = probe;
    server.stop().await;
}

// === The answer before the end of the upload ===

/// Sends all of a large body, slowly, and only then reads. As many clients do, it gives up when it cannot send.
async fn slow_upload(addr: SocketAddr) -> io::Result<String> {
    let piece = vec![b'x'; 64 * 1024];
    let pieces = 20;
    let mut socket = TcpStream::connect(addr).await?;
    let head = format!("POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", pieces * piece.len());
    socket.write_all(head.as_bytes()).await?;
    for _ in 0..pieces {
        socket.write_all(&piece).await?;
        tokio::time::sleep(ms(40)).await;
    }
    let mut answer = String::new();
    timeout(PATIENCE, socket.read_to_string(&mut answer)).await.expect("an end")?;
    Ok(answer)
}

#[tokio::test]
async fn x9_a_504_reaches_a_caller_that_is_still_uploading() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe).layer(within(ms(200))), |serve| serve).await;
    let answer = slow_upload(server.addr).await.expect("the whole upload is taken, the answer is read");
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert!(probe.ended(1).await.is_ok());

    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let call = caller.post("/hang", "begun").unfinished().send().await.unwrap();
    match call.answer_while_trickling(ms(20)).await {
        H2Outcome::Complete { status, .. } => assert_eq!(status.as_u16(), 504),
        other => panic!("{other:?}"),
    }
    server.stop().await;
}

/// The naive way: the same layer under `axum::serve`. The rest of the upload meets a closed socket.
#[tokio::test]
async fn naive_axum_serve_loses_an_answer_before_the_end_of_the_upload() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = hangs(&Probe::new()).layer(within(ms(200)));
    let task = tokio::spawn(axum::serve(listener, app).into_future());
    let lost = slow_upload(addr).await.expect_err("the answer is lost");
    assert!([io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe].contains(&lost.kind()), "{lost:?}");
    task.abort();
}

#[tokio::test]
async fn x9_lingering_has_its_bounds() {
    for (time, bytes) in [(ms(200), u64::MAX), (PATIENCE, 256 * 1024)] {
        let probe = Probe::new();
        let server = Server::of(hangs(&probe).layer(within(ms(200))), |serve| serve.linger(time, bytes)).await;
        let since = now();
        let mut socket = raw(server.addr, b"POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n").await;
        while socket.write_all(&[b'x'; 16 * 1024]).await.is_ok() {
            assert!(now() - since < PATIENCE, "it is closed some time");
            tokio::time::sleep(ms(5)).await;
        }
        assert!(now() - since < ms(2000), "{time:?} {bytes}: {:?}", now() - since);
        server.lives().await;
        server.stop().await;
    }
}

// === The rest of a server's life ===

#[tokio::test]
async fn a_handler_that_panics_takes_only_its_connection_or_stream_with_it() {
    let app = hello().route("/panics", get(|| async { if true { panic!("on purpose") } else { "" } }));
    let server = Server::of(app, |serve| serve).await;
    assert!(matches!(Caller::h1(server.addr).get("/panics").answer().await.unwrap(), H1Outcome::NoAnswer(_)));
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    match caller.get("/panics").send().await.unwrap().answer().await {
        H2Outcome::Reset { status: None, .. } => {}
        other => panic!("{other:?}"),
    }
    match caller.get("/hello").send().await.unwrap().answer().await {
        H2Outcome::Complete { status, .. } => assert_eq!(status.as_u16(), 200),
        other => panic!("{other:?}"),
    }
    server.lives().await;
    server.stop().await;
}

#[tokio::test]
async fn an_upgraded_connection_belongs_to_its_handler_and_keeps_its_place() {
    let app = hello().route(
        "/echo",
        get(|mut request: Request| async move {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
                let mut word = [0; 4];
                io.read_exact(&mut word).await.unwrap();
                io.write_all(&word).await.unwrap();
                io.shutdown().await.unwrap();
            });
            (http::StatusCode::SWITCHING_PROTOCOLS, [("connection", "upgrade"), ("upgrade", "echo")])
        }),
    );
    let server = Server::of(app, |serve| serve.max_connections(1)).await;
    let head = b"GET /echo HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let mut socket = raw(server.addr, head).await;
    let mut answer = vec![0; 4096];
    let n = socket.read(&mut answer).await.unwrap();
    assert!(answer[..n].starts_with(b"HTTP/1.1 101"));
    let mut next = Box::pin(server.lives());
    assert!(timeout(ms(200), next.as_mut()).await.is_err(), "the only place is taken");
    socket.write_all(b"ping").await.unwrap();
    socket.shutdown().await.unwrap();
    let (bytes, end, _) = until_closed(&mut socket).await;
    assert!(end.is_ok() && bytes.ends_with(b"ping"));
    timeout(PATIENCE, next.as_mut()).await.expect("the place is free again");
    drop(next);
    server.stop().await;
}

// === Shutting down ===

#[tokio::test]
async fn x10_idle_connections_close_at_once_and_nothing_new_comes_in() {
    let server = Server::with_grace(hello(), PATIENCE, |serve| serve).await;
    let mut h1 = raw(server.addr, b"POST /hello HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nxx").await;
    let mut answer = vec![0; 4096];
    let n = h1.read(&mut answer).await.unwrap();
    assert!(answer[..n].ends_with(b"hello"));
    let h2 = goaway_of(server.addr).await;
    let silent = raw(server.addr, b"").await;
    tokio::time::sleep(ms(50)).await;

    let addr = server.addr;
    let since = now();
    server.stop().await;
    assert!(now() - since < ms(500), "{:?}", now() - since);
    assert_eq!(h1.read(&mut answer).await.unwrap(), 0, "closed in order");
    assert_eq!(timeout(PATIENCE, h2).await.unwrap().unwrap(), Ok(()), "GOAWAY, then closed");
    assert_eq!(TcpStream::connect(addr).await.expect_err("refused").kind(), io::ErrorKind::ConnectionRefused);
    drop(silent);
}

#[tokio::test]
async fn x10_live_work_goes_on_during_the_grace() {
    let probe = Probe::new();
    let seen = probe.clone();
    let app = Router::new().route(
        "/slow",
        get(move || async move {
            let guard = seen.enter();
            tokio::time::sleep(ms(300)).await;
            guard.finish();
            "slow"
        }),
    );
    let server = Server::with_grace(app, PATIENCE, |serve| serve).await;
    let h1 = Caller::h1(server.addr).get("/slow").send(How::Close).await.unwrap();
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let h2 = caller.get("/slow").send().await.unwrap();
    probe.started(2).await.unwrap();
    let stopped = tokio::spawn(server.stop());
    match h1.answer().await {
        H1Outcome::Complete { body, headers, .. } => {
            assert_eq!(&body[..], b"slow");
            assert_eq!(headers["connection"], "close");
        }
        other => panic!("{other:?}"),
    }
    match h2.answer().await {
        H2Outcome::Complete { body, .. } => assert_eq!(&body[..], b"slow"),
        other => panic!("{other:?}"),
    }
    stopped.await.unwrap();
    assert_eq!(probe.finished_count(), 2);
}

#[tokio::test]
async fn x10_at_the_end_of_the_grace_operations_are_ended_and_answered() {
    let probe = Probe::new();
    let server = Server::with_grace(hangs(&probe).layer(within(PATIENCE)), ms(200), |serve| serve).await;
    let h1 = Caller::h1(server.addr).get("/hang").send(How::Close).await.unwrap();
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let h2 = caller.get("/hang").send().await.unwrap();
    probe.started(2).await.unwrap();
    let since = now();
    let stopped = tokio::spawn(server.stop());
    match h1.answer().await {
        H1Outcome::Complete { status, .. } => assert_eq!(status.as_u16(), 503),
        other => panic!("{other:?}"),
    }
    match h2.answer().await {
        H2Outcome::Complete { status, .. } => assert_eq!(status.as_u16(), 503),
        other => panic!("{other:?}"),
    }
    stopped.await.unwrap();
    assert!(now() - since < ms(200) + ms(500) + LOAD, "{:?}", now() - since);
    assert_eq!(probe.dropped_count(), 2);
}

#[tokio::test]
async fn x10_a_handler_that_does_not_listen_is_dropped_soon_after_the_grace() {
    let probe = Probe::new();
    let server = Server::with_grace(hangs(&probe), ms(100), |serve| serve).await;
    let h1 = Caller::h1(server.addr).get("/hang").send(How::Close).await.unwrap();
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let _h2 = caller.get("/hang").send().await.unwrap();
    probe.started(2).await.unwrap();
    let since = now();
    server.stop().await;
    assert_eq!(probe.dropped_count(), 2, "gone when it returns");
    assert!(now() - since < ms(600) + LOAD, "{:?}", now() - since);
    assert!(matches!(h1.answer().await, H1Outcome::NoAnswer(_)));
}

#[tokio::test]
async fn x10_what_must_finish_is_waited_for() {
    let probe = Probe::new();
    let step = probe.clone();
    let app = Router::new().route(
        "/charge",
        get(move || async move {
            let op = Operation::current().expect("under the layer");
            let work = async move {
                let guard = step.enter();
                tokio::time::sleep(ms(600)).await;
                guard.finish();
                Ok::<_, io::Error>(())
            };
            let _ = op.must_finish("charge", PATIENCE, work).await;
            "charged"
        }),
    );
    let server = Server::with_grace(app.layer(within(PATIENCE)), ms(50), |serve| serve).await;
    let caller = Caller::h1(server.addr).get("/charge").send(How::Close).await.unwrap();
    probe.started(1).await.unwrap();
    server.stop().await;
    assert_eq!(probe.finished_count(), 1);
    drop(caller);
}

#[tokio::test]
async fn x10_servers_that_share_a_shutdown_stop_together() {
    let shutdown = Shutdown::new();
    let probe = Probe::new();
    let mut servers = Vec::new();
    let mut callers = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        servers.push(tokio::spawn(serve(listener, hangs(&probe)).with_shutdown(&shutdown).into_future()));
        callers.push(Caller::h1(addr).get("/hang").send(How::Close).await.unwrap());
    }
    probe.started(2).await.unwrap();
    shutdown.drain(ms(100)).await;
    assert_eq!(probe.dropped_count(), 2);
    for server in servers {
        timeout(PATIENCE, server).await.unwrap().unwrap().unwrap();
    }
}

// === Nothing is left ===

/// Descriptors and operations are counted for the whole process: under nextest, that is this test.
fn has_a_process_of_its_own() -> bool {
    std::env::var_os("NEXTEST").is_some()
}

fn baseline() -> Baseline {
    if has_a_process_of_its_own() { Baseline::take() } else { Baseline::tasks_only() }
}

#[tokio::test]
async fn i14_after_all_that_nothing_is_alive_but_the_server_and_then_nothing() {
    let outside = baseline();
    let probe = Probe::new();
    let mut limits = ServeLimits::default();
    limits.write_progress = ms(300);
    limits.header_read_timeout = ms(300);
    let app = floods(&probe, FRAME).route("/hang", hang(&probe));
    let server = Server::of(app.layer(within(ms(300))), |serve| serve.limits(limits)).await;
    let serving = baseline();
    for how in LEAVING {
        Caller::h1(server.addr).get("/hang").leave(how).await.unwrap();
    }
    let stopped = Caller::h1(server.addr).get("/flood").leave(How::StopsReading).await.unwrap();
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let calls = [
        caller.get("/hang").send().await.unwrap(),
        caller.get("/flood").send().await.unwrap(),
        caller.post("/hang", vec![b'x'; 100_000]).unfinished().send().await.unwrap(),
    ];
    for call in calls {
        call.answer().await;
    }
    let slow = raw(server.addr, b"GET /he").await;
    drop(stopped.answer().await);
    drop(slow);
    caller.leave().await;
    serving.assert_back().await;
    server.stop().await;
    outside.assert_back().await;
    assert_eq!(probe.running(), 0);
    if has_a_process_of_its_own() {
        assert_eq!(oneclock::live_operations(), 0);
    }
}

#[tokio::test]
async fn i14_a_server_that_is_dropped_takes_everything_with_it() {
    let before = Baseline::tasks_only();
    let probe = Probe::new();
    let server = Server::of(hangs(&probe), |serve| serve).await;
    let h1 = Caller::h1(server.addr).get("/hang").send(How::Close).await.unwrap();
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let h2 = caller.get("/hang").send().await.unwrap();
    probe.started(2).await.unwrap();
    server.task.abort();
    probe.ended(2).await.unwrap();
    drop((h1, h2));
    caller.leave().await;
    before.assert_back().await;
}

// === Panics ===

/// What is logged at level error.
#[derive(Clone, Default)]
struct Errors(Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::Subscriber for Errors {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Whoever is called at night finds it in the log, whatever the caller spoke.
#[tokio::test]
async fn a_handler_that_panics_is_logged_on_both_protocols() {
    for http2 in [false, true] {
        let errors = Errors::default();
        let _logging = tracing::subscriber::set_default(errors.clone());
        let broken = || async { panic!("a slice index out of bounds") };
        let app = hello().route("/broken", get(move || async move { broken().await as &'static str }));
        let server = Server::of(app, |serve| serve).await;
        if http2 {
            let caller = Caller::h2(server.addr).connect().await.unwrap();
            let outcome = caller.get("/broken").send().await.unwrap().answer().await;
            assert!(!matches!(outcome, H2Outcome::Complete { .. }), "{outcome:?}");
        } else {
            let outcome = Caller::h1(server.addr).get("/broken").answer().await.unwrap();
            assert!(!matches!(outcome, H1Outcome::Complete { .. }), "{outcome:?}");
        }
        server.lives().await;
        server.stop().await; // every connection is over
        let logged = errors.0.lock().unwrap().clone();
        assert_eq!(logged.iter().filter(|line| line.contains("a handler panicked")).count(), 1, "{http2}: {logged:?}");
    }
}
