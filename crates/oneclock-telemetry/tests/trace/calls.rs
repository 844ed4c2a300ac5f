//! What the span of a call over HTTP says of whom it asked, and of how it was answered.

use axum::Router;
use axum::routing::{get, post};
use http::StatusCode;
use oneclock::Operation;
use oneclock_http::Client;
use oneclock_telemetry::trace::Spans;
use opentelemetry::trace::Status;
use opentelemetry_sdk::trace::SpanData;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::support::{client, has, has_none, ms, tracing_all};

async fn listening(routes: Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    addr
}

fn order() -> Operation {
    Operation::begin("order", ms(5_000)).observed_by(Arc::new(Spans::new()))
}

#[track_caller]
fn is_error(span: &SpanData, error: bool) {
    assert_eq!(matches!(span.status, Status::Error { .. }), error, "{:?}", span.status);
}

#[tokio::test]
async fn a_call_says_whom_it_asked_and_what_the_answer_was() {
    for (status, error) in [(200, None), (404, Some("404")), (503, Some("503"))] {
        let (exported, _provider, _tracing) = tracing_all();
        let answer = get(move || async move { StatusCode::from_u16(status).unwrap() });
        let addr = listening(Router::new().route("/stock", answer)).await;
        drop(order().run(client("inventory", addr).get("/stock")).await.unwrap().unwrap());
        let span = exported.named("inventory", 1).await;
        let (status, port) = (status.to_string(), addr.port().to_string());
        let asked = [
            ("http.request.method", "GET"),
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
            ("oneclock.layer", "service"),
        ];
        has(&span, &asked);
        has(&span, &[("http.response.status_code", &status)]);
        is_error(&span, error.is_some());
        match error {
            Some(status) => has(&span, &[("error.type", status)]),
            None => has_none(&span, &["error.type", "rpc.system.name"]),
        }
    }
}

/// Nobody is there: whom it asked is known all the same, and no status. What failed is the outcome.
#[tokio::test]
async fn a_call_without_an_answer_says_whom_it_asked_all_the_same() {
    let (exported, _provider, _tracing) = tracing_all();
    let addr = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    assert!(order().run(client("inventory", addr).post("/stock", "")).await.unwrap().is_err());
    let span = exported.named("inventory", 1).await;
    has(&span, &[("http.request.method", "POST"), ("server.address", "127.0.0.1"), ("error.type", "not_sent")]);
    has_none(&span, &["http.response.status_code"]);
    is_error(&span, true);
}

/// What ended by our own clock says so in our words, whatever the far side had said before.
#[tokio::test]
async fn an_end_of_our_own_is_said_in_our_words() {
    let (exported, _provider, _tracing) = tracing_all();
    let stalls = oneclock_test::peer::stall(oneclock_test::Protocol::Http1).unwrap();
    let slow = Client::builder("slow", format!("http://{}", stalls.addr())).cap(ms(300)).build().unwrap();
    assert!(order().run(slow.get("/stock")).await.unwrap().is_err());
    let span = exported.named("slow", 1).await;
    has(&span, &[("http.request.method", "GET"), ("server.address", "127.0.0.1"), ("error.type", "cap")]);
    has_none(&span, &["http.response.status_code"]);
}

/// The head of a call that failed at once has its status; that of one which went well is in the trailers.
#[tokio::test]
async fn a_call_of_grpc_says_its_own_status() {
    for (said, name, error) in [("0", "OK", false), ("5", "NOT_FOUND", true), ("14", "UNAVAILABLE", true)] {
        let (exported, _provider, _tracing) = tracing_all();
        let answer = post(move || async move { [("content-type", "application/grpc"), ("grpc-status", said)] });
        let addr = listening(Router::new().route("/shop.Pricing/Price", answer)).await;
        let pricing = client("pricing", addr);
        drop(order().run(pricing.post("/shop.Pricing/Price", "")).await.unwrap().unwrap());
        let span = exported.named("pricing", 1).await;
        has(&span, &[("rpc.system.name", "grpc"), ("rpc.response.status_code", name)]);
        has_none(&span, &["http.response.status_code"]);
        is_error(&span, error);
        if error { has(&span, &[("error.type", name)]) } else { has_none(&span, &["error.type"]) }
    }
}
