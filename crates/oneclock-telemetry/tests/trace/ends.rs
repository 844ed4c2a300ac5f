//! What a span says of every way in which a request can end.

use std::convert::Infallible;
use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use oneclock::events::{Event, Observer, RequestBegan, Slot};
use oneclock_axum::{Policy, PolicyExt as _};
use oneclock_core::Trust;
use oneclock_core::retry::RetryPolicy;
use oneclock_http::{IngressLayer, Upload};
use oneclock_telemetry::trace::{SpanLayer, Spans};
use oneclock_telemetry::{Ring, Several};
use oneclock_test::Probe;
use oneclock_test::caller::{Caller, H1Outcome, How};
use opentelemetry::trace::Status;
use opentelemetry_sdk::trace::SpanData;
use tower::{ServiceBuilder, ServiceExt as _};

use crate::support::{
    PARENT, TRACE, asking, attributes, client, has, has_none, ms, service, traced, tracing_all, whole,
};

#[track_caller]
fn is_error(span: &SpanData) {
    assert!(matches!(span.status, Status::Error { .. }), "{:?}", span.status);
}

#[tokio::test]
async fn a_handler_that_is_dropped_at_the_deadline_has_its_span_closed_and_kept() {
    let (exported, _provider, _tracing) = tracing_all();
    let ring = Ring::new();
    let probe = Probe::new();
    let handler = {
        let probe = probe.clone();
        move || async move { probe.never().await }
    };
    let routes = Router::new().route("/slow", get(handler));
    let all = Several::new().and(Spans::new()).and(ring.clone());
    let addr = service("order", routes, all).await;
    let fields = [("traceparent", PARENT), ("x-remaining-ms", "300")];
    let (status, _) = whole(asking(addr, "/slow", &fields).answer().await.unwrap());
    assert_eq!((status, probe.dropped_count()), (504, 1));
    let span = exported.named("GET /slow", 1).await;
    is_error(&span);
    has(
        &span,
        &[
            ("oneclock.cause", "deadline"),
            ("oneclock.stage", "work"),
            ("oneclock.bound", "caller"),
            ("oneclock.deadline.remaining_ms.end", "0"),
            ("oneclock.keep", "true"),
            ("sampling.priority", "1"),
            ("http.response.status_code", "504"),
            ("error.type", "deadline"),
        ],
    );
    assert!(span.end_time > span.start_time);
    let kept = ring.recent();
    assert_eq!((kept.len(), kept[0].trace.as_deref()), (1, Some(TRACE)));
    assert_eq!(ring.to_json()["operations"][0]["route"], "/slow");
}

#[tokio::test]
async fn a_body_that_is_cut_off_keeps_the_status_that_was_sent_and_is_an_error() {
    let (exported, _provider, _tracing) = tracing_all();
    let body = || async {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]);
        Body::from_stream(first.chain(stream::pending()))
    };
    let addr = traced("report", Router::new().route("/rows", get(body))).await;
    let answer = asking(addr, "/rows", &[("x-remaining-ms", "400")]).answer().await.unwrap();
    assert!(matches!(answer, H1Outcome::Truncated { status: StatusCode::OK, .. }), "{answer:?}");
    let span = exported.named("GET /rows", 1).await;
    is_error(&span);
    has(
        &span,
        &[
            ("http.response.status_code", "200"),
            ("oneclock.cause", "deadline"),
            ("oneclock.stage", "body"),
            ("oneclock.keep", "true"),
            ("error.type", "deadline"),
        ],
    );
}

#[tokio::test]
async fn a_caller_that_leaves_is_no_error() {
    let (exported, _provider, _tracing) = tracing_all();
    let probe = Probe::new();
    let behind = {
        let probe = probe.clone();
        move || async move { probe.never().await }
    };
    let inventory = client("inventory", traced("inventory", Router::new().route("/stock", get(behind))).await);
    let ask = move || {
        let inventory = inventory.clone();
        async move { inventory.get("/stock").await.map(|_| ()).map_err(|_| StatusCode::BAD_GATEWAY) }
    };
    let gateway = traced("gateway", Router::new().route("/orders", get(ask))).await;
    let sent = asking(gateway, "/orders", &[("x-remaining-ms", "5000")]).send(How::Close).await.unwrap();
    probe.started(1).await.unwrap();
    sent.leave().await.unwrap();
    for span in exported.all(3).await {
        assert_eq!(span.status, Status::Unset, "{}", span.name);
        has(&span, &[("oneclock.cause", "caller_gone")]);
        has_none(&span, &["error.type", "http.response.status_code", "oneclock.keep"]);
    }
}

