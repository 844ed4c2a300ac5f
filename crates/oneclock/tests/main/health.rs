//! A destination's health for code without an adapter, and what hedges make of it. Contract R10.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oneclock::events::Counting;
use oneclock::{Health, HeldBack, Known, Operation, Retries, clock, hedge, reason_in};
use oneclock_core::breaker::BreakerPolicy;
use oneclock_core::effect::Seen;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::throttle::Told as Came;
use oneclock_core::{Effect, Outcome, Reason, Stage};

use crate::support::{Recorder, Told, begun, ms};

fn calls(health: &Health, calls: usize, told: Came) {
    for _ in 0..calls {
        if let Ok(watch) = health.ask(ms(300)) {
            watch.told(told);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_was_not_sent_and_is_told_once() {
    let health = Health::of("inventory").breaker(BreakerPolicy::default()).build();
    calls(&health, 20, Came::Broken);
    let recorder = Recorder::new();
    let op = begun("order", ms(800), &recorder);
    let not_begun = op.grant("inventory").health(&health).call().unwrap_err();
    assert_eq!(not_begun.reason(), Reason::Shed);
    let told = Told::NotCalled { call: "inventory".to_owned(), reason: Reason::Shed };
    assert_eq!(recorder.count(|one| *one == told), 1);
    assert_eq!(recorder.ends_of("inventory"), [], "no call was begun");
    let refused = op.grant("inventory").health(&health).min_useful(ms(900)).call().unwrap_err();
    assert_eq!(refused.reason(), Reason::InsufficientBudget, "what has no time does not ask");
}

/// Code without an adapter writes `health.ask(..)?` in a handler.
#[tokio::test(start_paused = true)]
async fn what_is_held_back_without_an_adapter_is_told_and_known_in_anybodys_error() {
    #[derive(Debug, thiserror::Error)]
    #[error("no quote")]
    struct OfMine(#[from] HeldBack);
    let health = Health::of("ledger").breaker(BreakerPolicy::default()).build();
    calls(&health, 20, Came::Broken);
    let recorder = Recorder::new();
    let op = begun("order", ms(800), &recorder);
    let quote = || health.ask(ms(300)).map(drop).map_err(OfMine::from);
    let error = op.scope(async { quote() }).await.unwrap_err();
    assert_eq!(reason_in(&error), Some(Reason::Shed));
    let told = Told::NotCalled { call: "ledger".to_owned(), reason: Reason::Shed };
    assert_eq!(recorder.count(|one| *one == told), 1);
    let throttled = HeldBack::Throttled(throttled());
    assert_eq!(reason_in(&OfMine(throttled)), Some(Reason::Shed));
}

/// What a throttle says that holds back what it can.
fn throttled() -> oneclock_core::throttle::Throttled {
    let health = Health::of("ledger").random(|| 0).build();
    calls(&health, 200, Came::Shed);
    let held_back = (0..2).find_map(|_| health.ask(ms(300)).err());
    match held_back {
        Some(HeldBack::Throttled(throttled)) => throttled,
        other => panic!("not throttled: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_call_is_told_once_whichever_way_it_ends() {
    let health = Health::of("inventory").breaker(BreakerPolicy::default()).limit(ms(100)).build();
    let op = Operation::begin("order", ms(60_000));
    let call = || op.grant("inventory").cap(ms(100)).health(&health).call().unwrap();
    for _ in 0..15 {
        let mut well = call();
        well.saw(Seen::Answer { status: 200, reason: None }, clock::now());
        well.saw(Seen::NoConnection, clock::now()); // the first word counts
        well.close(Outcome::Applied);
        drop(call()); // dropped at once: nothing
        call().close(Outcome::NotSent);
    }
    assert!(!health.is_broken() && health.throttled() <= 0.0);
    for timed_out in 1..=5 {
        let mut call = call();
        call.enter(Stage::Wait);
        assert!(call.run(std::future::pending::<()>()).await.is_err(), "its cap");
        drop(call);
        assert_eq!(health.is_broken(), timed_out == 5, "five of twenty had all that they are allowed");
    }
}

#[tokio::test(start_paused = true)]
async fn switched_off_it_holds_nothing_back_and_counts_on() {
    let health = Health::of("inventory").random(|| 0).build();
    calls(&health, 200, Came::Shed);
    tokio::time::sleep(ms(10)).await;
    let _ = health.ask(ms(300)); // the one of this second, if it is still there
    assert!(matches!(health.ask(ms(300)), Err(HeldBack::Throttled(_))));
    health.switch_off();
    assert!(!health.is_on() && health.throttled() <= 0.0);
    calls(&health, 400, Came::Well);
    health.switch_on();
    assert!(health.throttled() <= 0.0, "what was counted in the meantime says that all is accepted");
}

#[tokio::test(start_paused = true)]
async fn switched_off_its_breaker_is_closed_and_counts_nothing() {
    let health = Health::of("inventory").unthrottled().breaker(BreakerPolicy::default()).build();
    let early = || (0..40).map(|_| health.ask(ms(300)).unwrap()).collect::<Vec<_>>();
    let before_it_opened = early();
    calls(&health, 20, Came::Broken);
    assert!(health.is_broken() && !health.is_well());
    let counting = Arc::new(Counting::default());
    let op = Operation::begin("switch", ms(300)).observed_by(counting.clone());
    op.sync_scope(|| health.switch_off());
    assert_eq!(counting.count("breaker closed"), 1);
    assert!(!health.is_broken() && health.is_well(), "nothing is held back");
    let while_off = early();
    health.switch_on();
    assert!(health.ask(ms(300)).is_ok(), "what it was opened for may be long over");
    before_it_opened.into_iter().chain(while_off).for_each(|watch| watch.told(Came::Broken));
    assert!(!health.is_broken(), "what began before is of no account");
    let while_closed = early();
    op.sync_scope(|| health.switch_off());
    while_closed.into_iter().for_each(|watch| watch.told(Came::Broken));
    assert!(!health.is_broken() && counting.count("breaker closed") == 1, "it was closed");
    health.switch_on();
    calls(&health, 20, Came::Broken);
    assert!(health.is_broken());
}

/// What callers wait for in vain, `budget` each, twenty at once.
async fn silence(health: &Health, budget: Duration) {
    let watches = (0..20).filter_map(|_| health.ask(budget).ok()).collect::<Vec<_>>();
    tokio::time::sleep(budget).await;
    watches.into_iter().for_each(|watch| watch.over(Stage::Wait, clock::now()));
}

/// Neither a cap nor an answer says how much time is enough.
#[tokio::test(start_paused = true)]
async fn silence_opens_a_breaker_that_knows_no_limit() {
    let health = || Health::of("inventory").unthrottled().breaker(BreakerPolicy::default()).build();
    let never_answered = health();
    silence(&never_answered, ms(200)).await;
    assert!(never_answered.is_broken(), "nobody was ever answered");

    let once = health();
    calls(&once, 1, Came::Well);
    silence(&once, ms(200)).await;
    assert!(!once.is_broken(), "somebody was answered, and these were in a hurry");
    silence(&once, oneclock::DEFAULT_CAP).await;
    assert!(once.is_broken(), "as much as a call gets that has no cap");

    let slow = health();
    let watches = (0..20).map(|_| slow.ask(ms(60_000)).unwrap()).collect::<Vec<_>>();
    tokio::time::sleep(ms(15_000)).await;
    watches.into_iter().for_each(|watch| watch.told(Came::Well));
    silence(&slow, ms(12_000)).await;
    assert!(!slow.is_broken(), "it is known to need 15 s");
}

/// One of ours that says that there is too little time is there, and so is one whose stream has begun.
#[tokio::test(start_paused = true)]
async fn a_hurried_call_that_is_answered_opens_nothing() {
    let hurried = Seen::Answer { status: 504, reason: Some(Reason::InsufficientBudget) };
    let refused = Health::of("inventory").unthrottled().breaker(BreakerPolicy::default()).build();
    (0..40).for_each(|_| refused.ask(ms(20)).unwrap().saw(hurried, clock::now()));
    assert!(!refused.is_broken());

    let begun = Health::of("inventory").unthrottled().breaker(BreakerPolicy::default()).build();
    let mut stream = begun.ask(ms(60_000)).unwrap();
    stream.answer_begins(clock::now());
    silence(&begun, ms(20)).await;
    assert!(!begun.is_broken());
}

#[tokio::test(start_paused = true)]
async fn r10_there_is_no_hedge_to_a_destination_that_is_not_well() {
    let attempts = async |health: &Health| {
        let policy = RetryPolicy::new().effect(Effect::ReadOnly).build().unwrap();
        let retries = Retries::to("inventory", policy).health(health.clone()).build().unwrap();
        (0..500).for_each(|_| retries.tokens().succeeded());
        let attempts = AtomicU32::new(0);
        let op = Operation::begin("order", ms(800));
        let result = op.scope(hedge(&retries, ms(20), |_| {
            attempts.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(ms(100)).await;
                Ok::<_, Known<std::io::Error>>(())
            }
        }));
        result.await.unwrap();
        attempts.into_inner()
    };
    let well = Health::of("inventory").build();
    assert_eq!(attempts(&well).await, 2);
    calls(&well, 100, Came::Well);
    calls(&well, 1, Came::Shed);
    assert_eq!(attempts(&well).await, 1, "one of the last answers was a refusal for load");
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(attempts(&well).await, 2);

    let broken = Health::of("inventory").breaker(BreakerPolicy::default()).build();
    calls(&broken, 20, Came::Failed);
    assert_eq!(attempts(&broken).await, 1);
}
