//! I9: retries and backoff fit in the original budget; one that cannot fit is not begun. Contract R1 to R5, R9, V1, V7.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use oneclock::{Known, Operation, Retries, retry};
use oneclock_core::retry::{RetryPolicy, RetryPolicyBuilder};
use oneclock_core::{Cause, Effect, Outcome, Stage};
use oneclock_test::Probe;
use oneclock_test::peer::Peer;
use tokio::time::Instant;

use crate::naive::ten_times;
use crate::out::{Fault, Out, Reply, Terms, WayOut};
use crate::shop::{NOTICED, Shop, ample, ms};
use crate::ways::{Got, Leave};
use crate::witness::clock_now;

fn policy() -> RetryPolicyBuilder {
    RetryPolicy::new().backoff(ms(0), ms(0))
}

over_every_way_in! {
    /// Contract V1: 400 ms each within 1000 ms. Three attempts, and what each is told is the rest of one budget.
    async fn v1_attempts_share_one_budget(shop: Shop) {
        let budget = ms(1_000);
        let pricing = shop.stalls();
        let policy = policy().attempts(9).per_try(ms(400)).build().unwrap();
        let out = retried(&shop, pricing.addr(), policy);
        let calls = get(move || async move { out.get("/").await.map(drop) });
        let addr = shop.open(ample("order"), Router::new().route("/", calls)).await;

        let began = clock_now();
        let answer = shop.get(addr, "/").within(budget).answer().await;
        assert_eq!(answer.status, 504, "{answer:?}");
        let told = all_told(&shop, &pricing).await;
        assert!((1..=3).contains(&told.len()), "{told:?}");
        assert!(told.iter().sum::<Duration>() <= budget, "{told:?}");
        assert!(told.iter().all(|told| *told <= ms(400)), "{told:?}");
        begin_in_time(&pricing, began, budget).await.expect("none begins after the deadline");
    }

    /// Contract R2, V7: a wait that does not fit is not begun; what came is told at once, as what it is.
    async fn a_wait_that_does_not_fit_is_not_begun(shop: Shop) {
        let probe = Probe::new();
        let busy = shop.open_naively(busy(&probe, "60")).await;
        let out = retried(&shop, busy, policy().build().unwrap());
        let calls = get(move || async move { ask(&out).await?.successful().map(drop) });
        let addr = shop.open(ample("order"), Router::new().route("/", calls)).await;
        let answer = shop.get(addr, "/").within(ms(15_000)).answer().await;
        assert_eq!(answer.verdict(), (502, None), "not 504 after 15 s");
        assert_eq!(probe.started_count(), 1);
    }

    /// Invariant I4: backoff spends the same budget, and a caller who leaves in the middle of it ends it.
    async fn a_caller_who_leaves_ends_the_backoff(shop: Shop) {
        for leave in [Leave::InOrder, Leave::Abruptly] {
            let probe = Probe::new();
            let busy = shop.open_naively(busy(&probe, "3")).await;
            let out = retried(&shop, busy, policy().build().unwrap());
            let name = if leave == Leave::InOrder { "order" } else { "abrupt" };
            let calls = get(move || async move { ask(&out).await.map(drop) });
            let addr = shop.open(ample(name), Router::new().route("/", calls)).await;
            let asked = shop.get(addr, "/").within(ms(15_000)).send_to_leave(leave).await;
            probe.started(1).await.unwrap();
            shop.witness().called("pricing").await;
            asked.leave().await;
            let left = clock_now();
            let over = shop.witness().ended(name).await;
            assert_eq!(over.ending.map(|ending| ending.cause), Some(Cause::CallerGone));
            assert!(clock_now() - left < NOTICED * 4, "{:?}", clock_now() - left);
            let waits: Vec<_> = over.ledger.entries().iter().filter(|entry| entry.stage == Stage::Backoff).collect();
            assert!(waits.iter().all(|wait| wait.ended.is_some()), "{waits:?}");
            assert_eq!(probe.started_count(), 1, "and there was no further attempt");
        }
    }

    without_a_sidecar:

    /// The same for a call through somebody else's client, tried again by a function around it.
    async fn v1_a_function_around_any_call_keeps_to_it_too(shop: Shop) {
        let budget = ms(1_000);
        for &way_out in shop.ways_out().iter().filter(|way_out| **way_out != WayOut::Client) {
            let pricing = shop.stalls();
            let out = shop.out(way_out, pricing.addr(), Terms::default());
            let policy = policy().attempts(9).per_try(ms(400)).effect(Effect::ReadOnly).build().unwrap();
            let retries = Retries::to("pricing", policy).build().unwrap();
            let (op, began) = (Operation::begin("order", budget), clock_now());
            let result = op.scope(retry(&retries, |_| async {
                out.get("/").await.map_err(|fault| Known::new(fault.text.clone(), fault.outcome))
            }));
            let error = result.await.expect_err("nobody answers");
            assert!(error.attempts <= 3, "{way_out:?}: {error}");
            assert!(all_told(&shop, &pricing).await.iter().sum::<Duration>() <= budget);
            begin_in_time(&pricing, began, budget).await.expect("none begins after the deadline");
            assert!(op.is_ended());
        }
    }

    async fn the_naive_way_of_a_timeout_per_attempt_begins_after_the_deadline(shop: Shop) {
        let budget = ms(300);
        let pricing = shop.stalls();
        let client = shop.plain(pricing.addr());
        let calls = get(move || async move {
            for _ in 0..4 {
                if client.get("/", Some(ms(200))).await.is_ok() {
                    return StatusCode::OK;
                }
            }
            StatusCode::BAD_GATEWAY
        });
        let addr = shop.open_naively(Router::new().route("/", calls)).await;
        let began = clock_now();
        let got = shop.get(addr, "/").within(budget).send().await.got_within(ten_times(budget)).await;
        assert!(matches!(got, Got::Whole(_) | Got::StillWaiting), "{got:?}");
        begin_in_time(&pricing, began, budget).await.expect_err("each attempt knows only its own limit");
    }

    /// Contract R5, R8: what its own deadline ended is unknown, and is not tried again.
    async fn r5_the_deadline_itself_is_not_retried(shop: Shop) {
        let pricing = shop.stalls();
        let out = retried(&shop, pricing.addr(), policy().build().unwrap());
        let op = Operation::begin("order", ms(300));
        let fault = op.scope(ask(&out)).await.map(drop).expect_err("no answer");
        assert_eq!(fault.outcome, Outcome::Unknown { stage: Stage::Wait });
        assert_eq!(pricing.requests(), 1, "{fault:?}");
    }
}