#[tokio::test]
async fn failures_that_have_nothing_to_do_with_time_are_what_the_conventions_say() {
    let (exported, _provider, _tracing) = tracing_all();
    let routes = Router::new()
        .route("/missing", get(|| async { StatusCode::NOT_FOUND }))
        .route("/broken", get(|| async { StatusCode::BAD_GATEWAY }));
    let addr = traced("order", routes).await;
    for path in ["/missing", "/broken"] {
        whole(asking(addr, path, &[]).answer().await.unwrap());
    }
    let missing = exported.named("GET /missing", 2).await;
    assert_eq!(missing.status, Status::Unset, "of 4xx the caller is to blame");
    has(&missing, &[("http.response.status_code", "404")]);
    let broken = exported.named("GET /broken", 2).await;
    is_error(&broken);
    has(&broken, &[("http.response.status_code", "502"), ("error.type", "502")]);
    has_none(&broken, &["oneclock.keep"]);
}

/// The content type is the caller's claim: believed, it would put a path of theirs into the name, and hide the failure.
#[tokio::test]
async fn who_claims_to_speak_grpc_names_no_span_and_hides_no_failure() {
    let (exported, _provider, _tracing) = tracing_all();
    let fails = get(|| async { StatusCode::INTERNAL_SERVER_ERROR });
    let lies = post(|| async { (StatusCode::INTERNAL_SERVER_ERROR, [("grpc-status", "0")]) });
    let routes = Router::new().route("/reset/{token}", fails).route("/fixed", lies.clone()).fallback(lies);
    let addr = traced("order", routes).await;
    let asked = [
        (Method::GET, "/reset/s3cr3t", "GET /reset/{token}"),
        (Method::POST, "/fixed", "POST /fixed"),
        (Method::POST, "/lost/s3cr3t", "POST"), // the fallback
    ];
    for (number, (method, path, name)) in asked.into_iter().enumerate() {
        let caller = Caller::h1(addr).method(method, path).header("content-type", "application/grpc");
        caller.answer().await.unwrap();
        let span = exported.named(name, number + 1).await;
        is_error(&span);
        has(&span, &[("http.response.status_code", "500"), ("error.type", "500")]);
        has_none(&span, &["rpc.method", "rpc.system.name"]);
    }
}

/// A call that ran into its own cap: the caller still has time, and its answer is its own business.
#[tokio::test]
async fn a_call_that_ran_out_of_its_cap_is_an_error_of_the_call_alone() {
    let (exported, _provider, _tracing) = tracing_all();
    let stalls = oneclock_test::peer::stall(oneclock_test::Protocol::Http1).unwrap();
    let inventory =
        oneclock_http::Client::builder("inventory", format!("http://{}", stalls.addr())).cap(ms(300)).build().unwrap();
    let ask = move || {
        let inventory = inventory.clone();
        async move { inventory.get("/stock").await.map_or("without", |_| "with") }
    };
    let gateway = traced("gateway", Router::new().route("/orders", get(ask))).await;
    let (status, text) = whole(asking(gateway, "/orders", &[]).answer().await.unwrap());
    assert_eq!((status, text.as_str()), (200, "without"));
    let call = exported.named("inventory", 2).await;
    is_error(&call);
    has(
        &call,
        &[("oneclock.bound", "cap"), ("oneclock.cause", "deadline"), ("oneclock.keep", "true"), ("error.type", "cap")],
    );
    assert!(attributes(&call)["oneclock.outcome"].starts_with("unknown"));
    let order = exported.named("GET /orders", 2).await;
    assert_eq!(order.status, Status::Unset);
    has_none(&order, &["oneclock.cause", "oneclock.keep"]);
}

/// The budget covers the head; the stream has limits of its own, and its end is told of on the same span.
#[tokio::test]
async fn a_stream_that_is_cut_off_by_its_own_limit_says_so_on_the_span_of_its_request() {
    let (exported, _provider, _tracing) = tracing_all();
    let rows = || async {
        let rows = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first"))]);
        Body::from_stream(rows.chain(stream::pending()))
    };
    let routes = Router::new().route("/rows", get(rows)).layer(SpanLayer::new());
    let policy = Policy::named("report")
        .when_absent(ms(5_000))
        .route("/rows", |limits| limits.streaming(ms(60), ms(5_000)))
        .build()
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = routes.layer(policy.layer().observed_by(Arc::new(Spans::new())));
    tokio::spawn(oneclock_http::serve(listener, app).into_future());
    let answer = asking(addr, "/rows", &[]).answer().await.unwrap();
    assert!(matches!(answer, H1Outcome::Truncated { status: StatusCode::OK, .. }), "{answer:?}");
    let span = exported.named("GET /rows", 1).await;
    is_error(&span);
    let wanted = [
        ("http.response.status_code", "200"),
        ("oneclock.cause", "deadline"),
        ("oneclock.stage", "body"),
        ("oneclock.keep", "true"),
    ];
    has(&span, &wanted);
}

