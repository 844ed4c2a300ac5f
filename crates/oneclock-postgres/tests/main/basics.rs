//! What a pool promises without any trouble.

use std::sync::Arc;
use std::time::Duration;

use oneclock::Operation;
use oneclock_core::{BoundBy, Cause, Outcome, Reason, Stage};
use oneclock_postgres::{BadPool, PgError, Pool};

use crate::support::{BOUND, Calls, Database, at_rest, ms, patient, running, until};

#[tokio::test]
async fn each_way_to_ask_gives_its_answer() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(2)).await;
    let op = patient();
    op.run(async {
        assert_eq!(pool.execute("write", "INSERT INTO t VALUES ($1, $2)", &[&1, &10]).await?, 1);
        assert_eq!(pool.query("read", "SELECT i FROM t", &[]).await?.len(), 1);
        assert_eq!(pool.query_one("read", "SELECT n FROM t WHERE i = $1", &[&1]).await?.get::<_, i32>(0), 10);
        assert!(pool.query_opt("read", "SELECT n FROM t WHERE i = $1", &[&2]).await?.is_none());
        let missing = pool.query_one("read", "SELECT n FROM t WHERE i = $1", &[&2]).await.unwrap_err();
        assert_eq!((missing.outcome(), missing.reason()), (Outcome::Applied, None), "{missing}");

        let n = pool
            .run("several", async |client| {
                let statement = client.prepare("SELECT n FROM t WHERE i = $1").await?;
                let row = client.query_one(&statement, &[&1]).await?;
                Ok::<i32, PgError>(row.get(0))
            })
            .await?;
        assert_eq!(n, 10);
        pool.transaction("both", async |tx| {
            tx.execute("INSERT INTO t VALUES (2, 20)", &[]).await?;
            tx.execute("INSERT INTO t VALUES (3, 30)", &[]).await
        })
        .await?;
        assert_eq!(pool.query("read", "SELECT i FROM t", &[]).await?.len(), 3);
        Ok::<_, PgError>(())
    })
    .await
    .unwrap()
    .unwrap();
    let status = pool.status();
    assert_eq!((status.busy, status.cancels_sent, status.discarded), (0, 0, 0), "{status:?}");
}

/// Handlers of web services must be `Send`; closures that borrow from them as well.
#[tokio::test]
async fn its_futures_can_be_sent_between_threads() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool).await;
    let item = String::from("seven");
    let work = tokio::spawn(async move {
        let op = patient();
        let n = pool
            .transaction_in(&op, "count", async |tx| {
                let row = tx.query_one("SELECT length($1)", &[&item]).await?;
                Ok::<i32, PgError>(row.get(0))
            })
            .await?;
        pool.run_in(&op, "again", async |client| {
            let row = client.query_one("SELECT $1::int", &[&n]).await?;
            Ok::<i32, PgError>(row.get(0))
        })
        .await
    });
    assert_eq!(work.await.unwrap().unwrap(), 5);
}

#[tokio::test]
async fn a_named_cap_shortens_and_the_error_says_so() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.cap("lookup", ms(100)).cap("report", Duration::from_secs(5))).await;
    let op = patient();
    let error = op.run(pool.query("lookup", "SELECT pg_sleep(10)", &[])).await.unwrap().unwrap_err();
    let ending = error.ending().expect("it was cut off");
    assert_eq!((ending.cause, ending.bound, ending.stage), (Cause::Deadline, BoundBy::Cap, Stage::Wait));
    assert_eq!(error.reason(), Some(Reason::Cap));
    let text = error.to_string();
    assert!(text.starts_with("test → lookup: out of time in stage wait (bound: cap) after "), "{text}");
    assert!(op.run(pool.query("report", "SELECT pg_sleep(0.2)", &[])).await.unwrap().is_ok(), "another class of work");
}

#[tokio::test]
async fn d6_waiting_for_a_connection_spends_the_budget_and_ends_with_it() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).max_waiting(1)).await;
    let op = patient();
    let held = pool.get_in(&op, "holder").await.unwrap();
    let brief = Operation::begin("brief", ms(60));
    let waiting = pool.get_in(&brief, "second");
    let error = waiting.await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotSent);
    assert_eq!(error.ending().map(|ending| ending.stage), Some(Stage::Pool));
    assert_eq!(pool.status().waiting, 0);

    let mut in_queue = Box::pin(pool.get_in(&op, "third"));
    assert!(tokio::time::timeout(ms(10), &mut in_queue).await.is_err());
    let shed = pool.get_in(&op, "fourth").await.unwrap_err();
    assert_eq!((shed.reason(), shed.outcome()), (Some(Reason::Shed), Outcome::NotSent));
    drop(held);
    let third = in_queue.await.unwrap();
    drop(third);
}

