//! A listener that does not refuse is told from one that does: here a server of nobody's stands in its place.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use oneclock_core::Name;
use oneclock_telemetry::readiness::Verdict;
use tokio_util::task::AbortOnDropHandle;
use tower_service::Service;

use super::*;
use crate::config::{Config, Listener};
use crate::table::{Shared, Table};

/// Answers each request with this.
#[derive(Clone)]
struct Naive(StatusCode, Option<&'static str>);

impl Service<Request<Incoming>> for Naive {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        let answer = Response::builder().status(self.0);
        let answer = self.1.into_iter().fold(answer, |answer, reason| answer.header("oneclock-reason", reason));
        std::future::ready(Ok(answer.body(Full::default()).expect("an answer")))
    }
}

fn table() -> Shared {
    let config = Config::simple(([127, 0, 0, 1], 0).into(), "http://127.0.0.1:1").expect("a configuration");
    Arc::new(arc_swap::ArcSwap::from_pointee(Table::of(config, None).expect("a table")))
}

fn probe(name: &'static str, address: SocketAddr) -> Probe {
    Probe::new(&Listener::new(Name::from(name), address), address, None, &table(), &Probes::default())
}

/// What is said once a listener at this address was looked at.
async fn looked_at(address: SocketAddr) -> (Verdict, serde_json::Value) {
    let looks = Looks::at(vec![probe("http", address)]);
    let readiness = readiness(&looks, &Shutdown::new()).expect("it looks");
    let looked = async {
        while readiness.to_json()["stacks"][0]["shown"] == "nothing yet" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), looked).await.expect("it looks");
    (readiness.now(), looks.to_json(oneclock::clock::now()).remove(0))
}

async fn naive(status: StatusCode, reason: Option<&'static str>) -> (SocketAddr, AbortOnDropHandle<()>) {
    let socket = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = socket.local_addr().expect("an address");
    let served = tokio::spawn(async move {
        let _ = serve(socket, Naive(status, reason)).await;
    });
    (address, AbortOnDropHandle::new(served))
}

#[tokio::test]
async fn a_listener_that_serves_what_is_spent_is_not_ready_and_is_told_with_what_came_back() {
    let (address, _served) = naive(StatusCode::OK, None).await;
    let (verdict, check) = looked_at(address).await;
    assert_eq!(verdict.to_string(), "not ready: stack listeners: a promise is broken");
    let said = check["said"].as_str().expect("what came back");
    assert!(said.starts_with(&format!("listener http on {address}: ")), "{said}");
    assert!(said.contains("was answered with 200"), "{said}");
}

#[tokio::test]
async fn the_right_status_without_the_reason_proves_nothing() {
    let (address, _served) = naive(StatusCode::GATEWAY_TIMEOUT, None).await;
    let (verdict, check) = looked_at(address).await;
    assert!(!verdict.ready && check["shown"] == "broken", "{check}");
    let (address, _served) = naive(StatusCode::GATEWAY_TIMEOUT, Some("expired_before_start")).await;
    let (verdict, check) = looked_at(address).await;
    assert!(verdict.ready && check["shown"] == "kept", "{check}");
}

#[tokio::test]
async fn nobody_there_is_not_ready_and_no_promise_is_broken() {
    let address = TcpListener::bind(("127.0.0.1", 0)).await.and_then(|socket| socket.local_addr()).expect("an address");
    let (verdict, check) = looked_at(address).await;
    assert!(!verdict.ready, "{check}");
    assert!(check["said"].as_str().is_some_and(|said| said.contains("no connection")), "{check}");
}

#[tokio::test]
async fn one_that_hangs_is_told_from_one_that_does_not_and_others_can_be_looked_at_instead() {
    let hangs = oneclock_test::peer::accepts_never().expect("a port");
    let (refuses, _served) = naive(StatusCode::GATEWAY_TIMEOUT, Some("expired_before_start")).await;
    let looks = Looks::at(vec![probe("hangs", hangs.addr()), probe("refuses", refuses)]);
    let why = looks.look().await.expect_err("one hangs").to_string();
    assert_eq!(why, format!("listener hangs on {}: no answer within 2s", hangs.addr()));
    let shown = |looks: &Looks| -> Vec<_> {
        looks.to_json(oneclock::clock::now()).iter().map(|look| (look["name"].clone(), look["shown"].clone())).collect()
    };
    assert_eq!(shown(&looks), [("hangs".into(), "unclear".into()), ("refuses".into(), "kept".into())]);

    looks.at_others(vec![probe("other", refuses)]);
    assert_eq!(shown(&looks), [("other".into(), "nothing yet".into())]);
    assert!(looks.look().await.is_ok());
    assert_eq!(shown(&looks), [("other".into(), "kept".into())]);
}

#[test]
fn the_json_of_a_configuration_has_no_password() {
    let text = "upstreams: { app: { url: 'http://127.0.0.1:1' } }\nroutes:\n\
                - { upstream: app, idempotency: { principal: everybody, store: 'postgres://u:hunter2@db/keys' } }\n";
    let config = Config::parse(text).expect("a configuration");
    let json = config.to_json();
    assert_eq!(json["routes"][0]["idempotency"]["store"], "postgres://u:***@db/keys");
    assert!(!json.to_string().contains("hunter2"));
}
