//! Contract X10: stop admitting, the grace, the end of live work, the wait for what must finish.

use std::io;
use std::pin::pin;

use oneclock::{Operation, Shutdown, clock};
use oneclock_core::{Cause, Reason};

use crate::support::{Recorder, begun, cause, ms, request_under, settle};

#[tokio::test(start_paused = true)]
async fn x10_signalled_live_work_goes_on_and_ends_with_the_grace() {
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let op = begun("tail", ms(60_000), &recorder).ended_by(&shutdown);
    let task = op.spawn("copy", std::future::pending::<()>());
    let began = clock::now();
    let draining = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { shutdown.drain(ms(5_000)).await }
    });
    shutdown.signalled().await;
    assert!(shutdown.is_signalled());
    tokio::time::sleep(ms(4_999)).await;
    assert_eq!(cause(&op), None, "the grace is not over");
    shutdown.grace_over().await;
    draining.await.unwrap();
    assert_eq!(clock::now().since(began).as_millis(), 5_000);
    assert_eq!(cause(&op), Some(Cause::Shutdown));
    assert_eq!(op.ending().unwrap().reason(), Reason::ShutdownMidway);
    assert!(task.await.is_err());
    assert_eq!(recorder.ends_of("copy"), [Some(Cause::Shutdown)]);
}

#[tokio::test(start_paused = true)]
async fn x10_live_work_ends_at_its_own_deadline_when_that_is_earlier() {
    let shutdown = Shutdown::new();
    let op = Operation::begin("tail", ms(100)).ended_by(&shutdown);
    let task = op.spawn("copy", std::future::pending::<()>());
    let began = clock::now();
    shutdown.drain(ms(5_000)).await;
    assert_eq!(clock::now().since(began).as_millis(), 100, "nothing is left to wait for");
    assert!(task.await.is_err());
    assert_eq!(cause(&op), Some(Cause::Deadline));
}

#[tokio::test(start_paused = true)]
async fn x10_without_live_work_it_is_over_at_once() {
    let shutdown = Shutdown::new();
    let began = clock::now();
    shutdown.drain(ms(5_000)).await;
    assert!(clock::now().since(began) < ms(1));
    let op = Operation::begin("late", ms(100)).ended_by(&shutdown);
    assert_eq!(cause(&op), Some(Cause::Shutdown), "what begins afterwards is over");
}

#[tokio::test(start_paused = true)]
async fn x10_it_waits_for_steps_that_must_finish_and_does_not_end_them() {
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let driver = request_under("order", ms(60_000), &recorder, Some(&shutdown));
    let op = driver.operation().clone();
    let began = clock::now();
    let charge = async {
        tokio::time::sleep(ms(700)).await;
        Ok::<_, io::Error>(7)
    };
    let mut waiting = pin!(op.must_finish("charge", ms(2_000), charge));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    let drain = shutdown.drain(ms(100));
    let (waited, _) = tokio::join!(waiting, drain);
    assert_eq!(waited.unwrap_err().reason(), Reason::ShutdownMidway, "the wait ended with the grace");
    assert_eq!(clock::now().since(began).as_millis(), 700, "the drain waited for the step");
    assert_eq!(recorder.ends_of("charge"), [None]);
    assert_eq!(shutdown.tasks(), 0);
    drop(driver);
    assert_eq!(recorder.ends_of("order"), [Some(Cause::Shutdown)]);
    assert_eq!(recorder.ran_on().len(), 1);
}

/// What the step itself begins is part of it, and goes on with it.
#[tokio::test(start_paused = true)]
async fn x10_the_parts_of_a_step_that_must_finish_are_not_ended_by_the_grace() {
    let shutdown = Shutdown::new();
    let driver = request_under("order", ms(60_000), &Recorder::new(), Some(&shutdown));
    let op = driver.operation().clone();
    let charge = async {
        let op = Operation::current().unwrap();
        let part = op.grant("part").run(|_| tokio::time::sleep(ms(500))).await;
        let task = op.spawn("task", tokio::time::sleep(ms(100))).await;
        Ok::<_, io::Error>((part.is_ok(), task.is_ok()))
    };
    let (done, is_done) = tokio::sync::oneshot::channel();
    let step = async move { charge.await.map(|ok| done.send(ok)) };
    let mut waiting = Box::pin(op.must_finish("charge", ms(2_000), step));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    shutdown.drain(ms(100)).await;
    assert_eq!(is_done.await, Ok((true, true)));
}

#[tokio::test(start_paused = true)]
async fn what_an_operation_begins_belongs_to_its_shutdown() {
    let shutdown = Shutdown::new();
    let op = Operation::begin("tail", ms(60_000)).ended_by(&shutdown);
    let child = op.grant("copy").operation().unwrap();
    let detached = op.detach("mail", ms(60_000), "may be slow");
    let tasks = [child.spawn("a", std::future::pending::<()>()), detached.spawn("b", std::future::pending::<()>())];
    settle().await;
    assert_eq!(shutdown.tasks(), 2, "none is lost");
    shutdown.end_grace();
    settle().await;
    assert_eq!(cause(&child), Some(Cause::Shutdown));
    drop(tasks);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_dropped_leaves_the_signal_and_the_work() {
    let shutdown = Shutdown::new();
    let op = Operation::begin("tail", ms(60_000)).ended_by(&shutdown);
    let _task = op.spawn("copy", std::future::pending::<()>());
    assert!(tokio::time::timeout(ms(10), shutdown.drain(ms(1_000))).await.is_err());
    tokio::time::sleep(ms(5_000)).await;
    assert!(shutdown.is_signalled());
    assert_eq!(cause(&op), None);
}