#[tokio::test]
async fn x6_nothing_begins_after_the_end() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let calls = Arc::new(Calls::default());
    let op = calls.operation(ms(500));
    let mut client = pool.get_in(&op, "late").await.unwrap();
    client.execute("INSERT INTO t VALUES (1, 1)", &[]).await.unwrap();
    until("its end", || std::future::ready(op.ending().is_some())).await;
    let error = client.execute("INSERT INTO t VALUES (2, 2)", &[]).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
    drop(client);
    assert_eq!(calls.outcome_of("late"), Some(Outcome::Applied), "what was sent before it");
    let rows = pool.query("read", "SELECT i FROM t", &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(pool.status().cancels_sent, 0, "nothing was running");
}

#[tokio::test]
async fn d2_the_bound_is_sent_only_when_the_one_in_force_does_not_fit() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).slack(Duration::ZERO)).await;
    let in_force = async |budget: Duration| {
        let op = Operation::begin("test", budget);
        let row = pool
            .get_in(&op, "read")
            .await?
            .query_one("SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'", &[])
            .await?;
        Ok::<i64, PgError>(row.get(0))
    };
    let first = in_force(ms(100_000)).await.unwrap();
    assert!((80_000..=100_000).contains(&first), "{first}");
    assert_eq!(in_force(ms(70_000)).await.unwrap(), first, "good enough for this one");
    let shorter = in_force(ms(30_000)).await.unwrap();
    assert!((16_000..=30_000).contains(&shorter), "above twice what is left: {shorter}");
    let longer = in_force(ms(60_000)).await.unwrap();
    assert!((31_000..=60_000).contains(&longer), "below what is left: {longer}");
}

#[tokio::test]
async fn a_pool_says_what_is_wrong_with_it() {
    let bad = |pool: oneclock_postgres::PoolBuilder| pool.build().unwrap_err();
    let good = || Pool::builder("host=127.0.0.1 user=nobody");
    assert!(matches!(bad(Pool::builder("nonsense=")), BadPool::Dsn(_)));
    assert!(matches!(bad(Pool::builder("user=x")), BadPool::NoHost));
    assert!(matches!(bad(Pool::builder("host=h user=x sslmode=require")), BadPool::NoTls));
    assert!(matches!(bad(good().size(0)), BadPool::NoConnections));
    assert!(matches!(bad(good().size(usize::MAX)), BadPool::TooManyConnections { .. }));
    assert!(matches!(bad(good().max_waiting(0)), BadPool::NoPlaces));
    assert!(matches!(bad(good().cancels_in_flight(0)), BadPool::NoCancels));
    assert!(matches!(bad(good().cap("x", ms(1))), BadPool::Cap { .. }));
    let pool = good().require_operation().build().unwrap();
    let error = pool.query("q", "SELECT 1", &[]).await.unwrap_err();
    assert_eq!((error.outcome(), error.reason()), (Outcome::NotSent, Some(Reason::CalledOff)));
}

#[tokio::test]
async fn readiness_is_proven_against_the_live_server() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let found = pool.self_test().await.unwrap();
    // The way home is a part of the budget.
    assert!(found.told_after >= found.budget * 3 / 4 && found.idle_after < BOUND, "{found}");
    let status = pool.status();
    assert!(status.cancels_sent >= 1, "{status:?}");
    assert_eq!((status.discarded, status.open), (0, 1), "{status:?}");
    pool.query("q", "SELECT 1", &[]).await.unwrap();
}

#[tokio::test]
async fn close_waits_for_what_is_being_settled() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(2)).await;
    let op = Operation::begin("test", ms(500));
    let error = pool.get_in(&op, "slow").await.unwrap().batch_execute("SELECT pg_sleep(30)").await.unwrap_err();
    assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    tokio::time::timeout(BOUND, pool.close()).await.expect("closed");
    assert_eq!(running(&outside, &database, "pg_sleep").await, 0);
    let refused = pool.query("late", "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(refused.outcome(), Outcome::NotSent, "{refused}");
    assert_eq!(refused.ending().map(|ending| ending.cause), Some(Cause::Shutdown), "{refused}");
    at_rest(&pool).await;
}
