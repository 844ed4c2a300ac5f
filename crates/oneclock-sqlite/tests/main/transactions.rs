//! D5: what is known of a transaction is proven. Applied, or not; never a guess.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use oneclock_core::{Cause, Outcome, Reason, Stage};
use oneclock_sqlite::rusqlite::{self, Connection, ErrorCode, Transaction};
use oneclock_sqlite::{Decision, Pool, SqliteError, Synchronous};

use crate::support::{BOUND, FOR_EVER, Folder, Recorder, count_to, eventually, ms, operation, until_idle};

fn insert(tx: &mut Transaction<'_>) -> rusqlite::Result<usize> {
    insert_into(tx)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_one_that_is_answered_is_applied() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool);
    let recorder = Recorder::new();
    let op = operation(ms(10_000)).observed_by(recorder.clone());
    assert_eq!(pool.transaction_in(&op, "charge", insert).await.unwrap(), 1);
    let called = recorder.call("charge").await;
    assert_eq!((called.outcome, called.ending), (Outcome::Applied, None));
    assert_eq!(folder.rows(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_one_that_is_cut_off_before_commit_is_proven_not_applied() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(100)).observed_by(recorder.clone());
    let charge = pool.transaction_in(&op, "charge", |tx| {
        insert(tx)?;
        count_to(tx, FOR_EVER)
    });
    let error = charge.await.unwrap_err();
    assert_eq!((error.outcome(), error.reason()), (Outcome::Rejected, Some(Reason::Cap)), "{error}");
    assert_eq!(recorder.call("charge").await.outcome, Outcome::Rejected);
    assert_eq!(folder.rows(), 0);
}

/// An interrupted write rolls its transaction back by itself. Work that goes on after that would commit each statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_work_that_does_not_pass_an_error_on_commits_nothing() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let op = operation(ms(10_000));
    let careless = pool.transaction_in(&op, "careless", |tx| {
        insert(tx)?;
        tx.execute_batch("ROLLBACK")?; // as SQLite itself does at some errors
        let _ = insert(tx);
        Ok(())
    });
    let error = careless.await.unwrap_err();
    assert!(matches!(&error, SqliteError::TransactionLost { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Failed);
    let careless = pool.transaction_in(&op, "hasty", |tx| {
        insert(tx)?;
        tx.execute_batch("COMMIT") // not its business
    });
    assert!(careless.await.is_err());
    let op = operation(ms(100));
    let careless = pool.transaction_in(&op, "interrupted", |tx| {
        let _ = tx.execute(
            "INSERT INTO t (i) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 1 FROM n WHERE i < 0",
            [],
        );
        let _ = insert(tx);
        Ok(())
    });
    let error = careless.await.unwrap_err();
    assert_eq!((error.outcome(), error.reason()), (Outcome::Rejected, Some(Reason::Cap)), "{error}");
    assert_eq!(folder.rows(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_what_the_work_or_the_database_refuses_is_rolled_back() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(10_000)).observed_by(recorder.clone());
    let sold = pool.decide_in(&op, "sell", |tx| insert(tx).map(|_| Decision::RollBack("out of stock")));
    assert_eq!(sold.await.unwrap(), "out of stock");
    assert_eq!(recorder.call("sell").await.outcome, Outcome::Failed);

    let orphan = pool.transaction_in(&op, "orphan", |tx| tx.execute("INSERT INTO t (of) VALUES (77)", []));
    let error = orphan.await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Failed, "it would fail again");
    let database = error.database().and_then(rusqlite::Error::sqlite_error_code);
    assert_eq!(database, Some(ErrorCode::ConstraintViolation));
    assert_eq!(recorder.call("orphan").await.outcome, Outcome::Failed);

    let panics = pool.transaction_in(&op, "panics", |tx| {
        insert(tx)?;
        if true {
            panic!("on purpose");
        }
        Ok(())
    });
    assert_eq!(panics.await.unwrap_err().outcome(), Outcome::Rejected);
    assert_eq!((folder.rows(), pool.status().discarded), (0, 0));
}

/// Work of `run` with transactions of its own: what they leave behind is what its caller and the event are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_transaction_that_run_leaves_open_is_an_error_and_nothing_of_it_is_there() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(10_000)).observed_by(recorder.clone());
    let open = "BEGIN; INSERT INTO t (i) VALUES (1)";
    let error = pool.run_in(&op, "open", |conn| conn.execute_batch(open)).await.unwrap_err();
    assert!(matches!(error, SqliteError::TransactionLeftOpen { outcome: Outcome::Failed, .. }), "{error:?}");
    assert_eq!((recorder.call("open").await.outcome, folder.rows()), (Outcome::Failed, 0));

    // What was committed before it stays, and only the work knows what that means.
    let half = "INSERT INTO t (i) VALUES (2); BEGIN; INSERT INTO t (i) VALUES (3)";
    let error = pool.run_in(&op, "half", |conn| conn.execute_batch(half)).await.unwrap_err();
    let unknown = Outcome::Unknown { stage: Stage::Work };
    assert!(matches!(error, SqliteError::TransactionLeftOpen { .. }) && error.outcome() == unknown, "{error:?}");
    assert_eq!((recorder.call("half").await.outcome, folder.rows()), (unknown, 1));

    // Nothing is lost of one that only read. It is a mistake all the same, which shows before it costs a write.
    let reads = |conn: &mut Connection| {
        conn.execute_batch("BEGIN")?;
        conn.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))
    };
    let error = pool.run_in(&op, "reads", reads).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Failed);
    assert_eq!(pool.status().discarded, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_transaction_that_run_rolls_back_is_not_told_as_applied() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(10_000)).observed_by(recorder.clone());
    let dropped = |conn: &mut Connection| {
        let tx = conn.transaction()?;
        insert_into(&tx) // and is dropped, which rolls back
    };
    assert_eq!(pool.run_in(&op, "dropped", dropped).await.unwrap(), 1);
    assert_eq!((recorder.call("dropped").await.outcome, folder.rows()), (Outcome::Failed, 0));

    let commits = |conn: &mut Connection| {
        let tx = conn.transaction()?;
        insert_into(&tx)?;
        tx.commit()?;
        let tx = conn.transaction()?;
        insert_into(&tx).map(drop)
    };
    pool.run_in(&op, "commits", commits).await.unwrap();
    assert_eq!((recorder.call("commits").await.outcome, folder.rows()), (Outcome::Applied, 1));

    // The usual way to read several things of one moment: nothing was there to be applied, and it is answered.
    let reads = |conn: &mut Connection| {
        let tx = conn.transaction()?;
        tx.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))
    };
    assert_eq!(pool.run_in(&op, "reads", reads).await.unwrap(), 1);
    assert_eq!(recorder.call("reads").await.outcome, Outcome::Applied);
}

