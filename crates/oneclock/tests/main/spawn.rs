//! Tasks of an operation.

use oneclock::{Operation, Stopped, TaskFailed, clock};
use oneclock_core::{Cause, Name};

use crate::support::{Recorder, begun, endless, ms, settle, was_dropped};

#[tokio::test(start_paused = true)]
async fn a_task_runs_in_the_scope_of_a_child() {
    let op = Operation::begin("index", ms(100));
    let name = op.spawn("count", async { Operation::current().unwrap().name().clone() }).await.unwrap();
    assert_eq!(name, Name::from("count"));
}

#[tokio::test(start_paused = true)]
async fn n5_a_task_ends_with_its_operation_also_when_nobody_awaits_it() {
    let recorder = Recorder::new();
    let op = begun("index", ms(100), &recorder);
    let (work, dropped) = endless();
    drop(op.spawn("count", work));
    let began = clock::now();
    assert!(dropped.await.is_err());
    assert_eq!(clock::now().since(began).as_millis(), 100);
    settle().await;
    assert_eq!(recorder.ends_of("count"), [Some(Cause::Deadline)]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_lets_the_task_come_to_its_end() {
    let op = Operation::begin("index", ms(100));
    let (done, is_done) = tokio::sync::oneshot::channel();
    drop(op.spawn("count", async {
        tokio::time::sleep(ms(50)).await;
        done.send(()).unwrap();
    }));
    assert!(is_done.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_aborted_task_was_called_off_and_did_not_panic() {
    let recorder = Recorder::new();
    let op = begun("index", ms(100), &recorder);
    let (work, mut dropped) = endless();
    let task = op.spawn("count", work);
    settle().await;
    task.abort();
    let failed = task.await.unwrap_err();
    assert!(matches!(&failed, TaskFailed::Stopped(Stopped::Ended(ended)) if ended.ending.cause == Cause::CalledOff));
    assert!(was_dropped(&mut dropped));
    assert_eq!(recorder.panics(), 0);
    assert_eq!(recorder.ends_of("count"), [Some(Cause::CalledOff)]);
    assert_eq!(op.ending(), None);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_told_once_whether_or_not_anybody_awaits_it() {
    let recorder = Recorder::new();
    let op = begun("index", ms(100), &recorder);
    let failed = op.spawn("count", async { panic!("on purpose") }).await.unwrap_err();
    assert_eq!(failed.to_string(), "index → count panicked");
    assert_eq!(recorder.panics(), 1);
    drop(op.spawn("count", async { panic!("on purpose") }));
    settle().await;
    assert_eq!(recorder.panics(), 2);
    assert_eq!(recorder.ends_of("count").len(), 2);
}

#[test]
fn a_task_whose_runtime_went_away_was_shut_down_and_did_not_panic() {
    let recorder = Recorder::new();
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let here = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let op = begun("index", ms(10_000), &recorder);
    let task = {
        let _in_it = other.enter();
        op.spawn("count", std::future::pending::<()>())
    };
    drop(other);
    let failed = here.block_on(task).unwrap_err();
    assert!(matches!(failed, TaskFailed::Stopped(_)), "{failed}");
    assert_eq!(recorder.panics(), 0);
    assert_eq!(recorder.ends_of("count").len(), 1);
}
