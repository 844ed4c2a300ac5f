//! What happens when every place is taken: connections that do nothing make room, and nothing else does. In memory, in
//! paused time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::get;
use oneclock_http::{Listener, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

struct InMemory(mpsc::UnboundedReceiver<DuplexStream>);

impl Listener for InMemory {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, Option<SocketAddr>)> {
        self.0.recv().await.map(|io| (io, None)).ok_or(io::ErrorKind::BrokenPipe.into())
    }
}

struct Server {
    connections: mpsc::UnboundedSender<DuplexStream>,
    go_on: Arc<Notify>,
    _served: AbortOnDropHandle<io::Result<()>>,
}

/// With `/hang`, which answers once it is told to go on, and `/up`, which upgrades.
fn server(places: usize) -> Server {
    let (connections, accepted) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let told = Arc::clone(&go_on);
    let hang = move || async move {
        told.notified().await;
        "at last"
    };
    let up = |mut request: Request| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.expect("an upgrade"));
            let _ = io.read_u8().await; // until its peer leaves
        });
        (StatusCode::SWITCHING_PROTOCOLS, [("connection", "upgrade"), ("upgrade", "echo")])
    };
    let app = Router::new().route("/hello", get(|| async { "hello" })).route("/hang", get(hang)).route("/up", get(up));
    let served = tokio::spawn(serve(InMemory(accepted), app).max_connections(places).into_future());
    Server { connections, go_on, _served: AbortOnDropHandle::new(served) }
}

impl Server {
    fn connect(&self) -> DuplexStream {
        let (ours, theirs) = duplex(64 * 1024);
        self.connections.send(theirs).expect("it accepts");
        ours
    }
}

async fn ask(io: &mut DuplexStream, path: &str) {
    io.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.expect("written");
}

/// What is read until it ends with `end`, or is closed.
async fn until(io: &mut DuplexStream, end: &str) -> String {
    let mut got = Vec::new();
    while !got.ends_with(end.as_bytes()) && io.read_buf(&mut got).await.expect("no reset") > 0 {}
    String::from_utf8(got).expect("text")
}

async fn is_served(io: &mut DuplexStream) {
    ask(io, "/hello").await;
    let got = until(io, "hello").await;
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
}

async fn is_closed(io: &mut DuplexStream) -> bool {
    timeout(Duration::from_millis(1), io.read_u8()).await.is_ok_and(|read| read.is_err())
}

fn now() -> Instant {
    #[allow(clippy::disallowed_methods)]
    Instant::now()
}

const SECOND: Duration = Duration::from_secs(1);
/// How often the door looks.
const LOOKS: Duration = Duration::from_millis(60);

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_makes_room_after_a_second_and_one_with_a_request_does_not() {
    let server = server(2);
    let (mut busy, mut idle) = (server.connect(), server.connect());
    ask(&mut busy, "/hang").await;
    is_served(&mut idle).await;
    let since = now();
    let mut next = server.connect();
    is_served(&mut next).await;
    assert!(now() - since >= SECOND && now() - since <= SECOND + LOOKS, "{:?}", now() - since);
    assert!(is_closed(&mut idle).await, "in good order: no reset");
    server.go_on.notify_one();
    assert!(until(&mut busy, "at last").await.starts_with("HTTP/1.1 200"), "its request was not cut off");
}

#[tokio::test(start_paused = true)]
async fn so_does_one_that_says_nothing_and_one_that_says_half_a_head() {
    let server = server(2);
    let mut silent = server.connect();
    tokio::time::sleep(SECOND / 2).await; // the younger of the two
    let mut half = server.connect();
    half.write_all(b"GET /hello HTTP/1.1\r\nhost").await.expect("written");
    let since = now();
    let (mut first, mut second) = (server.connect(), server.connect());
    is_served(&mut first).await;
    assert!(now() - since <= SECOND / 2 + LOOKS, "whoever has waited longest goes first: {:?}", now() - since);
    assert!(is_closed(&mut silent).await && !is_closed(&mut half).await);
    is_served(&mut second).await;
    assert!(now() - since <= SECOND + LOOKS && is_closed(&mut half).await, "{:?}", now() - since);
    is_served(&mut first).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_has_to_go_while_there_are_places_or_nobody_wants_one() {
    let server = server(2);
    let (mut one, mut other) = (server.connect(), server.connect());
    for _ in 0..5 {
        is_served(&mut one).await;
        is_served(&mut other).await;
        tokio::time::sleep(10 * SECOND).await; // idle, well beyond a second
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_are_busy_the_next_one_waits_for_the_first_that_is_not() {
    let server = server(1);
    let mut busy = server.connect();
    ask(&mut busy, "/hang").await;
    let mut next = server.connect();
    ask(&mut next, "/hello").await;
    assert!(timeout(30 * SECOND, next.read_u8()).await.is_err(), "there is no place");
    server.go_on.notify_one();
    assert!(until(&mut busy, "at last").await.starts_with("HTTP/1.1 200"));
    let since = now();
    assert!(until(&mut next, "hello").await.starts_with("HTTP/1.1 200"));
    assert!(now() - since <= SECOND + LOOKS, "{:?}", now() - since);
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_connection_is_not_asked() {
    let server = server(2);
    let mut upgraded = server.connect();
    upgraded
        .write_all(b"GET /up HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await
        .expect("written");
    assert!(until(&mut upgraded, "\r\n\r\n").await.starts_with("HTTP/1.1 101"));
    let mut idle = server.connect();
    is_served(&mut idle).await;
    tokio::time::sleep(2 * SECOND).await;
    let since = now();
    let mut next = server.connect();
    is_served(&mut next).await;
    assert_eq!(now(), since, "the one that has waited longest is another");
    assert!(is_closed(&mut idle).await && !is_closed(&mut upgraded).await);
}
