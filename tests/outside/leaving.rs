//! Callers that leave, in every way (contract N3), and callers that stay and stop reading (X8). The handler, its children
//! of every kind and its call stop soon after the leaving where the protocol lets it be noticed, else at the deadline.

use std::future::IntoFuture;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use oneclock_core::Cause;
use oneclock_test::caller::{Caller, H1End, H1Outcome, H2Outcome, How};
use oneclock_test::{Ended, Probe, Protocol, Reason};
use tokio::net::TcpListener;

use crate::service::{Service, Working, policy};
use crate::{NOTICED, ms, now};

/// Far longer than anything here takes to be noticed.
const LONG: Duration = Duration::from_secs(8);
/// For what only the deadline ends.
const SHORT: Duration = Duration::from_millis(400);
/// An upload that the kernel takes whole although nobody reads it, so that the FIN behind it is seen.
const FITS: usize = 50_000;
/// An upload that fills every buffer on its way: what is behind it stays there.
const FILLS: usize = 16 << 20;
const FRAME: usize = 8 << 20;

// === HTTP/1.1 ===

async fn h1_leaves(target: &str, how: How) {
    let working = Working::of(Protocol::Http1, LONG).await;
    let sent = Caller::h1(working.addr()).post(target, "").send(how).await.unwrap();
    working.begun().await;
    let gone = sent.leave().await.unwrap();
    working.stops(gone.at, NOTICED, Cause::CallerGone).await;
}

#[tokio::test]
async fn n3_http1_a_closed_socket() {
    h1_leaves("/work", How::Close).await;
}

#[tokio::test]
async fn n3_http1_a_reset() {
    h1_leaves("/work", How::Reset).await;
}

#[tokio::test]
async fn n3_http1_a_shut_sending_side() {
    h1_leaves("/work", How::HalfClose).await;
}

#[tokio::test]
async fn n3_http1_an_unread_request_body() {
    h1_leaves("/work", How::WithUnreadUpload(FITS)).await;
}

#[tokio::test]
async fn n3_http1_an_upload_that_trickles() {
    h1_leaves("/work", How::TricklesUpload(ms(10))).await;
}

#[tokio::test]
async fn n3_http1_a_pipelined_second_request() {
    h1_leaves("/work", How::Pipelined).await;
}

#[tokio::test]
async fn n3_http1_a_response_of_which_the_head_was_read() {
    h1_leaves("/stalls", How::AfterHead).await;
}

#[tokio::test]
async fn n3_http1_a_half_read_response() {
    h1_leaves("/stalls", How::HalfRead).await;
}

#[tokio::test]
async fn n3_http1_a_response_without_end_that_was_half_read() {
    h1_leaves("/produce/1000", How::HalfRead).await;
}

/// The FIN queues in the caller's kernel, behind bytes that nobody takes: the timer covers what cannot be noticed.
#[tokio::test]
async fn n3_http1_a_request_body_that_fills_the_socket_ends_at_the_deadline() {
    let working = Working::of(Protocol::Http1, SHORT).await;
    let sent = Caller::h1(working.addr()).post("/work", "").send(How::WithUnreadUpload(FILLS)).await.unwrap();
    let begun = working.begun().await;
    assert!(sent.uploaded() < FILLS, "the upload fits whole into {FILLS} bytes of buffers");
    sent.leave().await.unwrap();
    working.stops(begun, SHORT + NOTICED, Cause::Deadline).await;
}

// === HTTP/2 ===

#[tokio::test]
async fn n3_http2_a_stream_reset() {
    let working = Working::of(Protocol::Http2, LONG).await;
    let caller = Caller::h2(working.addr()).connect().await.unwrap();
    let call = caller.get("/work").send().await.unwrap();
    working.begun().await;
    let left = call.reset(Reason::CANCEL);
    working.stops(left, NOTICED, Cause::CallerGone).await;
}

