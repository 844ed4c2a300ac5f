//! Backends that die, networks that stall, servers that are full: each ends in time with a typed outcome, and the pool
//! heals by itself.

use std::time::Instant;

use oneclock_core::{Outcome, Stage};
use oneclock_sqlx::SqlxError;
use oneclock_sqlx::sqlx::{self, AssertSqlSafe};

use crate::support::{
    BOUND, Database, Mode, PLENTY, Relay, error, eventually, ms, operation, pid, run, running, until_idle, warm,
};

#[allow(clippy::disallowed_methods)] // how long a caller waits is what is shown
fn now() -> Instant {
    Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_killed_mid_statement() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(2));
    warm(&pool, 2).await;
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "killed").await.unwrap();
    let victim = pid(&mut guard).await;
    let mut outside = database.outside().await;
    let kill = async {
        eventually("its statement", async || (running(&mut outside, "pg_sleep(20)").await == 1).then_some(())).await;
        run(&mut outside, &format!("SELECT pg_terminate_backend({victim})")).await;
    };
    let insert = sqlx::query("INSERT INTO t SELECT 1 FROM pg_sleep(20)").execute(&mut guard);
    let (killed, ()) = tokio::join!(insert, kill);
    assert_eq!(error(killed).outcome(), Outcome::Unknown { stage: Stage::Wait }, "an answer can be lost like this");
    let after = error(sqlx::query("SELECT 1").execute(&mut guard).await);
    assert!(matches!(after, SqlxError::ConnectionLost { .. }), "{after}");
    assert_eq!(after.outcome(), Outcome::NotSent);
    drop(guard);
    for _ in 0..3 {
        sqlx::query("SELECT 1").execute(pool.named_in(&op, "next")).await.unwrap();
    }
    until_idle(&pool).await;
}

/// All idle connections die at once, as when the server restarts: one call pays, not one for each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_backends_killed_while_idle_cost_one_call() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(4));
    warm(&pool, 4).await;
    let mut outside = database.outside().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    run(&mut outside, kill).await;
    eventually("their ends", async || {
        let sql =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        (sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut outside).await.unwrap() == 0).then_some(())
    })
    .await;
    let op = operation(PLENTY);
    let mut failed = 0;
    for _ in 0..8 {
        failed += usize::from(sqlx::query("SELECT 1").execute(pool.named_in(&op, "next")).await.is_err());
    }
    assert_eq!(failed, 1);
    // The reserved connections died as well, and cancels still arrive.
    let short = operation(ms(200));
    error(sqlx::query("SELECT pg_sleep(20)").execute(pool.named_in(&short, "cut")).await);
    until_idle(&pool).await;
    eventually("its end", async || (running(&mut outside, "pg_sleep(20)").await == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_network_ends_at_the_deadline_and_the_pool_heals() {
    let database = Database::new().await;
    let relay = Relay::new().await;
    let pool = oneclock_sqlx::Pool::with_options(relay.options(&database)).size(2).build().unwrap();
    warm(&pool, 2).await;
    let op = operation(ms(1_500));
    let began = now();
    let mut stalled = Box::pin(sqlx::query("SELECT pg_sleep(20)").execute(pool.named_in(&op, "stalled")));
    let mut outside = database.outside().await;
    eventually("its statement", async || {
        assert!(futures_util::FutureExt::now_or_never(&mut stalled).is_none_or(|ended| ended.is_err()));
        (running(&mut outside, "pg_sleep(20)").await == 1 || op.is_ended()).then_some(())
    })
    .await;
    relay.set(Mode::Stalled);
    let stalled = error(stalled.await);
    let waited = began.elapsed();
    assert!(
        matches!(stalled, SqlxError::Stopped { outcome: Outcome::Unknown { .. } | Outcome::NotSent, .. }),
        "{stalled}"
    );
    assert!(waited < ms(15_000), "{waited:?}");
    println!("stalled: told after {waited:?} of 1.5 s: {stalled}");
    until_idle(&pool).await; // also while nothing moves: the slot is free
    println!("stalled: the place was free again after {:?}", began.elapsed());
    assert!(began.elapsed() < BOUND);
    // D1: no cancel reaches the server, and not even the end of the connection. Its own bound does.
    eventually("its end", async || (running(&mut outside, "pg_sleep(20)").await == 0).then_some(())).await;
    println!("stalled: the server ended it after {:?}", began.elapsed());
    assert!(began.elapsed() < ms(15_000));
    relay.set(Mode::Open);
    let op = operation(PLENTY);
    eventually("a pool that serves", async || {
        sqlx::query("SELECT 1").execute(pool.named_in(&op, "next")).await.is_ok().then_some(())
    })
    .await;
    until_idle(&pool).await;
}

/// A server that takes no more connections: a typed error, and it is served again when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_connections_reached() {
    let database = Database::new().await;
    let mut outside = database.outside().await;
    let role = format!("oneclock_few_{}", std::process::id());
    run(&mut outside, &format!("DROP ROLE IF EXISTS {role}")).await;
    run(&mut outside, &format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 4")).await;
    let options = database.options().username(&role);
    let pool = oneclock_sqlx::Pool::with_options(options).size(8).build().unwrap();
    let op = operation(PLENTY);
    let mut held = Vec::new();
    let full = loop {
        match pool.get_in(&op, "held").await {
            Ok(guard) => held.push(guard),
            Err(full) => break full,
        }
    };
    assert!(matches!(full, SqlxError::Connect { .. }) && full.sqlx().is_some(), "{full}");
    assert_eq!(full.outcome(), Outcome::NotSent);
    assert!(oneclock::not_connected_in(&sqlx::Error::from(full)).is_some(), "also through sqlx's own error");
    assert!(!held.is_empty());
    assert_eq!(pool.status().busy, held.len(), "its place is free again");
    // What is running can still be cancelled: that connection was there before.
    let mut guard = held.pop().unwrap();
    let statement = sqlx::query("SELECT pg_sleep(20)").execute(&mut guard);
    assert!(tokio::time::timeout(ms(100), statement).await.is_err());
    eventually("its end", async || (running(&mut outside, "pg_sleep(20)").await == 0).then_some(())).await;
    drop((guard, held));
    until_idle(&pool).await;
    sqlx::query("SELECT 1").execute(pool.named_in(&op, "next")).await.unwrap();
    drop(pool);
    eventually("its connections gone", async || {
        let left = AssertSqlSafe(format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"));
        (sqlx::query_scalar::<_, i64>(left).fetch_one(&mut outside).await.unwrap() == 0).then_some(())
    })
    .await;
    run(&mut outside, &format!("DROP ROLE {role}")).await;
}

/// A statement that catches its cancel is ended with its session; its place is free then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_ignores_cancels_does_not_keep_its_place() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(2));
    warm(&pool, 2).await;
    let op = operation(ms(200));
    let stubborn =
        "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(30); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$";
    let cut = error(sqlx::raw_sql(stubborn).execute(pool.named_in(&op, "stubborn")).await);
    assert!(matches!(cut, SqlxError::Stopped { outcome: Outcome::Unknown { .. }, .. }), "{cut}");
    until_idle(&pool).await;
    eventually("its end", async || (database.running("query_canceled").await == 0).then_some(())).await;
    sqlx::query("SELECT 1").execute(pool.named_in(&operation(PLENTY), "next")).await.unwrap();
    assert_eq!(pool.status().discarded, 1, "the other one is whole, and is still there");
}
