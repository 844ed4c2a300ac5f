//! [`Client`] over TLS: what the far side is told, where a call is cut off, whom it believes, what is spoken.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, Uri, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use oneclock::{Operation, Stopped, clock};
use oneclock_core::{Cause, Outcome, Stage};
use oneclock_http::rustls::{self, CertificateError, ServerConfig};
use oneclock_http::{CallError, Client, HandshakeFailed, collect};
use oneclock_test::{Baseline, Probe, Protocol, peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::certificates::{self, Identity};
use crate::common::{NOTICED, PATIENCE, Server, chain, client, connect_with, hangs, hello, ms};

fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).unwrap()
}

/// A server of somebody else: takes its time before each handshake, answers with the field that it was told, and closes.
async fn slow(
    pause: Duration,
    config: impl Fn(usize) -> ServerConfig + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        for n in 0.. {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config(n)));
            connections.spawn(async move {
                tokio::time::sleep(pause).await;
                let Ok(stream) = acceptor.accept(socket).await else { return };
                let told = hyper::service::service_fn(|request: Request<Incoming>| async move {
                    let told = request.headers()["x-remaining-ms"].to_str().unwrap_or_default().to_owned();
                    let mut answer = Response::new(told);
                    if request.version() != Version::HTTP_2 {
                        answer.headers_mut().insert("connection", http::HeaderValue::from_static("close"));
                    }
                    Ok::<_, Infallible>(answer)
                });
                let http = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                let _ = http.serve_connection(TokioIo::new(stream), told).await;
            });
        }
    });
    (addr, task)
}

fn speaks(protocols: &[&str]) -> ServerConfig {
    let mut config = certificates::server(certificates::loopback());
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

async fn number<B: http_body::Body<Error: std::fmt::Debug>>(response: Response<B>) -> Duration {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    ms(std::str::from_utf8(&bytes).unwrap().parse().unwrap())
}

// === The deadline ===

#[tokio::test]
async fn e4_the_far_side_is_told_what_a_slow_handshake_has_left() {
    for protocols in [&["h2"][..], &["http/1.1"]] {
        let (addr, serving) = slow(ms(400), |_| speaks(protocols)).await;
        let op = Operation::begin("order", ms(5000));
        let answer = client(addr).build().unwrap().request_in(&op, request("/")).await.unwrap();
        let told = number(answer).await;
        let ledger = op.ledger();
        let tls = ledger.entries().iter().find(|entry| entry.stage == Stage::Tls).expect("a stage of its own");
        let spent = tls.ended.unwrap().since(tls.began);
        assert!(spent >= ms(350), "the handshake was to be slow: {spent:?}");
        assert!(told <= ms(5000) - ms(400), "told {told:?} after {spent:?}");
        serving.abort();
    }
}

/// The naive way: hyper-util's client is given the field with the request, and shakes hands afterwards.
#[tokio::test]
async fn naive_a_client_that_writes_the_field_first_tells_too_much() {
    let (addr, serving) = slow(ms(400), |_| speaks(&["http/1.1"])).await;
    let naive = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build(Connector);
    let op = Operation::begin("order", ms(5000));
    let mut request: Request<Empty<Bytes>> = request(&format!("https://{addr}/"));
    let told = op.remaining().as_millis().to_string().parse().unwrap();
    request.headers_mut().insert("x-remaining-ms", told);
    let told = number(naive.request(request).await.unwrap()).await;
    assert!(told > op.remaining() + ms(300), "told {told:?}, had {:?}", op.remaining());
    serving.abort();
}

#[derive(Clone)]
struct Connector;

pin_project_lite::pin_project! {
    struct NaiveIo { #[pin] io: TokioIo<tokio_rustls::client::TlsStream<TcpStream>> }
}

impl tower::Service<Uri> for Connector {
    type Response = NaiveIo;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<NaiveIo>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let addr = uri.authority().unwrap().as_str().parse().unwrap();
        Box::pin(async move { Ok(NaiveIo { io: TokioIo::new(connect_with(addr, certificates::client()).await?) }) })
    }
}

impl Connection for NaiveIo {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for NaiveIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.project().io.poll_read(cx, buf)
    }
}