fn insert_into(tx: &Transaction<'_>) -> rusqlite::Result<usize> {
    tx.execute("INSERT INTO t (of) VALUES (NULL)", [])
}

/// A deferred constraint is found at COMMIT, which fails and leaves the transaction open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_commit_that_fails_is_not_applied() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let op = operation(ms(10_000));
    let orphan = pool.transaction_in(&op, "orphan", |tx| {
        tx.execute_batch("PRAGMA defer_foreign_keys = on; INSERT INTO t (of) VALUES (77)")
    });
    assert_eq!(orphan.await.unwrap_err().outcome(), Outcome::Failed);
    assert_eq!(folder.rows(), 0);
    pool.transaction_in(&op, "next", insert).await.unwrap();
}

/// SQLite calls it when the commit is done, before COMMIT returns.
fn fails_after_commit(_: &rusqlite::hooks::Wal, _: i32) -> rusqlite::Result<()> {
    Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_an_error_after_the_commit_does_not_hide_that_it_is_applied() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(ms(10_000)).observed_by(recorder.clone());
    let charge = pool.transaction_in(&op, "charge", |tx| {
        tx.wal_hook(Some(fails_after_commit));
        insert(tx)
    });
    assert_eq!(charge.await.unwrap_err().outcome(), Outcome::Applied);
    assert_eq!(recorder.call("charge").await.outcome, Outcome::Applied);
    assert_eq!(folder.rows(), 1);
}

static COMMITTING: AtomicU8 = AtomicU8::new(0);

fn waits_until_the_caller_has_left(_: &rusqlite::hooks::Wal, _: i32) -> rusqlite::Result<()> {
    COMMITTING.store(1, Ordering::Release);
    while COMMITTING.load(Ordering::Acquire) != 2 {
        std::thread::sleep(ms(1));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_commit_that_went_through_while_the_caller_left_is_applied() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    let charge = pool.transaction_in(&op, "charge", |tx| {
        tx.wal_hook(Some(waits_until_the_caller_has_left));
        insert(tx)
    });
    tokio::select! {
        _ = charge => panic!("it waits in COMMIT"),
        () = eventually("COMMIT", || (COMMITTING.load(Ordering::Acquire) == 1).then_some(())) => {} // the caller leaves
    }
    COMMITTING.store(2, Ordering::Release);
    let called = recorder.call("charge").await;
    assert_eq!((called.outcome, called.ending.unwrap().cause), (Outcome::Applied, Cause::CalledOff));
    assert_eq!(folder.rows(), 1);
    until_idle(&pool).await;
}

/// Callers leave around the commit, at moments that hover where the two meet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_the_event_says_what_is_in_the_database_whenever_the_caller_leaves() {
    const TRIES: i64 = 300;
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1).synchronous(Synchronous::Full));
    let mut patience = Duration::from_micros(500);
    let (mut applied, mut rejected) = (0, 0);
    for n in 0..TRIES {
        let recorder = Recorder::new();
        let op = operation(BOUND).observed_by(recorder.clone());
        let charge = pool.transaction_in(&op, "charge", move |tx| {
            tx.execute("INSERT INTO t (i) VALUES (?1)", [n])?;
            count_to(tx, 1_000)
        });
        tokio::select! {
            biased;
            _ = charge => {}
            () = spin_for(patience) => {}
        }
        let outcome = recorder.call("charge").await.outcome;
        let is_there = is_there(&pool, n).await;
        match outcome {
            Outcome::Applied => {
                assert!(is_there, "try {n}: said applied");
                applied += 1;
                patience = patience.mul_f64(0.95);
            }
            Outcome::Rejected | Outcome::NotSent => {
                assert!(!is_there, "try {n}: said {outcome}");
                rejected += 1;
                patience = patience.mul_f64(1.05);
            }
            other => panic!("try {n}: {other}"),
        }
    }
    assert!(applied > TRIES / 10 && rejected > TRIES / 10, "{applied} applied, {rejected} rejected: they did not meet");
}

/// Timers have a grain of a millisecond; this has none.
async fn spin_for(time: Duration) {
    let until = oneclock::clock::now() + time;
    while oneclock::clock::now() < until {
        tokio::task::yield_now().await;
    }
}

async fn is_there(pool: &Pool, n: i64) -> bool {
    let asks = move |conn: &mut Connection| {
        conn.query_row("SELECT count(*) FROM t WHERE i = ?1", [n], |row| row.get::<_, i64>(0))
    };
    pool.run_in(&operation(BOUND), "ask", asks).await.unwrap() == 1
}
