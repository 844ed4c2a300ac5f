//! One budget across protocols: HTTP/1.1 caller → axum → tonic → HTTP. I2, I13.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{any, get};
use http::HeaderMap;
use oneclock::Operation;
use oneclock_axum::{Op, Problem};
use oneclock_core::{Cause, Stage};

use crate::out::{Out, Terms, WayOut};
use crate::shop::{Shop, ample, ms, run};
use crate::ways::{Answer, Way};

const BUDGET: Duration = ms(1_500);
/// What each service works before it calls.
const WORK: Duration = ms(100);

/// What a service was told, in its own protocol's field, and what it had left when it called.
#[derive(Clone, Copy, Debug)]
struct Hop {
    told: Duration,
    left: Duration,
}

/// The chain, as one caller finds it.
struct Chain {
    asked: Answer,
    hops: Vec<Hop>,
    shop: Shop,
}

#[derive(Clone)]
struct Service {
    speaks: Way,
    next: Out,
    hops: Arc<Mutex<Vec<Hop>>>,
}

/// What is at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AtTheEnd {
    Answers,
    Stalls,
}

/// Works a while, then calls the next.
async fn hop(service: &Service, op: &Operation, fields: &HeaderMap) -> Result<bytes::Bytes, crate::out::Fault> {
    {
        let _own = op.spend("own work", Stage::Work);
        tokio::time::sleep(WORK).await;
    }
    service.hops.lock().unwrap().push(Hop { told: service.speaks.told(fields), left: op.remaining() });
    service.next.get("/").await
}

/// Hands on what it got, or why it got nothing.
async fn hands_on(
    State(service): State<Service>,
    Op(op): Op,
    fields: HeaderMap,
) -> Result<bytes::Bytes, crate::out::Fault> {
    hop(&service, &op, &fields).await
}

/// Has nothing to say without the answer, so its own end says it.
async fn waits_on(State(service): State<Service>, Op(op): Op, fields: HeaderMap) -> bytes::Bytes {
    match hop(&service, &op, &fields).await {
        Ok(answer) => answer,
        Err(_) => std::future::pending().await,
    }
}

/// gateway (HTTP/1.1, axum) → order (gRPC, under tonic's own server) → pricing (HTTP/2, axum).
async fn chain(shop: &Shop, end: AtTheEnd) -> Chain {
    let hops = Arc::<Mutex<Vec<Hop>>>::default();
    let (grpc, http2) = (shop.speaking(Way::Grpc), shop.speaking(Way::Http2));

    let told = hops.clone();
    let price = any(move |Op(op): Op, fields: HeaderMap| async move {
        told.lock().unwrap().push(Hop { told: Way::Http2.told(&fields), left: op.remaining() });
        if end == AtTheEnd::Stalls {
            std::future::pending::<()>().await;
        }
        "7 EUR"
    });
    let pricing = http2.open(ample("pricing"), Router::new().route("/", price)).await;

    let next = http2.out(WayOut::Client, pricing, Terms::default());
    let service = Service { speaks: Way::Grpc, next, hops: hops.clone() };
    let order = Router::new().route("/", get(hands_on)).with_state(service);
    let order = grpc.open_under_tonic(ample("order"), order).await;

    let next = grpc.out(WayOut::Tonic, order, Terms { name: "order", ..Terms::default() });
    let service = Service { speaks: Way::Http1, next, hops: hops.clone() };
    let gateway = shop.open(ample("gateway"), Router::new().route("/", get(waits_on)).with_state(service)).await;

    let asked = shop.get(gateway, "/").within(BUDGET).answer().await;
    let hops = hops.lock().unwrap().clone();
    Chain { asked, hops, shop: shop.clone() }
}

/// Whether every service was told what was left, and not more.
#[track_caller]
fn decreases(hops: &[Hop]) {
    let [gateway, order, pricing] = hops else { panic!("{hops:?}") };
    assert_eq!(gateway.told, BUDGET);
    assert!(order.told <= gateway.left && pricing.told <= order.left, "{hops:?}");
    assert!(order.told <= BUDGET - WORK && pricing.told <= BUDGET - 2 * WORK, "{hops:?}");
    assert!(pricing.told > ms(300), "it is told what is left, and not some small number: {hops:?}");
}

#[test]
fn one_budget_goes_down_from_hop_to_hop() {
    run(Way::Http1, |shop| async move {
        let chain = chain(&shop, AtTheEnd::Answers).await;
        assert_eq!(chain.asked.verdict(), (200, None));
        assert_eq!(chain.asked.body, "7 EUR");
        decreases(&chain.hops);
    });
}

#[test]
fn the_error_at_the_top_says_where_the_time_went() {
    run(Way::Http1, |shop| async move {
        let Chain { asked, hops, shop } = chain(&shop, AtTheEnd::Stalls).await;
        decreases(&hops);
        assert_eq!(asked.verdict(), (504, Some("deadline")));
        let json = asked.json();
        assert_eq!(json["bound"], "caller", "{json:#}");
        assert_eq!(json["budget_ms"], 1_500, "{json:#}");
        let entries = json["ledger"]["entries"].as_array().expect("a ledger");
        let took = |name: &str| -> f64 {
            let of_name = entries.iter().filter(|entry| entry["name"] == name);
            of_name.filter_map(|entry| entry["took_ms"].as_f64()).sum()
        };
        assert!((99.0..1_000.0).contains(&took("own work")), "{json:#}");
        assert!(took("order") > 400.0, "most of it was the call: {json:#}");

        // Each service below knows its part of it, and why it ended.
        for (name, call) in [("order", Some("pricing")), ("pricing", None)] {
            let over = shop.witness().ended(name).await;
            let ending = over.ending.expect("an early end");
            // Both at once: its own deadline, and a caller who leaves at the same.
            assert!(matches!(ending.cause, Cause::Deadline | Cause::CallerGone), "{name}: {ending}");
            assert!(over.bound.limit <= BUDGET - WORK, "{name}: {:?}", over.bound);
            if let Some(call) = call {
                assert!(over.ledger.entries().iter().any(|entry| entry.name == *call), "{name}: {}", over.ledger);
            }
        }
    });
}

/// An axum service answers with what its call to a tonic service came to, by `Problem::of`: whoever's clock was first.
#[test]
fn a_status_is_a_problem_with_its_words() {
    run(Way::Http1, |shop| async move {
        let grpc = shop.speaking(Way::Grpc);
        // It has less time than its caller: so it answers, and is not cut off.
        let forever = Router::new().route("/", get(std::future::pending::<()>));
        let order = grpc.open(ample("order").ceiling(ms(200)).when_absent(ms(200)), forever).await;
        let destination = oneclock_tonic::destination("order").trust(oneclock_core::Trust::Inside).build().unwrap();
        let channel = crate::grpc::out::channel(order, false);
        let service = tower::Layer::layer(&oneclock_tonic::ClientLayer::new(destination), channel);
        let calls = get(move || async move {
            let request = crate::grpc::out::request(&http::Method::GET, HeaderMap::new(), bytes::Bytes::new());
            crate::grpc::out::unary(service, "/", request).await.map_err(Problem::of)
        });
        let gateway = shop.open(ample("gateway"), Router::new().route("/", calls)).await;
        let answer = shop.get(gateway, "/").within(ms(5_000)).answer().await;
        // As over HTTP, where what was answered 504 is a call that timed out.
        assert_eq!(answer.verdict(), (504, None), "{answer:?}");
        assert_eq!(answer.json()["type"], "urn:oneclock:call_timed_out", "{answer:?}");
    });
}
