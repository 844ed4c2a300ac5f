//! The counting observer, and who hears what.

use std::io;
use std::sync::{Arc, Mutex};

use oneclock::events::{Counting, Event, Observer, observe_globally};
use oneclock::{Operation, Shutdown};
use oneclock_core::{Outcome, Stage};

use crate::support::ms;

#[tokio::test(start_paused = true)]
async fn counting_counts_each_kind_under_its_name() {
    let counting = Arc::new(Counting::default());
    let shutdown = Shutdown::new();
    let op = Operation::begin("order", ms(100)).observed_by(counting.clone()).ended_by(&shutdown);
    let mut call = op.grant("stock").call().unwrap();
    call.enter(Stage::Wait);
    call.close(Outcome::Applied);
    drop(op.grant("stock").call().unwrap());
    assert!(op.grant("stock").reserve(ms(100)).operation().is_err());
    assert!(op.grant("stock").reserve(ms(97)).operation().is_err());
    drop(op.detach("mail", ms(100), "may be slow"));
    assert!(op.spawn("broken", async { panic!("on purpose") }).await.is_err());
    let slow = async {
        tokio::time::sleep(ms(200)).await;
        Ok::<_, io::Error>(())
    };
    assert!(op.must_finish("charge", ms(1_000), slow).await.is_err());
    shutdown.drain(ms(1_000)).await;
    drop(op);

    for (kind, count) in [
        ("called applied", 1),
        ("called not_sent", 1),
        ("not called insufficient_budget", 2),
        ("detached", 1),
        ("panicked", 1),
        ("ran on", 1),
        ("ended deadline", 1),
        ("ended ok", 2),
        ("late", 0),
    ] {
        assert_eq!(counting.count(kind), count, "{kind} in {counting:?}");
    }
    assert_eq!(counting.sum("called "), 2);
    assert_eq!(counting.sum("not called "), 2);
    assert_eq!(counting.sum("ended "), 4, "order, mail, broken, charge");
}

#[tokio::test(start_paused = true)]
async fn observers_are_inherited_and_others_hear_nothing() {
    let (ours, others) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
    let op = Operation::begin("order", ms(100)).observed_by(ours.clone());
    let other = Operation::begin("other", ms(100)).observed_by(others.clone());
    assert!(op.is_observed());
    op.grant("child")
        .run(|child| async move { child.grant("grandchild").run(|_| async {}).await })
        .await
        .unwrap()
        .unwrap();
    drop((op, other));
    assert_eq!(ours.count("ended ok"), 3);
    assert_eq!(others.count("ended ok"), 1);
}

#[test]
fn a_closure_is_an_observer_and_an_event_is_a_line() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&lines);
    let observer = Arc::new(move |event: &Event<'_>| keeps.lock().unwrap().push(event.to_string()));
    drop(Operation::begin("order", ms(60_000)).observed_by(observer));
    let lines = lines.lock().unwrap();
    let [line] = lines.as_slice() else { panic!("one event: {lines:?}") };
    assert!(line.starts_with("order: done after ") && line.ends_with(" of 60s (bound: cap)"), "{line}");
}

/// The only test here that sets one: it stays for the life of the process.
#[test]
fn there_is_one_global_observer() {
    let nothing = |_: &Event<'_>| {};
    let (first, second) = (observe_globally(Arc::new(nothing)), observe_globally(Arc::new(nothing)));
    first.expect("none before it");
    let error = second.unwrap_err();
    assert!(error.to_string().contains("has a global observer already"), "{error}");
}

#[test]
fn events_need_no_runtime() {
    let counting: Arc<Counting> = Arc::default();
    let observer: Arc<dyn Observer> = counting.clone();
    drop(Operation::begin("order", ms(100)).observed_by(observer));
    assert_eq!(counting.count("ended ok"), 1);
}
