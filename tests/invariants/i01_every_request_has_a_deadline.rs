//! I1: every request that enters has a finite deadline, whatever its caller says, or does not say. Contract P3, P6, P8,
//! P9, C2.

use std::net::SocketAddr;
use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use oneclock::clock;
use oneclock_axum::Op;
use oneclock_core::ingress::PolicyBuilder;
use oneclock_core::wire::{Convention, Conventions, names};
use oneclock_core::{BoundBy, Cause, OnMalformed, Policy, Trust};
use oneclock_test::{Ended, Probe};
use serde_json::{Value, json};

use crate::naive::{ten_times, under_a_timeout_layer};
use crate::shop::{NOTICED, Shop, ms};
use crate::ways::{Answer, Ask, Got, Way};

const WHEN_ABSENT: Duration = ms(800);
const CEILING: Duration = ms(2_000);
const OF_REPORTS: Duration = ms(30_000);
/// What a report has if its caller says nothing: less than others.
const TIGHT: Duration = ms(400);

fn clock_of_orders(shop: &Shop) -> PolicyBuilder {
    Policy::named("order")
        .when_absent(WHEN_ABSENT)
        .ceiling(CEILING)
        .min_useful(ms(20))
        .route(shop.way().route("/reports/{id}"), |limits| limits.ceiling(OF_REPORTS).when_absent(TIGHT))
        .route(shop.way().route("/lenient"), |limits| limits.on_malformed(OnMalformed::Clamp))
}

fn orders() -> Router {
    Router::new().route("/orders", get(budget)).route("/reports/{id}", get(budget)).route("/lenient", get(budget))
}

/// What this request may spend.
async fn budget(Op(op): Op) -> Json<Value> {
    let bound = op.bound();
    json!({ "bound": bound.by.as_str(), "limit_ms": bound.limit.as_millis(), "left_ms": op.remaining().as_millis() })
        .into()
}

/// Asks, and wants a budget with this bound and limit, of which not more is left. A sidecar decides in place of the service, which
/// is told what is left of that.
async fn has(shop: &Shop, ask: Ask, bound: BoundBy, limit: Duration) {
    let answer = ask.clone().answer().await;
    assert_eq!(answer.status, 200, "{ask:?}: {answer:?}");
    let (got, limit_ms, left) = spent(&answer);
    if shop.is_behind_a_sidecar() {
        assert!(limit_ms <= limit.as_millis() && limit_ms > 0, "{ask:?}: {limit_ms} ms of {limit:?}");
    } else {
        assert_eq!((got.as_str(), limit_ms), (bound.as_str(), limit.as_millis()), "{ask:?}");
    }
    assert!(left <= limit_ms, "{ask:?}: {left} ms left");
}

fn spent(answer: &Answer) -> (String, u128, u128) {
    let json = answer.json();
    let number = |field: &str| u128::from(json[field].as_u64().expect("a number"));
    (json["bound"].as_str().expect("a word").to_owned(), number("limit_ms"), number("left_ms"))
}

