//! What ran out of time is exported, whatever the head sampler said.

use axum::Router;
use axum::routing::get;
use http::HeaderMap;
use oneclock_telemetry::trace::{KeepEnded, RecordAll};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SimpleSpanProcessor};

use crate::support::{Exported, PARENT, TRACE, asking, client, context, has, traced, tracer, whole};

#[tokio::test]
async fn unsampled_spans_are_exported_if_their_work_ran_out_of_time_and_only_then() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder()
        .with_sampler(RecordAll(Sampler::ParentBased(Box::new(Sampler::AlwaysOff))))
        .with_span_processor(KeepEnded(SimpleSpanProcessor::new(exported.clone())))
        .build();
    let _tracing = tracer(&provider);
    let echo = get(|headers: HeaderMap| async move { context(&headers) });
    let behind = client("behind", traced("behind", Router::new().route("/", echo)).await);
    let stalls = oneclock_test::peer::stall(oneclock_test::Protocol::Http1).unwrap();
    let stalling = client("stalling", stalls.addr());
    let ask = |client: oneclock_http::Client| {
        move || async move {
            let answer = client.get("/").await.map_err(|_| http::StatusCode::GATEWAY_TIMEOUT)?;
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
            Ok::<_, http::StatusCode>(String::from_utf8_lossy(&body).into_owned())
        }
    };
    let routes = Router::new().route("/fine", get(ask(behind))).route("/late", get(ask(stalling)));
    let gateway = traced("gateway", routes).await;

    let unsampled = PARENT.replace("-01", "-00");
    let (status, sent) = whole(asking(gateway, "/fine", &[("traceparent", &unsampled)]).answer().await.unwrap());
    assert_eq!(status, 200);
    assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-00 -"), "not sampled stays that: {sent}");
    let (_, sent) = whole(asking(gateway, "/fine", &[]).answer().await.unwrap());
    assert!(sent.ends_with("-00 -"), "{sent}");

    let fields = [("traceparent", &*unsampled), ("x-remaining-ms", "400")];
    let (status, _) = whole(asking(gateway, "/late", &fields).answer().await.unwrap());
    assert_eq!(status, 504);
    let spans = exported.all(2).await;
    assert_eq!(spans.len(), 2, "the request and its call, and nothing of what was fine");
    for span in spans {
        assert_eq!(span.span_context.trace_id().to_string(), TRACE);
        assert!(span.span_context.is_sampled(), "collectors drop it otherwise");
        has(&span, &[("oneclock.keep", "true")]);
    }
}

#[tokio::test]
async fn a_sampled_trace_is_exported_as_a_whole() {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder()
        .with_sampler(RecordAll(Sampler::ParentBased(Box::new(Sampler::AlwaysOff))))
        .with_span_processor(KeepEnded(SimpleSpanProcessor::new(exported.clone())))
        .build();
    let _tracing = tracer(&provider);
    let addr = traced("order", Router::new().route("/fine", get(|| async {}))).await;
    whole(asking(addr, "/fine", &[("traceparent", PARENT)]).answer().await.unwrap());
    exported.named("GET /fine", 1).await;
}
