//! Hooks fire once for each way of ending early, and not otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oneclock::{OnEnd, Operation, Shutdown};
use oneclock_core::Cause;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{Recorder, ms, request, request_under, settle};

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

// === In its main use: a local of the work, which the end drops ===

/// Work with a hook in it, and the causes for which that ran.
fn hooked(op: &Operation) -> (impl Future<Output = ()> + Send + use<>, UnboundedReceiver<Cause>) {
    let (fired, causes) = unbounded_channel();
    let op = op.clone();
    let work = async move {
        let _hook = op.on_end(move |ending| fired.send(ending.cause).unwrap());
        std::future::pending::<()>().await;
    };
    (work, causes)
}

#[tokio::test(start_paused = true)]
async fn i6_it_fires_when_the_end_drops_the_work_that_holds_it() {
    for settled in [false, true] {
        let op = Operation::begin("import", ms(100));
        let (work, mut causes) = hooked(&op);
        let mut running = Box::pin(op.run(work));
        assert!(futures_util::poll!(running.as_mut()).is_pending());
        if settled {
            settle().await; // the waiting task had its first turn, or not
        }
        tokio::time::advance(ms(100)).await;
        assert!(running.await.is_err());
        assert_eq!(causes.recv().await, Some(Cause::Deadline));
        assert_eq!(causes.recv().await, None, "once");
    }
}

#[tokio::test(start_paused = true)]
async fn i6_it_fires_when_the_driver_gives_up_and_drops_the_handler_that_holds_it() {
    let driver = request("order", ms(1_000), &Recorder::new());
    let op = driver.operation().clone();
    let (work, mut causes) = hooked(&op);
    let mut handler = Box::pin(op.scope(work));
    assert!(futures_util::poll!(handler.as_mut()).is_pending());
    driver.abandon();
    drop(handler);
    assert_eq!(causes.try_recv(), Ok(Cause::CallerGone), "there and then");
    drop(driver);
    assert_eq!(causes.recv().await, None, "once");
}

