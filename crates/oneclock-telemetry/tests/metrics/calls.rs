//! Calls to dependencies: made, cut off, tried again, not made.

use std::future::pending;

use oneclock::events::Downstream;
use oneclock::{Known, Operation, Retries, hedge, retry};
use oneclock_core::retry::{Attempt, RetryPolicy};
use oneclock_core::{Cause, Effect, Outcome, Stage};
use oneclock_telemetry::names::*;

use crate::support::{Counted, ms};

#[tokio::test(start_paused = true)]
async fn a_call_that_is_answered() {
    let counted = Counted::new();
    let job = counted.begin("order", ms(1_000));
    let call = job.grant("stock").cap(ms(300)).to(Downstream::Database).call().unwrap();
    call.close(Outcome::Applied);
    let seen = counted.seen();
    assert_eq!(seen.of(&CALLS, &["stock", "database", "applied"]), 1.0);
    assert_eq!(seen.of(&CALL_SECONDS, &["stock", "database"]), 1.0);
    assert_eq!(seen.of(&REMAINING_AT_CALL, &["stock"]), 1.0);
    assert!(seen.text().contains("oneclock_remaining_budget_at_dependency_call_seconds_sum{dependency=\"stock\"} 1\n"));
    assert_eq!(seen.sum(&CALL_DEADLINE_EXCEEDED), 0.0);
    assert_eq!(seen.sum(&CANCELLATIONS), 0.0);
}

/// A call's own cap is nobody's cancel: the operation lives.
#[tokio::test(start_paused = true)]
async fn a_cap_that_runs_out_is_the_calls_own() {
    let counted = Counted::new();
    let job = counted.begin("order", ms(1_000));
    let mut call = job.grant("stock").cap(ms(300)).call().unwrap();
    call.enter(Stage::Wait);
    call.run(pending::<()>()).await.unwrap_err();
    drop(call);
    let seen = counted.seen();
    assert_eq!(seen.of(&CALL_DEADLINE_EXCEEDED, &["stock", "service", "cap", "wait"]), 1.0);
    assert_eq!(seen.of(&CALLS, &["stock", "service", "unknown"]), 1.0);
    assert_eq!(seen.sum(&CANCELLATIONS), 0.0);
}

/// What the operation's end ends is seen at every layer; a layer that is not told is the difference.
#[tokio::test(start_paused = true)]
async fn the_end_of_an_operation_is_seen_at_every_layer_below() {
    let counted = Counted::new();
    let job = counted.begin("order", ms(1_000));
    let call = |downstream| job.grant("x").to(downstream).call().unwrap();
    let calls = [Downstream::Service, Downstream::Database, Downstream::Queue].map(call);
    job.end(Cause::CallerGone);
    drop(calls);
    let seen = counted.seen();
    for layer in ["service", "database", "queue"] {
        assert_eq!(seen.of(&CANCELLATIONS, &[layer]), 1.0, "{layer}");
    }
}

/// Dropped by code that lost interest, while its operation goes on.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_abandoned_is_no_cancel_of_the_operation() {
    let counted = Counted::new();
    let job = counted.begin("order", ms(1_000));
    drop(job.grant("x").call().unwrap());
    let seen = counted.seen();
    assert_eq!(seen.sum(&CALLS), 1.0);
    assert_eq!(seen.sum(&CANCELLATIONS), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_would_be_useless_is_not_made() {
    let counted = Counted::new();
    let job = counted.begin("order", ms(100));
    tokio::time::advance(ms(96)).await;
    job.grant("stock").min_useful(ms(10)).call().map(|_| ()).unwrap_err();
    let seen = counted.seen();
    assert_eq!(seen.of(&NOT_CALLED, &["stock", "insufficient_budget"]), 1.0);
    assert_eq!(seen.sum(&CALLS), 0.0);
}

fn failed() -> Known<std::io::Error> {
    Known::new(std::io::Error::other("it broke"), Outcome::Rejected)
}

/// V7: the wait before the next attempt does not fit.
#[tokio::test(start_paused = true)]
async fn a_retry_that_does_not_fit_is_skipped_and_counted() {
    let counted = Counted::new();
    let policy = RetryPolicy::new().effect(Effect::ReadOnly).backoff(ms(500), ms(500)).build().unwrap();
    let retries = Retries::to("stock", policy).random(|| u64::MAX).build().unwrap();
    let job = counted.begin("order", ms(300));
    job.scope(retry(&retries, |_| async { Err::<(), _>(failed()) })).await.unwrap_err();
    let seen = counted.seen();
    assert_eq!(seen.of(&RETRY_SKIPPED, &["stock"]), 1.0);
    assert_eq!(seen.of(&GAVE_UP, &["stock", "deadline"]), 1.0);
    assert_eq!(seen.sum(&RETRIES), 0.0);
}

#[tokio::test(start_paused = true)]
async fn further_attempts_are_counted_and_giving_up_says_why() {
    let counted = Counted::new();
    let policy = RetryPolicy::new().effect(Effect::ReadOnly).backoff(ms(0), ms(0)).attempts(3).build().unwrap();
    let retries = Retries::to("stock", policy).build().unwrap();
    let job = counted.begin("order", ms(300));
    job.scope(retry(&retries, |_| async { Err::<(), _>(failed()) })).await.unwrap_err();
    let seen = counted.seen();
    assert_eq!(seen.of(&RETRIES, &["stock", "retry"]), 2.0);
    assert_eq!(seen.of(&GAVE_UP, &["stock", "all_made"]), 1.0);
    assert_eq!(seen.sum(&RETRY_SKIPPED), 0.0);
}

/// Two attempts, of which the slower one is called off: no layer was told of an end of the operation.
#[tokio::test(start_paused = true)]
async fn a_hedge_is_a_further_attempt_and_the_loser_is_nobodys_cancel() {
    let counted = Counted::new();
    let policy = RetryPolicy::new().effect(Effect::ReadOnly).build().unwrap();
    let retries = Retries::to("stock", policy).build().unwrap();
    (0..500).for_each(|_| retries.tokens().succeeded());
    let job = counted.begin("order", ms(800));
    let work = |attempt: Attempt| async move {
        let op = Operation::current().unwrap();
        let mut call = op.grant("stock").call().unwrap();
        let takes = ms(if attempt.number == 1 { 500 } else { 10 });
        call.run(tokio::time::sleep(takes)).await.unwrap();
        call.close(Outcome::Applied);
        Ok::<_, Known<std::io::Error>>(attempt.number)
    };
    assert_eq!(job.scope(hedge(&retries, ms(20), work)).await.unwrap(), 2);
    let seen = counted.seen();
    assert_eq!(seen.of(&RETRIES, &["stock", "hedge"]), 1.0);
    assert_eq!(seen.of(&CALLS, &["stock", "service", "applied"]), 1.0);
    assert_eq!(seen.sum(&CALLS), 2.0);
    assert_eq!(seen.sum(&CANCELLATIONS), 0.0);
}