over_every_way_in! {
    async fn c2_who_says_nothing_gets_when_absent(shop: Shop) {
        for trust in [Trust::Inside, Trust::Outside] {
            let addr = shop.open_to(trust, clock_of_orders(&shop), orders()).await;
            has(&shop, shop.get(addr, "/orders"), BoundBy::Absent, WHEN_ABSENT).await;
            has(&shop, shop.get(addr, "/reports/7"), BoundBy::Absent, TIGHT).await;
        }
    }

    async fn p9_of_several_fields_the_smallest_counts(shop: Shop) {
        let addr = shop.open(clock_of_orders(&shop), orders()).await;
        let several = shop.get(addr, "/orders").header("grpc-timeout", "5S").header("x-request-timeout-ms", "700");
        has(&shop, several.clone().within(ms(900)), BoundBy::Caller, ms(700)).await;
        has(&shop, several.header("grpc-timeout", "600m"), BoundBy::Caller, ms(600)).await;
    }

    async fn p6_however_much_is_asked_for_the_route_has_a_ceiling(shop: Shop) {
        let addr = shop.open(clock_of_orders(&shop), orders()).await;
        let huge = [
            ("grpc-timeout", "99999999H"),
            ("x-remaining-ms", "9999999999"),
            ("connect-timeout-ms", "9999999999"),
            ("x-request-deadline", "9999-12-31T23:59:59Z"),
        ];
        for (field, value) in huge {
            has(&shop, shop.get(addr, "/orders").header(field, value), BoundBy::Ceiling, CEILING).await;
            has(&shop, shop.get(addr, "/reports/7").header(field, value), BoundBy::Ceiling, OF_REPORTS).await;
        }
    }

    async fn c2_outsiders_may_shorten_never_lengthen(shop: Shop) {
        let addr = shop.open_to(Trust::Outside, clock_of_orders(&shop), orders()).await;
        has(&shop, shop.get(addr, "/orders").within(ms(300)), BoundBy::Caller, ms(300)).await;
        has(&shop, shop.get(addr, "/orders").within(ms(1_500)), BoundBy::Absent, WHEN_ABSENT).await;
        has(&shop, shop.get(addr, "/orders").header("grpc-timeout", "99999999H"), BoundBy::Absent, WHEN_ABSENT).await;
        // What only trusted peers may say does not count, and zero of Envoy's is not "no limit".
        let envoys = shop.get(addr, "/orders").header("x-envoy-upstream-rq-timeout-ms", "0");
        has(&shop, envoys, BoundBy::Absent, WHEN_ABSENT).await;
    }

    /// Nor choose other limits than those of its route.
    async fn c2_what_a_caller_claims_to_speak_changes_no_limits(shop: Shop) {
        let addr = shop.open_to(Trust::Outside, clock_of_orders(&shop), orders()).await;
        let ask = || shop.get(addr, "/reports/7");
        has(&shop, ask(), BoundBy::Absent, TIGHT).await;
        has(&shop, ask().header("connect-timeout-ms", "9000"), BoundBy::Absent, TIGHT).await;
        if shop.way() != Way::Grpc {
            // Which says it by the same field.
            has(&shop, ask().header("content-type", "application/grpc"), BoundBy::Absent, TIGHT).await;
        }
    }

    async fn p3_malformed_is_refused_or_clamped_never_unlimited(shop: Shop) {
        let addr = shop.open(clock_of_orders(&shop), orders()).await;
        let malformed = [
            ("grpc-timeout", "123456789S"),
            ("grpc-timeout", "infinity"),
            ("x-remaining-ms", "-1"),
            ("x-remaining-ms", "+5"),
            ("x-remaining-ms", ""),
            ("x-remaining-ms", "12345678901"),
            ("connect-timeout-ms", "5s"),
            ("x-request-deadline", "tomorrow"),
        ];
        for (field, value) in malformed {
            let ask = |target: &str| shop.get(addr, target).header(field, value);
            let refused = ask("/orders").answer().await;
            assert_eq!(refused.verdict(), (400, Some("malformed_deadline")), "{field}: {value}");
            if shop.is_behind_a_sidecar() {
                continue; // its route is not lenient
            }
            if shop.way() == Way::Grpc {
                let refused = ask("/lenient").answer().await;
                assert_eq!(refused.verdict(), (400, Some("malformed_deadline")), "gRPC has an answer of its own");
                continue;
            }
            has(&shop, ask("/lenient"), BoundBy::Absent, WHEN_ABSENT).await;
            // What could be read next to it still counts.
            let short = ("x-request-timeout-ms", "300");
            has(&shop, ask("/lenient").header(short.0, short.1), BoundBy::Caller, ms(300)).await;
        }
    }

    async fn a_handler_that_never_ends_is_ended(shop: Shop) {
        let (probe, patience) = (Probe::new(), ms(200));
        let addr = shop.open(Policy::named("order").when_absent(patience), forever(&probe)).await;
        let got = ends(&shop, addr, patience).await.expect("it ends");
        let Got::Whole(answer) = got else { panic!("{got:?}") };
        assert_eq!(answer.verdict(), (504, Some("deadline")));
        assert_eq!(probe.ended(1).await.map(|end| end.how), Ok(Ended::Dropped));
        let over = shop.witness().ended("order").await;
        let ending = over.ending.expect("an early end");
        assert!(over.elapsed < patience + NOTICED, "{:?}", over.elapsed);
        if shop.is_behind_a_sidecar() {
            return; // which may have been first, by less than it takes to tell
        }
        assert_eq!((ending.cause, ending.bound), (Cause::Deadline, BoundBy::Caller));
        assert!(over.elapsed >= patience, "{:?}", over.elapsed);
    }

    without_a_sidecar:

    async fn p1_every_convention_is_read(shop: Shop) {
        let everything = Conventions::new(Convention::ALL).expect("no two alike");
        let layer = shop.layer(clock_of_orders(&shop)).reads(everything.clone());
        let addr = shop.open_layered(shop.routes(orders()).layer(layer), |serve| serve.trust(Trust::Inside)).await;
        for convention in &everything {
            let field = convention.name().as_str();
            let ask = |value: &str| shop.get(addr, "/orders").header(field, value);
            let relative = match field {
                names::GRPC_TIMEOUT => "1500m",
                names::EXPECT_WITHIN => "1.5",
                names::L5D_TIMEOUT => "1500ms",
                _ => "1500",
            };
            if !convention.codec().is_absolute() {
                has(&shop, ask(relative), BoundBy::Caller, ms(1_500)).await;
                continue;
            }
            let value = convention.codec().encode(ms(1_500), clock::wall()).expect("it can be said");
            let answer = ask(value.as_str()).answer().await;
            let (bound, limit, _) = spent(&answer);
            assert_eq!(bound, "caller", "{field}");
            // What has passed between writing and reading it is spent.
            assert!(limit <= 1_500 && limit > 700, "{field}: {limit} ms of 1500 ms");
        }
    }

    async fn the_naive_way_of_axum_alone_waits_for_ever(shop: Shop) {
        let (probe, patience) = (Probe::new(), ms(100));
        let addr = shop.open_naively(forever(&probe)).await;
        ends(&shop, addr, patience).await.expect_err("nothing ends it");
        assert_eq!(probe.started_count(), 1);
    }

    async fn the_naive_way_of_a_timeout_layer_is_deaf_to_its_caller(shop: Shop) {
        let (probe, patience) = (Probe::new(), ms(100));
        let addr = shop.open_naively(under_a_timeout_layer(forever(&probe), ms(30_000))).await;
        ends(&shop, addr, patience).await.expect_err("its caller has 100 ms, it has 30 s");
        assert_eq!(probe.running(), 1);
    }

    only_behind_a_sidecar:

    async fn a_service_that_knows_of_no_deadline_is_ended(shop: Shop) {
        let (probe, patience) = (Probe::new(), ms(200));
        let naive = shop.open_naively(forever(&probe)).await;
        let addr = shop.sidecar(naive, Trust::Inside, None, |route| route.when_absent = patience).await;
        let says_nothing = shop.get(addr, "/forever").answer().await;
        assert_eq!(says_nothing.verdict(), (504, Some("deadline")));
        let Got::Whole(answer) = ends(&shop, addr, patience).await.expect("it ends") else { panic!("no whole answer") };
        assert_eq!(answer.verdict(), (504, Some("deadline")));
        assert_eq!(probe.ended(2).await.map(|end| end.how), Ok(Ended::Dropped));
    }
}

