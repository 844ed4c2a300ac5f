//! Answers whose body fails with time left: the caller has the head by then, and a caller of gRPC a status. Contract X3.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::convert::Infallible;
use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::routing::any;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use oneclock_core::{Policy, Trust};
use oneclock_http::{BoxError, IngressLayer, Upload, serve};
use oneclock_test::Reason;
use oneclock_test::caller::{Caller, H1Outcome, H2Outcome};
use oneclock_test::grpc::framed;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::ServiceBuilder;

/// A body of which one piece is there at once, and the failure as well.
fn breaks_off(piece: Bytes, error: impl Into<BoxError>) -> UnsyncBoxBody<Bytes, BoxError> {
    let frames = [Ok(http_body::Frame::data(piece)), Err(error.into())];
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

/// Answers everything with `first`, and fails.
fn app() -> Router {
    Router::new()
        .fallback(any(|| async { AxumBody::new(breaks_off("first".into(), io::Error::other("the disk is full"))) }))
}

async fn served(own_loop: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    if own_loop {
        tokio::spawn(serve(listener, app()).into_future());
    } else {
        tokio::spawn(axum::serve(listener, app()).into_future());
    }
    addr
}

async fn over_http2(addr: SocketAddr) -> H2Outcome {
    Caller::h2(addr).connect().await.unwrap().get("/report").send().await.unwrap().answer().await
}

#[tokio::test]
async fn x3_the_head_of_an_answer_that_breaks_off_at_once_reaches_its_caller() {
    let addr = served(true).await;
    match over_http2(addr).await {
        H2Outcome::Reset { reason, status: Some(status), bytes_read } => {
            assert_eq!((reason, status.as_u16(), bytes_read), (Reason::INTERNAL_ERROR, 200, 5));
        }
        other => panic!("{other:?}"),
    }
    match Caller::h1(addr).get("/report").answer().await.unwrap() {
        H1Outcome::Truncated { status, bytes_read, .. } => assert_eq!((status.as_u16(), bytes_read), (200, 5)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn naive_axum_serve_resets_an_answer_that_breaks_off_without_its_head() {
    let addr = served(false).await;
    match over_http2(addr).await {
        H2Outcome::Reset { status, bytes_read, .. } => assert_eq!((status, bytes_read), (None, 0)),
        other => panic!("{other:?}"),
    }
    let answer = Caller::h1(addr).get("/report").answer().await.unwrap();
    assert!(matches!(answer, H1Outcome::NoAnswer(_)), "{answer:?}");
}

/// The connection's task and those of its streams run beside each other: to let it go first would not do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn x3_so_do_the_heads_of_hundreds_on_one_connection() {
    let addr = served(true).await;
    for _ in 0..20 {
        let caller = std::sync::Arc::new(Caller::h2(addr).connect().await.unwrap());
        let mut calls = JoinSet::new();
        for _ in 0..50 {
            let caller = std::sync::Arc::clone(&caller);
            calls.spawn(async move { caller.get("/report").send().await.unwrap().answer().await });
        }
        for outcome in calls.join_all().await {
            let whole = matches!(outcome, H2Outcome::Reset { status: Some(_), bytes_read: 5, .. });
            assert!(whole, "{outcome:?}");
        }
    }
}

// === gRPC ===

/// A service of gRPC whose answers fail with this error behind this piece.
async fn grpc<E: Into<BoxError>>(piece: Bytes, error: impl Fn() -> E + Clone + Send + 'static) -> H2Outcome {
    let policy = Policy::named("pricing").when_absent(Duration::from_secs(5)).build().unwrap();
    let service = ServiceBuilder::new().layer(IngressLayer::new(policy).trust(Trust::Inside)).service_fn(
        move |_: Request<Upload<Incoming>>| {
            let body = breaks_off(piece.clone(), error());
            async {
                Ok::<_, Infallible>(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
            }
        },
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, service).into_future());
    Caller::h2(addr).connect().await.unwrap().grpc("/shop.Pricing/Price", "cart").send().await.unwrap().answer().await
}

#[tokio::test]
async fn x3_between_two_messages_grpc_is_told_a_status_by_the_code_of_the_reset() {
    for (code, want) in [
        (Reason::REFUSED_STREAM, "14"),
        (Reason::CANCEL, "1"),
        (Reason::ENHANCE_YOUR_CALM, "8"),
        (Reason::INADEQUATE_SECURITY, "7"),
        (Reason::NO_ERROR, "13"),
        (Reason::PROTOCOL_ERROR, "13"),
        (Reason::STREAM_CLOSED, "13"),
    ] {
        let outcome = grpc(framed("one"), move || h2::Error::from(code)).await;
        let H2Outcome::Complete { status, body, trailers: Some(trailers), .. } = outcome else {
            panic!("{code:?}: {outcome:?}")
        };
        assert_eq!((status.as_u16(), body), (200, framed("one")), "{code:?}");
        assert_eq!(trailers["grpc-status"], want, "{code:?}");
        assert!(!trailers.contains_key("oneclock-reason"), "{code:?}: nobody says that it may be repeated");
    }
    let outcome = grpc(framed("one"), || io::Error::other("the disk is full")).await;
    let H2Outcome::Complete { trailers: Some(trailers), .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(trailers["grpc-status"], "13");
}

#[tokio::test]
async fn x3_in_the_middle_of_a_message_it_is_reset_behind_its_head() {
    for (code, want) in [
        (Reason::CANCEL, Reason::CANCEL),
        (Reason::ENHANCE_YOUR_CALM, Reason::ENHANCE_YOUR_CALM),
        // Behind a head nobody can say that the request was not looked at, that this was all, or that it is to be asked again.
        (Reason::REFUSED_STREAM, Reason::INTERNAL_ERROR),
        (Reason::NO_ERROR, Reason::INTERNAL_ERROR),
        (Reason::HTTP_1_1_REQUIRED, Reason::INTERNAL_ERROR),
    ] {
        let outcome = grpc(framed("a long message").slice(..9), move || h2::Error::from(code)).await;
        match outcome {
            H2Outcome::Reset { reason, status: Some(status), bytes_read } => {
                assert_eq!((reason, status.as_u16(), bytes_read), (want, 200, 9), "{code:?}");
            }
            other => panic!("{code:?}: {other:?}"),
        }
    }
}