/// The run is dropped first and the operation ends after that: a job, and a part of a request.
#[tokio::test(start_paused = true)]
async fn i6_it_fires_when_the_work_was_dropped_in_the_middle_and_the_operation_ends_after_that() {
    let op = Operation::begin("import", ms(1_000));
    let (work, mut causes) = hooked(&op);
    let mut job = Box::pin(async move { op.run(work).await });
    assert!(futures_util::poll!(job.as_mut()).is_pending());
    drop(job);
    assert_eq!(causes.recv().await, Some(Cause::CallerGone));
    assert_eq!(causes.recv().await, None, "once");

    let driver = request("order", ms(1_000), &Recorder::new());
    let (work, mut causes) = hooked(driver.operation());
    assert!(tokio::time::timeout(ms(10), driver.operation().run(work)).await.is_err());
    settle().await;
    assert!(causes.try_recv().is_err(), "the request goes on");
    drop(driver);
    assert_eq!(causes.recv().await, Some(Cause::CallerGone));
    assert_eq!(causes.recv().await, None, "once");

    let op = Operation::begin("import", ms(1_000));
    let (work, mut causes) = hooked(&op);
    assert!(tokio::time::timeout(ms(10), op.run(work)).await.is_err());
    assert_eq!(causes.recv().await, Some(Cause::Deadline), "nobody else asks: its own task waits on");
    assert_eq!(op.remaining(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn it_does_not_fire_for_work_that_was_dropped_in_the_middle_of_an_operation_that_is_done() {
    let driver = request("order", ms(1_000), &Recorder::new());
    let (work, mut causes) = hooked(driver.operation());
    assert!(tokio::time::timeout(ms(10), driver.operation().run(work)).await.is_err());
    driver.finish();
    assert_eq!(causes.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn it_does_not_fire_for_work_that_is_done_whatever_becomes_of_the_operation() {
    let op = Operation::begin("import", ms(1_000));
    let (fired, mut causes) = unbounded_channel();
    let mut lost = Box::pin(op.run(std::future::pending::<()>()));
    assert!(futures_util::poll!(lost.as_mut()).is_pending());
    drop(lost); // another run of it, dropped in the middle, does not matter
    op.run(async {
        let _hook = op.on_end(move |ending| fired.send(ending.cause).unwrap());
        tokio::time::sleep(ms(10)).await;
    })
    .await
    .unwrap();
    op.call_off();
    assert_eq!(causes.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn x10_a_drain_does_not_return_before_a_hook_that_is_due_has_run() {
    let shutdown = Shutdown::new();
    let op = Operation::begin("import", ms(10_000)).ended_by(&shutdown);
    let (_hook, mut causes) = hook(&op);
    settle().await;
    shutdown.drain(ms(10)).await;
    assert_eq!(causes.try_recv(), Ok(Cause::Shutdown));

    // Left behind by its work, too.
    let shutdown = Shutdown::new();
    let op = Operation::begin("import", ms(10_000)).ended_by(&shutdown);
    let (work, mut causes) = hooked(&op);
    assert!(tokio::time::timeout(ms(10), op.run(work)).await.is_err());
    shutdown.drain(ms(10)).await;
    assert_eq!(causes.try_recv(), Ok(Cause::Shutdown));
}

#[tokio::test]
async fn x10_a_drain_waits_for_a_hook_that_a_drop_runs_on_another_thread() {
    let shutdown = Shutdown::new();
    let op = Operation::begin("import", ms(60_000)).ended_by(&shutdown);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let ran = Arc::new(AtomicUsize::new(0));
    let hook = op.on_end({
        let ran = Arc::clone(&ran);
        move |_| {
            begun.send(()).unwrap();
            released.recv_timeout(ms(5_000)).unwrap();
            ran.fetch_add(1, Ordering::Relaxed);
        }
    });
    op.call_off();
    let dropping = std::thread::spawn(move || drop(hook));
    has_begun.recv_timeout(ms(5_000)).expect("the drop runs it"); // the waiting task has not had its turn
    let mut draining = Box::pin(shutdown.drain(ms(5_000)));
    for _ in 0..16 {
        assert!(futures_util::poll!(draining.as_mut()).is_pending(), "the hook still runs");
        tokio::task::yield_now().await;
    }
    release.send(()).unwrap();
    draining.await;
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    dropping.join().unwrap();
}

/// The task that waits for the end ends itself when there is none.
#[tokio::test(start_paused = true)]
async fn nothing_of_it_is_left_once_the_operation_is_over() {
    let shutdown = Shutdown::new();
    let driver = request_under("order", ms(1_000), &Recorder::new(), Some(&shutdown));
    let (hook, mut causes) = hook(driver.operation());
    settle().await;
    driver.finish();
    settle().await;
    assert_eq!(shutdown.tasks(), 0);
    shutdown.drain(ms(1_000)).await;
    assert_eq!(tokio::time::timeout(ms(1), causes.recv()).await, Ok(None), "the hook is gone, too");
    drop(hook);
}

/// A job of hours whose every step is dropped in the middle: each leaves a hook, and with it a task.
#[tokio::test(start_paused = true)]
async fn what_steps_leave_behind_is_bounded_and_none_of_it_is_lost() {
    let shutdown = Shutdown::new();
    let op = Operation::begin("follow", ms(100_000_000)).ended_by(&shutdown);
    let fired = Arc::new(std::sync::Mutex::new(Vec::new()));
    for step in 0..1_000 {
        let work = async {
            let fired = Arc::clone(&fired);
            let _hook = op.on_end(move |ending| fired.lock().unwrap().push((step, ending.cause)));
            std::future::pending::<()>().await;
        };
        assert!(tokio::time::timeout(ms(10), op.run(work)).await.is_err());
    }
    settle().await;
    assert_eq!(shutdown.tasks(), 2 * 64, "a task for each, and what a drain waits for");
    let early: Vec<_> = (0..936).map(|step| (step, Cause::CalledOff)).collect();
    assert_eq!(*fired.lock().unwrap(), early, "the oldest first, and the operation goes on");
    assert!(!op.is_ended());
    fired.lock().unwrap().clear();
    op.end(Cause::Shed);
    let rest: Vec<_> = (936..1_000).map(|step| (step, Cause::Shed)).collect();
    assert_eq!(*fired.lock().unwrap(), rest, "once each");
    settle().await;
    assert_eq!(shutdown.tasks(), 0);
}
