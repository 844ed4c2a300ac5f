//! A value in a queue spends its operation's budget, and comes back if it waited too long.

use oneclock::{Carried, Operation};
use oneclock_core::{Cause, Outcome, Stage};
use tokio::sync::mpsc;

use crate::support::ms;

#[tokio::test(start_paused = true)]
async fn i4_the_wait_in_the_channel_is_charged_to_the_operation() {
    let op = Operation::begin("order", ms(100));
    let (sender, mut receiver) = mpsc::channel(1);
    sender.send(Carried::new(&op, 7)).await.unwrap();
    assert_eq!(op.stage(), Stage::Queue);
    tokio::time::advance(ms(60)).await;
    let (taken, value) = receiver.recv().await.unwrap().open().unwrap();
    assert_eq!((value, taken.remaining(), taken.stage()), (7, ms(40), Stage::Work));
    assert_eq!(op.ledger().to_string(), "queue 60ms");
}

#[tokio::test(start_paused = true)]
async fn x7_what_expired_in_the_queue_is_not_started_and_comes_back() {
    let op = Operation::begin("order", ms(100));
    let (sender, mut receiver) = mpsc::channel(1);
    sender.send(Carried::new(&op, "cart-7".to_owned())).await.unwrap();
    tokio::time::advance(ms(100)).await;
    let late = receiver.recv().await.unwrap().open().unwrap_err();
    assert_eq!(late.value, "cart-7");
    assert_eq!((late.ended.ending.cause, late.ended.stage()), (Cause::Deadline, Stage::Queue));
    assert_eq!(late.outcome(), Outcome::NotSent, "what it was for did not start");
    assert_eq!(
        late.ended.outcome(),
        Outcome::Unknown { stage: Stage::Queue },
        "what the operation did before may have"
    );
}

#[tokio::test(start_paused = true)]
async fn x6_what_was_called_off_in_the_queue_is_not_started() {
    let op = Operation::begin("order", ms(100));
    let carried = Carried::new(&op, 7);
    op.end(Cause::CallerGone);
    assert!(carried.operation().is_ended());
    assert_eq!(carried.open().unwrap_err().ended.ending.cause, Cause::CallerGone);
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_on_the_way_is_in_the_queue_no_longer() {
    let op = Operation::begin("order", ms(100));
    let (first, second) = (Carried::new(&op, 1), Carried::new(&op, 2));
    drop(first);
    assert_eq!(op.stage(), Stage::Queue, "the other one is");
    drop(second);
    assert_eq!(op.stage(), Stage::Work);
}

/// The stage is the operation's: a value that arrives says nothing of where the rest of it is.
#[tokio::test(start_paused = true)]
async fn i13_opening_a_value_does_not_overwrite_where_a_call_is() {
    let op = Operation::begin("order", ms(100));
    let carried = Carried::new(&op, 7);
    op.set_stage(Stage::Connect); // as a call does
    carried.open().unwrap();
    assert_eq!(op.stage(), Stage::Connect);
}
