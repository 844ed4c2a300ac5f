//! What the crate is for: statements whose callers have gone.

use std::time::{Duration, Instant};

use oneclock::events::Called;
use oneclock_core::{Cause, Outcome};
use oneclock_sqlx::sqlx::{self, postgres::PgPoolOptions};
use oneclock_sqlx::{Pool, SqlxError};
use tokio::sync::oneshot;

use crate::support::{Database, PLENTY, Recorder, error, eventually, ms, operation, running, until_idle, warm};

const REQUESTS: u32 = 200;

#[allow(clippy::disallowed_methods)] // how long an innocent waits is a figure, not a decision
fn now() -> Instant {
    Instant::now()
}

/// Of what an innocent `select 1` took, the worst in a hundred.
fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took.get(took.len() * 99 / 100).copied().unwrap_or_default()
}

/// Sends 200 requests, one each `apart`, whose statement takes 10 s and gets 100 ms. How many reached the server.
async fn abandon(pool: &Pool, apart: Duration) -> usize {
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..REQUESTS {
        let pool = pool.clone();
        requests.spawn(async move {
            tokio::time::sleep(apart * n).await;
            let op = operation(ms(100));
            error(sqlx::query("SELECT pg_sleep(10)").execute(pool.named_in(&op, "slow")).await)
        });
    }
    let mut sent = 0;
    while let Some(ended) = requests.join_next().await {
        match ended.unwrap() {
            SqlxError::Stopped { outcome, .. } => sent += usize::from(outcome != Outcome::NotSent),
            other => panic!("{other}: {:?}", other.sqlx()),
        }
    }
    sent
}

/// Asks an innocent `select 1` all the while, until it is told to stop. What each took.
fn innocent(pool: &Pool) -> (oneshot::Sender<()>, tokio::task::JoinHandle<Vec<Duration>>) {
    let (stop, mut stopped) = oneshot::channel();
    let pool = pool.clone();
    let asking = tokio::spawn(async move {
        let mut took = Vec::new();
        while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            let (op, began) = (operation(PLENTY), now());
            sqlx::query("SELECT 1").execute(pool.named_in(&op, "innocent")).await.unwrap();
            took.push(began.elapsed());
            tokio::time::sleep(ms(2)).await;
        }
        took
    });
    (stop, asking)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_two_hundred_abandoned_statements_leave_none_running() {
    let database = Database::new().await;
    let mut outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(5));
    warm(&pool, 5).await;
    // As many at a time as the pool has places, almost; and all at once.
    for (how, apart) in [("one each 30 ms", ms(30)), ("all at once", ms(0))] {
        let (stop, asking) = innocent(&pool);
        let sent = abandon(&pool, apart).await;
        let last = now();
        eventually("none of theirs", async || (running(&mut outside, "pg_sleep(10)").await == 0).then_some(())).await;
        let after = last.elapsed();
        let _ = stop.send(());
        let took = asking.await.unwrap();
        println!(
            "oneclock-sqlx, {REQUESTS} requests, {how}: {sent} reached the server; none runs {after:?} after the last \
             answer; {} innocent, p99 {:?}",
            took.len(),
            p99(took.clone())
        );
        assert!(sent >= 5, "{sent} is too few to show anything");
        assert!(after < ms(5_000), "they would have run for 10 s: {after:?}");
        assert!(p99(took) < ms(5_000));
    }
    until_idle(&pool).await;
    let status = pool.status();
    println!("{status:?}");
    assert!(
        status.open <= 5 && status.discarded <= 5,
        "some 200 were cancelled, and their connections live: {status:?}"
    );
}

