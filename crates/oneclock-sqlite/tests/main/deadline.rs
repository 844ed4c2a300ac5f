//! D9, I6: statements stop with their operation, and their connection serves the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oneclock::{Operation, Shutdown, Stopped, reason_in, stopped_in};
use oneclock_core::{Cause, Outcome, Reason, Stage};
use oneclock_sqlite::SqliteError;
use oneclock_sqlite::rusqlite::Connection;

use crate::support::{BOUND, FOR_EVER, Folder, Recorder, count, count_to, eventually, ms, operation, until_idle};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_a_statement_of_ten_seconds_ends_at_its_deadline_and_its_connection_serves_the_next() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(100)).observed_by(recorder.clone());
    let began = oneclock::clock::now();
    let error = pool.run_in(&op, "report", |conn| count_to(conn, FOR_EVER)).await.unwrap_err();
    let took = oneclock::clock::now().since(began);
    assert!(took >= ms(95) && took < ms(900), "{took:?}");
    let SqliteError::Stopped { stopped, outcome, .. } = &error else { panic!("{error:?}") };
    let Stopped::Ended(ended) = &**stopped else { panic!("{error:?}") };
    assert_eq!((ended.ending.cause, ended.ending.stage), (Cause::Deadline, Stage::Work));
    assert_eq!(*outcome, Outcome::Rejected, "nothing was committed, and that is proven");
    assert!(ended.ledger.entries().iter().any(|entry| entry.stage == Stage::Work), "{ended}");
    assert_eq!(recorder.call("report").await.outcome, Outcome::Rejected);

    let next = operation(ms(5_000));
    assert_eq!(pool.run_in(&next, "next", |conn| count_to(conn, 10)).await.unwrap(), 10);
    let status = pool.status();
    assert_eq!((status.open, status.discarded), (1, 0), "it is the same connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_the_error_says_which_bound_where_and_where_the_time_went() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1).cap("report", ms(60)));
    let op = operation(ms(5_000));
    let error = pool.run_in(&op, "report", |conn| count_to(conn, FOR_EVER)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("op → report: out of time in stage work (bound: cap) after "), "{text}");
    for part in ["of 60ms", "outcome: rejected", "spent: pool ", "queue ", "work "] {
        assert!(text.contains(part), "{part:?} in: {text}");
    }
    assert_eq!(error.reason(), Some(Reason::Cap));
    assert!(!text.contains("lock"), "it waited for none: {text}");

    #[derive(Debug, thiserror::Error)]
    #[error("the shop's own")]
    struct OfTheShop(#[source] SqliteError);
    let source = std::error::Error::source(&error).expect("what stopped it").to_string();
    assert_eq!(source, text, "the source knows the same, so an answer made of it does not contradict");
    let wrapped = OfTheShop(error);
    assert_eq!(reason_in(&wrapped), Some(Reason::Cap));
    assert!(stopped_in(&wrapped).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_a_statement_ends_when_its_caller_leaves() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(Duration::from_secs(60)).observed_by(recorder.clone());
    let (starts, started) = tokio::sync::oneshot::channel();
    let report = pool.run_in(&op, "report", move |conn| {
        starts.send(()).unwrap();
        count_to(conn, FOR_EVER)
    });
    tokio::select! {
        _ = report => panic!("it counts for ever"),
        _ = async { started.await.unwrap(); tokio::time::sleep(ms(20)).await } => {} // the caller leaves
    }
    until_idle(&pool).await; // long before the deadline
    let called = recorder.call("report").await;
    assert_eq!((called.outcome, called.ending.unwrap().cause), (Outcome::Rejected, Cause::CalledOff));
    assert_eq!(pool.status().discarded, 0);
    assert_eq!(pool.run_in(&op, "next", |conn| count_to(conn, 10)).await.unwrap(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_a_statement_ends_when_its_operation_is_called_off() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let op = operation(Duration::from_secs(60));
    let (starts, started) = tokio::sync::oneshot::channel();
    let report = pool.run_in(&op, "report", move |conn| {
        starts.send(()).unwrap();
        count_to(conn, FOR_EVER)
    });
    let calls_off = async {
        started.await.unwrap();
        op.call_off();
    };
    let (result, ()) = tokio::time::timeout(BOUND, async { tokio::join!(report, calls_off) }).await.unwrap();
    assert_eq!(result.unwrap_err().reason(), Some(Reason::CalledOff));
    until_idle(&pool).await;
}

/// The interrupt is lost on work that is between two statements; the next one must not run all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_no_further_statement_of_the_same_work_goes_through() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(80)).observed_by(recorder.clone());
    let went_on = Arc::new(AtomicBool::new(false));
    let goes_on = Arc::clone(&went_on);
    let error = pool
        .run_in(&op, "import", move |conn| {
            std::thread::sleep(ms(200)); // no statement, so nothing to interrupt
            let inserted = conn.execute("INSERT INTO t (i) VALUES (1)", []); // too small for a look at the clock
            let counted = count_to(conn, FOR_EVER);
            goes_on.store(inserted.is_ok() || counted.is_ok(), Ordering::Release);
            inserted
        })
        .await
        .unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "the wait ended while it was asleep: {error}");
    until_idle(&pool).await;
    assert!(!went_on.load(Ordering::Acquire));
    assert_eq!(folder.rows(), 0, "nothing is committed after the end (contract X6)");
    assert_eq!(recorder.call("import").await.outcome, Outcome::Rejected, "the thread knows more than the wait");
    assert_eq!(recorder.others("RanOn"), 1, "it slept on for nobody (invariant I14)");
}

/// Contract X1: what is there is delivered, and counted as late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_a_result_that_comes_a_little_late_is_delivered() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(100)).observed_by(recorder.clone());
    let deadline = op.deadline();
    let late = pool.run_in(&op, "late", move |conn| {
        conn.execute("INSERT INTO t (i) VALUES (1)", [])?;
        while !deadline.is_past(oneclock::clock::now()) {
            std::thread::sleep(ms(1)); // the end comes here, with the commit behind it
        }
        Ok("there")
    });
    assert_eq!(late.await.unwrap(), "there");
    let called = recorder.call("late").await;
    assert_eq!((called.outcome, called.ending), (Outcome::Applied, None));
    assert_eq!(recorder.others("Late"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_told_and_the_connection_comes_back_whole() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(10_000)).observed_by(recorder.clone());
    let panics = pool.run_in(&op, "panics", |conn| {
        conn.execute_batch("BEGIN; INSERT INTO t (i) VALUES (1)")?;
        if true {
            panic!("on purpose");
        }
        Ok(())
    });
    let error = panics.await.unwrap_err();
    assert!(matches!(&error, SqliteError::Panicked { outcome: Outcome::Rejected, .. }), "{error:?}");
    assert_eq!(recorder.others("Panicked"), 1);
    assert_eq!(pool.run_in(&op, "next", |conn| Ok(count(conn))).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x10_a_shutdown_ends_statements_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(2));
    let shutdown = Shutdown::new();
    let op = Operation::begin("op", Duration::from_secs(60)).ended_by(&shutdown);
    let (starts, started) = tokio::sync::oneshot::channel();
    let report = {
        let (pool, op) = (pool.clone(), op.clone());
        tokio::spawn(async move {
            let work = move |conn: &mut Connection| {
                starts.send(()).unwrap();
                count_to(conn, FOR_EVER)
            };
            pool.run_in(&op, "report", work).await
        })
    };
    started.await.unwrap();
    tokio::time::timeout(BOUND, shutdown.drain(ms(50))).await.unwrap();
    assert_eq!(report.await.unwrap().unwrap_err().reason(), Some(Reason::ShutdownMidway));
    until_idle(&pool).await;
    eventually("no task", || (shutdown.tasks() == 0).then_some(())).await;
    let late = pool.run_in(&op, "late", |conn| count_to(conn, 1)).await.unwrap_err();
    assert_eq!(late.outcome(), Outcome::NotSent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_a_call_without_an_operation_gets_its_cap_or_is_refused() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.cap("report", ms(80)));
    let error = pool.run("report", |conn| count_to(conn, FOR_EVER)).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::Cap));
    let strict = folder.pool(|pool| pool.require_operation());
    let error = strict.run("report", |conn| count_to(conn, 1)).await.unwrap_err();
    assert_eq!((error.reason(), error.outcome()), (Some(Reason::CalledOff), Outcome::NotSent));
    let op = operation(ms(5_000));
    assert_eq!(op.run(strict.run("report", |conn| count_to(conn, 3))).await.unwrap().unwrap(), 3);
}
