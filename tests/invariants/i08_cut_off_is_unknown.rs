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
use futures_util::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use oneclock::Operation;
use oneclock::events::Called;
use oneclock_axum::{Op, Problem};
use oneclock_core::wire::Conventions;
use oneclock_core::{Cause, Effect, Outcome, Policy, Stage, effect};
use oneclock_test::peer::{self, Peer};
use oneclock_test::{Probe, Reason};
use tokio::sync::Notify;

use crate::naive::under_a_timeout_layer;
use crate::out::{EVERY_WAY_OUT, Out, Terms, WayOut, plain_reqwest};
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
    async fn r8_cut_off_while_waiting_it_is_unknown(shop: Shop) {
        for way_out in EVERY_WAY_OUT {
            let payment = peer::stall(shop.way().protocol()).unwrap();
            let out = shop.out(way_out, payment.addr(), Terms::default());
            let outcome = charge(&out, "7 EUR").await;
            assert_eq!(outcome, unknown(Stage::Wait), "{way_out:?}");
            assert!(!effect::may_repeat(&Effect::Once, outcome, true), "so it is not repeated");
            assert_eq!(payment.await_request().await.unwrap().method, http::Method::POST, "it arrived");
        }
    }

    async fn r8_cut_off_while_sending_it_is_unknown(shop: Shop) {
        let payment = peer::stops_reading(shop.way().protocol()).unwrap();
        let client = shop.client("payment", payment.addr()).build().unwrap();
        // In pieces: what is one piece is handed over as one, and then its answer is waited for.
        let piece = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 16 * 1024])));
        let upload = StreamBody::new(stream::repeat_with(piece).take(1024));
        let request = http::Request::post("/charges").body(upload).unwrap();
        let op = Operation::begin("order", BUDGET);
        let error = client.request_in(&op, request).await.map(drop).expect_err("it is stuck");
        assert_eq!(error.outcome(), unknown(Stage::Send), "{error}");
        payment.read_on();
    }

    async fn r8_cut_off_in_the_body_of_its_answer_it_is_unknown(shop: Shop) {
        let payment = peer::stall_mid_body(shop.way().protocol()).unwrap();
        let out = shop.out(WayOut::Client, payment.addr(), Terms::default());
        let app = Router::new().route("/", post(move || async move { drop(out.post("/charges", "7 EUR").await) }));
        let addr = shop.open(ample("order"), app).await;
        shop.post(addr, "/").within(BUDGET).answer().await;
        let called = shop.witness().called("pricing").await;
        assert_eq!(called.outcome, unknown(Stage::Body));
        assert_eq!(called.ending.map(|ending| ending.cause), Some(Cause::Deadline));
    }

    async fn r8_a_connection_that_failed_midway_is_unknown_too(shop: Shop) {
        for way_out in EVERY_WAY_OUT {
            let payment = match shop.way() {
                Way::Http1 => peer::reset(peer::ResetAt::RequestRead),
                Way::Http2 => peer::reset_stream(peer::StreamResetAt::BeforeHead, Reason::INTERNAL_ERROR),
            };
            let payment = payment.unwrap();
            let out = shop.out(way_out, payment.addr(), Terms::default());
            let op = Operation::begin("order", ms(20_000));
            let fault = op.scope(out.post("/charges", "7 EUR")).await.expect_err("no answer");
            assert!(fault.stopped.is_none(), "there was time: {fault:?}");
            assert_eq!(fault.outcome, unknown(Stage::Wait), "{way_out:?}: {}", fault.text);
        }
    }

    async fn r8_what_never_left_is_not_sent(shop: Shop) {
        for way_out in EVERY_WAY_OUT {
            let refuses = peer::refuse().unwrap();
            let outcome = charge(&shop.out(way_out, refuses.addr(), Terms::default()), "7 EUR").await;
            match way_out {
                WayOut::Client | WayOut::Reqwest => {
                    assert_eq!(outcome, Outcome::NotSent, "{way_out:?}");
                    assert!(effect::may_repeat(&Effect::Once, outcome, false));
                }
                // A layer over somebody else's client cannot tell (contract R8).
                WayOut::Layer => assert_eq!(outcome, unknown(Stage::Wait)),
            }
        }
        let hangs = peer::connect_hangs().await.unwrap();
        let out = shop.out(WayOut::Client, hangs.addr(), Terms::default());
        assert_eq!(charge(&out, "7 EUR").await, Outcome::NotSent);
    }

    /// One of ours says that it has not begun: that is proof.
    async fn r8_what_a_service_of_ours_refused_is_rejected(shop: Shop) {
        let probe = Probe::new();
        let charged = probe.clone();
        let charges = post(move || async move { charged.enter().finish() });
        let clock = Policy::named("payment").when_absent(ms(9_000)).ceiling(ms(9_000)).min_useful(ms(8_000));
        let payment = shop.open(clock, Router::new().route("/charges", charges)).await;
        let client = shop.client("payment", payment).trust(oneclock_core::Trust::Inside).build().unwrap();
        let app = Router::new().route(
            "/",
            post(move || async move {
                let answer = client.post("/charges", "7 EUR").await.map_err(Problem::from)?;
                Ok::<_, Problem>(answer.status().as_u16().to_string())
            }),
        );
        let addr = shop.open(ample("order"), app).await;
        assert_eq!(shop.post(addr, "/").within(ms(5_000)).answer().await.body, "504");
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
        let untold = Terms { tells: Conventions::none(), ..Terms::default() };
        let out = shop.out(WayOut::Client, payment, untold);
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
            for way_out in EVERY_WAY_OUT {
                let payment = peer::stall(shop.way().protocol()).unwrap();
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

    async fn the_naive_way_of_recording_after_the_await_records_nothing(shop: Shop) {
        let payment = peer::stall(shop.way().protocol()).unwrap();
        let (client, url) = (plain_reqwest(shop.way()), payment.url());
        let records: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = records.clone();
        let charges = post(move || async move {
            let answer = client.post(url).body("7 EUR").timeout(ms(5_000)).send().await;
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
