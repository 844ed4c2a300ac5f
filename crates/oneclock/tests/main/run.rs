//! Contract X1: the work first, then the clock, then the timer. X6: nothing begins after the end.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt;
use oneclock::{Operation, Shutdown, clock};
use oneclock_core::{BoundBy, Cause, Outcome, Stage};

use crate::support::{Recorder, Told, begun, endless, ms, request, settle, was_dropped};

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

// === What a whole may claim ===

/// Contract R8: not sent needs proof, and where one part was is none for the parts before it.
#[tokio::test(start_paused = true)]
async fn r8_a_whole_that_was_cut_off_never_claims_that_nothing_was_sent() {
    let op = Operation::begin("order", ms(1_000));
    let stopped = op
        .grant("pay")
        .cap(ms(300))
        .run(|op| async move {
            let mut charge = op.grant("charge").call().unwrap();
            charge.enter(Stage::Send);
            charge.close(Outcome::Applied);
            let mut mail = op.grant("mail").call().unwrap();
            mail.enter(Stage::Pool);
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();
    assert_eq!(stopped.outcome(), Outcome::Unknown { stage: Stage::Pool });
}

#[tokio::test(start_paused = true)]
async fn r8_nor_for_the_parts_beside_it() {
    let op = Operation::begin("order", ms(100));
    let ended = op
        .run(async {
            let op = Operation::current().unwrap();
            let mut charge = op.grant("charge").call().unwrap();
            charge.enter(Stage::Wait);
            let mut mail = op.grant("mail").call().unwrap();
            mail.enter(Stage::Connect);
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();
    assert_eq!(ended.outcome(), Outcome::Unknown { stage: Stage::Connect });
}

// === Dropped before its end ===

/// The same helper, a `select!` over `run`, means the same for a request and for a job.
#[tokio::test(start_paused = true)]
async fn x4_dropping_a_run_ends_neither_a_request_nor_a_job() {
    let recorder = Recorder::new();
    let driver = request("order", ms(1_000), &recorder);
    let job = begun("job", ms(1_000), &recorder);
    for op in [driver.operation(), &job] {
        let (work, mut dropped) = endless();
        assert!(tokio::time::timeout(ms(10), op.run(work)).await.is_err());
        assert!(was_dropped(&mut dropped));
        assert_eq!(op.ending(), None);
        assert_eq!(op.run(async { 7 }).await.unwrap(), 7, "another way was found");
    }
    driver.finish();
    drop(job);
    assert_eq!((recorder.ends_of("order"), recorder.ends_of("job")), (vec![None], vec![None]));
}

#[tokio::test(start_paused = true)]
async fn x4_a_job_that_is_dropped_as_a_whole_before_its_end_ends_with_the_drop_s_cause() {
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let half_done = |name, shutdown: &Shutdown| {
        let op = begun(name, ms(1_000), &recorder).ended_by(shutdown);
        let mut running = Box::pin(async move { op.run(std::future::pending::<()>()).await });
        assert!((&mut running).now_or_never().is_none());
        running
    };
    let gone = half_done("gone", &Shutdown::new());
    drop(gone);
    assert_eq!(recorder.ends_of("gone"), [Some(Cause::CallerGone)]);

    let down = half_done("down", &shutdown);
    shutdown.signal();
    drop(down);
    assert_eq!(recorder.ends_of("down"), [Some(Cause::Shutdown)]);

    let late = half_done("late", &Shutdown::new());
    tokio::time::advance(ms(1_000)).await;
    drop(late);
    assert_eq!(recorder.ends_of("late"), [Some(Cause::Deadline)]);
}

/// A part that has no driver, too: what is known above it comes first.
#[tokio::test(start_paused = true)]
async fn x4_a_part_that_is_dropped_as_a_whole_ends_with_the_cause_of_what_is_above() {
    let recorder = Recorder::new();
    let driver = request("order", ms(1_000), &recorder);
    let part = driver.operation().grant("part").operation().unwrap();
    let mut running = Box::pin(async move { part.run(std::future::pending::<()>()).await });
    assert!(futures_util::poll!(&mut running).is_pending());
    driver.operation().call_off();
    drop(running);
    assert_eq!(recorder.ends_of("part"), [Some(Cause::CalledOff)]);
}

/// What belongs to no shutdown of its own belongs to the process's, also when it is dropped. In a process of its own
/// under nextest, and nothing else here asks for the process's shutdown.
#[tokio::test(start_paused = true)]
async fn x4_a_job_dropped_while_the_process_shuts_down_was_shut_down() {
    let recorder = Recorder::new();
    let op = begun("job", ms(10_000), &recorder);
    let part = op.grant("part").operation().unwrap();
    let mut running = Box::pin(async move { part.run(std::future::pending::<()>()).await });
    assert!(futures_util::poll!(&mut running).is_pending());
    let mut whole = Box::pin(async move { op.run(std::future::pending::<()>()).await });
    assert!(futures_util::poll!(&mut whole).is_pending());
    Shutdown::process().signal();
    drop((running, whole));
    assert_eq!(recorder.ends_of("part"), [Some(Cause::Shutdown)]);
    assert_eq!(recorder.ends_of("job"), [Some(Cause::Shutdown)]);
}

/// Contract X4: a panic is nobody's leaving, also when somebody above catches it and drops the work only afterwards.
#[tokio::test(start_paused = true)]
async fn x4_a_panic_that_is_caught_above_is_called_off() {
    let recorder = Recorder::new();
    let quietly = || std::panic::resume_unwind(Box::new("on purpose"));
    let op = begun("job", ms(100), &recorder);
    let mut running = Box::pin(op.run(async move { quietly() }));
    let caught = AssertUnwindSafe(&mut running).catch_unwind().await;
    assert!(caught.is_err());
    assert_eq!(op.ending(), None, "it may go another way");
    drop((running, op));
    assert_eq!(recorder.ends_of("job"), [Some(Cause::CalledOff)]);

    let driver = request("order", ms(100), &recorder);
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _polling = driver.polling();
        quietly();
    }));
    assert!(caught.is_err());
    drop(driver);
    assert_eq!(recorder.ends_of("order"), [Some(Cause::CalledOff)]);

    let driver = request("whole", ms(100), &recorder);
    drop(driver.polling());
    drop(driver);
    assert_eq!(recorder.ends_of("whole"), [Some(Cause::CallerGone)]);
}
