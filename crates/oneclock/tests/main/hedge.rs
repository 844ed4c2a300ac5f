//! A second attempt beside a slow first one. Contract R4, R10.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oneclock::{Known, Operation, Retries, clock, hedge};
use oneclock_core::retry::{RetryPolicy, Stop};
use oneclock_core::{Cause, Effect, Outcome, Stage};

use crate::support::{Recorder, Told, begun, ms};

type Failed = Known<std::io::Error>;

const UNKNOWN: Outcome = Outcome::Unknown { stage: Stage::Wait };

fn failed(outcome: Outcome) -> Failed {
    Known::new(std::io::Error::other("it broke"), outcome)
}

/// With spare tokens, as after some good minutes.
fn healthy(effect: Effect) -> Retries {
    let policy = RetryPolicy::new().effect(effect).per_try(ms(30)).build().unwrap();
    let retries = Retries::to("inventory", policy).build().unwrap();
    (0..500).for_each(|_| retries.tokens().succeeded());
    retries
}

/// How many calls one slow call of `takes` makes.
async fn calls_of(retries: &Retries, budget: Duration, after: Option<Duration>, takes: Duration) -> u32 {
    let calls = AtomicU32::new(0);
    let op = Operation::begin("order", budget);
    let result = op.scope(hedge(retries, after, |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(takes).await;
            Ok::<_, Failed>(())
        }
    }));
    let _ = result.await;
    calls.into_inner()
}

#[tokio::test(start_paused = true)]
async fn r10_the_first_answer_counts_and_the_other_attempt_is_called_off() {
    for (first, second, want) in [(500, 10, 2), (30, 500, 1)] {
        let recorder = Recorder::new();
        let (op, retries) = (begun("order", ms(800), &recorder), healthy(Effect::ReadOnly));
        let began = clock::now();
        let which = op.scope(hedge(&retries, ms(20), |attempt| async move {
            tokio::time::sleep(ms(if attempt.number == 1 { first } else { second })).await;
            Ok::<_, Failed>(attempt.number)
        }));
        assert_eq!(which.await.unwrap(), want);
        assert_eq!(clock::now().since(began).as_millis(), 30);
        let mut ends = recorder.ends_of("inventory");
        ends.sort_by_key(Option::is_some);
        assert_eq!(ends, [None, Some(Cause::CalledOff)]);
        assert_eq!(recorder.count(|told| matches!(told, Told::TriedAgain { attempt: 2, .. })), 1);
        assert!(op.ledger().entries().iter().all(|entry| entry.ended.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn r4_a_hedge_ends_no_attempt_and_has_no_limit_per_attempt() {
    let (op, retries) = (Operation::begin("order", ms(800)), healthy(Effect::Idempotent));
    let limits = Mutex::new(Vec::new());
    let result = op.scope(hedge(&retries, ms(20), |_| {
        limits.lock().unwrap().push(oneclock::remaining().unwrap());
        async {
            tokio::time::sleep(ms(300)).await;
            Ok::<_, Failed>(())
        }
    }));
    result.await.unwrap();
    assert_eq!(limits.into_inner().unwrap(), [ms(800), ms(780)], "all that is left, not the 30 ms of a retry");
}

#[tokio::test(start_paused = true)]
async fn r10_only_for_what_reads_or_is_idempotent_with_spare_tokens_and_time() {
    let slow = |retries: Retries| async move { calls_of(&retries, ms(800), Some(ms(20)), ms(100)).await };
    assert_eq!(slow(healthy(Effect::ReadOnly)).await, 2);
    assert_eq!(slow(healthy(Effect::Idempotent)).await, 2);
    assert_eq!(slow(healthy(Effect::Once)).await, 1);
    assert_eq!(slow(healthy(Effect::Keyed("tap-7".into()))).await, 1);

    let policy = RetryPolicy::new().effect(Effect::ReadOnly).build().unwrap();
    let fresh = Retries::to("inventory", policy).build().unwrap();
    assert_eq!(slow(fresh).await, 1, "ten tokens are none to spare");
    let off = healthy(Effect::ReadOnly);
    off.switch_off();
    assert_eq!(slow(off).await, 1);

    let healthy = healthy(Effect::ReadOnly);
    assert_eq!(calls_of(&healthy, ms(24), Some(ms(20)), ms(100)).await, 1, "4 ms left are too little");
    assert_eq!(calls_of(&healthy, ms(800), None, ms(100)).await, 1, "nobody knows yet what is slow");
    assert_eq!(calls_of(&healthy, ms(800), Some(ms(20)), ms(10)).await, 1, "fast enough");
}

#[tokio::test(start_paused = true)]
async fn r9_hedges_cost_a_token_and_stop_before_retries_do() {
    let retries = healthy(Effect::ReadOnly);
    let mut hedged = 0;
    while calls_of(&retries, ms(800), Some(ms(20)), ms(100)).await == 2 {
        hedged += 1;
        assert!(hedged < 100, "there is no end of it");
    }
    assert!((10..20).contains(&hedged), "{hedged}: from 60 tokens down to 50");
    assert!(retries.tokens().take(clock::now()), "retries go on");
}

#[tokio::test(start_paused = true)]
async fn a_failure_waits_for_the_other_unless_it_is_definite() {
    for (outcome, want, takes) in [(UNKNOWN, Ok(2), 120), (Outcome::Failed, Err(Stop::AllMade { attempts: 2 }), 50)] {
        let (op, retries) = (Operation::begin("order", ms(800)), healthy(Effect::ReadOnly));
        let began = clock::now();
        let result = op.scope(hedge(&retries, ms(20), |attempt| async move {
            tokio::time::sleep(ms(if attempt.number == 1 { 50 } else { 100 })).await;
            if attempt.number == 1 { Err(failed(outcome)) } else { Ok(attempt.number) }
        }));
        assert_eq!(result.await.map_err(|error| error.why), want);
        assert_eq!(clock::now().since(began).as_millis(), takes);
    }
}

#[tokio::test(start_paused = true)]
async fn both_end_with_the_operation_and_with_their_caller() {
    let recorder = Recorder::new();
    let (op, retries) = (begun("order", ms(100), &recorder), healthy(Effect::ReadOnly));
    let hangs = op.scope(hedge(&retries, ms(20), |_| std::future::pending::<Result<(), Failed>>()));
    hangs.await.unwrap_err();
    assert_eq!(recorder.ends_of("inventory"), [Some(Cause::Deadline); 2]);

    let op = begun("order", ms(800), &recorder);
    let hangs = op.scope(hedge(&retries, ms(20), |_| std::future::pending::<Result<(), Failed>>()));
    tokio::time::timeout(ms(50), hangs).await.unwrap_err();
    assert_eq!(recorder.ends_of("inventory").len(), 4, "both have their event");
}
