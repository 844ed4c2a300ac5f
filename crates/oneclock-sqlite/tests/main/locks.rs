//! D9: a lock is waited for no longer than what is left. D7: nobody sees the bound of the borrower before.

use std::time::Duration;

use oneclock_core::{Cause, Outcome, Reason};
use oneclock_sqlite::rusqlite::Connection;

use crate::support::{Folder, Recorder, count, ms, operation, until_idle};

/// Somebody else's transaction, which holds the write lock.
fn lock(folder: &Folder) -> Connection {
    let connection = folder.outside();
    connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO t (i) VALUES (1000)").unwrap();
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_a_lock_is_waited_for_no_longer_than_what_is_left() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let held = lock(&folder);
    for budget in [ms(60), ms(150), ms(400)] {
        let op = operation(budget);
        let began = oneclock::clock::now();
        let insert = pool.transaction_in(&op, "insert", |tx| tx.execute("INSERT INTO t (i) VALUES (1)", []));
        let error = insert.await.unwrap_err();
        let took = oneclock::clock::now().since(began);
        assert!(took + ms(5) >= budget && took < budget + ms(400), "{took:?} of {budget:?}");
        assert_eq!((error.outcome(), error.reason()), (Outcome::Rejected, Some(Reason::Cap)), "{error}");
        until_idle(&pool).await;
    }
    held.execute_batch("ROLLBACK").unwrap();
    let op = operation(ms(5_000));
    pool.transaction_in(&op, "insert", |tx| tx.execute("INSERT INTO t (i) VALUES (1)", [])).await.unwrap();
    assert_eq!((folder.rows(), pool.status().discarded), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_a_lock_that_is_released_in_time_is_had() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let held = lock(&folder);
    let releases = tokio::task::spawn_blocking(move || {
        std::thread::sleep(ms(150));
        held.execute_batch("COMMIT").unwrap();
    });
    let op = operation(ms(10_000));
    pool.run_in(&op, "insert", |conn| conn.execute("INSERT INTO t (i) VALUES (1)", [])).await.unwrap();
    releases.await.unwrap();
    assert_eq!(folder.rows(), 2);
}

/// SQLite's own busy timeout looks neither at interrupts nor at anything else until it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_the_wait_for_a_lock_ends_when_the_caller_leaves() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let held = lock(&folder);
    let op = operation(Duration::from_secs(60)).observed_by(recorder.clone());
    let insert = pool.run_in(&op, "insert", |conn| conn.execute("INSERT INTO t (i) VALUES (1)", []));
    assert!(tokio::time::timeout(ms(80), insert).await.is_err());
    let left = oneclock::clock::now();
    until_idle(&pool).await;
    let waited_on = oneclock::clock::now().since(left);
    assert!(waited_on < ms(1_000), "it waited on for {waited_on:?}");
    assert_eq!(recorder.call("insert").await.ending.unwrap().cause, Cause::CalledOff);
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_the_bound_of_one_borrower_is_not_seen_by_the_next() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let long = operation(Duration::from_secs(60));
    let own_bound = |conn: &mut Connection| {
        conn.busy_timeout(Duration::from_secs(30))?; // its own, which it should not have set
        conn.execute("INSERT INTO t (i) VALUES (1)", [])
    };
    pool.run_in(&long, "first", own_bound).await.unwrap();

    let held = lock(&folder);
    let short = operation(ms(120));
    let began = oneclock::clock::now();
    let insert = pool.run_in(&short, "second", |conn| conn.execute("INSERT INTO t (i) VALUES (2)", []));
    assert!(insert.await.is_err());
    until_idle(&pool).await;
    let took = oneclock::clock::now().since(began);
    assert!(took < ms(1_000), "the connection was free after {took:?}");

    // Nor does a short one shorten what comes after it.
    let releases = tokio::task::spawn_blocking(move || {
        std::thread::sleep(ms(300));
        held.execute_batch("ROLLBACK").unwrap();
    });
    pool.run_in(&long, "third", |conn| conn.execute("INSERT INTO t (i) VALUES (3)", [])).await.unwrap();
    releases.await.unwrap();
    assert_eq!(pool.status().open, 1, "all three had the same connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_a_transaction_left_open_and_settings_are_not_seen_by_the_next() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let op = operation(ms(10_000));
    pool.run_in(&op, "careless", |conn| {
        conn.execute_batch("PRAGMA foreign_keys = off; PRAGMA synchronous = off; BEGIN; INSERT INTO t (i) VALUES (1)")
    })
    .await
    .unwrap();
    let settings = pool.run_in(&op, "next", |conn| {
        let ask = |sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok((count(conn), conn.is_autocommit(), ask("PRAGMA foreign_keys")?, ask("PRAGMA synchronous")?))
    });
    assert_eq!(settings.await.unwrap(), (0, true, 1, 1));
    assert_eq!(pool.status().discarded, 0, "it was made whole, not thrown away");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_cannot_be_made_whole_is_replaced() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let op = operation(ms(10_000));
    let leaks = pool.run_in(&op, "leaks", |conn| {
        let mut statement = conn.prepare("SELECT 1 UNION ALL SELECT 2")?;
        let mut rows = statement.query([])?;
        rows.next()?;
        std::mem::forget(rows); // so that its statement is under way for ever
        std::mem::forget(statement);
        Ok(())
    });
    leaks.await.unwrap();
    until_idle(&pool).await;
    let status = pool.status();
    assert_eq!((status.open, status.idle, status.discarded), (0, 0, 1));
    pool.transaction_in(&op, "next", |tx| tx.execute("INSERT INTO t (i) VALUES (1)", [])).await.unwrap();
    let status = pool.status();
    assert_eq!((status.open, status.discarded), (1, 1), "it healed by itself");
}
