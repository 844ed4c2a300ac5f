//! Upstreams that break off in the middle of an answer: the caller has its head by then, a caller of gRPC a status, and nothing
//! looks whole (contract X3).

use std::net::SocketAddr;

use oneclock_core::ingress::Coverage;
use oneclock_test::caller::{Caller, H1Outcome, H2Outcome};
use oneclock_test::grpc::framed;
use oneclock_test::peer::{self, StreamResetAt};
use oneclock_test::{Protocol, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::common::{AMPLE, address, config, config_with, loopback, start, text};

/// One frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Answers the first request on each connection with a head, `piece`, and a reset with this code; without a code it closes. All
/// of it is one write, so that all of it is there before any of it is passed on.
async fn resets(
    content_type: &'static str,
    piece: Vec<u8>,
    code: Option<Reason>,
) -> (SocketAddr, AbortOnDropHandle<()>) {
    const STATUS_200: u8 = 0x88;
    const CONTENT_TYPE: [u8; 2] = [0x0f, 0x10];
    let length = u8::try_from(content_type.len()).expect("short");
    let head = [&[STATUS_200], &CONTENT_TYPE[..], &[length], content_type.as_bytes()].concat();
    let mut answer = [frame(1, 4, 1, &head), frame(0, 0, 1, &piece)].concat();
    if let Some(code) = code {
        answer.extend(frame(3, 0, 1, &u32::from(code).to_be_bytes()));
    }
    let listener = TcpListener::bind(loopback()).await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let settings = [frame(4, 0, 0, &[]), frame(4, 1, 0, &[])].concat();
            socket.write_all(&settings).await.expect("written");
            let mut read = Vec::new();
            while !is_whole(&read) {
                assert_ne!(socket.read_buf(&mut read).await.expect("read"), 0, "nobody asks");
            }
            socket.write_all(&answer).await.expect("written");
            if code.is_none() {
                socket.shutdown().await.expect("shut"); // dropped with something unread before it, it would take the answer along
            }
            open.push(socket);
        }
    });
    (addr, AbortOnDropHandle::new(serving))
}

/// Whether a request came with its end: whoever is answered before that may still be sending.
fn is_whole(read: &[u8]) -> bool {
    let mut rest = read.get(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()..).unwrap_or_default();
    while let [a, b, c, kind, flags, ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let Some(next) = rest.get(9 + length..) else { return false };
        if *kind <= 1 && flags & 1 == 1 {
            return true;
        }
        rest = next;
    }
    false
}

async fn grpc(upstream: SocketAddr) -> H2Outcome {
    let proxy = start(config(upstream, Protocol::Http2)).await;
    let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
    caller.grpc("/shop.Pricing/Price", "cart 7").send().await.expect("sent").answer().await
}

#[tokio::test]
async fn between_two_messages_grpc_is_told_a_status_in_its_trailers() {
    let codes = [
        (Reason::REFUSED_STREAM, "14"),
        (Reason::CANCEL, "1"),
        (Reason::ENHANCE_YOUR_CALM, "8"),
        (Reason::INADEQUATE_SECURITY, "7"),
        (Reason::INTERNAL_ERROR, "13"),
        (Reason::NO_ERROR, "13"),
    ];
    for (code, want) in codes {
        for at in [StreamResetAt::AfterHead, StreamResetAt::MidBody] {
            let upstream = peer::grpc::reset_stream(at, code).expect("a port");
            says(grpc(upstream.addr()).await, want);
        }
        let (upstream, _serving) = resets("application/grpc", framed("first").to_vec(), Some(code)).await;
        says(grpc(upstream).await, want);
    }
    let (closes, _serving) = resets("application/grpc", framed("first").to_vec(), None).await;
    says(grpc(closes).await, "14");
}

/// Whoever sends it and whoever hears the answer would else be two tasks, of which the second one may be ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_head_that_is_read_together_with_the_end_of_its_connection_is_passed_on() {
    let (upstream, _serving) = resets("text/plain", b"half of ".to_vec(), None).await;
    let proxy = start(config(upstream, Protocol::Http2)).await;
    for _ in 0..400 {
        let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
        is_reset(caller.get("/stock").send().await.expect("sent").answer().await, 8);
    }
}

