//! I8: a cut-off call with an effect is reported as unknown, never as "did not happen", and its record still gets
//! written, although its caller was dropped. What never left is reported as not sent. Contract N1, R7, R8.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, Method};
use oneclock::Operation;
use oneclock::events::Called;
use oneclock_axum::{Op, Problem};
use oneclock_core::wire::Conventions;
use oneclock_core::{Cause, Effect, Outcome, Policy, Stage, effect};
use oneclock_test::Probe;
use oneclock_test::peer::{self, Peer};
use tokio::sync::Notify;

use crate::naive::under_a_timeout_layer;
use crate::out::{Fault, Out, Terms, WayOut};
use crate::shop::{NOTICED, Shop, ample, ms};
use crate::ways::{Leave, Way};

const BUDGET: Duration = ms(300);

/// Posts a charge in an operation of its own that nobody else ends, and returns what is known of it then.
async fn charge(out: &Out, body: impl Into<Bytes>) -> Outcome {
    let op = Operation::begin("order", BUDGET);
    op.scope(out.post("/charges", body)).await.expect_err("no answer").outcome
}

fn unknown(stage: Stage) -> Outcome {
    Outcome::Unknown { stage }
}

over_every_way_in! {
    async fn r8_cut_off_in_the_body_of_its_answer_it_is_unknown(shop: Shop) {
        let payment = shop.stalls_mid_body();
        let out = shop.out(shop.way_out(), payment.addr(), Terms::default());
        let app = Router::new().route("/", post(move || async move { drop(out.post("/charges", "7 EUR").await) }));
        let addr = shop.open(ample("order"), app).await;
        shop.post(addr, "/").within(BUDGET).answer().await;
        let called = shop.witness().called("pricing").await;
        assert_eq!(called.outcome, unknown(Stage::Body));
        let cause = called.ending.map(|ending| ending.cause);
        // A sidecar may be first to notice a deadline, and then leaves its service.
        let left = shop.is_behind_a_sidecar() && cause == Some(Cause::CallerGone);
        assert!(left || cause == Some(Cause::Deadline), "{cause:?}");
    }

    /// One of ours says that it has not begun: that is proof.
    async fn r8_what_a_service_of_ours_refused_is_rejected(shop: Shop) {
        let probe = Probe::new();
        let charged = probe.clone();
        let charges = post(move || async move { charged.enter().finish() });
        let clock = Policy::named("payment").when_absent(ms(9_000)).ceiling(ms(9_000)).min_useful(ms(8_000));
        let payment = shop.open(clock, Router::new().route("/charges", charges)).await;
        let out = shop.out(shop.way_out(), payment, Terms { name: "payment", ..Terms::default() });
        let charge = move || async move {
            let reply = out.ask(Method::POST, "/charges", HeaderMap::new(), "7 EUR".into()).await?;
            assert_eq!(reply.status, 504);
            Ok::<_, Fault>("refused")
        };
        let addr = shop.open(ample("order"), Router::new().route("/", post(charge))).await;
        assert_eq!(shop.post(addr, "/").within(ms(5_000)).answer().await.body, "refused");
        assert_eq!(shop.witness().called("payment").await.outcome, Outcome::Rejected);
        assert_eq!(probe.started_count(), 0);
    }

    /// The service did its work, and nobody could know: unknown is the truth.
    async fn a_charge_that_was_made_is_never_reported_as_not_sent(shop: Shop) {
        let (made, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, told) = (made.clone(), go_on.clone());
        let charges = post(move |Op(op): Op| async move {
            let charge = async move {
                told.notified().await;
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>("receipt")
            };
            op.must_finish("charge", ms(20_000), charge).await.map_err(Problem::from)
        });
        let payment = shop.open(ample("payment"), Router::new().route("/charges", charges)).await;
        // Not told how long it has: else it may answer just before the call is cut off.
        let untold = Terms { tells: Some(Conventions::none()), ..Terms::default() };
        let out = shop.out(shop.way_out(), payment, untold);
        assert_eq!(charge(&out, "7 EUR").await, unknown(Stage::Wait));
        go_on.notify_one();
        shop.witness().ended("charge").await;
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    /// The wait for a step that must finish ends before the step.
    async fn a_step_that_is_still_running_is_unknown_to_who_waited(shop: Shop) {
        let go_on = Arc::new(Notify::new());
        let told = go_on.clone();
        let charges = post(move |Op(op): Op| async move {
            let charge = async move {
                told.notified().await;
                Ok::<_, Infallible>(())
            };
            op.must_finish("charge", ms(20_000), charge).await.map_err(Problem::from)
        });
        let payment = shop.open(ample("payment"), Router::new().route("/charges", charges)).await;
        let answer = shop.post(payment, "/charges").within(BUDGET).answer().await;
        assert_eq!(answer.verdict(), (504, Some("deadline")));
        assert_eq!(answer.json()["outcome"], "unknown", "{answer:?}");
        go_on.notify_one();
        assert_eq!(shop.witness().ended("charge").await.ending, None, "it finished");
    }

    /// Contract N1: the handler is dropped in the middle of its call, and the call is on record all the same.
    async fn n1_the_record_is_written_although_its_caller_was_dropped(shop: Shop) {
        for leave in [Leave::InOrder, Leave::Abruptly] {
            for &way_out in shop.ways_out() {
                let payment = shop.stalls();
                let out = shop.out(way_out, payment.addr(), Terms::default());
                let charges = post(move || async move { drop(out.post("/charges", "7 EUR").await) });
                let addr = shop.open(ample("order"), Router::new().route("/", charges)).await;
                let before = on_record(&shop).len();
                is_recorded(&shop, addr, &payment, leave, || on_record(&shop).len() - before).await.unwrap();
                let last = on_record(&shop).pop().expect("on record");
                assert_eq!((last.operation.as_str(), last.call.as_str()), ("order", "pricing"));
                assert_eq!(last.outcome, unknown(Stage::Wait), "{way_out:?}");
                assert_eq!(last.ending.map(|ending| ending.cause), Some(Cause::CallerGone), "{way_out:?}");
            }
        }
    }

    without_a_sidecar:

    async fn r8_cut_off_while_waiting_it_is_unknown(shop: Shop) {
        for &way_out in shop.ways_out() {
            let payment = shop.stalls();
            let out = shop.out(way_out, payment.addr(), Terms::default());
            let outcome = charge(&out, "7 EUR").await;
            assert_eq!(outcome, unknown(Stage::Wait), "{way_out:?}");
            assert!(!effect::may_repeat(&Effect::Once, outcome, true), "so it is not repeated");
            assert_eq!(payment.await_request().await.unwrap().method, Method::POST, "it arrived");
        }
    }

    async fn r8_cut_off_while_sending_it_is_unknown(shop: Shop) {
        let payment = shop.stops_reading();
        let out = shop.out(shop.way_out(), payment.addr(), Terms::default());
        let op = Operation::begin("order", BUDGET);
        // In pieces: what is one piece is handed over as one, and then its answer is waited for.
        let fault = op.scope(out.upload("/charges", 1024, 16 * 1024)).await.map(drop).expect_err("it is stuck");
        // Inside of a channel nobody sees how far it is.
        let stage = if shop.way() == Way::Grpc { Stage::Wait } else { Stage::Send };
        assert_eq!(fault.outcome, unknown(stage), "{fault:?}");
        payment.read_on();
    }

    async fn r8_a_connection_that_failed_midway_is_unknown_too(shop: Shop) {
        for &way_out in shop.ways_out() {
            let payment = shop.resets();
            let out = shop.out(way_out, payment.addr(), Terms::default());
            let op = Operation::begin("order", ms(20_000));
            let fault = op.scope(out.post("/charges", "7 EUR")).await.expect_err("no answer");
            assert!(fault.stopped.is_none(), "there was time: {fault:?}");
            assert_eq!(fault.outcome, unknown(Stage::Wait), "{way_out:?}: {}", fault.text);
        }
    }

    async fn r8_what_never_left_is_not_sent(shop: Shop) {
        for &way_out in shop.ways_out() {
            let refuses = peer::refuse().unwrap();
            let outcome = charge(&shop.out(way_out, refuses.addr(), Terms::default()), "7 EUR").await;
            match way_out {
                WayOut::Client | WayOut::Reqwest | WayOut::Tonic => {
                    assert_eq!(outcome, Outcome::NotSent, "{way_out:?}");
                    assert!(effect::may_repeat(&Effect::Once, outcome, false));
                }
                // A layer over somebody else's client cannot tell (contract R8).
                WayOut::Layer => assert_eq!(outcome, unknown(Stage::Wait)),
            }
        }
        let hangs = peer::connect_hangs().await.unwrap();
        let out = shop.out(shop.way_out(), hangs.addr(), Terms::default());
        // A channel does not say how far it is.
        let known = if shop.way() == Way::Grpc { unknown(Stage::Wait) } else { Outcome::NotSent };
        assert_eq!(charge(&out, "7 EUR").await, known);
    }

    async fn the_naive_way_of_recording_after_the_await_records_nothing(shop: Shop) {
        let payment = shop.stalls();
        let client = shop.plain(payment.addr());
        let records: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = records.clone();
        let charges = post(move || async move {
            let answer = client.post("/charges", "7 EUR", Some(ms(5_000))).await;
            kept.lock().unwrap().push(format!("{answer:?}")); // never reached
        });
        let app = under_a_timeout_layer(Router::new().route("/", charges), ms(5_000));
        let addr = shop.open_naively(app).await;
        let recorded = || records.lock().unwrap().len();
        is_recorded(&shop, addr, &payment, Leave::InOrder, recorded).await.expect_err("dropped with the handler");
    }
}

fn on_record(shop: &Shop) -> Vec<Called> {
    shop.witness().all(|seen| match seen {
        crate::witness::Seen::Called(called) => Some(called.clone()),
        _ => None,
    })
}

/// Posts, leaves once the payment has arrived, and tells whether there is exactly one record of it then.
async fn is_recorded(
    shop: &Shop,
    addr: SocketAddr,
    payment: &Peer,
    leave: Leave,
    records: impl Fn() -> usize,
) -> Result<(), String> {
    let asked = shop.post(addr, "/").send_to_leave(leave).await;
    payment.await_request().await.unwrap();
    asked.leave().await;
    payment.caller_left().await.map_err(|missed| missed.to_string())?;
    let written = async {
        while records() == 0 {
            tokio::time::sleep(ms(1)).await; // what is awaited is no event of ours
        }
    };
    match (tokio::time::timeout(NOTICED, written).await, records()) {
        (Ok(()), 1) => Ok(()),
        (_, records) => Err(format!("{records} records of one charge that was sent")),
    }
}