#[tokio::test]
async fn each_attempt_is_a_span_and_says_which_it_was() {
    let (exported, _provider, _tracing) = tracing_all();
    let asked = Arc::new(AtomicU32::new(0));
    let fails_once = move || async move {
        if asked.fetch_add(1, Ordering::Relaxed) == 0 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
    };
    let addr = traced("inventory", Router::new().route("/stock", get(fails_once))).await;
    let inventory = oneclock_http::Client::builder("inventory", format!("http://{addr}"))
        .trust(Trust::Inside)
        .retry(RetryPolicy::new().build().unwrap())
        .build()
        .unwrap();
    let ask = move || async move { inventory.get("/stock").await.map_or(StatusCode::BAD_GATEWAY, |got| got.status()) };
    let gateway = traced("gateway", Router::new().route("/orders", get(ask))).await;
    assert_eq!(whole(asking(gateway, "/orders", &[]).answer().await.unwrap()).0, 200);
    let spans = exported.all(5).await;
    let mut calls: Vec<_> = spans.iter().filter(|span| span.name == "inventory").collect();
    calls.sort_by_key(|span| span.start_time);
    let [first, second] = calls[..] else { panic!("{calls:?}") };
    is_error(first);
    has(first, &[("oneclock.attempt", "1")]);
    has_none(first, &["http.request.resend_count"]);
    assert_eq!(second.status, Status::Unset, "what was retried is no error of the one that worked");
    has(second, &[("oneclock.attempt", "2"), ("http.request.resend_count", "1")]);
    let served: Vec<_> = spans.iter().filter(|span| span.name == "GET /stock").collect();
    assert!(served.iter().any(|span| attributes(span)["oneclock.attempt"] == "2"), "the far side knows it too");
}

/// The status of a gRPC call stands in its trailers, or, where nothing was sent before, in the head.
#[tokio::test(start_paused = true)]
async fn a_call_of_grpc_has_its_own_status_and_only_some_of_them_are_errors() {
    for (code, name, error) in [(0, "OK", false), (5, "NOT_FOUND", false), (14, "UNAVAILABLE", true)] {
        for in_the_head in [true, false] {
            let (exported, _provider, _tracing) = tracing_all();
            let status = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(code))]);
            let handler = move |_: Request<Upload<Empty<Bytes>>>| {
                let (head, frames) = match in_the_head {
                    true => (status.clone(), vec![]),
                    false => {
                        let message = Frame::data(Bytes::from_static(&[0, 0, 0, 0, 0]));
                        (HeaderMap::new(), vec![message, Frame::trailers(status.clone())])
                    }
                };
                let mut answer =
                    Response::new(StreamBody::new(stream::iter(frames.into_iter().map(Ok::<_, Infallible>))));
                answer.headers_mut().extend(head);
                answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
                async { Ok::<_, Infallible>(answer) }
            };
            let policy = Policy::named("pricing").when_absent(ms(800)).build().unwrap();
            let service = ServiceBuilder::new()
                .layer(IngressLayer::new(policy).observed_by(Arc::new(Spans::new())))
                .layer(SpanLayer::new())
                .service_fn(handler);
            let request = Request::post("/shop.Pricing/Price").version(Version::HTTP_2);
            let request = request.header("content-type", "application/grpc").body(Empty::new()).unwrap();
            let answer = service.oneshot(request).await.unwrap();
            answer.into_body().collect().await.unwrap();
            let span = exported.named("shop.Pricing/Price", 1).await;
            has(
                &span,
                &[
                    ("rpc.system.name", "grpc"),
                    ("rpc.method", "shop.Pricing/Price"),
                    ("rpc.response.status_code", name),
                ],
            );
            has_none(&span, &["http.response.status_code"]);
            assert_eq!(matches!(span.status, Status::Error { .. }), error, "{name}: {:?}", span.status);
            assert_eq!(attributes(&span).get("error.type").map(String::as_str), error.then_some(name));
        }
    }
}

/// The naive way: a span that ends with the future, and attributes that are set after the `.await`.
#[tokio::test]
async fn what_is_recorded_after_an_await_is_lost_with_the_handler() {
    struct Nobody;
    impl Observer for Nobody {
        fn on(&self, _: &Event<'_>) {}

        fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
            Spans::new().request_began(request)
        }
    }
    let (exported, _provider, _tracing) = tracing_all();
    let handler = || async {
        std::future::pending::<()>().await;
        tracing::Span::current().record("oneclock.cause", "deadline");
    };
    let addr = service("order", Router::new().route("/slow", get(handler)), Nobody).await;
    let answer = asking(addr, "/slow", &[("x-remaining-ms", "300")]).answer().await.unwrap();
    assert_eq!(whole(answer).0, 504);
    let span = exported.named("GET /slow", 1).await;
    has_none(&span, &["oneclock.cause", "oneclock.keep", "http.response.status_code"]);
}
