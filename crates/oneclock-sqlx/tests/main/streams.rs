//! Streams of rows: bounded as a whole, cancelled when they are dropped.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use oneclock_core::Outcome;
use oneclock_sqlx::SqlxError;
use oneclock_sqlx::sqlx::{self, Either, Executor as _, Row as _};

use crate::support::{Database, PLENTY, eventually, ms, operation, pid, until_idle, warm};

const MANY: &str = "SELECT i FROM generate_series(1, 20000) i";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_gives_all_its_rows() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "rows").await.unwrap();
    let sum =
        sqlx::query(MANY).fetch(&mut guard).try_fold(0_i64, async |sum, row| Ok(sum + i64::from(row.get::<i32, _>(0))));
    assert_eq!(sum.await.unwrap(), 200_010_000);
    drop(guard);
    let all: Vec<(i32,)> = sqlx::query_as(MANY).fetch_all(pool.named_in(&op, "all")).await.unwrap();
    assert_eq!(all.len(), 20_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_sqlxs_ways_work_on_a_guard() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(2));
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "ways").await.unwrap();
    let done = sqlx::query("INSERT INTO t VALUES ($1), ($2)").bind(1).bind(2).execute(&mut guard).await.unwrap();
    assert_eq!(done.rows_affected(), 2);
    let one: i64 = sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(&mut guard).await.unwrap();
    let none: Option<(i32,)> = sqlx::query_as("SELECT i FROM t WHERE i = 9").fetch_optional(&mut guard).await.unwrap();
    let all: Vec<(i32,)> = sqlx::query_as("SELECT i FROM t ORDER BY i").fetch_all(&mut guard).await.unwrap();
    assert_eq!((one, none, all), (2, None, vec![(1,), (2,)]));
    let statement = (&mut guard).prepare(sqlx::SqlSafeStr::into_sql_str("SELECT i FROM t WHERE i > $1")).await.unwrap();
    let rows = sqlx::Statement::query(&statement).bind(1).fetch_all(&mut guard).await.unwrap();
    assert_eq!(rows.len(), 1);
    let described = (&mut guard).describe(sqlx::SqlSafeStr::into_sql_str("SELECT i FROM t")).await.unwrap();
    assert_eq!(described.columns().len(), 1);
    let several = sqlx::raw_sql("SELECT 1; SELECT 2; SELECT 3").fetch_many(&mut guard).map(|step| step.unwrap());
    assert_eq!(several.filter(|step| std::future::ready(matches!(step, Either::Right(_)))).count().await, 3);
    let missing = sqlx::query("SELECT 1 WHERE false").fetch_one(&mut guard).await.unwrap_err();
    assert!(matches!(missing, sqlx::Error::RowNotFound));
    let taken = sqlx::query("INSERT INTO t VALUES (1)").execute(&mut guard).await.unwrap_err();
    assert!(taken.as_database_error().is_some_and(|error| error.is_unique_violation()), "as sqlx gives it");
    assert_eq!(SqlxError::from(taken).outcome(), Outcome::Failed);
    // And without a guard.
    let op = operation(PLENTY);
    let n: i64 = op.scope(sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(&pool)).await.unwrap();
    let named: i64 =
        op.scope(sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(pool.named("named"))).await.unwrap();
    assert_eq!((n, named), (2, 2));
}

/// S3: no limit covers only the head. The rows come one by one; the clock is asked before each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_the_deadline_covers_the_whole_stream() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let op = operation(ms(500));
    let mut guard = pool.get_in(&op, "rows").await.unwrap();
    let mut rows = sqlx::query("SELECT i, pg_sleep(0.02) FROM generate_series(1, 10000) i").fetch(&mut guard);
    let mut n = 0;
    let error = loop {
        match rows.next().await {
            Some(Ok(_)) => n += 1,
            Some(Err(error)) => break SqlxError::from(error),
            None => panic!("it takes 200 s, and gave {n} rows"),
        }
    };
    assert!(matches!(error, SqlxError::Stopped { .. }), "{error}");
    assert!(rows.next().await.is_none(), "nothing comes after the error");
    drop(rows);
    drop(guard);
    until_idle(&pool).await;
    assert_eq!((pool.status().discarded, database.running("generate_series").await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_stream_is_cancelled_and_its_connection_serves_on() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "rows").await.unwrap();
    let before = pid(&mut guard).await;
    let endless = "SELECT generate_series(1, 2000000000)"; // far more than sockets can hold
    let three: Vec<_> = sqlx::query(endless).fetch(&mut guard).take(3).collect().await;
    assert_eq!(three.len(), 3);
    assert_eq!(pid(&mut guard).await, before, "the next statement comes after the cancel, on the same connection");
    assert_eq!(database.running("generate_series").await, 0);
}

/// A cancel would end the transaction too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_dropped_in_a_transaction_leaves_that_alone() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let mut tx = pool.begin_in(&op, "rows").await.unwrap();
    let three: Vec<_> = sqlx::query(MANY).fetch(&mut tx).take(3).collect().await;
    assert_eq!(three.len(), 3);
    sqlx::query("INSERT INTO t VALUES (1)").execute(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(database.rows().await, 1);
}

/// A reader that does not read holds nothing past its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x8_a_stream_that_nobody_reads_ends_at_its_deadline() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let op = operation(ms(1_500));
    let mut guard = pool.get_in(&op, "rows").await.unwrap();
    let mut rows = sqlx::query("SELECT generate_series(1, 2000000000)").fetch(&mut guard);
    let first = rows.next().await.unwrap();
    assert!(first.is_ok(), "{:?}", first.err());
    eventually("the connection back", async || (pool.status().busy == 0).then_some(())).await;
    assert_eq!(database.running("generate_series").await, 0);
    let ended = rows.next().await.unwrap().map_err(SqlxError::from);
    assert!(matches!(ended, Err(SqlxError::Stopped { .. })));
    drop(rows);
    let _: Duration = guard.remaining();
}