over_plain_tonic! {
    /// What cannot be read is no limit there; what can be is, under a status that says something else.
    async fn the_naive_way_of_tonics_server_takes_what_is_malformed_for_no_limit(shop: Shop) {
        let probe = Probe::new();
        let addr = shop.open_plain_tonic(forever(&probe), |server| server).await;
        let with = |value: &str| shop.get(addr, "/forever").header("grpc-timeout", value);
        let malformed = ["123456789S", "100", "1.5S"].map(|value| async move {
            let got = with(value).send().await.got_within(ms(1_000)).await;
            assert!(matches!(got, Got::StillWaiting), "{value}: {got:?}");
        });
        futures_util::future::join_all(malformed).await;
        assert_eq!(probe.started_count(), 3, "each of them worked without an end");
        assert_eq!(with("100m").answer().await.verdict(), (499, None), "CANCELLED");
    }
}

fn forever(probe: &Probe) -> Router {
    let probe = probe.clone();
    Router::new().route("/forever", get(move || async move { probe.never().await }))
}

/// Whether a request is answered, or visibly ended, within ten times what it has.
async fn ends(shop: &Shop, addr: SocketAddr, patience: Duration) -> Result<Got, String> {
    match shop.get(addr, "/forever").within(patience).send().await.got_within(ten_times(patience)).await {
        got @ (Got::Whole(_) | Got::CutOff { .. }) => Ok(got),
        Got::StillWaiting => Err(format!("still waiting after {:?} of {patience:?}", ten_times(patience))),
    }
}