/// A body that fails before its first byte is not one of no bytes: whoever is told of 100 would take the next answer for them.
#[tokio::test]
async fn an_answer_of_a_known_length_that_breaks_off_behind_its_head_never_looks_whole() {
    let listener = TcpListener::bind(loopback()).await.expect("a port");
    let upstream = listener.local_addr().expect("an address");
    let _serving = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut read = Vec::new();
            while !read.ends_with(b"\r\n\r\n") {
                assert_ne!(socket.read_buf(&mut read).await.expect("read"), 0, "nobody asks");
            }
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n").await.expect("written");
        }
    }));
    let proxy = start(config(upstream, Protocol::Http1)).await;
    let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
    is_reset(caller.get("/stock").send().await.expect("sent").answer().await, 0);
    match Caller::h1(address(&proxy)).get("/stock").answer().await.expect("sent") {
        H1Outcome::Truncated { status, bytes_read, .. } => assert_eq!((status.as_u16(), bytes_read), (200, 0)),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn says(outcome: H2Outcome, want: &str) {
    match outcome {
        H2Outcome::Complete { status, headers, trailers: Some(trailers), .. } => {
            assert_eq!((status.as_u16(), text(&trailers, "grpc-status")), (200, want));
            assert_eq!(text(&headers, "content-type"), "application/grpc");
            assert!(!trailers.contains_key("oneclock-reason"), "nobody says that it may be repeated");
        }
        other => panic!("{want}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn in_the_middle_of_a_message_the_reset_comes_behind_the_head() {
    let half = framed("a long message")[..9].to_vec();
    // Behind a head nobody can say that the request was not looked at.
    for code in [Reason::INTERNAL_ERROR, Reason::NO_ERROR, Reason::REFUSED_STREAM] {
        let (upstream, _serving) = resets("application/grpc", half.clone(), Some(code)).await;
        for _ in 0..25 {
            is_reset(grpc(upstream).await, 9);
        }
    }
}

/// It has no call behind its head, and is no more whole for that.
#[tokio::test]
async fn a_stream_that_is_reset_breaks_off_whatever_the_code() {
    for code in [Reason::NO_ERROR, Reason::INTERNAL_ERROR, Reason::REFUSED_STREAM] {
        let (upstream, _serving) = resets("text/event-stream", b"data: 1\n\n".to_vec(), Some(code)).await;
        let file = || {
            config_with(upstream, Protocol::Http2, |route| {
                route.kind = Coverage::Streaming { idle: AMPLE, total: AMPLE };
            })
        };
        let proxy = start(file()).await;
        let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
        is_reset(caller.get("/events").send().await.expect("sent").answer().await, 9);
        let proxy = start(file()).await;
        match Caller::h1(address(&proxy)).get("/events").answer().await.expect("sent") {
            H1Outcome::Truncated { status, bytes_read, .. } => {
                assert_eq!((status.as_u16(), bytes_read), (200, 9), "{code:?}");
            }
            other => panic!("{code:?}: {other:?}"),
        }
    }
}

/// Nothing says how long it is: a caller has only the end to go by.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_plain_answer_that_breaks_off_has_a_head_and_never_looks_whole() {
    for code in [Reason::INTERNAL_ERROR, Reason::NO_ERROR, Reason::CANCEL] {
        let (upstream, _serving) = resets("text/plain", b"half of ".to_vec(), Some(code)).await;
        for _ in 0..10 {
            let proxy = start(config(upstream, Protocol::Http2)).await;
            let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
            is_reset(caller.get("/stock").send().await.expect("sent").answer().await, 8);
            let proxy = start(config(upstream, Protocol::Http2)).await;
            match Caller::h1(address(&proxy)).get("/stock").answer().await.expect("sent") {
                H1Outcome::Truncated { status, bytes_read, .. } => {
                    assert_eq!((status.as_u16(), bytes_read), (200, 8), "{code:?}");
                }
                other => panic!("{code:?}: {other:?}"),
            }
        }
    }
}

#[track_caller]
fn is_reset(outcome: H2Outcome, bytes: usize) {
    match outcome {
        H2Outcome::Reset { reason, status: Some(status), bytes_read } => {
            assert_eq!((status.as_u16(), bytes_read), (200, bytes));
            assert_ne!(reason, Reason::NO_ERROR, "which libraries take for the end");
            assert_ne!(reason, Reason::REFUSED_STREAM, "which says that nothing was done");
        }
        other => panic!("{other:?}"),
    }
}
