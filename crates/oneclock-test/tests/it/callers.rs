//! The callers, against servers of plain hyper; and what they read, against the peers.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use oneclock_test::caller::{Caller, H1End, H1Outcome, H2Outcome, How};
use oneclock_test::peer::{self, ResetAt, StreamResetAt};
use oneclock_test::{Ended, PATIENCE, Probe, Protocol, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::{AnyBody, Counting, Taken, answer, stays_silent, text};

const LARGE: usize = 32 << 20;

/// A server of plain hyper; how each connection ended comes out of `ended`.
struct Server {
    addr: SocketAddr,
    ended: mpsc::Receiver<hyper::Result<()>>,
    _tasks: JoinSet<()>,
}

async fn serve<H, F>(protocol: Protocol, handler: H) -> Server
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<AnyBody>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (tell, ended) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let (handler, tell) = (handler.clone(), tell.clone());
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let answered = handler(request);
                    async move { Ok::<_, io::Error>(answered.await) }
                });
                socket.set_nodelay(true).unwrap();
                let io = TokioIo::new(socket);
                let ended = match protocol {
                    Protocol::Http1 => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
                    Protocol::Http2 => {
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(io, service)
                            .await
                    }
                };
                let _ = tell.send(ended).await;
            });
        }
    });
    Server { addr, ended, _tasks: tasks }
}

/// A handler that waits until it is told to go on, and does not look at the request's body.
async fn waiting(protocol: Protocol) -> (Server, Probe, Arc<Notify>) {
    let (probe, go_on) = (Probe::new(), Arc::new(Notify::new()));
    let server = {
        let (probe, go_on) = (probe.clone(), Arc::clone(&go_on));
        serve(protocol, move |_request| {
            let (probe, go_on) = (probe.clone(), Arc::clone(&go_on));
            async move {
                let guard = probe.enter();
                go_on.notified().await;
                guard.finish();
                answer(text("done"))
            }
        })
        .await
    };
    (server, probe, go_on)
}

/// A handler that answers with a long body; what was taken of it is told.
async fn producing(protocol: Protocol, length: usize) -> (Server, Taken) {
    let taken = Taken::default();
    let server = {
        let taken = taken.clone();
        serve(protocol, move |_request| {
            let body = Counting { left: length, taken: taken.clone() };
            async move { answer(body) }
        })
        .await
    };
    (server, taken)
}

/// A bare server: takes one connection and reads one request head.
async fn bare() -> (SocketAddr, tokio::task::JoinHandle<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        socket
    });
    (addr, accepted)
}

// === HTTP/1.1, leaving ===

