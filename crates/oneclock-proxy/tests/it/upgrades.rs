//! WebSockets: bytes both ways, and their ends.

use std::net::SocketAddr;

use oneclock_core::ingress::Coverage;
use oneclock_test::{PATIENCE, Protocol, peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::common::{AMPLE, address, config, config_with, loopback, ms, start, told};

const ASKS: &str = "GET /chat HTTP/1.1\r\nhost: shop\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
                    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";

/// An upstream that switches and says everything again. What it was asked is sent on; its end is told by the sender's.
struct Echo {
    addr: SocketAddr,
    heads: mpsc::Receiver<String>,
    _served: AbortOnDropHandle<()>,
}

impl Echo {
    async fn answering(head: &'static str) -> Self {
        let listener = TcpListener::bind(loopback()).await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (send, heads) = mpsc::channel(8);
        let served = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let asked = head_of(&mut socket).await;
            send.send(asked).await.expect("somebody waits");
            socket.write_all(head.as_bytes()).await.expect("written");
            let (mut read, mut write) = socket.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        });
        Self { addr, heads, _served: AbortOnDropHandle::new(served) }
    }

    /// Waits until the connection here has ended.
    async fn ended(&mut self) {
        let ended = timeout(PATIENCE, self.heads.recv()).await.expect("it ends");
        assert_eq!(ended, None, "no further head");
    }
}

const SWITCHES: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                        sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

async fn head_of(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(PATIENCE, socket.read_u8()).await.expect("in time").expect("a head");
        head.push(byte);
    }
    String::from_utf8(head).expect("text").to_ascii_lowercase()
}

async fn asking(addr: SocketAddr) -> (TcpStream, String) {
    asking_with(addr, ASKS).await
}

async fn asking_with(addr: SocketAddr, asks: &str) -> (TcpStream, String) {
    let mut socket = TcpStream::connect(addr).await.expect("a connection");
    socket.write_all(asks.as_bytes()).await.expect("sent");
    let head = head_of(&mut socket).await;
    (socket, head)
}

async fn says(socket: &mut TcpStream, words: &[u8]) {
    socket.write_all(words).await.expect("sent");
    let mut echo = vec![0; words.len()];
    timeout(PATIENCE, socket.read_exact(&mut echo)).await.expect("in time").expect("an echo");
    assert_eq!(echo, words);
}