fn retried(shop: &Shop, addr: SocketAddr, policy: RetryPolicy) -> Out {
    shop.out(shop.way_out(), addr, Terms { retry: Some(policy), ..Terms::default() })
}

async fn ask(out: &Out) -> Result<Reply, Fault> {
    out.ask(Method::GET, "/", HeaderMap::new(), Bytes::new()).await
}

/// A service that is busy, and says when to come again.
fn busy(probe: &Probe, retry_after: &'static str) -> Router {
    let probe = probe.clone();
    Router::new().fallback(any(move || async move {
        probe.enter().finish();
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", retry_after)])
    }))
}

/// What every request that has arrived was told.
async fn all_told(shop: &Shop, peer: &Peer) -> Vec<Duration> {
    let mut told = Vec::new();
    for n in 1..=peer.requests() {
        let seen = peer.await_requests(n).await.unwrap();
        told.push(shop.way().told(&seen.headers));
    }
    told
}

/// Whether every attempt arrived before the deadline of a caller who began then.
async fn begin_in_time(peer: &Peer, began: Instant, budget: Duration) -> Result<(), String> {
    for n in 1..=peer.requests() {
        let late = peer.await_requests(n).await.unwrap().at.saturating_duration_since(began + budget);
        // What was sent just before the deadline may arrive a little after it.
        if late > ms(200) {
            return Err(format!("attempt {n} began {late:?} after the deadline"));
        }
    }
    Ok(())
}