#[tokio::test]
async fn n3_http2_a_stream_reset_with_a_large_request_body_unread() {
    let working = Working::of(Protocol::Http2, LONG).await;
    let caller = Caller::h2(working.addr()).connect().await.unwrap();
    let call = caller.post("/work", vec![b'x'; FRAME]).send().await.unwrap();
    working.begun().await;
    let left = call.reset(Reason::CANCEL);
    working.stops(left, NOTICED, Cause::CallerGone).await;
}

#[tokio::test]
async fn n3_http2_a_connection_that_is_closed() {
    let working = Working::of(Protocol::Http2, LONG).await;
    let caller = Caller::h2(working.addr()).connect().await.unwrap();
    let _call = caller.post("/work", vec![b'x'; FRAME]).send().await.unwrap();
    working.begun().await;
    let left = caller.leave().await;
    working.stops(left, NOTICED, Cause::CallerGone).await;
}

#[tokio::test]
async fn n3_http2_a_connection_that_is_reset() {
    let working = Working::of(Protocol::Http2, LONG).await;
    let caller = Caller::h2(working.addr()).connect().await.unwrap();
    let _call = caller.get("/work").send().await.unwrap();
    working.begun().await;
    let left = caller.reset().await.unwrap();
    working.stops(left, NOTICED, Cause::CallerGone).await;
}

#[tokio::test]
async fn n3_http2_a_half_read_response() {
    for target in ["/stalls", "/produce/1000"] {
        let working = Working::of(Protocol::Http2, LONG).await;
        let caller = Caller::h2(working.addr()).connect().await.unwrap();
        let mut call = caller.get(target).send().await.unwrap();
        working.begun().await;
        call.head().await.unwrap();
        assert!(call.data().await.unwrap().is_some(), "a first piece");
        drop(call);
        working.stops(now(), NOTICED, Cause::CallerGone).await;
    }
}

// === Callers that stop reading ===

