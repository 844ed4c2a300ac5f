//! Contract X1: the work first, then the clock, then the timer. X6: nothing begins after the end.

use std::pin::pin;
use std::task::Poll;

use oneclock::{Operation, clock};
use oneclock_core::{BoundBy, Cause, Stage};

use crate::support::{Recorder, Told, begun, endless, ms, settle, was_dropped};

#[tokio::test(start_paused = true)]
async fn x1_a_result_before_the_deadline_is_delivered() {
    let recorder = Recorder::new();
    let op = begun("job", ms(100), &recorder);
    let value = op
        .run(async {
            tokio::time::sleep(ms(99)).await;
            7
        })
        .await;
    assert_eq!(value.unwrap(), 7);
    assert_eq!(recorder.count(|told| matches!(told, Told::Late { .. })), 0);
}

#[tokio::test(start_paused = true)]
async fn x1_a_result_that_is_there_at_the_deadline_is_delivered_and_counted_late() {
    let recorder = Recorder::new();
    let op = begun("job", ms(100), &recorder);
    let (give, given) = tokio::sync::oneshot::channel();
    let mut running = pin!(op.run(given));
    assert!(futures_util::poll!(running.as_mut()).is_pending());
    give.send(7).unwrap();
    tokio::time::advance(ms(130)).await; // both are ready now: the work is asked first
    assert!(matches!(futures_util::poll!(running.as_mut()), Poll::Ready(Ok(Ok(7)))));
    assert_eq!(recorder.told(), [Told::Late { by: ms(30) }]);
}

/// The order is the same every time: both timers are due in the same turn of the wheel.
#[tokio::test(start_paused = true)]
async fn x1_work_that_is_ready_in_the_same_turn_as_the_timer_wins() {
    for _ in 0..50 {
        let op = Operation::begin("job", ms(100));
        assert!(op.run(tokio::time::sleep(ms(100))).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn x1_work_that_is_not_ready_ends_at_the_deadline_and_is_dropped() {
    let op = Operation::begin("job", ms(100));
    let (work, mut dropped) = endless();
    let began = clock::now();
    let ended = op.run(work).await.unwrap_err();
    assert_eq!(clock::now().since(began).as_millis(), 100);
    assert!(was_dropped(&mut dropped));
    assert_eq!((ended.ending.cause, ended.ending.bound, ended.stage()), (Cause::Deadline, BoundBy::Cap, Stage::Work));
}

#[tokio::test(start_paused = true)]
async fn x6_work_is_not_polled_once_the_operation_has_ended() {
    let op = Operation::begin("job", ms(100));
    tokio::time::advance(ms(100)).await;
    let mut polled = false;
    let ended = op.run(async { polled = true }).await.unwrap_err();
    assert!(!polled);
    assert_eq!(ended.ending.cause, Cause::Deadline);
}

/// The clock decides, not the timer: a future that is polled after the deadline for another reason ends then.
#[tokio::test(start_paused = true)]
async fn k3_the_clock_is_asked_at_every_poll() {
    let op = Operation::begin("job", ms(100));
    let mut running = pin!(op.run(std::future::pending::<()>()));
    assert!(futures_util::poll!(running.as_mut()).is_pending());
    tokio::time::advance(ms(99)).await;
    assert!(futures_util::poll!(running.as_mut()).is_pending());
    tokio::time::advance(ms(1)).await;
    assert!(futures_util::poll!(running.as_mut()).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_call_off_wakes_work_that_waits() {
    let op = Operation::begin("job", ms(10_000));
    let (work, dropped) = endless();
    let task = tokio::spawn({
        let op = op.clone();
        async move { op.run(work).await }
    });
    settle().await;
    let began = clock::now();
    op.call_off();
    assert_eq!(task.await.unwrap().unwrap_err().ending.cause, Cause::CalledOff);
    assert!(dropped.await.is_err());
    assert!(clock::now().since(began) < ms(1));
}

#[tokio::test(start_paused = true)]
async fn the_error_says_where_the_time_went() {
    let op = Operation::begin("order", ms(100));
    let ended = op
        .run(async {
            let op = Operation::current().unwrap();
            {
                let _auth = op.spend("auth", Stage::Work);
                tokio::time::sleep(ms(30)).await;
            }
            let _stock = op.spend("stock", Stage::Wait);
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();
    let text = ended.to_string();
    assert_eq!(text, "order: out of time in stage work (bound: cap) after 100ms of 100ms; spent: auth 30ms, stock …");
}

/// The naive way: a timeout around a spawned task ends the wait, and the task goes on.
#[tokio::test(start_paused = true)]
async fn i6_the_naive_way_leaves_the_child_running_and_ours_does_not() {
    let (work, mut dropped) = endless();
    let naive = tokio::time::timeout(ms(100), async { tokio::spawn(work).await }).await;
    assert!(naive.is_err());
    tokio::time::sleep(ms(10_000)).await;
    assert!(!was_dropped(&mut dropped), "abandoned, and still running");

    let (work, mut dropped) = endless();
    let op = Operation::begin("job", ms(100));
    let ours = op.run(async { Operation::current().unwrap().spawn("child", work).await }).await;
    assert!(ours.is_err());
    settle().await;
    assert!(was_dropped(&mut dropped));
}
