//! Hooks fire once for each way of ending early, and not otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oneclock::{OnEnd, Operation, Shutdown};
use oneclock_core::Cause;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{Recorder, ms, request, settle};

fn hook(op: &Operation) -> (OnEnd, UnboundedReceiver<Cause>) {
    let (fired, causes) = unbounded_channel();
    (op.on_end(move |ending| fired.send(ending.cause).unwrap()), causes)
}

#[tokio::test(start_paused = true)]
async fn i6_it_fires_once_for_each_cause() {
    for why in [Cause::CallerGone, Cause::SiblingFailed, Cause::CalledOff, Cause::Shed, Cause::Shutdown] {
        let op = Operation::begin("import", ms(1_000));
        let (_hook, mut causes) = hook(&op);
        settle().await;
        op.end(why);
        op.call_off();
        assert_eq!(causes.recv().await, Some(why));
        assert_eq!(causes.recv().await, None, "once");
    }
    let op = Operation::begin("import", ms(1_000));
    let (_hook, mut causes) = hook(&op);
    assert_eq!(causes.recv().await, Some(Cause::Deadline));
    assert_eq!(op.remaining(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn it_fires_when_the_driver_is_dropped_the_parent_ends_or_the_grace_is_over() {
    let driver = request("order", ms(1_000), &Recorder::new());
    let (_hook, mut causes) = hook(driver.operation());
    drop(driver);
    assert_eq!(causes.recv().await, Some(Cause::CallerGone));

    let op = Operation::begin("order", ms(1_000));
    let child = op.grant("import").operation().unwrap();
    let (_hook, mut causes) = hook(&child);
    op.call_off();
    assert_eq!(causes.recv().await, Some(Cause::CalledOff));

    let shutdown = Shutdown::new();
    let op = Operation::begin("order", ms(1_000)).ended_by(&shutdown);
    let (_hook, mut causes) = hook(&op);
    shutdown.end_grace();
    assert_eq!(causes.recv().await, Some(Cause::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn it_fires_when_the_operation_had_already_ended() {
    let op = Operation::begin("import", ms(1_000));
    op.call_off();
    let (_hook, mut causes) = hook(&op);
    assert_eq!(causes.recv().await, Some(Cause::CalledOff));
}

#[tokio::test(start_paused = true)]
async fn it_does_not_fire_when_the_work_is_done() {
    let fired = Arc::new(AtomicUsize::new(0));
    let driver = request("order", ms(100), &Recorder::new());
    let _hook = driver.operation().on_end({
        let fired = Arc::clone(&fired);
        move |_| _ = fired.fetch_add(1, Ordering::Relaxed)
    });
    settle().await;
    driver.finish();
    tokio::time::sleep(ms(1_000)).await; // past the deadline, too
    assert_eq!(fired.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn it_does_not_fire_once_it_was_taken_away() {
    let fired = Arc::new(AtomicUsize::new(0));
    let op = Operation::begin("import", ms(100));
    let hook = op.on_end({
        let fired = Arc::clone(&fired);
        move |_| _ = fired.fetch_add(1, Ordering::Relaxed)
    });
    settle().await;
    drop(hook);
    op.call_off();
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(fired.load(Ordering::Relaxed), 0);
}
