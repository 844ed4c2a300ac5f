//! One trace from hop to hop, with a tracer and without.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware::{self, Next};
use axum::routing::get;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Empty};
use oneclock::Operation;
use oneclock_axum::{Policy, PolicyExt as _};
use oneclock_http::Client;
use oneclock_telemetry::trace::{SpanLayer, Spans};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::SpanKind;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SpanData;
use tower::ServiceExt as _;
use tracing::Instrument as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::support::{PARENT, TRACE, asking, client, context, has, has_none, ms, traced, tracing_all, whole};

/// A gateway that asks a service and answers with what that was sent.
async fn two_hops() -> std::net::SocketAddr {
    let echo = get(|headers: HeaderMap| async move { context(&headers) });
    let inventory = client("inventory", traced("inventory", Router::new().route("/stock/{id}", echo)).await);
    let ask = move || ask(inventory.clone());
    traced("gateway", Router::new().route("/orders/{id}", get(ask))).await
}

async fn ask(inventory: Client) -> String {
    text(inventory.get("/stock/7").await.unwrap()).await
}

async fn text(answer: oneclock_http::Answer) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn parent_and_own(span: &SpanData) -> (String, String) {
    assert_eq!(span.span_context.trace_id().to_string(), TRACE);
    (span.parent_span_id.to_string(), span.span_context.span_id().to_string())
}

#[tokio::test]
async fn a_trace_goes_from_hop_to_hop_and_its_spans_say_what_was_left() {
    let (exported, _provider, _tracing) = tracing_all();
    let gateway = two_hops().await;
    let fields = [("traceparent", PARENT), ("tracestate", "vendor=1"), ("x-remaining-ms", "4000")];
    let (status, sent) = whole(asking(gateway, "/orders/9", &fields).answer().await.unwrap());
    assert_eq!(status, 200);

    let order = exported.named("GET /orders/{id}", 3).await;
    let call = exported.named("inventory", 3).await;
    let stock = exported.named("GET /stock/{id}", 3).await;
    let (order_parent, order_id) = parent_and_own(&order);
    let (call_parent, call_id) = parent_and_own(&call);
    let (stock_parent, _) = parent_and_own(&stock);
    assert_eq!((order_parent.as_str(), order.parent_span_is_remote), ("b7ad6b7169203331", true));
    assert_eq!((call_parent, stock_parent), (order_id, call_id.clone()));
    assert!(stock.parent_span_is_remote);
    assert_eq!(sent, format!("00-{TRACE}-{call_id}-01 vendor=1"));
    assert_eq!(
        [&order, &call, &stock].map(|span| span.span_kind.clone()),
        [SpanKind::Server, SpanKind::Client, SpanKind::Server]
    );

    has(
        &order,
        &[
            ("http.request.method", "GET"),
            ("http.route", "/orders/{id}"),
            ("http.response.status_code", "200"),
            ("oneclock.bound", "caller"),
            ("oneclock.deadline.limit_ms", "4000"),
            ("oneclock.attempt", "1"),
            ("oneclock.queue_wait_ms", "0"),
        ],
    );
    has(&call, &[("oneclock.outcome", "applied"), ("oneclock.layer", "service"), ("oneclock.bound", "caller")]);
    let below = &crate::support::attributes(&call)["oneclock.below"];
    assert!(below.starts_with("inventory ") && below.contains("unaccounted"), "{below}");
    has_none(&order, &["error.type", "oneclock.cause", "oneclock.keep"]);
    has_none(&call, &["error.type", "oneclock.cause", "oneclock.keep", "http.request.resend_count"]);
    let left = |span: &SpanData, at: &str| -> f64 {
        let name = format!("oneclock.deadline.remaining_ms.{at}");
        crate::support::attributes(span)[&name].parse().unwrap()
    };
    let way: Vec<f64> = [(&order, "start"), (&call, "start"), (&stock, "start"), (&stock, "end")]
        .map(|(span, at)| left(span, at))
        .to_vec();
    assert!(way.windows(2).all(|pair| pair[0] >= pair[1]), "it only gets less: {way:?}");
    assert!(left(&order, "end") <= left(&order, "start"));
    let ledger = &crate::support::attributes(&order)["oneclock.ledger"];
    assert!(ledger.starts_with("inventory "), "{ledger}");
}

/// Neither an exporter nor a subscriber: what came goes on as it came.
#[tokio::test]
async fn without_a_tracer_a_trace_context_is_passed_on_untouched() {
    let gateway = two_hops().await;
    let unsampled = PARENT.replace("-01", "-00");
    for parent in [PARENT, &unsampled] {
        let fields = [("traceparent", parent), ("tracestate", "vendor=1,other=2")];
        let (_, sent) = whole(asking(gateway, "/orders/9", &fields).answer().await.unwrap());
        assert_eq!(sent, format!("{parent} vendor=1,other=2"));
    }
    let (_, sent) = whole(asking(gateway, "/orders/9", &[]).answer().await.unwrap());
    assert_eq!(sent, "- -", "nothing comes of nothing");
}

