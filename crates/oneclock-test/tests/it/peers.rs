//! The peers, called by plain hyper.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use oneclock_test::peer::{self, Leaving, Peer, ResetAt, StreamResetAt};
use oneclock_test::{Baseline, NotSeen, PATIENCE, Protocol, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::{AnyBody, Counting, io_kind, stays_silent, text};

const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// One connection of plain hyper.
struct Client {
    send: Send,
    connection: JoinHandle<()>,
}

enum Send {
    One(hyper::client::conn::http1::SendRequest<AnyBody>),
    Two(hyper::client::conn::http2::SendRequest<AnyBody>),
}

impl Client {
    async fn connect(protocol: Protocol, peer: &Peer) -> Self {
        let socket = TcpStream::connect(peer.addr()).await.expect("connect");
        socket.set_nodelay(true).expect("no delay");
        let io = TokioIo::new(socket);
        match protocol {
            Protocol::Http1 => {
                let (send, connection) = hyper::client::conn::http1::handshake(io).await.expect("handshake");
                let connection = tokio::spawn(async move { drop(connection.await) });
                Self { send: Send::One(send), connection }
            }
            Protocol::Http2 => {
                let (send, connection) =
                    hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.expect("handshake");
                let connection = tokio::spawn(async move { drop(connection.await) });
                Self { send: Send::Two(send), connection }
            }
        }
    }

    async fn send(&mut self, mut request: Request<AnyBody>) -> hyper::Result<Response<Incoming>> {
        match &mut self.send {
            Send::One(send) => {
                *request.uri_mut() = request.uri().path_and_query().expect("a path").as_str().parse().expect("a path");
                send.ready().await?;
                send.send_request(request).await
            }
            Send::Two(send) => {
                send.ready().await?;
                send.send_request(request).await
            }
        }
    }

    async fn get(&mut self) -> hyper::Result<Response<Incoming>> {
        self.send(get()).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if matches!(self.send, Send::One(_)) {
            self.connection.abort();
        }
    }
}

fn get() -> Request<AnyBody> {
    let body = Empty::new().map_err(|never| match never {});
    Request::get("http://peer/stock?id=7")
        .header("host", "peer")
        .header("x-remaining-ms", "300")
        .body(AnyBody::new(body))
        .expect("a valid request")
}

fn cancelled(protocol: Protocol) -> Leaving {
    match protocol {
        Protocol::Http1 => Leaving::Closed,
        Protocol::Http2 => Leaving::StreamReset(Reason::CANCEL),
    }
}

#[tokio::test]
async fn stall_reads_the_request_and_never_answers() {
    for protocol in BOTH {
        let peer = peer::stall(protocol).unwrap();
        let mut client = Client::connect(protocol, &peer).await;
        assert!(stays_silent(client.get()).await, "{protocol:?}");
        drop(client);

        let arrived = peer.await_request().await.unwrap();
        assert_eq!((arrived.method.as_str(), arrived.target.as_str()), ("GET", "/stock?id=7"));
        assert_eq!(arrived.headers["x-remaining-ms"], "300");
        let left = peer.caller_left().await.unwrap();
        assert_eq!(left.how, cancelled(protocol));
        assert!(left.at >= arrived.at);
        assert_eq!((peer.connections(), peer.requests(), peer.left()), (1, 1, 1));
    }
}

#[tokio::test]
async fn stall_after_head_sends_the_head_and_nothing_else() {
    for protocol in BOTH {
        let peer = peer::stall_after_head(protocol).unwrap();
        let mut client = Client::connect(protocol, &peer).await;
        let mut response = client.get().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-length"], "1024");
        assert!(stays_silent(response.frame()).await, "{protocol:?}");
        drop((response, client));
        assert_eq!(peer.caller_left().await.unwrap().how, cancelled(protocol));
    }
}

#[tokio::test]
async fn stall_mid_body_sends_a_first_piece_and_nothing_else() {
    for protocol in BOTH {
        let peer = peer::stall_mid_body(protocol).unwrap();
        let mut client = Client::connect(protocol, &peer).await;
        let mut response = client.get().await.unwrap();
        let first = response.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first");
        assert!(stays_silent(response.frame()).await, "{protocol:?}");
        drop((response, client));
        assert_eq!(peer.caller_left().await.unwrap().how, cancelled(protocol));
    }
}

#[tokio::test]
async fn trickle_goes_on_byte_by_byte() {
    for protocol in BOTH {
        let every = Duration::from_millis(10);
        let peer = peer::trickle(protocol, every).unwrap();
        let mut client = Client::connect(protocol, &peer).await;
        let mut response = client.get().await.unwrap();
        #[allow(clippy::disallowed_methods, reason = "no oneclock here: the fixtures stand on their own")]
        let since = Instant::now();
        let mut bytes = 0;
        while bytes < 5 {
            bytes += response.frame().await.unwrap().unwrap().into_data().unwrap().len();
        }
        // One byte may have been under way when the clock was read.
        assert!(since.elapsed() >= every * 4, "{protocol:?}: 5 bytes after {:?}", since.elapsed());
        drop((response, client));
        assert_eq!(peer.caller_left().await.unwrap().how, cancelled(protocol));
    }
}

#[tokio::test]
async fn slow_answers_late_and_keeps_the_connection() {
    for protocol in BOTH {
        let delay = Duration::from_millis(30);
        let peer = peer::slow(protocol, delay).unwrap();
        let mut client = Client::connect(protocol, &peer).await;
        for _ in 0..2 {
            #[allow(clippy::disallowed_methods, reason = "no oneclock here: the fixtures stand on their own")]
            let since = Instant::now();
            let response = client.get().await.unwrap();
            assert!(since.elapsed() >= delay);
            assert_eq!(response.collect().await.unwrap().to_bytes(), "late");
        }
        let mut post = get();
        *post.method_mut() = http::Method::POST;
        *post.body_mut() = text("an upload of known length");
        assert_eq!(client.send(post).await.unwrap().collect().await.unwrap().to_bytes(), "late");
        assert_eq!((peer.connections(), peer.requests()), (1, 3), "{protocol:?}");

        // Closing an idle connection is not leaving: the next caller's leaving is the first.
        drop(client);
        let mut client = Client::connect(protocol, &peer).await;
        assert!(timeout(delay / 10, client.get()).await.is_err());
        drop(client);
        assert_eq!(peer.caller_left().await.unwrap().how, cancelled(protocol));
        assert_eq!(peer.left(), 1);
    }
}

#[tokio::test]
async fn echo_headers_answers_what_came_over_the_wire() {
    for protocol in BOTH {
        let peer = peer::echo_headers(protocol).unwrap();
        let mut client = Client::connect(protocol, &peer).await;
        for _ in 0..2 {
            let mut request = get();
            request.headers_mut().append("x-remaining-ms", "200".parse().unwrap());
            let body = client.send(request).await.unwrap().collect().await.unwrap().to_bytes();
            let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(json["method"], "GET");
            assert_eq!(json["target"], "/stock?id=7");
            assert_eq!(json["headers"]["x-remaining-ms"], serde_json::json!(["300", "200"]));
        }
        assert_eq!((peer.connections(), peer.left()), (1, 0));
    }
}

#[tokio::test]
async fn stops_reading_blocks_a_large_upload_until_it_reads_on() {
    const LENGTH: usize = 16 << 20;
    for protocol in BOTH {
        let peer = peer::stops_reading(protocol).unwrap();
        let mut client = Client::connect(protocol, &peer).await;
        let (body, taken) = Counting::new(LENGTH);
        let mut request = get();
        *request.method_mut() = http::Method::POST;
        *request.body_mut() = AnyBody::new(body);
        let upload = tokio::spawn(async move { client.send(request).await.map(|_| ()) });
        peer.await_request().await.unwrap();
        assert!(taken.settled().await < LENGTH / 2, "{protocol:?}: {} taken", taken.count());
        assert_eq!(peer.left(), 0);

        peer.read_on();
        let the_rest = async {
            while taken.count() < LENGTH {
                assert!(!upload.is_finished());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, the_rest).await.unwrap_or_else(|_| panic!("{protocol:?}: {} taken", taken.count()));
        upload.abort();
        assert!(matches!(peer.caller_left().await.unwrap().how, Leaving::Closed | Leaving::StreamReset(_)));
    }
}

#[tokio::test]
async fn stops_reading_sees_a_caller_that_leaves_although_bytes_wait_to_be_read() {
    let peer = peer::stops_reading(Protocol::Http1).unwrap();
    let mut socket = TcpStream::connect(peer.addr()).await.unwrap();
    socket.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n").await.unwrap();
    peer.await_request().await.unwrap();
    socket.write_all(b"12345").await.unwrap();
    assert!(stays_silent(peer.caller_left()).await);
    drop(socket);
    assert_eq!(peer.caller_left().await.unwrap().how, Leaving::Closed);
}

#[tokio::test]
async fn reset_is_a_rst_at_the_moment_that_was_asked_for() {
    let peer = peer::reset(ResetAt::Accepted).unwrap();
    let mut socket = TcpStream::connect(peer.addr()).await.unwrap();
    assert_eq!(socket.read(&mut [0]).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(peer.requests(), 0);

    let peer = peer::reset(ResetAt::RequestRead).unwrap();
    let error = Client::connect(Protocol::Http1, &peer).await.get().await.unwrap_err();
    assert_eq!(io_kind(&error), Some(std::io::ErrorKind::ConnectionReset), "{error:?}");
    assert_eq!(peer.requests(), 1);

    let peer = peer::reset(ResetAt::MidBody).unwrap();
    let mut client = Client::connect(Protocol::Http1, &peer).await;
    let mut response = client.get().await.unwrap();
    assert_eq!(response.headers()["content-length"], "10");
    let first = response.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "first");
    let error = response.frame().await.unwrap().unwrap_err();
    assert_eq!(io_kind(&error), Some(std::io::ErrorKind::ConnectionReset), "{error:?}");
}

#[tokio::test]
async fn reset_stream_gives_its_code_at_the_moment_that_was_asked_for() {
    for reason in [Reason::CANCEL, Reason::REFUSED_STREAM, Reason::INTERNAL_ERROR] {
        #[track_caller]
        fn is(error: &hyper::Error, reason: Reason) {
            let found = crate::find::<h2::Error>(error).and_then(h2::Error::reason);
            assert_eq!(found, Some(reason), "{error:?}");
        }
        let peer = peer::reset_stream(StreamResetAt::BeforeHead, reason).unwrap();
        let mut client = Client::connect(Protocol::Http2, &peer).await;
        is(&client.get().await.unwrap_err(), reason);
        is(&client.get().await.unwrap_err(), reason);
        assert_eq!((peer.connections(), peer.requests(), peer.left()), (1, 2, 0), "the connection stays");

        let peer = peer::reset_stream(StreamResetAt::AfterHead, reason).unwrap();
        let mut client = Client::connect(Protocol::Http2, &peer).await;
        for _ in 0..20 {
            let mut response = client.get().await.unwrap();
            is(&response.frame().await.unwrap().unwrap_err(), reason);
        }

        let peer = peer::reset_stream(StreamResetAt::MidBody, reason).unwrap();
        let mut client = Client::connect(Protocol::Http2, &peer).await;
        let error = client.get().await.unwrap().collect().await.unwrap_err();
        is(&error, reason);
    }
}

#[tokio::test]
async fn half_close_ends_half_way_and_still_reads() {
    let peer = peer::half_close().unwrap();
    let error = Client::connect(Protocol::Http1, &peer).await.get().await.unwrap().collect().await.unwrap_err();
    assert_ne!(io_kind(&error), Some(std::io::ErrorKind::ConnectionReset), "a FIN, not a RST: {error:?}");
    peer.caller_left().await.unwrap();

    let mut socket = TcpStream::connect(peer.addr()).await.unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("content-length: 10\r\n\r\nfirst"), "{answer}");
    for _ in 0..3 {
        socket.write_all(b"still read").await.unwrap();
    }
    assert!(stays_silent(peer.callers_left(2)).await);
    drop(socket);
    assert_eq!(peer.callers_left(2).await.unwrap().how, Leaving::Closed);
}

#[tokio::test]
async fn refuse_refuses() {
    let peer = peer::refuse().unwrap();
    for _ in 0..3 {
        let error = TcpStream::connect(peer.addr()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

#[tokio::test]
async fn accepts_never_connects_and_reads_nothing() {
    let peer = peer::accepts_never().unwrap();
    let mut socket = TcpStream::connect(peer.addr()).await.unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(stays_silent(socket.read(&mut [0])).await);
    assert_eq!((peer.connections(), peer.requests()), (0, 0));
}

#[tokio::test]
async fn connect_hangs_leaves_the_handshake_unanswered() {
    let peer = peer::connect_hangs().await.unwrap();
    for _ in 0..3 {
        assert!(stays_silent(TcpStream::connect(peer.addr())).await);
    }
}

#[tokio::test]
async fn a_caller_that_resets_is_told_from_one_that_closes() {
    let peer = peer::stall(Protocol::Http1).unwrap();
    let mut socket = TcpStream::connect(peer.addr()).await.unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    peer.await_request().await.unwrap();
    socket.set_zero_linger().unwrap();
    drop(socket);
    assert_eq!(peer.caller_left().await.unwrap().how, Leaving::Reset);
}

#[tokio::test]
async fn a_dropped_peer_is_a_stopped_peer() {
    for protocol in BOTH {
        let before = Baseline::tasks_only();
        let peer = peer::stall(protocol).unwrap();
        let addr = peer.addr();
        let mut client = Client::connect(protocol, &peer).await;
        let call = tokio::spawn(async move { client.get().await.map(|_| ()) });
        peer.await_request().await.unwrap();
        assert!(before.back_now().is_err(), "a peer at work is not the baseline");
        drop(peer);
        assert!(call.await.unwrap().is_err(), "its connections end");
        before.assert_back().await;
        assert!(TcpStream::connect(addr).await.is_err(), "its port is closed");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_does_not_come_is_an_error_with_what_was_seen() {
    let peer = peer::refuse().unwrap();
    let missed: NotSeen = peer.await_request().await.unwrap_err();
    assert_eq!(missed.to_string(), "request 1 not seen after 10s: seen 0 (connections 0, requests 0, callers left 0)");
    assert!(peer.caller_left().await.is_err());
}

#[tokio::test]
async fn urls_lead_to_the_peer() {
    let peer = peer::refuse().unwrap();
    assert_eq!(peer.url(), format!("http://127.0.0.1:{}", peer.addr().port()));
}