#[tokio::test]
async fn close_is_a_fin_and_reset_is_a_rst() {
    let (addr, accepted) = bare().await;
    let gone = Caller::h1(addr).get("/").leave(How::Close).await.unwrap();
    assert_eq!(gone.bytes_read, 0);
    assert_eq!(accepted.await.unwrap().read(&mut [0]).await.unwrap(), 0);

    let (addr, accepted) = bare().await;
    let call = Caller::h1(addr).get("/").send(How::Reset).await.unwrap();
    let mut socket = accepted.await.unwrap();
    call.leave().await.unwrap();
    assert_eq!(socket.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn n3_hyper_drops_the_handler_when_the_caller_closes_or_resets() {
    for how in [How::Close, How::Reset, How::HalfClose] {
        let (server, probe, _go_on) = waiting(Protocol::Http1).await;
        let call = Caller::h1(server.addr).get("/").send(how).await.unwrap();
        probe.started(1).await.unwrap();
        assert!(stays_silent(probe.ended(1)).await, "{how:?}: not before it leaves");
        call.leave().await.unwrap();
        assert_eq!(probe.ended(1).await.unwrap().how, Ended::Dropped, "{how:?}");
    }
}

#[tokio::test]
async fn n3_hyper_does_not_notice_a_caller_behind_an_unread_upload_or_a_pipelined_request() {
    // This is why the timer is the guarantee and the disconnect only the fast path.
    for how in [How::WithUnreadUpload(8 << 20), How::Pipelined] {
        let (server, probe, go_on) = waiting(Protocol::Http1).await;
        let call = Caller::h1(server.addr).post("/", "").send(how).await.unwrap();
        probe.started(1).await.unwrap();
        call.leave().await.unwrap();
        assert!(stays_silent(probe.ended(1)).await, "{how:?}");
        go_on.notify_one();
        assert_eq!(probe.ended(1).await.unwrap().how, Ended::Finished, "{how:?}");
    }
}

#[tokio::test]
async fn half_close_still_reads_what_comes() {
    let (addr, accepted) = bare().await;
    let gone = Caller::h1(addr).get("/").leave(How::HalfClose).await.unwrap();
    let mut socket = accepted.await.unwrap();
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 0, "its sending side is closed");
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    assert!(matches!(gone.answer().await, Some(H1Outcome::Complete { body, .. }) if body == "ok"));
}

#[tokio::test]
async fn after_head_and_half_read_truncate() {
    let (mut server, taken) = producing(Protocol::Http1, LARGE).await;
    let gone = Caller::h1(server.addr).get("/").leave(How::AfterHead).await.unwrap();
    assert_eq!(gone.bytes_read, 0);
    assert!(server.ended.recv().await.unwrap().is_err(), "hyper could not write it all");
    assert!(taken.count() < LARGE);

    let gone = Caller::h1(server.addr).get("/").leave(How::HalfRead).await.unwrap();
    assert!(gone.bytes_read > 0 && gone.bytes_read < LARGE, "{}", gone.bytes_read);
    assert!(server.ended.recv().await.unwrap().is_err(), "hyper could not write it all");

    // With a length: half of it, at least.
    let (addr, accepted) = bare().await;
    let leaving = tokio::spawn(Caller::h1(addr).get("/").leave(How::HalfRead));
    let mut socket = accepted.await.unwrap();
    socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n").await.unwrap();
    socket.write_all(&[b'x'; 49]).await.unwrap();
    assert!(
        stays_silent(async {
            while !leaving.is_finished() {
                tokio::task::yield_now().await
            }
        })
        .await
    );
    socket.write_all(b"x").await.unwrap();
    assert_eq!(leaving.await.unwrap().unwrap().bytes_read, 50);
}

#[tokio::test]
async fn stops_reading_blocks_the_producer() {
    let (mut server, taken) = producing(Protocol::Http1, LARGE).await;
    let gone = Caller::h1(server.addr).get("/").leave(How::StopsReading).await.unwrap();
    let produced = taken.settled().await;
    let (usual_server, usual) = producing(Protocol::Http1, LARGE).await;
    let _unread = Caller::h1(usual_server.addr).get("/").send(How::Close).await.unwrap();
    let usual = usual.settled().await;
    assert!(produced < usual && usual < LARGE, "its buffer is smaller than usual: {produced} of {usual}");
    assert!(server.ended.try_recv().is_err(), "the connection is open");

    // It can still read, and then gets the rest.
    match gone.answer().await {
        Some(H1Outcome::Complete { body, .. }) => assert_eq!(body.len(), LARGE),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_upload_that_nobody_reads_blocks_and_one_that_is_read_arrives() {
    let (server, probe, _go_on) = waiting(Protocol::Http1).await;
    let call = Caller::h1(server.addr).post("/", "").send(How::WithUnreadUpload(LARGE)).await.unwrap();
    probe.started(1).await.unwrap();
    assert!(call.uploaded() < LARGE, "{}", call.uploaded());
    drop(call);

    let server = serve(Protocol::Http1, |request: Request<Incoming>| async move {
        let length = request.into_body().collect().await.unwrap().to_bytes().len();
        assert_eq!(length, 1 << 20);
        answer(text("thanks"))
    })
    .await;
    let call = Caller::h1(server.addr).post("/", "").send(How::WithUnreadUpload(1 << 20)).await.unwrap();
    assert!(matches!(call.answer().await, H1Outcome::Complete { body, .. } if body == "thanks"));
}

#[tokio::test]
async fn trickles_upload_sends_byte_by_byte_and_then_leaves() {
    let (seen, mut frames) = mpsc::channel(64);
    let server = serve(Protocol::Http1, move |request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                let _ = seen.send(frame.map(|frame| frame.into_data().map_or(0, |data| data.len()))).await;
            }
            answer(text("all of it"))
        }
    })
    .await;
    let every = Duration::from_millis(5);
    let call = Caller::h1(server.addr).post("/", "").send(How::TricklesUpload(every)).await.unwrap();
    for _ in 0..3 {
        let length = frames.recv().await.unwrap().unwrap();
        assert!((1..=3).contains(&length), "{length}");
    }
    assert!(call.uploaded() >= 3);
    call.leave().await.unwrap();
    let fails =
        async { while frames.recv().await.expect("the handler was dropped before it saw the failure").is_ok() {} };
    tokio::time::timeout(PATIENCE, fails).await.expect("the body failed: it was not all there");
}