async fn h1_stops_reading(frame: usize) {
    let working = Working::of(Protocol::Http1, SHORT).await;
    let gone = Caller::h1(working.addr()).get(format!("/produce/{frame}")).leave(How::StopsReading).await.unwrap();
    let begun = working.begun().await;
    let outcome = tokio::spawn(gone.answer());
    working.stops(begun, SHORT + NOTICED, Cause::Deadline).await;
    match outcome.await.unwrap().unwrap() {
        H1Outcome::Truncated { .. } | H1Outcome::NoAnswer(H1End::Failed(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn x8_http1_a_caller_that_stops_reading_small_frames() {
    h1_stops_reading(100).await;
}

#[tokio::test]
async fn x8_http1_a_caller_that_stops_reading_one_frame_of_8_mib() {
    h1_stops_reading(FRAME).await;
}

/// It opens no more window than HTTP/2 gives it at the start.
async fn h2_stops_reading(frame: usize) {
    let working = Working::of(Protocol::Http2, SHORT).await;
    let caller = Caller::h2(working.addr()).connect().await.unwrap();
    let mut call = caller.get(format!("/produce/{frame}")).send().await.unwrap();
    let begun = working.begun().await;
    match call.ended_by_server().await.unwrap() {
        H2Outcome::Reset { reason, .. } => assert_eq!(reason, Reason::CANCEL),
        other => panic!("{other:?}"),
    }
    working.stops(begun, SHORT + NOTICED, Cause::Deadline).await;
}

#[tokio::test]
async fn x8_http2_a_caller_that_stops_reading_small_frames() {
    h2_stops_reading(1_000).await; // of smaller ones h2, as a client, would take too few and complain
}

#[tokio::test]
async fn x8_http2_a_caller_that_stops_reading_one_frame_of_8_mib() {
    h2_stops_reading(FRAME).await;
}

/// All the window there is, and nobody at the socket: not even a reset can be written.
#[tokio::test]
async fn x8_http2_a_caller_that_stops_reading_its_socket() {
    for frame in [1_000, FRAME] {
        let working = Working::of(Protocol::Http2, SHORT).await;
        let caller = Caller::h2(working.addr()).window((1 << 31) - 1).max_frame((1 << 24) - 1).connect().await.unwrap();
        let call = caller.get(format!("/produce/{frame}")).send().await.unwrap();
        let begun = working.begun().await;
        let frozen = caller.freeze().await;
        working.stops(begun, SHORT + NOTICED, Cause::Deadline).await;
        drop((call, frozen));
    }
}

/// A whole answer that is small is ready at once, and yet not a byte of it may be sent: the stream is not held past the
/// deadline.
#[tokio::test]
async fn x8_http2_a_small_answer_into_a_window_of_zero() {
    let working = Working::of(Protocol::Http2, SHORT).await;
    small_answer_is_reset(working.service).await;
}

/// The same where the deadline is far: the limit of `serve` for peers without progress ends it.
#[tokio::test]
async fn x8_http2_a_small_answer_into_a_window_of_zero_under_a_late_deadline() {
    let app = Router::new().route("/small", any(|| async { "small" }));
    let service = Service::with(app, policy(LONG), SHORT, |layer| layer, |serve| serve.write_progress(SHORT)).await;
    small_answer_is_reset(service).await;
}

async fn small_answer_is_reset(service: Service) {
    let caller = Caller::h2(service.addr).window(0).connect().await.unwrap();
    let since = now();
    let mut call = caller.get("/small").send().await.unwrap();
    assert_eq!(call.head().await.unwrap().0, 200, "the head needs no window");
    match call.ended_by_server().await.unwrap() {
        H2Outcome::Reset { reason, .. } => assert_eq!(reason, Reason::CANCEL),
        other => panic!("{other:?}"),
    }
    assert!(now() - since <= SHORT + NOTICED, "{:?}", now() - since);
    drop((call, caller));
    let told = service.stop().await;
    assert_eq!(told.endings().len(), 1, "one end");
}

// === The naive way ===

/// `axum::serve`: behind bytes that hyper has not taken the FIN is not seen, and the handler works to its end.
#[tokio::test]
async fn naive_axum_serve_works_to_the_end_behind_unread_bytes() {
    for how in [How::WithUnreadUpload(FITS), How::Pipelined] {
        let probe = Probe::new();
        let seen = probe.clone();
        let handler = move |_unread: Request| {
            let seen = seen.clone();
            async move {
                let guard = seen.enter();
                tokio::time::sleep(ms(600)).await;
                guard.finish();
                "nobody reads this"
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let app = Router::new().route("/work", any(handler));
        let server = tokio::spawn(axum::serve(listener, app).into_future());
        let sent = Caller::h1(addr).post("/work", "").send(how).await.unwrap();
        probe.started(1).await.unwrap();
        sent.leave().await.unwrap();
        assert_eq!(probe.ended(1).await.unwrap().how, Ended::Finished, "{how:?}");
        server.abort();
    }
}

/// `tokio::spawn`: what a handler spawned outlives it, even where its own future is dropped.
#[tokio::test]
async fn naive_tokio_spawn_outlives_the_handler() {
    let (handler, child) = (Probe::new(), Probe::new());
    let (seen, spawned) = (handler.clone(), child.clone());
    let route = move || {
        let (seen, spawned) = (seen.clone(), spawned.clone());
        async move {
            tokio::spawn(async move {
                let guard = spawned.enter();
                tokio::time::sleep(ms(600)).await;
                guard.finish();
            });
            seen.never().await;
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tokio::spawn(axum::serve(listener, Router::new().route("/work", any(route))).into_future());
    let sent = Caller::h1(addr).get("/work").send(How::Close).await.unwrap();
    child.started(1).await.unwrap();
    sent.leave().await.unwrap();
    assert_eq!(handler.ended(1).await.unwrap().how, Ended::Dropped);
    assert_eq!(child.ended(1).await.unwrap().how, Ended::Finished);
    server.abort();
}