#[tokio::test]
async fn a_hostile_trace_context_is_ignored() {
    let gateway = two_hops().await;
    let mine = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
    let fields = [("traceparent", mine), ("tracestate", "vendor=1")];
    let (_, sent) = whole(asking(gateway, "/orders/9", &fields).answer().await.unwrap());
    assert_eq!(sent, "- -");

    let (exported, _provider, _tracing) = tracing_all();
    let gateway = two_hops().await;
    for fields in [
        vec![("traceparent", mine), ("tracestate", "vendor=1")],
        vec![("traceparent", PARENT), ("traceparent", PARENT)],
        vec![("traceparent", "00-zz"), ("tracestate", &*"x".repeat(7_000))],
    ] {
        let before = exported.count();
        let (status, sent) = whole(asking(gateway, "/orders/9", &fields).answer().await.unwrap());
        assert_eq!(status, 200);
        let spans = exported.all(before + 3).await;
        let order = spans[before..].iter().find(|span| span.name == "GET /orders/{id}").unwrap();
        assert_eq!(order.parent_span_id.to_string(), "0000000000000000", "a trace begins here");
        let trace = order.span_context.trace_id().to_string();
        assert!(trace != TRACE && sent.starts_with(&format!("00-{trace}-")), "{sent}");
    }
}

/// A step that must finish, a task and a detached operation run on tasks that nobody has instrumented.
#[tokio::test]
async fn work_on_tasks_of_its_own_stays_in_the_trace() {
    let echo = get(|headers: HeaderMap| async move { context(&headers) });
    let payment = client("payment", traced("payment", Router::new().route("/charge", echo)).await);
    let work = move || {
        let payment = payment.clone();
        async move {
            let op = Operation::current().unwrap();
            let charge = |payment: Client| async move {
                Ok::<_, oneclock_http::CallError>(text(payment.get("/charge").await?).await)
            };
            let must_finish = op.must_finish("charge", ms(3_000), charge(payment.clone())).await.unwrap();
            let task = op.spawn("task", charge(payment.clone())).await.unwrap().unwrap();
            let mail = op.detach("mail", ms(3_000), "it may be slow");
            let detached =
                tokio::spawn(async move { mail.run(charge(payment)).await }).await.unwrap().unwrap().unwrap();
            [must_finish, task, detached].join("\n")
        }
    };
    let gateway = traced("gateway", Router::new().route("/orders", get(work.clone()))).await;
    let (_, sent) = whole(asking(gateway, "/orders", &[("traceparent", PARENT)]).answer().await.unwrap());
    assert_eq!(sent, [format!("{PARENT} -"), format!("{PARENT} -"), format!("{PARENT} -")].join("\n"));

    let (exported, _provider, _tracing) = tracing_all();
    let gateway = traced("gateway", Router::new().route("/orders", get(work))).await;
    let (_, sent) = whole(asking(gateway, "/orders", &[("traceparent", PARENT)]).answer().await.unwrap());
    assert!(sent.lines().count() == 3 && sent.lines().all(|line| line.starts_with(&format!("00-{TRACE}-"))), "{sent}");
    let spans = exported.all(7).await;
    let order = spans.iter().find(|span| span.name == "GET /orders").unwrap();
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "payment").collect();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.parent_span_id == order.span_context.span_id()));
}

/// A layer of the application's own around ours: if it has read what arrived, its span is the nearer parent; if it has not,
/// the trace must not end at it.
#[tokio::test]
async fn a_layer_of_the_applications_own_is_a_parent_if_it_read_what_arrived() {
    for reads in [true, false] {
        let (exported, _provider, _tracing) = tracing_all();
        let own = middleware::from_fn(move |request: Request<Body>, next: Next| async move {
            let span = tracing::info_span!("own");
            if reads {
                let arrived = TraceContextPropagator::new().extract(&HeaderExtractor(request.headers()));
                span.set_parent(arrived).unwrap();
            }
            next.run(request).instrument(span).await
        });
        let policy = Policy::named("order").when_absent(ms(800)).build().unwrap();
        let layer = policy.layer().observed_by(Arc::new(Spans::new()));
        let app = Router::new().route("/orders", get(|| async {})).layer(SpanLayer::new()).layer(layer).layer(own);
        let request = Request::get("/orders").header("traceparent", PARENT).body(Body::empty()).unwrap();
        drop(app.oneshot(request).await.unwrap());
        let (order, own) = (exported.named("GET /orders", 2).await, exported.named("own", 2).await);
        let (parent, _) = parent_and_own(&order);
        let want = if reads { own.span_context.span_id().to_string() } else { "b7ad6b7169203331".to_owned() };
        assert_eq!(parent, want, "reads: {reads}");
    }
}

#[tokio::test]
async fn a_trace_that_the_application_began_itself_is_not_replaced() {
    let (exported, _provider, _tracing) = tracing_all();
    let echo = get(|headers: HeaderMap| async move { context(&headers) });
    let inventory = client("inventory", traced("inventory", Router::new().route("/stock", echo)).await);
    const OWN: &str = "00-11111111111111111111111111111111-2222222222222222-01";
    let ask = move |headers: HeaderMap| {
        let inventory = inventory.clone();
        async move {
            // A copy of what arrived is a stale parent; another trace is the application's own business.
            let copied = headers.get("traceparent").cloned().unwrap();
            let mut sent = Vec::new();
            for parent in [copied, OWN.parse().unwrap()] {
                let request =
                    Request::get("/stock").header("traceparent", parent).body(Empty::<axum::body::Bytes>::new());
                sent.push(text(inventory.request(request.unwrap()).await.unwrap()).await);
            }
            sent.join("\n")
        }
    };
    let gateway = traced("gateway", Router::new().route("/orders", get(ask))).await;
    let (_, sent) = whole(asking(gateway, "/orders", &[("traceparent", PARENT)]).answer().await.unwrap());
    let spans = exported.all(5).await;
    let call = spans.iter().find(|span| span.name == "inventory").unwrap().span_context.span_id();
    let sent: Vec<_> = sent.lines().collect();
    assert_eq!(sent, [format!("00-{TRACE}-{call}-01 -"), format!("{OWN} -")]);
}