impl hyper::rt::Write for NaiveIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.project().io.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.project().io.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.project().io.poll_shutdown(cx)
    }
}

async fn reads_only() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            connections.spawn(async move { tokio::io::copy(&mut socket, &mut tokio::io::sink()).await });
        }
    });
    (addr, task)
}

#[tokio::test]
async fn v3_a_handshake_that_hangs_ends_at_the_deadline_and_nothing_was_sent() {
    let before = Baseline::tasks_only();
    // It does not read the hello, or does, or shakes hands, but after two seconds.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (stalls, reading) = reads_only().await;
    let (late, serving) = slow(ms(2000), |_| speaks(&["h2", "http/1.1"])).await;
    for addr in [silent.local_addr().unwrap(), stalls, late] {
        for builder in [client(addr), client(addr).http2_only()] {
            let inventory = builder.build().unwrap();
            let op = Operation::begin("order", ms(200));
            let error = inventory.request_in(&op, request("/")).await.expect_err("cut off");
            let overrun = clock::now().since(op.deadline().tick());
            let Some(Stopped::Ended(ended)) = error.stopped() else { panic!("not cut off: {error:?}") };
            assert_eq!((ended.ending.cause, ended.stage()), (Cause::Deadline, Stage::Tls), "{error}");
            assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
            assert!(overrun < NOTICED, "{overrun:?}");
            let ledger = op.ledger();
            let tls = ledger.entries().iter().find(|entry| entry.stage == Stage::Tls).expect("counted");
            assert!(tls.ended.unwrap().since(tls.began) > ms(100), "{ledger:?}");
        }
    }
    for task in [serving, reading] {
        task.abort();
        let _ = task.await;
    }
    before.assert_back().await;
}

#[tokio::test]
async fn i6_a_call_that_is_cut_off_later_ends_at_the_far_side_too() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe)).await;
    let mut http1 = certificates::client();
    http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    for (n, builder) in [(1, client(server.addr)), (2, client(server.addr).tls(http1))] {
        let inventory = builder.build().unwrap();
        let op = Operation::begin("order", ms(400));
        let error = inventory.request_in(&op, request("/hang")).await.expect_err("cut off");
        assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait });
        let late = probe.ended(n).await.unwrap().at;
        assert!(late < clock::instant(op.deadline()) + NOTICED);
    }
    server.stop().await;
}

// === Whom it believes ===

async fn refuses(identity: Identity, trusts: impl FnOnce(SocketAddr) -> Client, why: &str) -> CallError {
    let probe = Probe::new();
    let server = Server::with(hangs(&probe), certificates::server(identity), |tls| tls, |serve| serve).await;
    let op = Operation::begin("order", PATIENCE);
    let error = trusts(server.addr).request_in(&op, request("/hang")).await.expect_err("refused");
    assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
    assert!(error.stopped().is_none() && !op.deadline().is_past(clock::now()), "with time left: {error}");
    let all = chain(&error);
    assert!(all.contains("the TLS handshake with 127.0.0.1 failed") && all.contains(why), "{all}");
    assert_eq!(probe.started_count(), 0);
    server.stop().await;
    error
}

fn why(error: &CallError) -> Option<&rustls::Error> {
    let CallError::Failed(failed) = error else { return None };
    failed.source.downcast_ref::<HandshakeFailed>()?.tls()
}

#[tokio::test]
async fn r8_a_far_side_that_is_not_who_it_should_be_is_told_nothing() {
    let ours = |addr| client(addr).build().unwrap();
    let error = refuses(certificates::expired(), ours, "expired").await;
    assert!(
        matches!(
            why(&error),
            Some(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. }
            ))
        ),
        "{error:?}"
    );
    refuses(certificates::of_somebody_else(), ours, "not valid for name").await;
    refuses(certificates::of_another_ca(), ours, "UnknownIssuer").await;
    // Without a configuration the web's roots count, and ours is none of them.
    let web = |addr| Client::builder("inventory", format!("https://{addr}")).build().unwrap();
    refuses(certificates::loopback(), web, "UnknownIssuer").await;
}