/// The same with sqlx alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_with_sqlx_alone_they_run_on_and_nobody_is_served() {
    let database = Database::new().await;
    let mut outside = database.outside().await;
    let plain = PgPoolOptions::new().max_connections(5).connect_with(database.options()).await.unwrap();
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..REQUESTS {
        let plain = plain.clone();
        requests.spawn(async move {
            tokio::time::sleep(ms(5) * n).await;
            let _ = tokio::time::timeout(ms(100), sqlx::query("SELECT pg_sleep(10)").execute(&plain)).await;
        });
    }
    while requests.join_next().await.is_some() {}
    tokio::time::sleep(ms(200)).await;
    let still = running(&mut outside, "pg_sleep(10)").await;
    let served = tokio::time::timeout(ms(500), sqlx::query("SELECT 1").execute(&plain)).await.is_ok();
    println!(
        "sqlx alone: {still} run on 200 ms after the last deadline; an innocent is served within 500 ms: {served}"
    );
    assert!(still > 0 && !served, "then this crate would not be needed");
}

/// The caller is dropped, as a handler is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_a_dropped_caller_ends_its_statement_and_the_event_tells() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let recorder = Recorder::new();
    let op = operation(PLENTY).observed_by(recorder.clone());
    let mut request =
        Box::pin(sqlx::query("INSERT INTO t SELECT 1 FROM pg_sleep(20)").execute(pool.named_in(&op, "insert")));
    let running = eventually("its statement", async || {
        assert!(futures_util::FutureExt::now_or_never(&mut request).is_none());
        (database.running("INSERT INTO t").await == 1).then_some(())
    });
    running.await;
    drop(request);
    let Called { outcome, ending, .. } = recorder.call("insert").await;
    assert_eq!((outcome, ending.map(|ending| ending.cause)), (Outcome::Rejected, Some(Cause::CalledOff)));
    assert_eq!((database.running("INSERT INTO t").await, database.rows().await), (0, 0));
    until_idle(&pool).await;
}

/// Nobody polls; the watch ends it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_a_statement_that_nobody_polls_ends_at_its_deadline() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let op = operation(ms(150));
    let mut guard = pool.get_in(&op, "held").await.unwrap();
    let mut request = Box::pin(sqlx::query("SELECT pg_sleep(20)").execute(&mut guard));
    eventually("its statement", async || {
        assert!(futures_util::FutureExt::now_or_never(&mut request).is_none_or(|ended| ended.is_err()));
        (database.running("pg_sleep(20)").await == 1 || op.is_ended()).then_some(())
    })
    .await;
    until_idle(&pool).await; // although `request` and `guard` are still there
    assert_eq!(database.running("pg_sleep(20)").await, 0);
    drop(request);
    assert_eq!(error(sqlx::query("SELECT 1").execute(&mut guard).await).outcome(), Outcome::NotSent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_the_error_says_which_bound_where_and_where_the_time_went() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).cap("report", ms(100)));
    warm(&pool, 1).await;
    let op = operation(PLENTY);
    let said = error(sqlx::query("SELECT pg_sleep(20)").execute(pool.named_in(&op, "report")).await);
    let said = said.to_string();
    for part in ["op → report: out of time in stage ", " (bound: cap) after ", " of 100ms, outcome: ", "; spent: pool "]
    {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}

/// What the cancel proves reaches the handler whose operation ends at that moment: here a transaction, in a function that
/// returns sqlx's own error. Without the way home that a call keeps for it, both end in the same instant. A machine may be late;
/// not ten times.
#[tokio::test]
async fn r8_the_proof_comes_before_the_end_of_the_operation() {
    async fn sell(pool: &Pool) -> Result<(), sqlx::Error> {
        let mut tx = pool.begin("sell").await?;
        sqlx::query("INSERT INTO t SELECT 1 FROM pg_sleep(30)").execute(&mut tx).await?;
        tx.commit().await?;
        Ok(())
    }
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let mut seen = Vec::new();
    for _ in 0..10 {
        match operation(ms(400)).run(sell(&pool)).await.map(|told| error(told).outcome()) {
            Ok(Outcome::Rejected) => return,
            other => seen.push(format!("{other:?}")),
        }
    }
    panic!("never proven: {seen:?}");
}
