//! Closures on blocking threads. Real time: a paused clock stands still while one runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use oneclock::events::RanOn;
use oneclock::{Ended, NotBegun, Operation, Shutdown, Stopped, TaskFailed, WhyNot};
use oneclock_core::{Cause, Ending, Outcome, Stage};

use crate::support::{Recorder, begun, ms};

/// A runtime with a single blocking thread.
fn one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap()
}

/// Occupies the only blocking thread until the sender is used or dropped.
fn occupy() -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || released.recv());
    release
}

#[track_caller]
fn stopped<T: std::fmt::Debug>(result: Result<T, TaskFailed>) -> Stopped {
    match result.unwrap_err() {
        TaskFailed::Stopped(stopped) => stopped,
        other => panic!("{other}"),
    }
}

#[track_caller]
fn ended<T: std::fmt::Debug>(result: Result<T, TaskFailed>) -> Ended {
    match stopped(result) {
        Stopped::Ended(ended) => ended,
        other => panic!("{other}"),
    }
}

#[track_caller]
fn not_begun(stopped: Stopped) -> Ending {
    match stopped {
        Stopped::NotBegun(NotBegun { why: WhyNot::Ended(ending), .. }) => ending,
        other => panic!("{other}"),
    }
}

#[test]
fn n5_a_closure_whose_deadline_passed_while_it_waited_for_a_thread_does_not_run() {
    one_thread().block_on(async {
        let recorder = Recorder::new();
        let shutdown = Shutdown::new();
        let op = begun("thumbnails", ms(30), &recorder).ended_by(&shutdown);
        let release = occupy();
        let ran = Arc::new(AtomicBool::new(false));
        let closure = Arc::clone(&ran);
        let resize = op.spawn_blocking("resize", move |_| closure.store(true, Ordering::Relaxed));

        // The naive way beside it.
        let naive_ran = Arc::new(AtomicBool::new(false));
        let closure = Arc::clone(&naive_ran);
        let naive = tokio::task::spawn_blocking(move || closure.store(true, Ordering::Relaxed));
        let (resize, naive) = (resize.await, tokio::time::timeout(ms(1), naive).await);

        let stopped = stopped(resize);
        assert_eq!(stopped.outcome(), Outcome::NotSent, "it did not start");
        let ending = not_begun(stopped);
        assert_eq!((ending.cause, ending.stage), (Cause::Deadline, Stage::Queue));
        assert!(naive.is_err());
        drop(release);
        shutdown.drain(Duration::from_secs(5)).await;
        tokio::task::spawn_blocking(|| ()).await.unwrap(); // whatever was queued had its turn
        assert!(!ran.load(Ordering::Relaxed));
        assert!(naive_ran.load(Ordering::Relaxed), "abandoned at its timeout, it ran all the same");
        assert_eq!(recorder.ends_of("resize"), [Some(Cause::Deadline)]);
        assert_eq!(recorder.ran_on(), []);
    });
}

/// The wait ends while the closure is on its thread: that it began is known, so nothing claims that it did not.
#[tokio::test]
async fn r8_a_closure_that_runs_was_begun_wherever_it_is() {
    let op = Operation::begin("thumbnails", ms(30));
    let (release, released) = mpsc::channel::<()>();
    let resize = op.spawn_blocking("resize", move |op| {
        op.set_stage(Stage::Pool); // a call of its own, waiting for a connection
        let _ = released.recv();
    });
    let stopped = stopped(resize.await);
    drop(release);
    assert_eq!(stopped.outcome(), Outcome::Unknown { stage: Stage::Pool });
}

#[test]
fn i4_the_wait_for_a_thread_is_charged_as_queue() {
    one_thread().block_on(async {
        let op = Operation::begin("thumbnails", Duration::from_secs(5));
        let release = occupy();
        let resize = op.spawn_blocking("resize", |op| op.stage());
        tokio::time::sleep(ms(20)).await;
        drop(release);
        assert_eq!(resize.await.unwrap(), Stage::Work);
        let ledger = op.ledger();
        let stages: Vec<_> = ledger.entries().iter().map(|entry| entry.stage).collect();
        assert_eq!(stages, [Stage::Queue, Stage::Work]);
        let queued = &ledger.entries()[0];
        assert!(queued.ended.unwrap().since(queued.began) >= ms(20));
    });
}

