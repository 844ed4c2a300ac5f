//! The assertions pass what keeps the contract, and name what does not.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::StatusCode;
use http_body::Frame;
use http_body_util::BodyExt;
use oneclock_test::{
    BUDGET, Probe, Protocol, SLACK, Stopped, assert_body_stops_at_deadline, assert_stops_at_deadline, peer,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

// === Stand-ins for layers ===

#[allow(clippy::disallowed_methods, reason = "no oneclock here: the fixtures stand on their own")]
fn deadline(request: &Request) -> Instant {
    let budget = request.headers()["x-remaining-ms"].to_str().unwrap().parse().unwrap();
    Instant::now() + Duration::from_millis(budget)
}

/// Ends the head and the body, the body as an error.
async fn keeps_the_deadline(request: Request, next: Next) -> Response {
    bounded(request, next, true).await
}

/// Ends the head and the body, but the body as if it were whole.
async fn truncates_silently(request: Request, next: Next) -> Response {
    bounded(request, next, false).await
}

async fn bounded(request: Request, next: Next, as_error: bool) -> Response {
    let deadline = deadline(&request);
    match timeout_at(deadline, next.run(request)).await {
        Ok(response) => {
            response.map(|body| Body::new(Cut { inner: Some(body), timer: Box::pin(sleep_until(deadline)), as_error }))
        }
        Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
    }
}

/// A limit that has nothing to do with the budget.
async fn gives_up_after_50_ms(request: Request, next: Next) -> Response {
    match tokio::time::timeout(Duration::from_millis(50), next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::GATEWAY_TIMEOUT, "out of patience").into_response(),
    }
}

/// What tower-http's `TimeoutLayer` does: the head only.
async fn bounds_the_head_only(request: Request, next: Next) -> Response {
    match timeout_at(deadline(&request), next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
    }
}

/// Answers in time, from a task that nobody ends.
async fn leaves_a_zombie(request: Request, next: Next) -> Response {
    let deadline = deadline(&request);
    match timeout_at(deadline, tokio::spawn(next.run(request))).await {
        Ok(response) => response.unwrap(),
        Err(_) => StatusCode::GATEWAY_TIMEOUT.into_response(),
    }
}

struct Cut {
    inner: Option<Body>,
    timer: Pin<Box<Sleep>>,
    as_error: bool,
}

impl http_body::Body for Cut {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.timer.as_mut().poll(cx).is_ready() {
            self.inner = None;
            return Poll::Ready(self.as_error.then(|| Err(axum::Error::new(std::io::Error::other("out of time")))));
        }
        match &mut self.inner {
            Some(inner) => inner.poll_frame_unpin(cx),
            None => Poll::Ready(None),
        }
    }
}

trait PollFrame {
    fn poll_frame_unpin(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>>;
}

impl PollFrame for Body {
    fn poll_frame_unpin(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        http_body::Body::poll_frame(Pin::new(self), cx)
    }
}

// === Handlers ===

fn never(probe: &Probe) -> Router {
    let probe = probe.clone();
    Router::new().route("/", get(async move || probe.never().await))
}

/// A body that gives one piece and then nothing, or pieces without end.
fn body(probe: &Probe, endless: bool) -> Router {
    let probe = probe.clone();
    let produce = async move || {
        let guard = probe.enter();
        let rest = stream::unfold(guard, move |guard| async move {
            if !endless {
                pending::<()>().await;
            }
            Some((Ok(Bytes::from_static(b".")), guard))
        });
        Body::from_stream(stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]).chain(rest))
    };
    Router::new().route("/", get(produce))
}

fn first_and_then_nothing() -> impl stream::Stream<Item = Result<Bytes, Infallible>> {
    stream::iter([Ok(Bytes::from_static(b"first"))]).chain(stream::pending())
}

fn request() -> Request {
    Request::get("/").body(Body::empty()).unwrap()
}

/// What the assertion panics with.
async fn complaint(assertion: impl Future<Output = Stopped>) -> String {
    let panic = AssertUnwindSafe(assertion).catch_unwind().await.expect_err("the assertion has to fail");
    *panic.downcast::<String>().expect("a message")
}

#[track_caller]
fn says(complaint: &str, what: &str) {
    assert!(complaint.contains(what), "{complaint}");
    assert!(complaint.contains("tests/it/stops.rs:"), "it says where it was asserted: {complaint}");
}

// === stops ===

#[tokio::test(start_paused = true)]
async fn x1_a_router_that_keeps_its_deadline_passes() {
    let probe = Probe::new();
    let router = never(&probe).layer(from_fn(keeps_the_deadline));
    let stopped = assert_stops_at_deadline(router.clone(), request(), &probe).await;
    assert!(stopped.head_after >= BUDGET && stopped.body_after <= BUDGET + SLACK, "{stopped:?}");
    assert_eq!((probe.dropped_count(), probe.running()), (1, 0));
    assert_stops_at_deadline(router, request(), None).await;
}

#[tokio::test(start_paused = true)]
async fn x1_a_plain_service_passes_as_well() {
    #[derive(Clone)]
    struct Plain(Probe);
    impl tower_service::Service<http::Request<String>> for Plain {
        type Response = http::Response<String>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<String>) -> Self::Future {
            let probe = self.0.clone();
            Box::pin(async move {
                let ended = tokio::time::timeout(BUDGET, probe.never()).await;
                let status = if ended.is_err() { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::OK };
                let mut response = http::Response::new(String::new());
                *response.status_mut() = status;
                Ok(response)
            })
        }
    }
    let probe = Probe::new();
    assert_stops_at_deadline(Plain(probe.clone()), http::Request::new(String::new()), &probe).await;
}

