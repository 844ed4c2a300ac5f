//! Callers that leave, deadlines that pass, and work that goes on under its own bound.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::{Operation, Shutdown};
use oneclock_idempotency::{Answer, MemoryStore, Settle, Store as _, Which};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn m10_the_caller_leaves_and_the_retry_gets_the_answer() {
    let (layer, counting) = layer(MemoryStore::with_clock(paused_wall), |l| l);
    let shop = Shop::that_takes(ms(500));
    {
        let op = Operation::begin("caller", ms(5_000));
        let sending = op.run(send(&layer, &shop, post("tap-7", "{}")));
        tokio::select! { _ = sending => panic!("too early"), () = tokio::time::sleep(ms(50)) => {} } // it hangs up
    }
    assert_eq!(shop.begun(), 1);
    let again = send(&layer, &shop, post("tap-7", "{}")).await; // joins the run
    assert_eq!((again.status, again.body.as_str(), again.replayed), (201, "receipt 0", true));
    assert_eq!((shop.begun(), counting.count("keyed ran")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn m2_a_caller_that_leaves_between_effect_and_record_loses_nothing() {
    let moody = Moody::new();
    let (layer, _) = layer(moody.clone(), |l| l);
    let slow = moody.slow_ms.clone();
    let shop = Shop::new(move |n, _| {
        slow.store(300, Ordering::SeqCst); // the effect is there; now the store takes its time
        async move { receipt(n) }
    });
    {
        let op = Operation::begin("caller", ms(100));
        let cut = op.run(send(&layer, &shop, post("tap-7", "{}"))).await.expect("a deadline answer");
        assert_eq!(cut.status, 504);
    }
    moody.slow_ms.store(0, Ordering::SeqCst);
    let again = send(&layer, &shop, post("tap-7", "{}")).await;
    assert_eq!((again.body.as_str(), again.replayed, shop.begun()), ("receipt 0", true, 1));
}

#[tokio::test(start_paused = true)]
async fn m10_the_callers_deadline_is_a_deadline_answer_with_a_place_to_ask() {
    let (layer, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
    let shop = Shop::that_takes(ms(500));
    let late = send_within(&layer, &shop, ms(200), post("tap-7", "{}")).await;
    assert_eq!((late.status, &late.headers["oneclock-reason"]), (504, &"deadline".parse().unwrap()));
    assert!(late.link.unwrap().starts_with("</operations/"), "where to ask");
    let again = send(&layer, &shop, post("tap-7", "{}")).await;
    assert_eq!((again.body.as_str(), shop.begun()), ("receipt 0", 1));
}

#[tokio::test(start_paused = true)]
async fn m1_no_claim_for_what_cannot_be_waited_for() {
    let moody = Moody::new();
    let (layer, _) = layer(moody.clone(), |l| l.reserve(ms(50)));
    let shop = Shop::that_takes(ms(1));
    let doomed = send_within(&layer, &shop, ms(40), post("tap-7", "{}")).await;
    assert_eq!(&doomed.headers["oneclock-reason"], "insufficient_budget");
    assert_eq!((shop.begun(), moody.log.lock().unwrap().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn m4_who_leaves_before_the_claim_is_there_leaves_proof_that_nothing_happened() {
    let moody = Moody::new();
    moody.slow_ms.store(200, Ordering::SeqCst);
    let (layer, _) = layer(moody.clone(), |l| l);
    let shop = Shop::that_takes(ms(1));
    {
        let op = Operation::begin("caller", ms(5_000));
        let sending = op.run(send(&layer, &shop, post("tap-7", "{}")));
        tokio::select! { _ = sending => panic!("too early"), () = tokio::time::sleep(ms(50)) => {} }
    }
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!((shop.begun(), moody.inner.len(), layer.runs()), (0, 1, 0));
    let again = send(&layer, &shop, post("tap-7", "{}")).await;
    assert_eq!((again.body.as_str(), again.replayed), ("receipt 0", false));
}

#[tokio::test(start_paused = true)]
async fn m10_nobody_is_told_that_work_goes_on_which_had_no_claim() {
    let moody = Moody::new();
    let (layer, _) = layer(moody.clone(), |l| l);
    let shop = Shop::that_takes(ms(400));
    let goes_on = send_within(&layer, &shop, ms(200), post("tap-6", "{}")).await;
    moody.slow_ms.store(800, Ordering::SeqCst);
    let not_begun = send_within(&layer, &shop, ms(200), post("tap-7", "{}")).await;
    for (late, word) in [(&goes_on, "goes on"), (&not_begun, "nothing was begun")] {
        assert_eq!((late.status, &late.headers["oneclock-reason"]), (504, &"deadline".parse().unwrap()), "{late:?}");
        assert!(late.body.contains(word), "{late:?}");
    }
    tokio::time::sleep(ms(3_000)).await;
    assert_eq!(shop.begun(), 1, "nobody waits for the other one any more");
}

#[tokio::test(start_paused = true)]
async fn i6_the_work_has_its_own_bound_and_the_handler_knows_it() {
    let (layer, _) = layer(MemoryStore::with_clock(paused_wall), |l| l.execution(ms(3_000)));
    let shop = Shop::new(|n, _| async move {
        let left = oneclock::remaining().expect("an operation");
        assert!(left > ms(2_900) && left <= ms(3_000), "{left:?}: the run's, not the caller's");
        receipt(n)
    });
    assert_eq!(send_within(&layer, &shop, ms(500), post("tap-7", "{}")).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn m3_work_that_reaches_its_bound_is_unknown() {
    let (layer, counting) = layer(MemoryStore::with_clock(paused_wall), |l| l.execution(ms(300)));
    let shop = Shop::that_takes(ms(5_000));
    let cut = send_within(&layer, &shop, ms(4_000), post("tap-7", "{}")).await;
    assert_eq!((cut.status, &cut.headers["oneclock-reason"]), (504, &"cap".parse().unwrap()));
    let again = send(&layer, &shop, post("tap-7", "{}")).await;
    assert!(again.is(409, "outcome_unknown"), "{again:?}");
    assert_eq!(again.retry_after, None, "trying again finds out nothing");
    assert!(again.link.unwrap().contains("rel=\"monitor\""));
    assert_eq!((shop.begun(), counting.count("keyed unknown cut_off")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn x10_a_shutdown_waits_for_runs() {
    let shutdown = Shutdown::new();
    let store = MemoryStore::with_clock(paused_wall);
    let (layer, _) = layer(store.clone(), |l| l);
    let shop = Shop::that_takes(ms(2_000));
    let op = Operation::begin("caller", ms(9_000)).ended_by(&shutdown);
    let sending = tokio::spawn({
        let (layer, shop) = (layer.clone(), shop.clone());
        async move { op.run(send(&layer, &shop, post("tap-7", "{}"))).await.expect("an answer") }
    });
    tokio::time::sleep(ms(100)).await;
    shutdown.drain(ms(500)).await;
    let cut = sending.await.unwrap();
    assert_eq!((cut.status, &cut.headers["oneclock-reason"]), (503, &"shutdown_midway".parse().unwrap()));
    assert!(cut.link.is_some(), "the wait ended with the grace");
    let again = send(&layer, &shop, post("tap-7", "{}")).await;
    assert_eq!((again.body.as_str(), again.replayed, shop.begun()), ("receipt 0", true, 1), "the work did not");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_behind() {
    let (layer, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
    let shop = Shop::that_takes(ms(100));
    for n in 0..20 {
        let op = Operation::begin("caller", ms(30));
        let _ = op.run(send(&layer, &shop, post(&format!("k{n}"), "{}"))).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(layer.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn i13_only_a_run_reads_as_the_work_and_a_replay_does_not() {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = said.clone();
    let observer = Arc::new(move |event: &oneclock::events::Event<'_>| seen.lock().unwrap().push(event.to_string()));
    let (layer, _) = layer(MemoryStore::with_clock(paused_wall), |l| l.observed_by(observer.clone()));
    let shop = Shop::new(|n, _| async move {
        assert_eq!(Operation::current().expect("an operation").name().as_str(), "charge");
        tokio::time::sleep(ms(50)).await;
        receipt(n)
    });
    let tell = async |body| {
        let op = Operation::begin("order", ms(2_000)).observed_by(observer.clone());
        op.run(send(&layer, &shop, post("k", body))).await.unwrap();
        drop(op);
        said.lock().unwrap().drain(..).collect::<Vec<_>>()
    };
    let claim = "keyed charge: done after 0ns of 17s (bound: cap)";
    let order = "order: done after 0ns of 2s (bound: cap); spent: keyed charge 0ns";
    assert_eq!(
        tell("{}").await,
        [
            "charge: keyed ran",
            "charge (of keyed charge): done after 50ms of 10s (bound: cap)",
            "keyed charge: done after 50ms of 17s (bound: cap); spent: charge 50ms",
            "order: done after 50ms of 2s (bound: cap); spent: keyed charge 50ms",
        ]
    );
    assert_eq!(tell("{}").await, [claim, "charge: keyed replayed", order]);
    assert_eq!(tell("{ }").await, [claim, "charge: keyed refused key_reused", order]);
}

/// The number that a platform has to be told: the grace, and the longest that a run may take.
#[tokio::test(start_paused = true)]
async fn x10_a_shutdown_takes_no_longer_than_its_grace_and_the_longest_run() {
    let (layer, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
    assert_eq!(layer.longest_run(), ms(17_000));
    let shop = Shop::that_takes(ms(60_000));
    let shutdown = Shutdown::new();
    let op = Operation::begin("order", ms(120_000)).ended_by(&shutdown);
    let asking = tokio::spawn({
        let (layer, shop) = (layer.clone(), shop.clone());
        async move { op.run(send(&layer, &shop, post("k", "{}"))).await.expect("an answer") }
    });
    tokio::time::sleep(ms(1)).await;
    let began = oneclock::clock::now();
    shutdown.drain(ms(5_000)).await;
    let took = oneclock::clock::now().since(began);
    assert!(took > ms(5_000) && took <= ms(5_000) + layer.longest_run(), "{took:?}");
    let told = asking.await.unwrap();
    assert!(
        told.status == 503 && told.link.is_some(),
        "at the end of the grace its caller learns where to ask: {told:?}"
    );
    assert_eq!(layer.runs(), 0);
    assert!(
        send(&layer, &shop, post("k", "{}")).await.is(409, "outcome_unknown"),
        "and what became of it is on record"
    );
}

/// The extreme of all three bounds: the claim takes its whole time, the work is cut off, and the store cannot be told. What is
/// late in between takes nothing from the last word.
#[tokio::test(start_paused = true)]
async fn n1_a_run_that_used_all_its_time_still_says_that_it_is_not_recorded() {
    let moody = Moody::new();
    moody.slow_ms.store(2_000, Ordering::SeqCst);
    moody.settles_fail.store(true, Ordering::SeqCst);
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = said.clone();
    let observer = Arc::new(move |event: &oneclock::events::Event<'_>| {
        let event = event.to_string();
        if event == "charge: keyed unknown cut_off" {
            // The work is over, and this process is slow to go on: the clock moves while nothing is polled.
            tokio::time::resume();
            std::thread::sleep(ms(5));
            tokio::time::pause();
        }
        seen.lock().unwrap().push(event);
    });
    let slow_ms = moody.slow_ms.clone();
    let (layer, _) = layer(moody, |l| l.observed_by(observer).wait_at_most(ms(60_000)));
    let shop = Shop::new(move |n, _| {
        slow_ms.store(0, Ordering::SeqCst);
        async move {
            tokio::time::sleep(ms(60_000)).await;
            receipt(n)
        }
    });
    let began = oneclock::clock::now();
    let cut = send_within(&layer, &shop, ms(120_000), post("k", "{}")).await;
    assert_eq!((cut.status, &cut.headers["oneclock-reason"]), (504, &"cap".parse().unwrap()), "its own answer");
    assert!(said.lock().unwrap().iter().any(|said| said == "charge: keyed not recorded"), "{said:?}");
    assert!(oneclock::clock::now().since(began) <= layer.longest_run());
}

/// The store says late that the record is somebody else's, and is too slow to say what stands there.
#[tokio::test(start_paused = true)]
async fn n1_a_run_that_used_all_its_time_still_tells_who_waits() {
    let moody = Moody::new();
    let (layer, counting) = layer(moody.clone(), |l| l.wait_at_most(ms(60_000)));
    let shop = Shop::that_takes(ms(60_000));
    let sending = tokio::spawn({
        let (layer, shop) = (layer.clone(), shop.clone());
        async move { send_within(&layer, &shop, ms(120_000), post("k", "{}")).await }
    });
    tokio::time::sleep(ms(5_000)).await;
    moody.slow_ms.store(4_500, Ordering::SeqCst);
    tokio::time::sleep(ms(7_000)).await;
    // Meanwhile a probe found out: what the run settles at 14.5 s is settled, and at 17 s it has to be over.
    let (scope, record) = moody.inner.list(Which::All, None, 1).await.unwrap().remove(0);
    let found = Answer::new(http::StatusCode::CREATED, "receipt of the probe");
    moody.inner.settle(&scope, record.fence, Settle::Complete(found)).await.unwrap();
    let told = sending.await.unwrap();
    assert!(told.is(409, "outcome_unknown"), "{told:?}");
    assert_eq!((shop.begun(), counting.count("keyed fenced")), (1, 1));
    moody.slow_ms.store(0, Ordering::SeqCst);
    assert_eq!(send(&layer, &shop, post("k", "{}")).await.body, "receipt of the probe");
}
