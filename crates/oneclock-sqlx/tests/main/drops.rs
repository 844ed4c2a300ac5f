//! Callers that leave at any moment: nothing is lost, and nothing runs on.

use oneclock_sqlx::sqlx;

use crate::support::{Database, PLENTY, eventually, ms, operation, running, until_idle, warm};

/// Something of everything, each with awaits at which its caller may leave.
async fn handler(pool: oneclock_sqlx::Pool, n: i32) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "guard").await?;
    sqlx::query("SELECT pg_sleep(0.002)").execute(&mut guard).await?;
    let mut tx = guard.begin().await?;
    sqlx::query("INSERT INTO t VALUES ($1)").bind(n).execute(&mut tx).await?;
    let mut inner = tx.begin().await?;
    sqlx::query("SELECT pg_sleep(0.002)").execute(&mut inner).await?;
    inner.commit().await?;
    tx.commit().await?;
    let rows = futures_util::StreamExt::count(sqlx::query("SELECT i FROM t").fetch(&mut guard)).await;
    assert!(rows > 0);
    drop(guard);
    sqlx::query("DELETE FROM t WHERE i = $1").bind(n).execute(pool.named_in(&op, "named")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_a_caller_may_leave_at_any_moment() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(3));
    warm(&pool, 3).await;
    let mut left = 0;
    let mut handlers = tokio::task::JoinSet::new();
    for n in 0..300 {
        let pool = pool.clone();
        // Spread over all of its moments, a golden section apart.
        let patience = std::time::Duration::from_micros((u64::from(n as u32) * 61_803) % 25_000);
        handlers.spawn(async move { tokio::time::timeout(patience, handler(pool, n)).await });
        if handlers.len() >= 6 {
            left += usize::from(handlers.join_next().await.unwrap().unwrap().is_err());
        }
    }
    while let Some(handler) = handlers.join_next().await {
        left += usize::from(handler.unwrap().is_err());
    }
    until_idle(&pool).await;
    let status = pool.status();
    println!("{left} of 300 callers left midway; {status:?}");
    assert!(left > 30, "{left}");
    assert!(status.open <= 3 && status.discarded <= 3, "leaving costs no connection: {status:?}");
    warm(&pool, 3).await; // all three places can be had at the same time
    let mut outside = database.outside().await;
    assert_eq!(running(&mut outside, "").await, 0);
    let idle_in = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
    assert_eq!(sqlx::query_scalar::<_, i64>(idle_in).fetch_one(&mut outside).await.unwrap(), 0);
    let op = operation(PLENTY);
    tokio::time::timeout(ms(20_000), handler(pool.clone(), 1_000)).await.unwrap().unwrap();
    drop(op);
}

/// Connecting goes on when its caller has left, so that small budgets do not keep a pool from ever being filled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_caller_left_goes_into_the_pool() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(2));
    let op = operation(PLENTY);
    let mut getting = Box::pin(pool.get_in(&op, "left"));
    assert!(futures_util::FutureExt::now_or_never(&mut getting).is_none());
    drop(getting);
    eventually("it in the pool", async || (pool.status().idle == 1 && pool.status().busy == 0).then_some(())).await;
}
