//! D9: a lock is waited for no longer than what is left. D7: nobody sees the bound of the borrower before.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock_core::{Cause, Outcome, Reason};
use oneclock_sqlite::SqliteError;
use oneclock_sqlite::rusqlite::{self, Connection};

use crate::support::{BOUND, Folder, Recorder, count, ms, operation, until_idle};

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
        // I13: that it was a lock, and for how long, is what whoever is on call needs.
        let SqliteError::Stopped { waited_for_lock, .. } = &error else { panic!("{error:?}") };
        assert!(!waited_for_lock.is_zero() && *waited_for_lock <= took, "{waited_for_lock:?} of {budget:?}");
        let text = error.to_string();
        assert!(
            text.contains("outcome: rejected; spent: ") && text.contains("; of which waiting for a lock "),
            "{text}"
        );
        until_idle(&pool).await;
    }
    held.execute_batch("ROLLBACK").unwrap();
    let op = operation(ms(5_000));
    pool.transaction_in(&op, "insert", |tx| tx.execute("INSERT INTO t (i) VALUES (1)", [])).await.unwrap();
    assert_eq!((folder.rows(), pool.status().discarded), (1, 0));
}

/// Without a write-ahead log opening a connection reads the database, and whoever writes keeps readers out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_a_lock_that_keeps_a_connection_from_being_opened_is_said_too() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1).keep_journal_mode());
    // With something attached it is closed as it comes back, and the next call has to open one.
    pool.run_in(&operation(BOUND), "attach", |conn| conn.execute_batch("ATTACH ':memory:' AS other")).await.unwrap();
    until_idle(&pool).await;
    let held = folder.outside();
    held.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = pool.run_in(&operation(ms(400)), "lookup", |conn| Ok(count(conn))).await.unwrap_err();
    let SqliteError::Stopped { waited_for_lock, outcome: Outcome::NotSent, .. } = &error else { panic!("{error:?}") };
    assert!(!waited_for_lock.is_zero(), "{error}");
    let text = error.to_string();
    assert!(text.contains("stage connect") && text.contains("waiting for a lock"), "{text}");
    held.execute_batch("ROLLBACK").unwrap();
    assert_eq!(pool.run_in(&operation(BOUND), "lookup", |conn| Ok(count(conn))).await.unwrap(), 0);
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
    let careless = pool.run_in(&op, "careless", |conn| {
        conn.execute_batch("PRAGMA foreign_keys = off; PRAGMA synchronous = off")?;
        conn.execute_batch("BEGIN; INSERT INTO t (i) VALUES (1); PRAGMA query_only = on")
    });
    assert!(matches!(careless.await, Err(SqliteError::TransactionLeftOpen { .. })));
    let settings = pool.run_in(&op, "next", |conn| {
        let ask = |sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
        let settings = ["PRAGMA foreign_keys", "PRAGMA synchronous", "PRAGMA query_only"].map(ask);
        Ok((count(conn), conn.is_autocommit(), settings.map(|setting| setting.unwrap())))
    });
    assert_eq!(settings.await.unwrap(), (0, true, [1, 1, 0]));
    assert_eq!(pool.status().discarded, 0, "it was made whole, not thrown away");
}

/// What cannot be set back goes with its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_what_a_borrower_attached_or_kept_in_temporary_tables_is_not_seen_by_the_next() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let op = operation(ms(10_000));
    for (n, careless) in
        ["ATTACH ':memory:' AS other", "CREATE TEMP TABLE secrets (i)", "CREATE TEMP VIEW t AS SELECT 7"]
            .into_iter()
            .enumerate()
    {
        pool.run_in(&op, "careless", |conn| conn.execute_batch(careless)).await.unwrap();
        until_idle(&pool).await;
        assert_eq!(pool.status().discarded, n + 1, "{careless}");
        let next = pool.run_in(&op, "next", |conn| {
            let list = conn.prepare("PRAGMA database_list")?.query_map([], |row| row.get(1))?.collect();
            let tables = "SELECT count(*) FROM temp.sqlite_schema";
            Ok((list, conn.query_row(tables, [], |row| row.get::<_, i64>(0))?))
        });
        let (list, temporary): (rusqlite::Result<Vec<String>>, _) = next.await.unwrap();
        assert_eq!((list.unwrap(), temporary), (vec!["main".to_owned()], 0), "{careless}");
    }
    // Who cleans up after itself keeps its connection.
    let tidy = "CREATE TEMP TABLE mine (i); DROP TABLE mine; ATTACH ':memory:' AS other; DETACH other";
    pool.run_in(&op, "tidy", |conn| conn.execute_batch(tidy)).await.unwrap();
    until_idle(&pool).await;
    assert_eq!((pool.status().idle, pool.status().discarded), (1, 3));
}

/// Without a write-ahead log whoever writes keeps readers out, and what is set back may have to read. A connection that could
/// not be set back whole is not lent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_settings_are_not_seen_by_the_next_also_when_the_database_is_locked_meanwhile() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1).keep_journal_mode());
    let outside = Arc::new(Mutex::new(folder.outside()));
    let op = operation(BOUND);
    let locks = Arc::clone(&outside);
    let careless = pool.run_in(&op, "careless", move |conn| {
        conn.execute_batch("PRAGMA foreign_keys = off; PRAGMA synchronous = off")?;
        conn.execute_batch("BEGIN; CREATE TABLE u (i); ROLLBACK")?; // it has to read the schema anew
        locks.lock().unwrap().execute_batch("BEGIN EXCLUSIVE")
    });
    careless.await.unwrap();
    until_idle(&pool).await;
    assert_eq!(pool.status().discarded, 1, "the lock was in the way");
    outside.lock().unwrap().execute_batch("ROLLBACK").unwrap();
    let settings = pool.run_in(&op, "next", |conn| {
        let ask = |sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok((ask("PRAGMA foreign_keys")?, ask("PRAGMA synchronous")?))
    });
    assert_eq!(settings.await.unwrap(), (1, 1));
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
