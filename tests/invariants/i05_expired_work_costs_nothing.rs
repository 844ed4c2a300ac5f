//! I5: work that is expired, or has too little time, is refused before it costs anything. Contract P4, K4, C4, E2, E3,
//! X6, X9.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::routing::{any, get};
use bytes::Bytes;
use http_body_util::Full;
use oneclock::events::Counting;
use oneclock::{Operation, Stopped, WhyNot};
use oneclock_core::ingress::PolicyBuilder;
use oneclock_core::{Cause, Outcome, Policy, Reason, Trust};
use oneclock_http::{CallError, Destination, EgressLayer};
use oneclock_test::Probe;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};

use crate::naive::under_a_timeout_layer;
use crate::out::Terms;
use crate::shop::{Shop, ms};
use crate::ways::{Answer, Ask};
use crate::witness::Seen;

const ZERO: [(&str, &str); 8] = [
    ("grpc-timeout", "0S"),
    ("grpc-timeout", "00000000n"),
    ("x-remaining-ms", "0"),
    ("x-remaining-ms", "0000000000"),
    ("connect-timeout-ms", "0"),
    ("x-request-timeout-ms", "0"),
    ("x-envoy-expected-rq-timeout-ms", "0"),
    ("x-request-deadline", "2001-01-01T00:00:00Z"),
];

fn clock(shop: &Shop) -> PolicyBuilder {
    Policy::named("order")
        .when_absent(ms(5_000))
        .min_useful(ms(20))
        .route(shop.way().route("/reports"), |limits| limits.min_useful(ms(2_000)))
}

/// A service that records what reaches it.
fn counted(probe: &Probe) -> Router {
    let probe = probe.clone();
    let handler = any(move |_: Request| async move { probe.enter().finish() });
    Router::new().route("/", handler.clone()).route("/reports", handler)
}

/// Whether this request is refused for `reason` and reaches no handler.
async fn is_refused(ask: Ask, reason: Reason, probe: &Probe) -> Result<Answer, String> {
    let before = probe.started_count();
    let answer = ask.clone().answer().await;
    let reached = probe.started_count() - before;
    if answer.verdict() == (504, Some(reason.as_str())) && reached == 0 {
        return Ok(answer);
    }
    Err(format!("{ask:?}: {:?}, reached {reached} handlers", answer.verdict()))
}