#[tokio::test]
async fn x9_an_answer_during_an_upload_is_read() {
    let server = serve(Protocol::Http1, |_request| async { answer(text("too slow")) }).await;
    for how in [How::TricklesUpload(Duration::from_millis(1)), How::WithUnreadUpload(1000)] {
        let call = Caller::h1(server.addr).post("/", "").send(how).await.unwrap();
        assert!(matches!(call.answer().await, H1Outcome::Complete { body, .. } if body == "too slow"));
    }
}

#[tokio::test]
async fn headers_go_out_as_they_were_written() {
    let peer = peer::stall(Protocol::Http1).unwrap();
    let call = Caller::h1(peer.addr())
        .get("/a?b")
        .header("x-remaining-ms", "+5")
        .header("x-remaining-ms", b"\xff")
        .send(How::Close)
        .await
        .unwrap();
    let arrived = peer.await_request().await.unwrap();
    let values: Vec<_> = arrived.headers.get_all("x-remaining-ms").iter().map(|value| value.as_bytes()).collect();
    assert_eq!(values, [&b"+5"[..], b"\xff"]);
    drop(call);
}

// === HTTP/1.1, outcomes ===

#[tokio::test]
async fn x3_a_whole_answer_is_told_from_a_truncated_one() {
    async fn reads(wire: &'static str, reset: bool) -> H1Outcome {
        let (addr, accepted) = bare().await;
        let call = Caller::h1(addr).get("/").send(How::Close).await.unwrap();
        let mut socket = accepted.await.unwrap();
        socket.write_all(wire.as_bytes()).await.unwrap();
        if reset {
            socket.set_zero_linger().unwrap();
        }
        drop(socket);
        call.answer().await
    }
    fn body(outcome: H1Outcome) -> String {
        match outcome {
            H1Outcome::Complete { body, .. } => String::from_utf8(body.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n";
    const CLOSE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nbody";
    assert_eq!(body(reads(concat_str(LENGTH, "body"), false).await), "body");
    assert_eq!(body(reads(concat_str(CHUNKED, "0\r\n\r\n"), false).await), "body");
    assert_eq!(body(reads(CLOSE, false).await), "body");
    assert_eq!(body(reads("HTTP/1.1 204 No Content\r\n\r\n", false).await), "");
    assert_eq!(body(reads(concat_str("HTTP/1.1 100 Continue\r\n\r\n", CLOSE), false).await), "body");

    let status = http::StatusCode::OK;
    let closed = |bytes_read| H1Outcome::Truncated { status, bytes_read, end: H1End::Closed };
    let reset = H1End::Failed(io::ErrorKind::ConnectionReset);
    assert_eq!(reads(concat_str(LENGTH, "bod"), false).await, closed(3));
    assert_eq!(reads(CHUNKED, false).await, closed(4));
    assert_eq!(reads(concat_str(CHUNKED, "0\r\n"), false).await, closed(4));
    assert_eq!(reads(CLOSE, true).await, H1Outcome::Truncated { status, bytes_read: 4, end: reset });
    assert_eq!(reads("", false).await, H1Outcome::NoAnswer(H1End::Closed));
    assert_eq!(reads("HTTP/1.1 200 OK\r\ncont", false).await, H1Outcome::NoAnswer(H1End::Closed));
    assert_eq!(reads("", true).await, H1Outcome::NoAnswer(reset));
    let nonsense = H1Outcome::NoAnswer(H1End::Failed(io::ErrorKind::InvalidData));
    assert_eq!(reads("SSH-2.0-OpenSSH\r\n", false).await, nonsense);
}

fn concat_str(head: &str, tail: &str) -> &'static str {
    Box::leak(format!("{head}{tail}").into_boxed_str())
}

#[tokio::test]
async fn x3_hyper_truncates_by_closing_without_a_final_chunk() {
    let server = serve(Protocol::Http1, |_request| async {
        let frames = [Ok(Frame::data(Bytes::from_static(b"first"))), Err(io::Error::other("out of time"))];
        answer(StreamBody::new(futures_util::stream::iter(frames)))
    })
    .await;
    match Caller::h1(server.addr).get("/").answer().await.unwrap() {
        // hyper may drop what it had not yet written, head and all.
        H1Outcome::Truncated { end: H1End::Closed, .. } | H1Outcome::NoAnswer(H1End::Closed) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_peers_read_by_the_caller() {
    let reset = H1End::Failed(io::ErrorKind::ConnectionReset);
    let read = |peer: &peer::Peer| Caller::h1(peer.addr()).get("/").answer();
    assert!(matches!(
        read(&peer::reset(ResetAt::MidBody).unwrap()).await.unwrap(),
        H1Outcome::Truncated { bytes_read: 5, end, .. } if end == reset
    ));
    let half_close = peer::half_close().unwrap();
    assert!(matches!(read(&half_close).await.unwrap(), H1Outcome::Truncated { bytes_read: 5, end: H1End::Closed, .. }));
    assert_eq!(read(&peer::reset(ResetAt::RequestRead).unwrap()).await.unwrap(), H1Outcome::NoAnswer(reset));
    let stalls = peer::stall_mid_body(Protocol::Http1).unwrap();
    let patience = Duration::from_millis(50);
    let call = Caller::h1(stalls.addr()).get("/").send(How::Close).await.unwrap();
    assert_eq!(
        call.answer_within(patience).await,
        H1Outcome::Unfinished { status: Some(http::StatusCode::OK), bytes_read: 5, waited: patience }
    );
}

// === HTTP/2 ===

#[tokio::test]
async fn n3_hyper_drops_the_handler_when_the_stream_is_reset_also_behind_an_unread_upload() {
    let (server, probe, _go_on) = waiting(Protocol::Http2).await;
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let stays = caller.get("/stays").send().await.unwrap();
    probe.started(1).await.unwrap();
    for (n, body) in [(1, Bytes::new()), (2, Bytes::from(vec![0; 1 << 20]))] {
        let call = caller.post("/goes", body).send().await.unwrap();
        probe.started(n + 1).await.unwrap();
        call.reset(Reason::CANCEL);
        assert_eq!(probe.ended(n).await.unwrap().how, Ended::Dropped);
    }
    assert_eq!(probe.running(), 1, "the other stream is not touched");
    drop(stays);
    assert_eq!(probe.ended(3).await.unwrap().how, Ended::Dropped, "dropping the call resets it too");
}

#[tokio::test]
async fn h2_leaving_is_a_fin_and_resetting_the_connection_is_a_rst() {
    for resets in [false, true] {
        // A bare server, because it sends nothing: what it sent unread would make a RST of any close.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let caller = Caller::h2(listener.local_addr().unwrap()).connect().await.unwrap();
        let (mut socket, _) = listener.accept().await.unwrap();
        if resets {
            caller.reset().await.unwrap();
        } else {
            caller.leave().await;
        }
        let ended = socket.read_to_end(&mut Vec::new()).await.map(drop).map_err(|error| error.kind());
        assert_eq!(ended, if resets { Err(io::ErrorKind::ConnectionReset) } else { Ok(()) });
    }
}

#[tokio::test]
async fn n3_hyper_drops_every_handler_when_the_connection_is_left_or_reset() {
    for resets in [false, true] {
        let (mut server, probe, _go_on) = waiting(Protocol::Http2).await;
        let caller = Caller::h2(server.addr).connect().await.unwrap();
        let _calls = [caller.get("/").send().await.unwrap(), caller.get("/").send().await.unwrap()];
        probe.started(2).await.unwrap();
        if resets {
            caller.reset().await.unwrap();
        } else {
            caller.leave().await;
        }
        assert_eq!(probe.ended(2).await.unwrap().how, Ended::Dropped);
        let ended = server.ended.recv().await.unwrap();
        let kind = ended.as_ref().err().and_then(|error| crate::io_kind(error));
        assert_eq!(kind == Some(io::ErrorKind::ConnectionReset), resets, "{ended:?}");
    }
}

#[tokio::test]
async fn x8_a_call_that_is_held_and_not_read_blocks_its_producer_and_no_other() {
    let (server, taken) = producing(Protocol::Http2, LARGE).await;
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let mut held = caller.get("/").send().await.unwrap();
    assert_eq!(held.head().await.unwrap().0, 200);
    let produced = taken.settled().await;
    assert!(produced < 4 << 20, "{produced}");
    let outcome = held.answer().await;
    assert!(matches!(outcome, H2Outcome::Complete { ref body, .. } if body.len() == LARGE), "reading on gets it all");
}

#[tokio::test]
async fn x8_a_frozen_connection_blocks_its_producer_below_its_window() {
    let (mut server, taken) = producing(Protocol::Http2, LARGE).await;
    let caller = Caller::h2(server.addr).window(1 << 30).max_frame(8 << 20).connect().await.unwrap();
    let mut call = caller.get("/").send().await.unwrap();
    call.head().await.unwrap();
    let frozen = caller.freeze().await;
    let produced = taken.settled().await;
    assert!(produced < LARGE, "{produced}");
    assert!(matches!(call.answer().await, H2Outcome::ConnectionLost { .. }));
    assert!(server.ended.try_recv().is_err(), "the socket is open");
    drop(frozen);
    let _ = server.ended.recv().await.unwrap();
}

#[tokio::test]
async fn h2_outcomes_are_told_apart() {
    let server = serve(Protocol::Http2, |_request| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "4".parse().unwrap());
        let frames = [Ok(Frame::data(Bytes::from_static(b"body"))), Ok(Frame::trailers(trailers))];
        answer(StreamBody::new(futures_util::stream::iter(frames)))
    })
    .await;
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    match caller.get("/").send().await.unwrap().answer().await {
        H2Outcome::Complete { status, body, trailers: Some(trailers), .. } => {
            assert_eq!(
                (status.as_u16(), &body[..], &trailers["grpc-status"]),
                (200, &b"body"[..], &"4".parse().unwrap())
            );
        }
        other => panic!("{other:?}"),
    }

    let ok = Some(http::StatusCode::OK);
    for (at, status) in [(StreamResetAt::BeforeHead, None), (StreamResetAt::AfterHead, ok)] {
        let peer = peer::reset_stream(at, Reason::CANCEL).unwrap();
        let caller = Caller::h2(peer.addr()).connect().await.unwrap();
        let want = H2Outcome::Reset { reason: Reason::CANCEL, status, bytes_read: 0 };
        assert_eq!(caller.get("/").send().await.unwrap().answer().await, want);
        // Without reading it is the same, only that the head was not looked at.
        let mut call = caller.get("/").send().await.unwrap();
        let want = H2Outcome::Reset { reason: Reason::CANCEL, status: None, bytes_read: 0 };
        assert_eq!(call.ended_by_server().await.unwrap(), want);
    }

    let peer = peer::stall_mid_body(Protocol::Http2).unwrap();
    let caller = Caller::h2(peer.addr()).connect().await.unwrap();
    let patience = Duration::from_millis(50);
    assert_eq!(
        caller.get("/").send().await.unwrap().answer_within(patience).await,
        H2Outcome::Unfinished { status: ok, bytes_read: 5, waited: patience }
    );
    let mut call = caller.get("/").send().await.unwrap();
    assert_eq!(call.data().await.unwrap().unwrap(), "first");
    drop(peer);
    assert_eq!(call.answer().await, H2Outcome::ConnectionLost { status: ok, bytes_read: 5 });
}

#[tokio::test]
async fn an_unfinished_upload_trickles_and_its_answer_is_read() {
    let server = serve(Protocol::Http2, |request: Request<Incoming>| async move {
        let mut body = request.into_body();
        for _ in 0..3 {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 1);
        }
        answer(text("enough"))
    })
    .await;
    let caller = Caller::h2(server.addr).connect().await.unwrap();
    let call = caller.post("/", "").unfinished().send().await.unwrap();
    match call.answer_while_trickling(Duration::from_millis(5)).await {
        H2Outcome::Complete { body, .. } => assert_eq!(body, "enough"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_invalid_header_is_an_error_of_the_caller() {
    let peer = peer::stall(Protocol::Http2).unwrap();
    let caller = Caller::h2(peer.addr()).connect().await.unwrap();
    let error = caller.get("/").header("x y", "1").send().await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::InvalidInput, "invalid header name"));
    assert_eq!(peer.requests(), 0);
}

#[tokio::test]
async fn a_peer_that_stalls_keeps_the_caller_waiting() {
    let peer = peer::stall(Protocol::Http1).unwrap();
    let call = Caller::h1(peer.addr()).get("/").send(How::HalfRead).await.unwrap();
    assert!(stays_silent(call.leave()).await);
    peer.caller_left().await.unwrap();
}