/// Waits for the end of a connection, however it is told.
async fn is_closed(socket: &mut TcpStream) {
    let read = timeout(PATIENCE, socket.read(&mut [0; 16])).await.expect("it ends");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_websocket_goes_through_and_its_end_too() {
    let mut upstream = Echo::answering(SWITCHES).await;
    // Its budget ends at the upgrade: what follows takes longer than that.
    let proxy = start(config_with(upstream.addr, Protocol::Http1, |route| route.when_absent = ms(300))).await;
    let (mut socket, head) = asking(address(&proxy)).await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-accept: "), "{head}");
    let asked = upstream.heads.recv().await.expect("asked");
    assert!(asked.contains("connection: upgrade\r\n") && asked.contains("upgrade: websocket\r\n"), "{asked}");
    assert!(asked.contains("host: shop\r\n") && asked.contains("x-remaining-ms: "), "{asked}");
    says(&mut socket, b"one").await;
    tokio::time::sleep(ms(600)).await; // well past its budget, which is what this is about
    says(&mut socket, &[7; 100_000]).await;
    drop(socket);
    upstream.ended().await;
}

#[tokio::test]
async fn a_websocket_that_is_quiet_for_too_long_ends() {
    for limits in [(ms(300), ms(60_000)), (ms(60_000), ms(300))] {
        let mut upstream = Echo::answering(SWITCHES).await;
        let (idle, total) = limits;
        let config = config_with(upstream.addr, Protocol::Http1, |route| {
            route.kind = Coverage::Streaming { idle, total };
        });
        let proxy = start(config).await;
        let (mut socket, _) = asking(address(&proxy)).await;
        upstream.heads.recv().await.expect("asked");
        is_closed(&mut socket).await;
        upstream.ended().await;
    }
}

#[tokio::test]
async fn there_are_no_more_than_the_upstream_takes_and_who_comes_too_late_is_told() {
    let mut upstream = Echo::answering(SWITCHES).await;
    let mut file = config_with(upstream.addr, Protocol::Http1, |route| route.when_absent = ms(300));
    file.upstreams.values_mut().for_each(|upstream| upstream.max_connections = 1);
    let proxy = start(file).await;
    let (mut socket, head) = asking(address(&proxy)).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    upstream.heads.recv().await.expect("asked");
    let (_, head) = asking(address(&proxy)).await;
    assert!(head.starts_with("http/1.1 504 "), "{head}");
    says(&mut socket, b"one").await;
}

#[tokio::test]
async fn a_shutdown_waits_for_a_websocket_within_its_grace_and_ends_it() {
    let mut upstream = Echo::answering(SWITCHES).await;
    let mut file = config(upstream.addr, Protocol::Http1);
    file.shutdown_grace = ms(400);
    let proxy = start(file).await;
    let (mut socket, _) = asking(address(&proxy)).await;
    upstream.heads.recv().await.expect("asked");
    says(&mut socket, b"one").await;
    let drained = proxy.shutdown().await;
    assert_eq!(drained.grace, ms(400), "it lives longer than that");
    is_closed(&mut socket).await;
    upstream.ended().await;
}

#[tokio::test]
async fn an_upgrade_that_is_not_granted_is_an_answer_like_any_other() {
    let upstream = Echo::answering("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno").await;
    let proxy = start(config(upstream.addr, Protocol::Http1)).await;
    let (mut socket, head) = asking(address(&proxy)).await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    let mut body = [0; 2];
    timeout(PATIENCE, socket.read_exact(&mut body)).await.expect("in time").expect("a body");
    assert_eq!(&body, b"no");
}

/// A caller does not choose its limits by asking for more.
#[tokio::test]
async fn an_upgrade_that_nobody_answers_takes_no_longer_than_one_exchange_may() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let file = config_with(upstream.addr(), Protocol::Http1, |route| {
        route.when_absent = AMPLE;
        route.backend_request = Some(ms(200));
    });
    let proxy = start(file).await;
    let (_, head) = asking(address(&proxy)).await;
    assert!(head.starts_with("http/1.1 504 "), "{head}");
    assert!(told(&upstream.await_request().await.expect("a request").headers) <= 200);
}

/// RFC 6455 section 4.1: it is asked for with GET.
#[tokio::test]
async fn another_method_that_asks_for_an_upgrade_is_an_ordinary_request() {
    let mut upstream = Echo::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let proxy = start(config(upstream.addr, Protocol::Http1)).await;
    let asks = ASKS.replace("GET ", "POST ").replace("host: shop\r\n", "host: shop\r\ncontent-length: 0\r\n");
    let (_, head) = asking_with(address(&proxy), &asks).await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let asked = upstream.heads.recv().await.expect("asked");
    assert!(asked.starts_with("post /chat ") && asked.contains("x-remaining-ms: "), "{asked}");
    assert!(!asked.contains("upgrade"), "{asked}");
}

/// Contract X10: a drain knows how long it may live.
#[tokio::test]
async fn an_upgrade_that_is_not_granted_on_a_declared_stream_is_one() {
    let upstream = Echo::answering("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nn").await;
    let mut file = config_with(upstream.addr, Protocol::Http1, |route| {
        route.when_absent = ms(200);
        route.kind = Coverage::Streaming { idle: AMPLE, total: ms(1_500) };
    });
    file.shutdown_grace = AMPLE;
    let proxy = start(file).await;
    let (_socket, head) = asking(address(&proxy)).await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    let drained = proxy.shutdown().await;
    assert!(drained.grace > ms(200) && drained.grace <= ms(1_500), "{drained:?}");
}

/// Contract S2: an answer on a unary route is head and body, and one exchange has one limit for both.
#[tokio::test]
async fn the_body_of_an_upgrade_that_is_not_granted_takes_no_longer_than_one_exchange_may() {
    let mut upstream = Echo::answering("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nn").await;
    let file = config_with(upstream.addr, Protocol::Http1, |route| {
        (route.when_absent, route.ceiling) = (ms(3_600_000), ms(3_600_000));
        route.backend_request = Some(ms(300));
    });
    let proxy = start(file).await;
    let (mut socket, head) = asking(address(&proxy)).await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    upstream.heads.recv().await.expect("asked");
    let mut body = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut body)).await.expect("it ends with its exchange");
    assert_eq!(body, b"n", "and is no whole one");
    upstream.ended().await;
}