#[tokio::test(start_paused = true)]
async fn x1_what_does_not_stop_is_named() {
    let probe = Probe::new();
    let why = complaint(assert_stops_at_deadline(never(&probe), request(), &probe)).await;
    says(&why, "no answer 10ms after the deadline (started 1, finished 0, dropped 0): nothing stops the handler");

    let probe = Probe::new();
    let zombie = never(&probe).layer(from_fn(leaves_a_zombie));
    let why = complaint(assert_stops_at_deadline(zombie, request(), &probe)).await;
    says(&why, "the handler was still there 10ms after the deadline (started 1, finished 0, dropped 0)");

    let quick = Router::new().route("/", get(async || "done"));
    let why = complaint(assert_stops_at_deadline(quick, request(), None)).await;
    says(&why, r#"answered 200 after 0ns, not 504: "done" (budget"#);

    let stalls = Router::new().route("/", get(async || Body::from_stream(first_and_then_nothing())));
    let why = complaint(assert_stops_at_deadline(stalls, request(), None)).await;
    says(&why, r#"answered 200 after 0ns, not 504: "first" and then nothing (budget"#);

    let long = Router::new().route("/", get(async || "x".repeat(2_000)));
    let why = complaint(assert_stops_at_deadline(long, request(), None)).await;
    says(&why, &format!("{:?} and more (budget", "x".repeat(512)));

    let probe = Probe::new();
    let hasty = never(&probe).layer(from_fn(gives_up_after_50_ms));
    let why = complaint(assert_stops_at_deadline(hasty, request(), &probe)).await;
    says(
        &why,
        r#"answered 504 after 50ms, long before the deadline: another limit ended it, or the service does not read"#,
    );
    says(&why, r#": "out of patience" (budget"#);

    let probe = Probe::new();
    let refuses = Router::new().route("/", get(async || StatusCode::GATEWAY_TIMEOUT));
    let why = complaint(assert_stops_at_deadline(refuses, request(), &probe)).await;
    says(&why, "the handler never began");
}

/// Over a real socket, in paused time: that it stops holds. How far it got is not asked.
#[tokio::test(start_paused = true)]
async fn x1_a_handler_that_calls_a_real_peer_is_stopped_as_well() {
    let peer = peer::stall(Protocol::Http1).unwrap();
    let addr = peer.addr();
    let probe = Probe::new();
    let entered = probe.clone();
    let calls = async move || {
        let _guard = entered.enter();
        let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
        socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let _ = socket.read_u8().await;
    };
    let router = Router::new().route("/", get(calls));
    let stopped = assert_stops_at_deadline(router.clone().layer(from_fn(keeps_the_deadline)), request(), &probe).await;
    assert!(stopped.head_after >= BUDGET, "{stopped:?}");
    let why = complaint(assert_stops_at_deadline(router, request(), None)).await;
    says(&why, "nothing stops the handler");
}

#[tokio::test]
async fn x1_time_that_is_not_paused_is_named() {
    let probe = Probe::new();
    let why = complaint(assert_stops_at_deadline(never(&probe), request(), &probe)).await;
    says(&why, "the time is not paused: use #[tokio::test(start_paused = true)]");
}

#[tokio::test(start_paused = true)]
async fn v14_a_body_that_is_cut_with_an_error_passes() {
    for endless in [false, true] {
        let probe = Probe::new();
        let router = body(&probe, endless).layer(from_fn(keeps_the_deadline));
        let stopped = assert_body_stops_at_deadline(router, request(), &probe).await;
        assert_eq!(stopped.status, StatusCode::OK);
        assert!(stopped.body_after >= BUDGET && stopped.body_after <= BUDGET + SLACK, "{stopped:?}");
        assert!(stopped.bytes_read >= 5, "{stopped:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn v14_a_body_that_does_not_stop_or_looks_whole_is_named() {
    for endless in [false, true] {
        let probe = Probe::new();
        let head_only = body(&probe, endless).layer(from_fn(bounds_the_head_only));
        let why = complaint(assert_body_stops_at_deadline(head_only, request(), &probe)).await;
        says(&why, "the body had not ended 10ms after the deadline: only the head was bounded");

        let silent = body(&probe, endless).layer(from_fn(truncates_silently));
        let why = complaint(assert_body_stops_at_deadline(silent, request(), &probe)).await;
        says(&why, "it looks whole, and is not");
    }
    let probe = Probe::new();
    let no_body = never(&probe).layer(from_fn(keeps_the_deadline));
    let why = complaint(assert_body_stops_at_deadline(no_body, request(), &probe)).await;
    says(&why, "this is about a body");
}

#[tokio::test(start_paused = true)]
async fn the_collected_body_of_a_cut_answer_is_an_error() {
    // Shows that the stand-in is a fair one: plain reading of it fails as well.
    let probe = Probe::new();
    let mut router = body(&probe, false).layer(from_fn(keeps_the_deadline));
    let mut request = request();
    request.headers_mut().insert("x-remaining-ms", "50".parse().unwrap());
    let response = tower_service::Service::call(&mut router, request).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
}
