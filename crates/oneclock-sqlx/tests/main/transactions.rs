//! Transactions, savepoints, and what is rolled back.

use oneclock_core::Outcome;
use oneclock_sqlx::SqlxError;
use oneclock_sqlx::sqlx;

use crate::support::{Database, PLENTY, Recorder, error, eventually, ms, operation, pid, until_idle, warm};

const INSERT: &str = "INSERT INTO t VALUES ($1)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_rolled_back_and_dropped() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(PLENTY).observed_by(recorder.clone());
    let mut tx = pool.begin_in(&op, "committed").await.unwrap();
    sqlx::query(INSERT).bind(1).execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = pool.begin_in(&op, "rolled-back").await.unwrap();
    sqlx::query(INSERT).bind(2).execute(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = pool.begin_in(&op, "dropped").await.unwrap();
    sqlx::query(INSERT).bind(3).execute(&mut tx).await.unwrap();
    drop(tx);
    let rows: Vec<(i32,)> = sqlx::query_as("SELECT i FROM t").fetch_all(pool.named_in(&op, "read")).await.unwrap();
    assert_eq!(rows, [(1,)]);
    for (call, want) in
        [("committed", Outcome::Applied), ("rolled-back", Outcome::Failed), ("dropped", Outcome::Rejected)]
    {
        assert_eq!(recorder.call(call).await.outcome, want, "{call}");
    }
    assert_eq!(pool.status().discarded, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn savepoints_and_failed_transactions() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "all").await.unwrap();
    let mut tx = guard.begin().await.unwrap();
    sqlx::query(INSERT).bind(1).execute(&mut tx).await.unwrap();
    {
        let mut inner = tx.begin().await.unwrap();
        sqlx::query(INSERT).bind(2).execute(&mut inner).await.unwrap();
        let failed = sqlx::query(INSERT).bind(2).execute(&mut inner).await.unwrap_err();
        assert!(failed.as_database_error().is_some());
        let after = sqlx::query(INSERT).bind(3).execute(&mut inner).await.unwrap_err();
        assert_eq!(after.as_database_error().and_then(|error| error.code()).as_deref(), Some("25P02"));
        // Dropped: to its savepoint, where the outer one is whole.
    }
    {
        let mut inner = tx.begin().await.unwrap();
        sqlx::query(INSERT).bind(4).execute(&mut inner).await.unwrap();
        let mut innermost = inner.begin().await.unwrap();
        sqlx::query(INSERT).bind(5).execute(&mut innermost).await.unwrap();
        innermost.rollback().await.unwrap();
        inner.commit().await.unwrap();
    }
    tx.commit().await.unwrap();
    let rows: Vec<(i32,)> = sqlx::query_as("SELECT i FROM t ORDER BY i").fetch_all(&mut guard).await.unwrap();
    assert_eq!(rows, [(1,), (4,)]);

    // COMMIT of a failed transaction is a rollback that PostgreSQL answers as a success.
    let mut tx = guard.begin().await.unwrap();
    sqlx::query(INSERT).bind(6).execute(&mut tx).await.unwrap();
    sqlx::query(INSERT).bind(6).execute(&mut tx).await.unwrap_err();
    let refused = tx.commit().await.unwrap_err();
    assert_eq!(refused.outcome(), Outcome::Rejected, "{refused}");
    sqlx::query(INSERT).bind(7).execute(&mut guard).await.unwrap();
    assert_eq!(database.rows().await, 3);
    assert_eq!(pool.status().discarded, 0);
}

/// A commit can be refused by what is checked only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_commit_is_known_to_be_one() {
    let database = Database::new().await;
    let deferred = "CREATE TABLE d (i int REFERENCES t DEFERRABLE INITIALLY DEFERRED)";
    crate::support::run(&mut database.outside().await, deferred).await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let mut tx = pool.begin_in(&op, "deferred").await.unwrap();
    sqlx::query("INSERT INTO d VALUES (99)").execute(&mut tx).await.unwrap();
    assert_eq!(tx.commit().await.unwrap_err().outcome(), Outcome::Failed);
    let n: i64 = sqlx::query_scalar("SELECT count(*) FROM d").fetch_one(pool.named_in(&op, "read")).await.unwrap();
    assert_eq!(n, 0);
}

/// The deadline covers the transaction as a whole: also the time in which it does nothing but hold its locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_at_the_deadline_an_open_transaction_is_rolled_back() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let recorder = Recorder::new();
    let op = operation(ms(300)).observed_by(recorder.clone());
    let mut tx = pool.begin_in(&op, "held").await.unwrap();
    sqlx::query(INSERT).bind(1).execute(&mut tx).await.unwrap();
    until_idle(&pool).await; // the transaction is still held here
    let mut outside = database.outside().await;
    sqlx::query(INSERT).bind(1).execute(&mut outside).await.unwrap(); // would wait for it
    let refused = tx.commit().await.unwrap_err();
    assert!(matches!(refused, SqlxError::Stopped { outcome: Outcome::NotSent, .. }), "{refused}");
    assert_eq!(recorder.call("held").await.outcome, Outcome::Rejected, "no COMMIT was sent");
}

/// The statement of a transaction is cancelled, and the whole of it is known to be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_cut_off_transaction_is_rejected_and_its_connection_survives() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let op = operation(ms(300));
    let mut tx = pool.begin_in(&op, "cut").await.unwrap();
    sqlx::query(INSERT).bind(1).execute(&mut tx).await.unwrap();
    let cut = error(sqlx::query("SELECT pg_sleep(20)").execute(&mut tx).await);
    assert!(matches!(cut, SqlxError::Stopped { .. }), "{cut}");
    drop(tx);
    until_idle(&pool).await;
    assert_eq!((database.rows().await, pool.status().discarded), (0, 0));
}

/// A transaction that was begun in SQL is not ours to see, and is taken back all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_a_transaction_begun_in_sql_does_not_reach_the_next() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "first").await.unwrap();
    let first = pid(&mut guard).await;
    sqlx::query("BEGIN").execute(&mut guard).await.unwrap();
    sqlx::query(INSERT).bind(1).execute(&mut guard).await.unwrap();
    drop(guard);
    let mut guard = pool.get_in(&op, "second").await.unwrap();
    assert_eq!(pid(&mut guard).await, first);
    sqlx::query(INSERT).bind(2).execute(&mut guard).await.unwrap();
    let rows: Vec<(i32,)> = sqlx::query_as("SELECT i FROM t").fetch_all(&mut database.outside().await).await.unwrap();
    assert_eq!(rows, [(2,)], "what the first did not commit is gone, and what the second did is there");
    eventually("nothing", async || (pool.status().open == 1).then_some(())).await;
}
