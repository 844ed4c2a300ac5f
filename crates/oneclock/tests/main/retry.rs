//! Retries inside one budget: what each attempt gets, when there is none, and what the caller is told. Contract R1 to R9,
//! V1, V7; invariants I9, I10.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use oneclock::events::Counting;
use oneclock::{
    AttemptFailed, GaveUp, Known, Operation, Retries, Stopped, WhyNot, WithoutOperation, clock, hedge, retry,
};
use oneclock_core::retry::{Pushback, RetryPolicy, RetryPolicyBuilder, Stop};
use oneclock_core::{Ask, Cause, Effect, Outcome, Stage};

use crate::support::{Recorder, Told, begun, ms, request};

const UNKNOWN: Outcome = Outcome::Unknown { stage: Stage::Wait };

type Failed = Known<std::io::Error>;

fn failed(outcome: Outcome) -> Failed {
    Known::new(std::io::Error::other("it broke"), outcome)
}

fn no_wait() -> RetryPolicyBuilder {
    RetryPolicy::new().effect(Effect::ReadOnly).backoff(ms(0), ms(0))
}

fn retries(policy: RetryPolicyBuilder) -> Retries {
    Retries::to("inventory", policy.build().unwrap()).random(|| u64::MAX).build().unwrap()
}

/// Always fails like that; the number of calls.
async fn always<E>(retries: &Retries, outcome: Outcome, _: E) -> (u32, GaveUp<Failed>) {
    let calls = AtomicU32::new(0);
    let result = retry(retries, |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move { Err::<(), _>(failed(outcome)) }
    });
    let error = result.await.unwrap_err();
    (calls.into_inner(), error)
}

#[tokio::test(start_paused = true)]
async fn v1_attempts_see_100_100_and_at_most_50() {
    let retries = retries(no_wait().per_try(ms(100)));
    let op = Operation::begin("order", ms(250));
    let seen = std::sync::Mutex::new(Vec::new());
    let (began, result) = (
        clock::now(),
        op.scope(retry(&retries, |_| {
            seen.lock().unwrap().push(oneclock::remaining().unwrap());
            std::future::pending::<Result<(), Failed>>()
        }))
        .await,
    );
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen[..2], [ms(100), ms(100)]);
    assert!(seen.len() == 3 && seen[2] <= ms(50), "{seen:?}");
    assert_eq!(clock::now().since(began).as_millis(), 250);
    let error = result.unwrap_err();
    let AttemptFailed::Stopped(stopped) = &error.last else { panic!("{error:?}") };
    assert!(matches!(&**stopped, Stopped::Ended(ended) if ended.ending.cause == Cause::Deadline));
}

/// The check of V1 fails for the usual way: each attempt has a timeout of its own, and none knows of the whole.
#[tokio::test(start_paused = true)]
async fn the_naive_way_of_a_timeout_per_attempt_takes_300_of_250() {
    let began = clock::now();
    for _ in 0..3 {
        let _ = tokio::time::timeout(ms(100), std::future::pending::<()>()).await;
    }
    assert_eq!(clock::now().since(began).as_millis(), 300, "100, 100, 100");
}

