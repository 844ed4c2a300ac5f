//! What is answered with a bare 500 is found in the log: outsiders are told nothing of it, so the operator must be.

#![allow(clippy::expect_used)] // helpers of tests: to panic is how a test fails

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use http_body_util::BodyExt;
use oneclock_axum::{Op, Policy, PolicyExt as _, Problem};
use tower::ServiceExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

/// Keeps the log lines of level error.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("not poisoned").push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The status and text of the answer to `path`, and what was logged meanwhile.
async fn ask(app: Router, path: &str) -> (StatusCode, String, Vec<String>) {
    let log = Log::default();
    let logging = subscriber::set_default(log.clone());
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let answer = app.oneshot(request).await.expect("infallible");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("a whole body").to_bytes();
    drop(logging);
    let lines = log.0.lock().expect("not poisoned").clone();
    (status, String::from_utf8_lossy(&body).into_owned(), lines)
}

fn policy() -> Policy {
    Policy::named("order").when_absent(Duration::from_millis(800)).build().expect("fits")
}

#[tokio::test]
async fn a_forgotten_layer_is_logged_with_its_route_and_the_way_out() {
    let left = |Op(op): Op| async move { format!("{:?}", op.remaining()) };
    // The layer was added before the route, so it does not cover it.
    let app = Router::new().route("/covered", get(left)).layer(policy().layer()).route("/carts/{id}", get(left));
    let (status, text, lines) = ask(app.clone(), "/carts/7").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!text.contains("layer"), "outsiders learn nothing: {text}");
    assert_eq!(lines.len(), 1, "{lines:?}");
    for words in ["no layer covers GET /carts/{id}", "add `.layer(policy.layer())` after the routes"] {
        assert!(lines[0].contains(words), "{lines:?}");
    }
    let (status, _, lines) = ask(app, "/covered").await;
    assert_eq!((status, lines.len()), (StatusCode::OK, 0), "{lines:?}");
}

/// For a handler that is mounted with and without a layer, its absence is no mistake.
#[tokio::test]
async fn an_operation_that_is_asked_for_as_an_option_logs_nothing() {
    let app = Router::new().route("/", get(|op: Option<Op>| async move { format!("{}", op.is_some()) }));
    let (status, text, lines) = ask(app, "/").await;
    assert_eq!((status, text.as_str(), lines.len()), (StatusCode::OK, "false", 0), "{lines:?}");
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read the price list")]
struct NoPrices(#[source] std::io::Error);

#[tokio::test]
async fn the_causes_of_a_500_are_logged_once_with_the_operation() {
    let fails = || async { Err::<(), _>(Problem::of(NoPrices(std::io::Error::other("disk full")))) };
    let not_found = || async { Problem::with_status(StatusCode::NOT_FOUND, "no such cart") };
    let app = Router::new().route("/fails", get(fails)).route("/missing", get(not_found)).layer(policy().layer());
    let (status, text, lines) = ask(app.clone(), "/fails").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!text.contains("disk"), "outsiders learn nothing: {text}");
    assert_eq!(lines.len(), 1, "{lines:?}");
    for words in ["operation=order", "cannot read the price list: disk full"] {
        assert!(lines[0].contains(words), "{lines:?}");
    }
    let (status, _, lines) = ask(app, "/missing").await;
    assert_eq!((status, lines.len()), (StatusCode::NOT_FOUND, 0), "its own making: {lines:?}");
}
