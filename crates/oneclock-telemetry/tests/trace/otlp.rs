//! The exporter, against a collector that is as small as one can be.

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use http::HeaderMap;
use oneclock_telemetry::otlp::{Otlp, OtlpError};
use oneclock_test::PATIENCE;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::{PARENT, asking, ms, traced, whole};

#[tokio::test]
async fn spans_reach_a_collector_and_the_end_loses_none() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let collect = move |headers: HeaderMap, body: Bytes| {
        let kind = headers["content-type"].to_str().unwrap().to_owned();
        tell.send((kind, ExportTraceServiceRequest::decode(body).unwrap())).unwrap();
        async {}
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, Router::new().route("/v1/traces", post(collect))).await });

    let otlp = Otlp::to(collector).service("order").sampled(0.0).build().unwrap();
    let tracing = tracing::subscriber::set_default(tracing_subscriber::registry().with(otlp.layer()));
    let slow = get(|| async { std::future::pending::<()>().await });
    let addr = traced("order", Router::new().route("/slow", slow).route("/fine", get(|| async {}))).await;
    let fields = [("traceparent", PARENT), ("x-remaining-ms", "300")];
    for (path, fields, want) in [("/fine", vec![], 200), ("/slow", fields.to_vec(), 504)] {
        assert_eq!(whole(asking(addr, path, &fields).answer().await.unwrap()).0, want);
    }
    drop(tracing);
    // This runtime has one thread, which the collector needs.
    tokio::task::spawn_blocking(move || otlp.finish(PATIENCE)).await.unwrap().unwrap();

    let (kind, request) = tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
    assert_eq!(kind, "application/x-protobuf");
    let resource = &request.resource_spans[0];
    let service = resource.resource.as_ref().unwrap().attributes.iter().find(|one| one.key == "service.name").unwrap();
    let text = |value: &Option<opentelemetry_proto::tonic::common::v1::AnyValue>| value.as_ref().unwrap().value.clone();
    assert_eq!(text(&service.value), Some(Value::StringValue("order".to_owned())));
    let spans = &resource.scope_spans[0].spans;
    assert_eq!(spans.len(), 1, "the other one was not sampled");
    assert_eq!(spans[0].name, "GET /slow");
    assert_eq!(spans[0].parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
    let cause = spans[0].attributes.iter().find(|one| one.key == "oneclock.cause").unwrap();
    assert_eq!(text(&cause.value), Some(Value::StringValue("deadline".to_owned())));
}

/// A collector that answers nothing costs the end its bound, and the service nothing.
#[tokio::test]
async fn an_end_without_a_collector_is_an_error_within_its_bound() {
    let stalls = oneclock_test::peer::stall(oneclock_test::Protocol::Http1).unwrap();
    let otlp = Otlp::to(format!("http://{}", stalls.addr())).build().unwrap();
    let tracing = tracing::subscriber::set_default(tracing_subscriber::registry().with(otlp.layer()));
    tracing::info_span!("work").in_scope(|| ());
    drop(tracing);
    let ended = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(move || otlp.finish(ms(200)))).await;
    assert!(matches!(ended.unwrap().unwrap(), Err(OtlpError::Failed(_))));
}

/// The SDK says that all is well when nothing was sent.
#[tokio::test]
async fn spans_that_were_lost_are_told_at_the_end() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let otlp = Otlp::to(format!("http://{nobody}")).build().unwrap();
    let tracing = tracing::subscriber::set_default(tracing_subscriber::registry().with(otlp.layer()));
    tracing::info_span!("work").in_scope(|| ());
    drop(tracing);
    let ended = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(move || otlp.finish(PATIENCE))).await;
    assert!(matches!(ended.unwrap().unwrap(), Err(OtlpError::Failed(_))));
}

#[test]
fn what_it_cannot_do_it_says_when_it_is_made() {
    let error = Otlp::to("http://collector:4318/v1/traces").build().unwrap_err();
    assert!(error.to_string().contains("without one"), "{error}");
    for swallows in ["http://c:4318?x", "http://c:4318/?x", "http://c:4318#x"] {
        assert!(matches!(Otlp::to(swallows).build(), Err(OtlpError::HasQuery)), "{swallows}");
    }
    let error = Otlp::to("http://c:4318?x").build().unwrap_err();
    assert!(error.to_string().contains("a query"), "{error}");
    let error = Otlp::to("https://collector:4318").build().unwrap_err();
    assert!(error.to_string().contains("speaks no TLS"), "{error}");
    let error = Otlp::to("http://collector:4318").sampled(10.0).build().unwrap_err();
    assert_eq!(error.to_string(), "sampled(10): the share of traces is a number from 0 to 1");
}
