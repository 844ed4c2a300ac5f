//! The span of a request begins where it arrives: what never reaches its service has one, and each request has one only.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use axum::body::Bytes;
use futures_util::poll;
use http::{Extensions, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::Full;
use oneclock::Shutdown;
use oneclock::events::Observer;
use oneclock_core::{Policy, Trust};
use oneclock_http::{BoxError, Destination, EgressLayer, IngressLayer, Route, Upload};
use oneclock_telemetry::trace::{SpanLayer, Spans};
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use tower::limit::ConcurrencyLimitLayer;
use tower::{ServiceBuilder, ServiceExt as _};

use crate::support::{PARENT, TRACE, has, has_none, ms, tracing_all};

/// For callers inside the trust boundary: 800 ms if they say nothing, and 50 ms at least.
fn ingress(observer: impl Observer) -> IngressLayer {
    fn route<'r>(_: &'r Extensions, uri: &'r Uri) -> Option<Route<'r>> {
        (uri.path() == "/orders").then_some(Route::Pattern("/orders"))
    }
    let policy = Policy::named("order").when_absent(ms(800)).min_useful(ms(50)).build().unwrap();
    IngressLayer::new(policy).trust(Trust::Inside).route_by(route).observed_by(Arc::new(observer))
}

fn asks(path: &str, fields: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let request = Request::post(path).version(Version::HTTP_2).header("traceparent", PARENT);
    let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::default()).unwrap()
}

async fn done<R>(_: R) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::default()))
}

/// A server's, in the trace of its caller.
#[track_caller]
fn is_the_callers(span: &SpanData) {
    assert_eq!(span.span_kind, SpanKind::Server);
    assert_eq!(span.span_context.trace_id().to_string(), TRACE);
    assert_eq!((span.parent_span_id.to_string().as_str(), span.parent_span_is_remote), ("b7ad6b7169203331", true));
}

