//! Routers that count, and waiting for what readiness says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use oneclock_axum::Policy;
use oneclock_telemetry::Readiness;
use serde_json::Value;

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn policy() -> Policy {
    Policy::named("order").when_absent(ms(800)).build().unwrap()
}

/// How often something ran.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn one_more(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// `/orders/{id}`, whose handler counts. No layer yet.
pub(crate) fn orders(ran: &Count) -> Router {
    let ran = ran.clone();
    Router::new().route("/orders/{id}", get(async move || _ = ran.one_more()))
}

pub(crate) fn order() -> Request<Body> {
    Request::get("/orders/0").body(Body::empty()).unwrap()
}

/// Waits until this is so; with paused time that takes none.
#[track_caller]
pub(crate) fn until(what: &'static str, so: impl Fn() -> bool) -> impl Future<Output = ()> {
    let asked = std::panic::Location::caller();
    async move {
        for _ in 0..20_000 {
            if so() {
                return;
            }
            tokio::time::sleep(ms(5)).await;
        }
        panic!("{asked}: never {what}");
    }
}

/// What `/status` says of a check, once its first run is over.
pub(crate) async fn first(readiness: &Readiness, kind: &str, name: &str) -> Value {
    until("over", || of(readiness, kind, name)["shown"] != "nothing yet").await;
    of(readiness, kind, name)
}

/// What `/status` says of a check now.
pub(crate) fn of(readiness: &Readiness, kind: &str, name: &str) -> Value {
    let status = readiness.to_json();
    let check = status[kind].as_array().unwrap().iter().find(|check| check["name"] == name);
    check.unwrap_or_else(|| panic!("no {name} in {status}")).clone()
}
