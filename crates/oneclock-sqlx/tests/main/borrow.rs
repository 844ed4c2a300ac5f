//! D6 and D7: waiting for a connection, and what the next borrower must not see.

use oneclock_core::{Outcome, Reason};
use oneclock_sqlx::sqlx::{self, AssertSqlSafe};
use oneclock_sqlx::{Guard, SqlxError};

use crate::support::{Database, PLENTY, error, eventually, ms, operation, pid, until_idle, warm};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_waiting_for_a_connection_ends_with_the_budget() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let (long, short) = (operation(PLENTY), operation(ms(100)));
    let held = pool.get_in(&long, "held").await.unwrap();
    let refused = error(sqlx::query("SELECT 1").execute(pool.named_in(&short, "waits")).await);
    assert!(matches!(refused, SqlxError::Stopped { outcome: Outcome::NotSent, .. }), "{refused}");
    assert!(refused.to_string().contains("out of time in stage pool"), "{refused}");
    assert!(pool.get_in(&short, "late").await.is_err(), "nothing begins after the end");
    drop(held);
    until_idle(&pool).await;
    assert_eq!(pool.status().waiting, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_the_queue_has_a_bound() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).max_waiting(1));
    let op = operation(PLENTY);
    let held = pool.get_in(&op, "held").await.unwrap();
    let second = tokio::spawn({
        let (pool, op) = (pool.clone(), op.clone());
        async move { pool.get_in(&op, "second").await.map(drop) }
    });
    eventually("somebody in the queue", async || (pool.status().waiting == 1).then_some(())).await;
    let third = pool.get_in(&op, "third").await.unwrap_err();
    assert_eq!((third.reason(), third.outcome()), (Some(Reason::Shed), Outcome::NotSent));
    drop(held);
    second.await.unwrap().unwrap();
}

async fn setting(guard: &mut Guard, name: &str) -> String {
    sqlx::query_scalar("SELECT current_setting($1)").bind(name).fetch_one(guard).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_d7_the_server_has_a_bound_that_fits_whoever_borrows() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let millis = |shown: &str| -> u64 {
        match shown.strip_suffix("ms") {
            Some(millis) => millis.parse().unwrap(),
            None => shown.strip_suffix('s').map_or(u64::MAX, |secs| secs.parse::<u64>().unwrap() * 1000),
        }
    };
    for budget in [300, 20_000, 400, 8_000] {
        let op = operation(ms(budget));
        let mut guard = pool.get_in(&op, "bounded").await.unwrap();
        let shown = setting(&mut guard, "statement_timeout").await;
        let (least, most) = (millis(&shown) >= budget / 2, millis(&shown) <= 2 * (budget + 1_000));
        assert!(least && most, "{shown} for {budget} ms: neither too early nor the last one's");
    }
}

/// Settings, locks, temporary tables, listening: what is not of rows is taken back, and the connection stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d7_settings_never_reach_the_next_borrower() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "first").await.unwrap();
    let first = pid(&mut guard).await;
    let before = setting(&mut guard, "search_path").await;
    drop(guard);
    for leaves in [
        "SET search_path = nowhere",
        "SET statement_timeout = 1",
        "SET ROLE pg_monitor",
        "SELECT set_config('work_mem', '1MB', false)",
        "CREATE TEMP TABLE mine (i int)",
        "SELECT pg_advisory_lock(7)",
        "LISTEN something",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "DO $$ BEGIN PERFORM set_config('application_name', 'mine', false); END $$",
    ] {
        let mut guard = pool.get_in(&op, "leaves").await.unwrap();
        sqlx::raw_sql(leaves).execute(&mut guard).await.unwrap();
        drop(guard);
        let mut guard = pool.get_in(&op, "next").await.unwrap();
        assert_eq!(pid(&mut guard).await, first, "after {leaves}");
        let left: String = sqlx::query_scalar(
            "SELECT concat_ws(' ', current_setting('search_path'), current_setting('work_mem'), current_user, \
             to_regclass('pg_temp.mine'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()), \
             (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_cursors WHERE is_holdable), \
             current_setting('application_name'))",
        )
        .fetch_one(&mut guard)
        .await
        .unwrap();
        assert!(
            !left.contains("nowhere") && !left.contains("mine") && !left.contains("pg_monitor"),
            "after {leaves}: {left}"
        );
        assert!(left.trim_end().ends_with("0 0 0"), "after {leaves}: {left}");
        assert_eq!(setting(&mut guard, "search_path").await, before);
        sqlx::query("SELECT pg_sleep(0.01)").execute(&mut guard).await.unwrap();
    }
    // What was prepared in SQL has a name of its own choice; that connection is given up.
    let mut guard = pool.get_in(&op, "prepares").await.unwrap();
    sqlx::raw_sql("PREPARE p AS SELECT 1").execute(&mut guard).await.unwrap();
    drop(guard);
    let mut guard = pool.get_in(&op, "next").await.unwrap();
    assert_ne!(pid(&mut guard).await, first);
    sqlx::raw_sql("PREPARE p AS SELECT 1").execute(&mut guard).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_refuse_a_transaction_work_under_a_budget() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    for sql in ["VACUUM t", "CREATE INDEX CONCURRENTLY ON t (i)", "NOTIFY x", "REINDEX TABLE t", "ANALYZE"] {
        sqlx::query(sql).execute(pool.named_in(&op, sql)).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// A plan that is kept and does not fit any more is made anew; a connection never stays behind with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_survive_a_change_of_the_schema() {
    let database = Database::new().await;
    let mut outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let all = || sqlx::query("SELECT * FROM t WHERE i > $1").bind(0);
    for columns in 1..4 {
        sqlx::query("INSERT INTO t (i) VALUES ($1)").bind(columns).execute(&mut outside).await.unwrap();
        let mut guard = pool.get_in(&op, "read").await.unwrap();
        let row = all().fetch_all(&mut guard).await.unwrap().pop().unwrap();
        assert_eq!(sqlx::Row::len(&row), usize::try_from(columns).unwrap());
        let alter = AssertSqlSafe(format!("ALTER TABLE t ADD COLUMN c{columns} int"));
        sqlx::raw_sql(alter).execute(&mut outside).await.unwrap();
        if columns == 3 {
            // In a transaction it is an error, once.
            let mut tx = guard.begin().await.unwrap();
            assert!(all().fetch_all(&mut tx).await.is_err());
            drop(tx);
            assert!(all().fetch_all(&mut guard).await.is_ok());
        }
    }
    let mut guard = pool.get_in(&op, "read").await.unwrap();
    sqlx::raw_sql("DEALLOCATE ALL").execute(&mut guard).await.unwrap();
    assert!(all().fetch_all(&mut guard).await.is_ok());
    assert_eq!(pool.status().open, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_without_an_operation_a_call_gets_its_cap_or_is_refused() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).cap("report", ms(150)));
    warm(&pool, 1).await;
    let cut = error(sqlx::query("SELECT pg_sleep(20)").execute(pool.named("report")).await);
    assert_eq!(cut.reason(), Some(Reason::Cap), "{cut}");
    let strict = database.pool(|pool| pool.require_operation());
    assert_eq!(error(sqlx::query("SELECT 1").execute(&strict).await).reason(), Some(Reason::CalledOff));
}