/// A span that is made where the service is called is never made here.
#[tokio::test(start_paused = true)]
async fn what_dies_before_its_service_is_ready_has_its_span() {
    let (exported, _provider, _tracing) = tracing_all();
    let never = |_: Request<Upload<Full<Bytes>>>| std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>();
    let service = ServiceBuilder::new()
        .layer(ingress(Spans::new()))
        .layer(SpanLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .service_fn(never);
    let mut holds_the_place = pin!(service.clone().oneshot(asks("/orders", &[("x-remaining-ms", "60000")])));
    assert!(poll!(holds_the_place.as_mut()).is_pending());
    let answer = service.oneshot(asks("/orders", &[("x-remaining-ms", "300")])).await.unwrap();
    assert_eq!(answer.status(), 504);
    let span = exported.named("POST /orders", 1).await;
    is_the_callers(&span);
    assert!(matches!(span.status, Status::Error { .. }), "{:?}", span.status);
    has(
        &span,
        &[
            ("http.response.status_code", "504"),
            ("oneclock.cause", "deadline"),
            ("oneclock.stage", "queue"),
            ("oneclock.queue_wait_ms", "300"),
            ("oneclock.reason", "expired_before_start"),
            ("oneclock.keep", "true"),
            ("error.type", "expired_before_start"),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_on_arrival_has_a_span_that_begins_and_ends_at_once() {
    let shutdown = Shutdown::new();
    shutdown.signal();
    for (fields, stops, status, reason, error, keep) in [
        (("x-remaining-ms", "soon"), false, 400, "malformed_deadline", false, false),
        (("x-remaining-ms", "0"), false, 504, "expired_before_start", true, true),
        (("x-remaining-ms", "20"), false, 504, "insufficient_budget", true, true),
        (("x-remaining-ms", "700"), true, 503, "shutdown", true, false),
    ] {
        let (exported, _provider, _tracing) = tracing_all();
        let layer = ingress(Spans::new());
        let layer = if stops { layer.with_shutdown(&shutdown) } else { layer };
        let service = ServiceBuilder::new().layer(layer).layer(SpanLayer::new()).service_fn(done);
        let answer = service.oneshot(asks("/orders", &[fields])).await.unwrap();
        assert_eq!(answer.status(), status, "{reason}");
        let span = exported.named("POST /orders", 1).await;
        is_the_callers(&span);
        let status = status.to_string();
        let said = [
            ("http.request.method", "POST"),
            ("http.route", "/orders"),
            ("http.response.status_code", &status),
            ("oneclock.reason", reason),
        ];
        has(&span, &said);
        assert_eq!(matches!(span.status, Status::Error { .. }), error, "{reason}: {:?}", span.status);
        if error {
            has(&span, &[("error.type", reason)])
        } else {
            has_none(&span, &["error.type"])
        }
        if keep { has(&span, &[("oneclock.keep", "true")]) } else { has_none(&span, &["oneclock.keep"]) }
    }
}

/// The path of what is refused is a caller's invention unless something matched it.
#[tokio::test(start_paused = true)]
async fn a_refused_call_of_grpc_has_its_status_and_names_no_span() {
    let (exported, _provider, _tracing) = tracing_all();
    let service = ServiceBuilder::new().layer(ingress(Spans::new())).service_fn(done);
    let fields = [("content-type", "application/grpc"), ("grpc-timeout", "1n")];
    service.oneshot(asks("/shop.Pricing/s3cr3t", &fields)).await.unwrap();
    let span = exported.named("POST", 1).await;
    is_the_callers(&span);
    has(&span, &[("rpc.system.name", "grpc"), ("rpc.response.status_code", "DEADLINE_EXCEEDED")]);
    has_none(&span, &["http.response.status_code"]);
}

/// Also of one that passes several layers of ours; it says what left the outermost.
#[tokio::test(start_paused = true)]
async fn a_request_has_one_span_however_many_layers_it_passes() {
    let (exported, _provider, _tracing) = tracing_all();
    let service = ServiceBuilder::new()
        .layer(ingress(Spans::new()))
        .layer(SpanLayer::new())
        .map_response(|mut answer: Response<_>| {
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        })
        .layer(ingress(Spans::new()))
        .layer(SpanLayer::new())
        .service_fn(done);
    let (refused, fine) = ([("x-remaining-ms", "20")], [("x-remaining-ms", "700")]);
    service.clone().oneshot(asks("/orders", &fine)).await.unwrap();
    let span = exported.named("POST /orders", 1).await;
    is_the_callers(&span);
    has(&span, &[("http.response.status_code", "502"), ("error.type", "502")]);
    service.oneshot(asks("/orders", &refused)).await.unwrap();
    assert_eq!(exported.all(2).await.len(), 2);
}

/// `SpanLayer` enters the span and reads trailers; the rest is known without it.
#[tokio::test(start_paused = true)]
async fn without_the_layer_there_is_the_same_span_and_it_has_the_status() {
    let (exported, _provider, _tracing) = tracing_all();
    let fails = |_: Request<Upload<Full<Bytes>>>| async {
        let mut answer = Response::new(Full::<Bytes>::default());
        *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        Ok::<_, Infallible>(answer)
    };
    let service = ServiceBuilder::new().layer(ingress(Spans::new())).service_fn(fails);
    service.oneshot(asks("/orders", &[])).await.unwrap();
    let span = exported.named("POST /orders", 1).await;
    is_the_callers(&span);
    assert!(matches!(span.status, Status::Error { .. }), "{:?}", span.status);
    has(&span, &[("http.response.status_code", "500"), ("error.type", "500"), ("oneclock.bound", "absent")]);
}

/// A head that was there too late, without all of its body, did not leave: its status is not that of the answer.
#[tokio::test(start_paused = true)]
async fn a_head_that_came_too_late_to_leave_is_not_the_answer() {
    let (exported, _provider, _tracing) = tracing_all();
    let late = |_: Request<Upload<Full<Bytes>>>| async {
        tokio::time::advance(ms(900)).await;
        let more = futures_util::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>();
        Ok::<_, Infallible>(Response::new(http_body_util::StreamBody::new(more)))
    };
    let service = ServiceBuilder::new().layer(ingress(Spans::new())).layer(SpanLayer::new()).service_fn(late);
    assert_eq!(service.oneshot(asks("/orders", &[])).await.unwrap().status(), 504);
    let span = exported.named("POST /orders", 1).await;
    has(&span, &[("http.response.status_code", "504"), ("error.type", "deadline")]);
}

/// A service in this process that is asked with a request that came in, extensions and all, is another hop.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_passed_on_is_another_one() {
    let (exported, _provider, _tracing) = tracing_all();
    let behind = ServiceBuilder::new().layer(ingress(Spans::new())).layer(SpanLayer::new()).service_fn(done);
    let passed_on = ServiceBuilder::new()
        .layer(EgressLayer::new(Destination::named("behind").trust(Trust::Inside).build().unwrap()))
        .map_request(|request: Request<Upload<Full<Bytes>>>| request.map(|_| Full::<Bytes>::default()))
        .service(behind);
    let pass = move |mut request: Request<Upload<Full<Bytes>>>| {
        request.headers_mut().remove("content-length");
        request.headers_mut().insert("x-seen", HeaderValue::from_static("1"));
        passed_on.clone().oneshot(request)
    };
    let service =
        ServiceBuilder::new().layer(ingress(Spans::new())).layer(SpanLayer::new()).service_fn(move |request| {
            let passed = pass(request);
            async move { passed.await.map_err(BoxError::from) }
        });
    drop(service.oneshot(asks("/orders", &[])).await.unwrap());
    let spans = exported.all(3).await;
    let servers: Vec<_> = spans.iter().filter(|span| span.span_kind == SpanKind::Server).collect();
    assert_eq!((spans.len(), servers.len()), (3, 2));
    assert!(spans.iter().all(|span| span.span_context.trace_id().to_string() == TRACE), "in one trace");
}