#[tokio::test]
async fn who_the_far_side_has_to_be_can_be_said_apart_from_where_it_is() {
    let elsewhere = certificates::server(certificates::of_somebody_else());
    let server = Server::with(hello(), elsewhere, |tls| tls, |serve| serve).await;
    let named = client(server.addr).server_name("elsewhere").build().unwrap();
    assert_eq!(version(&named).await, Version::HTTP_2);
    server.stop().await;
    let server = Server::of(hello()).await;
    let (named, op) =
        (client(server.addr).server_name("elsewhere").build().unwrap(), Operation::begin("order", PATIENCE));
    let error = named.request_in(&op, request("/hello")).await.expect_err("it is somebody else");
    assert_eq!(error.outcome(), Outcome::NotSent);
    assert!(chain(&error).contains("the TLS handshake with elsewhere failed"), "{}", chain(&error));
    server.stop().await;
}

#[tokio::test]
async fn r8_what_speaks_no_tls_is_told_nothing() {
    let plain = peer::echo_headers(Protocol::Http1).unwrap();
    let op = Operation::begin("order", PATIENCE);
    let error = client(plain.addr()).build().unwrap().request_in(&op, request("/")).await.expect_err("no TLS");
    assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
    assert!(chain(&error).contains("the TLS handshake with 127.0.0.1 failed"), "{}", chain(&error));
}

#[test]
fn what_could_never_work_is_refused_once() {
    let refused = |builder: oneclock_http::ClientBuilder| builder.build().expect_err("refused").to_string();
    let plain = Client::builder("inventory", "http://inventory").tls(certificates::client());
    assert_eq!(refused(plain), "client inventory: it is given a TLS configuration, but its uri says http; write https");
    assert_eq!(
        refused(Client::builder("inventory", "https://inventory..internal")),
        "client inventory: inventory..internal is neither a DNS name nor an address, so no certificate can be for it"
    );
    let plain = Client::builder("inventory", "http://inventory").server_name("elsewhere");
    assert_eq!(refused(plain), "client inventory: it is given a TLS configuration, but its uri says http; write https");
    let mut other = certificates::client();
    other.alpn_protocols = vec![b"http/1.1".to_vec()];
    assert_eq!(
        refused(Client::builder("inventory", "https://inventory").tls(other).http2_only()),
        "client inventory: its TLS configuration offers (ALPN) none of the protocols that this client speaks"
    );
}

// === What is spoken ===

async fn version(client: &Client) -> Version {
    let op = Operation::begin("order", PATIENCE);
    let answer = client.request_in(&op, request("/hello")).await.unwrap();
    let version = answer.version();
    assert_eq!(answer.status(), 200);
    collect(answer.into_body(), 4096).await.unwrap();
    version
}

#[tokio::test]
async fn the_two_sides_agree_on_what_is_spoken() {
    let both = Server::of(hello()).await;
    let only_1 = Server::with(hello(), speaks(&["http/1.1"]), |tls| tls, |serve| serve).await;
    let mut http1 = certificates::client();
    http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    for (builder, want) in [
        (client(both.addr), Version::HTTP_2),
        (client(both.addr).http2_only(), Version::HTTP_2),
        (client(both.addr).http1_only(), Version::HTTP_11),
        (client(both.addr).tls(http1), Version::HTTP_11),
        (client(only_1.addr), Version::HTTP_11),
    ] {
        let client = builder.max_connections(1).build().unwrap(); // so that each waits for the one before
        for _ in 0..5 {
            assert_eq!(version(&client).await, want);
        }
    }
    assert_eq!(both.accepted(), 4, "calls one after another share a connection");
    assert_eq!(only_1.accepted(), 1);

    // Of one that knows nothing of ALPN, HTTP/1.1 is what can be relied on.
    let (addr, serving) = slow(ms(0), |_| speaks(&[])).await;
    assert_eq!(version(&client(addr).build().unwrap()).await, Version::HTTP_11);
    for (addr, why) in [(addr, "it did not agree to h2"), (only_1.addr, "NoApplicationProtocol")] {
        let op = Operation::begin("order", PATIENCE);
        let http2_only = client(addr).http2_only().build().unwrap();
        let error = http2_only.request_in(&op, request("/hello")).await.expect_err("not agreed");
        assert_eq!(error.outcome(), Outcome::NotSent);
        assert!(chain(&error).contains(why), "{}", chain(&error));
    }
    serving.abort();
    both.stop().await;
    only_1.stop().await;
}

