//! What a statement costs on top of sqlx: printed, interleaved, in one run. `cargo test --release -p oneclock-sqlx --test main
//! overhead -- --nocapture` for a figure that means something.

use std::time::{Duration, Instant};

use oneclock_sqlx::sqlx::{self, postgres::PgPoolOptions};

use crate::support::{Database, PLENTY, ms, operation, until_idle, warm};

const ROUNDS: usize = 60;
const EACH: usize = 10;

#[allow(clippy::disallowed_methods)] // a figure, not a decision
fn now() -> Instant {
    Instant::now()
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took.get(took.len() / 2).copied().unwrap_or_default() / u32::try_from(EACH).unwrap()
}

/// A lookup by primary key, prepared, on one connection each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_beside_plain_sqlx() {
    const LOOKUP: &str = "SELECT i FROM t WHERE i = $1";
    let database = Database::new().await;
    sqlx::query("INSERT INTO t SELECT generate_series(1, 1000)").execute(&mut database.outside().await).await.unwrap();
    let plain = PgPoolOptions::new().max_connections(1).connect_with(database.options()).await.unwrap();
    let no_ping = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .connect_with(database.options())
        .await
        .unwrap();
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let mut took = [const { Vec::new() }; 5];
    let mut connection = database.outside().await;
    for round in 0..ROUNDS {
        let op = operation(PLENTY);
        let mut timed = |which: usize, began: Instant| took[which].push(began.elapsed());
        let key = |n: usize| i32::try_from((round * EACH + n) % 1_000 + 1).unwrap();
        let began = now();
        for n in 0..EACH {
            sqlx::query(LOOKUP).bind(key(n)).fetch_one(&mut connection).await.unwrap();
        }
        timed(0, began);
        let mut guard = pool.get_in(&op, "guard").await.unwrap();
        let began = now();
        for n in 0..EACH {
            sqlx::query(LOOKUP).bind(key(n)).fetch_one(&mut guard).await.unwrap();
        }
        timed(1, began);
        drop(guard);
        let began = now();
        for n in 0..EACH {
            sqlx::query(LOOKUP).bind(key(n)).fetch_one(&plain).await.unwrap();
        }
        timed(2, began);
        let began = now();
        for n in 0..EACH {
            sqlx::query(LOOKUP).bind(key(n)).fetch_one(&no_ping).await.unwrap();
        }
        timed(3, began);
        let began = now();
        for n in 0..EACH {
            sqlx::query(LOOKUP).bind(key(n)).fetch_one(pool.named_in(&op, "lookup")).await.unwrap();
        }
        timed(4, began);
    }
    let [connection, guard, plain, no_ping, named] = took.map(median);
    println!(
        "a lookup, median: PgConnection {connection:?}, guard {guard:?}; PgPool {plain:?}, without its ping {no_ping:?}, \
         named {named:?}"
    );
    assert!(guard < connection * 20 && named < plain * 20);
}

/// From a caller's leaving to its connection being clean again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_a_cancel_takes() {
    const CALLERS: u32 = 20;
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(CALLERS as usize));
    warm(&pool, CALLERS as usize).await;
    for (how, apart) in [("over a second", ms(50)), ("at the same moment", ms(0))] {
        let mut took = Vec::new();
        for _ in 0..2 {
            let mut callers = tokio::task::JoinSet::new();
            let begun = operation(PLENTY);
            for n in 0..CALLERS {
                let (pool, begun) = (pool.clone(), begun.clone());
                callers.spawn(async move {
                    let clean = Clean::default();
                    let op = operation(PLENTY).observed_by(clean.0.clone());
                    let statement = sqlx::query("SELECT pg_sleep(20)").execute(pool.named_in(&op, "leaves"));
                    let leaves = ms(300) + apart * n;
                    let left = tokio::time::timeout(
                        leaves.saturating_sub(oneclock::clock::now().since(begun.began())),
                        statement,
                    );
                    assert!(left.await.is_err());
                    let began = now();
                    clean.0.0.notified().await;
                    began.elapsed()
                });
            }
            took.extend(callers.join_all().await);
        }
        took.sort();
        let at = |percent: usize| took[(took.len() - 1) * percent / 100];
        println!("{CALLERS} callers leave {how}: until its connection is clean p50 {:?}, p99 {:?}", at(50), at(99));
        assert!(at(50) < ms(5_000));
    }
    until_idle(&pool).await;
}

/// Told when the call is over, which is when its connection is back.
#[derive(Default)]
struct Clean(std::sync::Arc<Told>);

#[derive(Default)]
struct Told(tokio::sync::Notify);

impl oneclock::events::Observer for Told {
    fn on(&self, event: &oneclock::events::Event<'_>) {
        if matches!(event, oneclock::events::Event::Called(_)) {
            self.0.notify_one();
        }
    }
}