#[tokio::test]
async fn i7_a_checkpoint_stops_a_closure_at_the_deadline() {
    let recorder = Recorder::new();
    let op = begun("thumbnails", ms(30), &recorder);
    let (stopped, was_stopped) = mpsc::channel();
    let resize = op.spawn_blocking("resize", move |op| {
        let result = loop {
            if let Err(ended) = op.checkpoint() {
                break ended;
            }
            std::thread::sleep(ms(1));
        };
        stopped.send(result.ending.cause).unwrap();
    });
    match resize.await {
        Ok(()) => {} // the closure was quicker than the timer
        failed @ Err(_) => assert_eq!(ended(failed).ending.cause, Cause::Deadline),
    }
    let cause = tokio::task::spawn_blocking(move || was_stopped.recv_timeout(Duration::from_secs(5))).await;
    assert_eq!(cause.unwrap().unwrap(), Cause::Deadline);
    recorder.until(|recorder| !recorder.ends_of("resize").is_empty()).await;
    assert_eq!(recorder.ends_of("resize"), [Some(Cause::Deadline)]);
}

#[tokio::test]
async fn i14_the_wait_ends_at_the_deadline_and_the_closure_that_goes_on_is_counted() {
    let recorder = Recorder::new();
    let op = begun("thumbnails", ms(30), &recorder);
    let (release, released) = mpsc::channel::<()>();
    let resize = op.spawn_blocking("resize", move |_| released.recv());
    assert_eq!(ended(resize.await).ending.cause, Cause::Deadline);
    assert_eq!(recorder.ran_on(), [], "not over yet");
    assert!(recorder.ends_of("resize").is_empty());
    tokio::time::sleep(ms(20)).await;
    release.send(()).unwrap();
    recorder.until(|recorder| !recorder.ran_on().is_empty()).await;
    let (work, because, for_) = recorder.ran_on().remove(0);
    assert_eq!((work.as_str(), because), ("resize", RanOn::Blocking));
    assert!(for_ >= ms(19), "{for_:?}");
    recorder.until(|recorder| !recorder.ends_of("resize").is_empty()).await;
    assert_eq!(recorder.ends_of("resize"), [Some(Cause::Deadline)]);
}

#[tokio::test]
async fn a_closure_that_is_done_is_done_whenever_its_handle_goes() {
    let recorder = Recorder::new();
    let op = begun("thumbnails", ms(30), &recorder);
    let resize = op.spawn_blocking("resize", |_| 7);
    recorder.until(|recorder| !recorder.ends_of("resize").is_empty()).await;
    tokio::time::sleep(ms(40)).await; // the deadline passes; the result is there
    assert_eq!(resize.await.unwrap(), 7);
    assert_eq!(recorder.ends_of("resize"), [None]);
}

#[test]
fn an_aborted_closure_that_had_not_begun_does_not_run() {
    one_thread().block_on(async {
        let recorder = Recorder::new();
        let op = begun("thumbnails", Duration::from_secs(5), &recorder);
        let release = occupy();
        let ran = Arc::new(AtomicBool::new(false));
        let closure = Arc::clone(&ran);
        let resize = op.spawn_blocking("resize", move |_| closure.store(true, Ordering::Relaxed));
        resize.abort();
        assert_eq!(not_begun(stopped(resize.await)).cause, Cause::CalledOff);
        drop(release);
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert!(!ran.load(Ordering::Relaxed));
        assert_eq!((recorder.panics(), recorder.ends_of("resize")), (0, vec![Some(Cause::CalledOff)]));
    });
}

#[tokio::test]
async fn the_closure_runs_in_the_child_s_scope_and_its_panic_is_told() {
    let recorder = Recorder::new();
    let op = begun("thumbnails", Duration::from_secs(5), &recorder);
    let name = op.spawn_blocking("resize", |_| Operation::current().unwrap().name().to_string()).await.unwrap();
    assert_eq!(name, "resize");
    let failed = op.spawn_blocking("broken", |_| panic!("on purpose")).await.unwrap_err();
    assert!(matches!(failed, TaskFailed::Panicked { .. }));
    assert_eq!((recorder.panics(), recorder.ends_of("broken").len()), (1, 1));
}

/// The moment between the closure's end and the hand-over of its result is no end of the wait.
#[tokio::test]
async fn what_came_of_a_closure_is_handed_over_however_the_threads_interleave() {
    let op = Operation::begin("thumbnails", Duration::from_secs(30));
    for n in 0..2_000 {
        assert_eq!(op.spawn_blocking("resize", move |_| n).await.unwrap(), n);
    }
    for _ in 0..200 {
        let quiet = Box::new("on purpose"); // no panic message two hundred times
        let failed = op.spawn_blocking("broken", |_| std::panic::resume_unwind(quiet)).await.unwrap_err();
        assert!(matches!(failed, TaskFailed::Panicked { .. }), "{failed}");
    }
}