#[tokio::test(start_paused = true)]
async fn v7_a_backoff_that_does_not_fit_returns_at_once_with_the_last_real_error() {
    let recorder = Recorder::new();
    let op = begun("order", ms(300), &recorder);
    let retries = retries(no_wait().backoff(ms(500), ms(500)));
    let began = clock::now();
    let (calls, error) = op.scope(always(&retries, UNKNOWN, ())).await;
    assert_eq!((calls, clock::now().since(began)), (1, Duration::ZERO));
    assert_eq!(
        error.to_string(),
        "order → inventory: gave up after 1 attempt: 300ms left, the wait before the next attempt is 500ms and 5ms is the \
         least that is useful after it"
    );
    let AttemptFailed::Failed(last) = &error.last else { panic!("{error:?}") };
    assert_eq!(last.to_string(), "it broke, outcome: unknown (cut off in stage wait)");
    assert!(error.why.is_for_time());
    assert_eq!(recorder.count(|told| matches!(told, Told::GaveUp { why: "deadline", .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn the_naive_way_of_a_backoff_waits_for_a_timeout() {
    let op = Operation::begin("order", ms(300));
    let began = clock::now();
    let looped = op.run(async {
        for _ in 0..3 {
            tokio::time::sleep(ms(500)).await;
        }
    });
    looped.await.unwrap_err();
    assert_eq!(clock::now().since(began).as_millis(), 300, "and all it has then is a timeout");
}

#[tokio::test(start_paused = true)]
async fn r5_its_own_deadline_is_not_retried() {
    let (retries, op) = (retries(no_wait()), Operation::begin("order", ms(100)));
    let calls = AtomicU32::new(0);
    let result = op.scope(retry(&retries, |_| {
        calls.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<(), Failed>>()
    }));
    let error = result.await.unwrap_err();
    assert_eq!(calls.into_inner(), 1);
    assert_eq!(error.why.as_str(), "deadline");
    assert_eq!(oneclock::reason_in(&error), error.reason());
}

#[tokio::test(start_paused = true)]
async fn r7_what_must_not_be_done_twice_is_repeated_only_on_proof() {
    let once = retries(no_wait().effect(Effect::Once));
    assert_eq!(always(&once, UNKNOWN, ()).await.0, 1);
    assert_eq!(always(&once, Outcome::NotSent, ()).await.0, 3);
    assert_eq!(always(&once, Outcome::Rejected, ()).await.0, 3);
    assert_eq!(always(&once, Outcome::Failed, ()).await.0, 1);
    let keyed = Effect::Keyed("tap-7".into());
    assert_eq!(always(&retries(no_wait().effect(keyed.clone())), UNKNOWN, ()).await.0, 1);
    assert_eq!(always(&retries(no_wait().effect(keyed).enforces_keys()), UNKNOWN, ()).await.0, 3);
}

#[tokio::test(start_paused = true)]
async fn r2_a_pushback_is_obeyed_if_it_fits_and_else_ends_it_at_once() {
    let retries = retries(no_wait());
    for (asked, calls, takes) in
        [(Pushback::After(ms(400)), 2, 400), (Pushback::After(ms(600)), 1, 0), (Pushback::Never, 1, 0)]
    {
        let (op, made) = (Operation::begin("order", ms(500)), AtomicU32::new(0));
        let began = clock::now();
        let result = op.scope(retry(&retries, |_| {
            let call = made.fetch_add(1, Ordering::Relaxed);
            async move { if call == 0 { Err(failed(Outcome::Rejected).pushback(asked)) } else { Ok(()) } }
        }));
        assert_eq!(result.await.is_ok(), calls == 2, "{asked:?}");
        assert_eq!((made.into_inner(), clock::now().since(began).as_millis()), (calls, takes), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_and_each_wait_is_in_the_ledger_and_each_attempt_has_an_event() {
    let recorder = Recorder::new();
    let op = begun("order", ms(1_000), &recorder);
    let retries = retries(no_wait().per_try(ms(100)).backoff(ms(40), ms(80)));
    let hangs = retry(&retries, |_| std::future::pending::<Result<(), Failed>>());
    op.scope(hangs).await.unwrap_err();
    let ledger = op.ledger();
    let entries = ledger.entries().iter().map(|entry| {
        let took = entry.ended.expect("closed").since(entry.began).as_millis();
        (entry.name.to_string(), entry.stage, took)
    });
    let entry = |name: &str, stage, took| (name.to_owned(), stage, took);
    assert_eq!(
        entries.collect::<Vec<_>>(),
        [
            entry("inventory", Stage::Work, 100),
            entry("backoff", Stage::Backoff, 40),
            entry("inventory", Stage::Work, 100),
            entry("backoff", Stage::Backoff, 80),
            entry("inventory", Stage::Work, 100),
        ]
    );
    assert_eq!(recorder.ends_of("inventory"), [Some(Cause::Deadline); 3]);
    assert_eq!(recorder.count(|told| matches!(told, Told::TriedAgain { attempt: 2 | 3, .. })), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_stops_it_while_it_works_and_while_it_waits() {
    for leaves_after in [50, 120] {
        let recorder = Recorder::new();
        let driver = request("order", ms(5_000), &recorder);
        let op = driver.operation().clone();
        let retries = retries(no_wait().per_try(ms(100)).backoff(ms(500), ms(500)));
        let calls = AtomicUsize::new(0);
        {
            let hangs = op.run(retry(&retries, |_| {
                calls.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<Result<(), Failed>>()
            }));
            tokio::time::timeout(ms(leaves_after), hangs).await.unwrap_err();
        }
        drop(driver);
        let open = op.ledger().entries().iter().filter(|entry| entry.ended.is_none()).count();
        assert_eq!((calls.into_inner(), open), (1, 0));
        assert_eq!(recorder.ends_of("inventory").len(), 1, "the event of an attempt that was dropped, too");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_called_off_makes_no_further_attempt() {
    let (op, retries) = (Operation::begin("order", ms(5_000)), retries(no_wait().backoff(ms(500), ms(500))));
    let waiting = op.scope(always(&retries, Outcome::NotSent, ()));
    let calling_off = async {
        tokio::time::sleep(ms(100)).await;
        op.call_off();
    };
    let began = clock::now();
    let ((calls, error), ()) = tokio::join!(waiting, calling_off);
    assert_eq!((calls, clock::now().since(began).as_millis()), (1, 100), "the wait ends with it");
    assert_eq!(error.why, Stop::Ended { cause: Cause::CalledOff });
    let (calls, error) = op.scope(always(&retries, Outcome::NotSent, ())).await;
    assert_eq!((calls, error.attempts), (0, 0), "and nothing of it begins any more (X6)");
}

#[tokio::test(start_paused = true)]
async fn r9_calls_of_one_destination_share_their_tokens() {
    let retries = retries(no_wait());
    let counting = Arc::new(Counting::default());
    let op = Operation::begin("order", ms(5_000)).observed_by(counting.clone());
    for _ in 0..20 {
        op.scope(always(&retries.clone(), UNKNOWN, ())).await;
    }
    assert_eq!(counting.count("retried"), 11, "ten tokens, and the reserve of this second");
    assert_eq!(counting.sum("gave up"), 20);
    assert_eq!(counting.count("gave up no_tokens"), 15);
}

#[tokio::test(start_paused = true)]
async fn r9_retries_can_be_switched_off_and_on_while_it_runs() {
    let retries = retries(no_wait());
    let switch = retries.clone();
    switch.switch_off();
    let (calls, error) = always(&retries, UNKNOWN, ()).await;
    assert_eq!((calls, error.why), (1, Stop::SwitchedOff));
    switch.switch_on();
    assert_eq!(always(&retries, UNKNOWN, ()).await.0, 3);
}

#[tokio::test(start_paused = true)]
async fn r9_what_serves_a_retry_retries_nothing_and_says_when_it_gave_up_itself() {
    let (recorder, retries) = (Recorder::new(), retries(no_wait()));
    let driver = request("order", ms(5_000), &recorder).serving_attempt(2);
    let part = driver.operation().grant("part").operation().unwrap();
    assert_eq!((driver.operation().attempt(), part.attempt()), (2, 2));
    let (calls, error) = part.scope(always(&retries, UNKNOWN, ())).await;
    assert_eq!((calls, error.why), (1, Stop::HopAbove { attempt: 2 }));
    assert_eq!(driver.operation().gave_up_after(), None, "the hop above may go on");

    let driver = request("order", ms(5_000), &recorder);
    let part = driver.operation().grant("part").operation().unwrap();
    part.scope(always(&retries, UNKNOWN, ())).await;
    assert_eq!(driver.operation().gave_up_after(), Some(3), "whoever made the call");
}

#[tokio::test(start_paused = true)]
async fn a_reserve_is_kept_from_all_attempts_together() {
    let policy = no_wait().per_try(ms(100)).build().unwrap();
    let retries = Retries::to("inventory", policy).ask(Ask::new().reserve(ms(150)).cap(ms(600))).build().unwrap();
    let op = Operation::begin("order", ms(300));
    op.scope(retry(&retries, |_| std::future::pending::<Result<(), Failed>>())).await.unwrap_err();
    assert_eq!(op.remaining(), ms(150), "100 and 50");
}

#[test]
fn c1_a_limit_below_the_least_that_is_useful_is_refused_at_construction() {
    let policy = no_wait().per_try(ms(1)).build().unwrap();
    let refused = Retries::to("inventory", policy).build().unwrap_err();
    assert!(refused.to_string().contains("below the least that is useful"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn futures_can_be_spawned() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let retries = Arc::new(retries(no_wait()));
    let done = is_send(retry(&retries, |_| async { Ok::<_, Failed>(()) })).await;
    done.unwrap();
    is_send(hedge(&retries, ms(5), |_| async { Ok::<_, Failed>(()) })).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c6_outside_of_any_operation_attempts_have_the_cap_or_are_not_made() {
    let of = |without| {
        let retries = Retries::to("inventory", no_wait().build().unwrap()).ask(Ask::new().cap(ms(200)));
        retries.without_operation(without).build().unwrap()
    };
    for without in [WithoutOperation::Warn, WithoutOperation::Ignore] {
        let left = retry(&of(without), |_| async { Ok::<_, Failed>(oneclock::remaining()) }).await.unwrap();
        assert_eq!(left, Some(ms(200)), "{without:?}");
    }
    let strict = of(WithoutOperation::Require);
    let begun = AtomicU32::new(0);
    let work = |_| {
        begun.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Failed>(()) }
    };
    for error in [retry(&strict, work).await, hedge(&strict, ms(5), work).await].map(Result::unwrap_err) {
        let AttemptFailed::Stopped(stopped) = &error.last else { panic!("{error:?}") };
        assert!(
            matches!(&**stopped, Stopped::NotBegun(not_begun) if not_begun.why == WhyNot::NoOperation),
            "{error:?}"
        );
        assert_eq!((error.attempts, error.call.as_str(), error.outcome()), (0, "inventory", Outcome::NotSent));
    }
    let op = Operation::begin("order", ms(100));
    op.scope(retry(&strict, work)).await.unwrap();
    assert_eq!(begun.into_inner(), 1);
}

/// Counts the warnings of this thread.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn c6_a_call_outside_of_any_operation_is_said_once() {
    let warnings = Arc::new(AtomicUsize::new(0));
    let _kept = tracing::subscriber::set_default(Warnings(Arc::clone(&warnings)));
    let warned = || warnings.load(Ordering::Relaxed);
    let of = || Retries::to("inventory", no_wait().build().unwrap());
    let once = of().build().unwrap();
    let again = once.clone();
    retry(&once, |_| async { Ok::<_, Failed>(()) }).await.unwrap();
    hedge(&again, ms(5), |_| async { Ok::<_, Failed>(()) }).await.unwrap();
    assert_eq!(warned(), 1, "by all who share it");
    let quiet = of().without_operation(WithoutOperation::Ignore).build().unwrap();
    retry(&quiet, |_| async { Ok::<_, Failed>(()) }).await.unwrap();
    assert_eq!(warned(), 1);
}
