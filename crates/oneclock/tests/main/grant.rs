//! Asking for time: what is granted, what is refused, and whose bound an error names.

use oneclock::{Operation, Stopped, WhyNot, clock};
use oneclock_core::{BoundBy, Cause, Name, Outcome, Reason, Refused};

use crate::support::{Recorder, Told, begun, ms, request};

#[tokio::test(start_paused = true)]
async fn c1_the_least_of_the_rest_and_the_cap() {
    let op = Operation::begin("order", ms(800));
    assert_eq!(op.grant("a").remaining().unwrap(), ms(800));
    assert_eq!(op.grant("a").cap(ms(300)).remaining().unwrap(), ms(300));
    assert_eq!(op.grant("a").cap(ms(3_000)).reserve(ms(150)).remaining().unwrap(), ms(650));
    tokio::time::advance(ms(700)).await;
    assert_eq!(op.grant("a").cap(ms(300)).remaining().unwrap(), ms(100));
}

#[tokio::test(start_paused = true)]
async fn v10_the_error_two_hops_down_names_the_caller_s_bound() {
    let a = request("a", ms(1_500), &Recorder::new());
    let began = clock::now();
    let stopped = a.operation().grant("b").cap(ms(3_000)).run(|_| std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(clock::now().since(began).as_millis(), 1_500);
    assert_eq!(stopped.to_string(), "b: out of time in stage work (bound: caller) after 1.5s of 1.5s");
    assert_eq!(stopped.reason(), Reason::Deadline);
    assert_eq!(stopped.outcome(), Outcome::Unknown { stage: oneclock_core::Stage::Work });

    let a = request("a", ms(5_000), &Recorder::new());
    let stopped = a.operation().grant("b").cap(ms(3_000)).run(|_| std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(stopped.to_string(), "b: out of time in stage work (bound: cap) after 3s of 3s");
    assert_eq!(stopped.reason(), Reason::Cap, "the caller still has time");
    assert_eq!(a.operation().ending(), None);
}

#[tokio::test(start_paused = true)]
async fn v5_too_little_is_refused_before_it_costs_anything() {
    let recorder = Recorder::new();
    let op = begun("order", ms(800), &recorder);
    tokio::time::advance(ms(796)).await;
    let mut made = false;
    let stopped = op
        .grant("stock")
        .run(|_| {
            made = true;
            async {}
        })
        .await
        .unwrap_err();
    assert!(!made, "the work was not even made");
    let text =
        "order → stock not begun: 4ms left, 5ms is the least that is useful (bound: cap 800ms), outcome: not sent";
    assert_eq!(stopped.to_string(), text);
    assert_eq!((stopped.outcome(), stopped.reason()), (Outcome::NotSent, Reason::InsufficientBudget));
    assert_eq!(recorder.told(), [Told::NotCalled { call: "stock".into(), reason: Reason::InsufficientBudget }]);
    assert!(op.ledger().entries().is_empty(), "no time was spent on it");
    assert!(op.grant("stock").min_useful(ms(4)).operation().is_ok());
}

#[tokio::test(start_paused = true)]
async fn c1_a_cap_below_its_own_minimum_is_a_mistake_and_says_so() {
    let op = Operation::begin("order", ms(800));
    let error = op.grant("stock").cap(ms(4)).operation().unwrap_err();
    assert!(matches!(error.why, WhyNot::Refused(Refused::CapBelowMinimum { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn e3_a_rest_that_is_all_reserved_is_refused() {
    let op = Operation::begin("order", ms(800));
    let error = op.grant("stock").reserve(ms(800)).remaining().unwrap_err();
    assert!(matches!(error.why, WhyNot::Refused(Refused::TooLittle { .. })), "{error}");
    assert!(error.to_string().contains("800ms left, 800ms of it reserved"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn x6_nothing_begins_after_the_end() {
    let recorder = Recorder::new();
    let op = begun("order", ms(800), &recorder);
    op.end(Cause::CallerGone);
    let error = op.grant("stock").operation().unwrap_err();
    assert!(matches!(error.why, WhyNot::Ended(ending) if ending.cause == Cause::CallerGone));
    assert!(op.grant("stock").call().is_err());
    assert!(op.grant("stock").remaining().is_err());
    let stopped = op.grant("stock").run(|_| async {}).await;
    assert!(matches!(stopped, Err(Stopped::NotBegun(_))));
    assert!(op.spawn("stock", async {}).await.is_err());
    assert!(op.spawn_blocking("stock", |_| ()).await.is_err());
    let refusals = recorder.count(|told| matches!(told, Told::NotCalled { reason: Reason::CallerGone, .. }));
    assert_eq!(refusals, 6);
}

#[tokio::test(start_paused = true)]
async fn the_work_is_made_and_run_in_the_child_s_scope() {
    let op = Operation::begin("order", ms(800));
    let current = || Operation::current().map(|op| op.name().clone());
    let (made_in, run_in) = op
        .grant("stock")
        .run(|_| {
            let made_in = current();
            async move { (made_in, current()) }
        })
        .await
        .unwrap();
    assert_eq!(made_in, Some(Name::from("stock")), "a tower service starts its work when it is called");
    assert_eq!(run_in, Some(Name::from("stock")));
    assert_eq!(op.ledger().entries().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_child_s_bound_shows_in_its_own_children() {
    let op = Operation::begin("order", ms(800));
    let child = op.grant("stock").cap(ms(100)).operation().unwrap();
    let grandchild = child.grant("row").cap(ms(400)).operation().unwrap();
    assert_eq!((grandchild.remaining(), grandchild.bound().by), (ms(100), BoundBy::Cap));
    assert_eq!(grandchild.parent().unwrap().name(), &Name::from("stock"));
}