/// Behind one address there may be several, or one that was rolled back.
#[tokio::test]
async fn what_was_agreed_on_is_asked_of_each_connection() {
    let speaks_in_turn = |n| if n % 2 == 0 { speaks(&["http/1.1"]) } else { speaks(&["h2"]) };
    let (addr, serving) = slow(ms(0), speaks_in_turn).await;
    let inventory = client(addr).idle_timeout(ms(1)).build().unwrap();
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(version(&inventory).await);
        tokio::time::sleep(ms(50)).await; // so that the next one opens a connection
    }
    assert!(seen.contains(&Version::HTTP_2) && seen.contains(&Version::HTTP_11), "{seen:?}");
    serving.abort();
}

#[tokio::test]
async fn i4_two_hundred_calls_at_once_open_no_more_connections_than_they_need() {
    let app = Router::new().route(
        "/hello",
        get(|| async {
            tokio::time::sleep(ms(20)).await;
            "hello"
        }),
    );
    for (protocols, most) in [(&["h2", "http/1.1"][..], 1), (&["http/1.1"], 16)] {
        let server = Server::with(app.clone(), speaks(protocols), |tls| tls, |serve| serve).await;
        let inventory = client(server.addr).max_connections(16).build().unwrap();
        let mut calls = JoinSet::new();
        for _ in 0..200 {
            let inventory = inventory.clone();
            calls.spawn(async move { version(&inventory).await });
        }
        while let Some(called) = calls.join_next().await {
            called.unwrap();
        }
        assert!(server.accepted() <= most, "{protocols:?}: {} connections", server.accepted());
        server.stop().await;
    }
}

// === What comes back ===

/// Answers over HTTP/1.1 with a body that ends with its connection, and ends it, with `close_notify` or without.
async fn ends(with_goodbye: bool) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(speaks(&["http/1.1"]))).accept(socket).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of it").await.unwrap();
        stream.flush().await.unwrap();
        if with_goodbye {
            stream.shutdown().await.unwrap();
        } else {
            stream.get_mut().0.shutdown().await.unwrap();
        }
    });
    (addr, task)
}

#[tokio::test]
async fn an_answer_that_ends_without_close_notify_is_not_complete() {
    for with_goodbye in [true, false] {
        let (addr, serving) = ends(with_goodbye).await;
        let op = Operation::begin("order", PATIENCE);
        let answer = client(addr).build().unwrap().request_in(&op, request("/")).await.unwrap();
        let collected = collect(answer.into_body(), 4096).await;
        assert_eq!(collected.is_ok(), with_goodbye, "{collected:?}");
        serving.await.unwrap();
    }
}

/// A kept connection that the far side has closed is not what a call fails with.
#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let handshakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handshakes);
    let config = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        speaks(&["http/1.1"])
    };
    let (addr, serving) = slow(ms(0), config).await;
    let inventory = client(addr).build().unwrap();
    for n in 1..=3 {
        assert_eq!(version(&inventory).await, Version::HTTP_11);
        assert_eq!(handshakes.load(Ordering::Relaxed), n);
    }
    serving.abort();
}