over_every_way_in! {
    async fn p4_zero_is_expired_and_reaches_no_handler(shop: Shop) {
        let probe = Probe::new();
        for trust in [Trust::Inside, Trust::Outside] {
            let addr = shop.open_to(trust, clock(&shop), counted(&probe)).await;
            for (field, value) in ZERO {
                let ask = shop.get(addr, "/").header(field, value);
                is_refused(ask, Reason::ExpiredBeforeStart, &probe).await.unwrap();
            }
            // Whatever else it says.
            let both = shop.get(addr, "/").header("grpc-timeout", "5S").within(ms(0));
            is_refused(both, Reason::ExpiredBeforeStart, &probe).await.unwrap();
        }
        if shop.is_behind_a_sidecar() {
            return; // nothing of it reached the service, which counts what it refuses itself
        }
        let refused = shop.witness().all(|seen| match seen {
            Seen::Refused(reason) => Some(*reason),
            _ => None,
        });
        assert_eq!(refused, [Reason::ExpiredBeforeStart; 2 * (ZERO.len() + 1)], "each is counted");
    }

    async fn k4_c4_too_little_is_refused_by_the_routes_own_measure(shop: Shop) {
        let probe = Probe::new();
        let addr = shop.open(clock(&shop), counted(&probe)).await;
        let refused = is_refused(shop.get(addr, "/").within(ms(19)), Reason::InsufficientBudget, &probe).await;
        let json = refused.unwrap().json();
        assert_eq!((&json["bound"], &json["outcome"]), (&"caller".into(), &"not_sent".into()), "{json}");
        is_refused(shop.get(addr, "/reports").within(ms(1_900)), Reason::InsufficientBudget, &probe).await.unwrap();
        assert_eq!(shop.get(addr, "/").within(ms(1_900)).answer().await.status, 200);
        assert_eq!(probe.finished_count(), 1);
    }

    /// A refused request takes no place of the queue behind our layer, and what it held is released.
    async fn a_refused_request_holds_nothing(shop: Shop) {
        let probe = Probe::new();
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        let layers = ServiceBuilder::new()
            .layer(shop.layer(clock(&shop)))
            .layer(GlobalConcurrencyLimitLayer::with_semaphore(places.clone()));
        let app = shop.routes(counted(&probe)).layer(layers);
        let addr = shop.open_layered(app, |serve| serve.trust(Trust::Inside)).await;
        let taken = places.acquire().await.unwrap(); // whoever asked for a place now would wait
        for _ in 0..20 {
            is_refused(shop.get(addr, "/").within(ms(0)), Reason::ExpiredBeforeStart, &probe).await.unwrap();
        }
        drop(taken);
        assert_eq!(shop.get(addr, "/").answer().await.status, 200);
        assert_eq!(places.available_permits(), 1);
    }

    /// Contract X9: the answer reaches a caller that is still sending.
    async fn x9_an_expired_upload_is_not_read_and_its_answer_arrives(shop: Shop) {
        let probe = Probe::new();
        let addr = shop.open(clock(&shop), counted(&probe)).await;
        let ask = shop.post(addr, "/").within(ms(0)).body(vec![b'x'; 1 << 20]);
        is_refused(ask, Reason::ExpiredBeforeStart, &probe).await.unwrap();
    }

    async fn the_check_tells_an_ordinary_request(shop: Shop) {
        let probe = Probe::new();
        let addr = shop.open(clock(&shop), Router::new().route("/", get(|| async { "hello" }))).await;
        is_refused(shop.get(addr, "/").within(ms(900)), Reason::ExpiredBeforeStart, &probe).await.expect_err("200");
    }

    without_a_sidecar:

    /// Contract E3, X6: no call is made for work that has no time for it.
    async fn e3_a_call_without_time_is_not_made(shop: Shop) {
        for &way_out in shop.ways_out() {
            let far_end = shop.echoes();
            let out = shop.out(way_out, far_end.addr(), Terms { reserve: ms(1_000), ..Terms::default() });
            let counting = Arc::new(Counting::default());
            let op = Operation::begin("order", ms(900)).observed_by(counting.clone());
            let fault = op.scope(out.get("/")).await.expect_err("the reserve is all there is");
            assert_eq!(fault.outcome, Outcome::NotSent, "{way_out:?}");
            assert!(matches!(fault.stopped, Some(Stopped::NotBegun(_))), "{fault:?}");

            op.call_off();
            let fault = op.scope(out.get("/")).await.expect_err("it is over");
            let Some(Stopped::NotBegun(not_begun)) = &fault.stopped else { panic!("{fault:?}") };
            assert!(matches!(not_begun.why, WhyNot::Ended(ending) if ending.cause == Cause::CalledOff), "{fault:?}");
            assert_eq!((counting.sum("not called"), counting.sum("called")), (2, 0), "{way_out:?}");
            assert_eq!((far_end.connections(), far_end.requests()), (0, 0), "{way_out:?}");
        }
    }

    async fn the_naive_way_of_a_timeout_layer_works_for_nobody(shop: Shop) {
        let probe = Probe::new();
        let addr = shop.open_naively(under_a_timeout_layer(counted(&probe), ms(5_000))).await;
        for (field, value) in ZERO {
            let ask = shop.get(addr, "/").header(field, value);
            is_refused(ask, Reason::ExpiredBeforeStart, &probe).await.expect_err("nobody looks");
        }
        assert_eq!(probe.finished_count(), ZERO.len());
    }

    only_behind_a_sidecar:

    async fn p4_a_service_that_knows_of_no_deadline_is_not_reached(shop: Shop) {
        let probe = Probe::new();
        let naive = shop.open_naively(counted(&probe)).await;
        let addr = shop.sidecar(naive, Trust::Outside, None, |_| {}).await;
        for (field, value) in ZERO {
            let ask = shop.get(addr, "/").header(field, value);
            is_refused(ask, Reason::ExpiredBeforeStart, &probe).await.unwrap();
        }
        is_refused(shop.get(addr, "/").within(ms(900)), Reason::ExpiredBeforeStart, &probe).await.expect_err("200");
    }
}

/// Contract V5: 0.6 ms left and a field in milliseconds: no call, a local error.
#[tokio::test(start_paused = true)]
async fn v5_a_rest_below_the_unit_is_not_sent() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let destination = Destination::named("pricing").min_useful(ms(0)).build().unwrap();
    let client = EgressLayer::new(destination).layer(tower::service_fn(move |_: http::Request<()>| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default())) }
    }));
    let call = |micros| {
        let op = Operation::begin("order", std::time::Duration::from_micros(micros));
        let client = client.clone();
        async move { op.scope(client.oneshot(http::Request::new(()))).await.map(drop) }
    };
    let error = call(600).await.expect_err("nothing to tell");
    assert_eq!(error.outcome(), Outcome::NotSent);
    let CallError::Stopped(Stopped::NotBegun(not_begun)) = error else { panic!("{error:?}") };
    assert!(matches!(not_begun.why, WhyNot::BelowTheUnit { .. }), "{not_begun}");
    assert_eq!(sent.load(Ordering::Relaxed), 0);
    call(1_600).await.expect("1 ms can be told");
    assert_eq!(sent.load(Ordering::Relaxed), 1);
}
