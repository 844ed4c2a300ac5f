//! The retry storm: a database near saturation, 12 % of whose calls hang, and callers that may retry three times. Once with
//! the plain loop, once with ours. In paused time with drawn numbers from a fixed seed: the same figures each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oneclock::{Known, Operation, Retries, clock};
use oneclock_core::retry::RetryPolicy;
use oneclock_core::{Effect, Outcome, Stage};
use tokio::sync::Semaphore;

use crate::support::ms;

const CALLS: u64 = 6_000;
/// What one call costs the database is 0.88 × 10 ms and 0.12 × 100 ms. One every 3 ms keeps 6.9 of its 8 connections busy
/// without any retry.
const EVERY: Duration = ms(3);
const CONNECTIONS: usize = 8;
const TAKES: Duration = ms(10);
const HANGS: Duration = ms(100);
const PER_TRY: Duration = ms(50);
const PATIENCE: Duration = ms(1_000);
const HANGS_PER_MILLE: u64 = 120;

/// A database: so many connections, first come, first served. What a caller gives up in the queue costs it nothing; what has
/// a connection keeps it to the end, as a statement does that nobody cancels.
struct Database {
    connections: Arc<Semaphore>,
    calls: AtomicU64,
    draws: AtomicU64,
}

#[derive(Debug, Default)]
struct Result {
    attempts: u64,
    in_time: u64,
    median: Duration,
}

impl Database {
    fn new() -> Arc<Self> {
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        Arc::new(Self { connections, calls: AtomicU64::new(0), draws: AtomicU64::new(7) })
    }

    /// The next of a row of numbers that look drawn (SplitMix64).
    fn draw(&self) -> u64 {
        let mut z = self.draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    async fn query(&self) -> std::result::Result<(), Known<&'static str>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let hangs = self.draw() % 1_000 < HANGS_PER_MILLE;
        let connection = Arc::clone(&self.connections).acquire_owned().await.expect("it stays open");
        let statement = tokio::spawn(async move {
            tokio::time::sleep(if hangs { HANGS } else { TAKES }).await;
            drop(connection);
        });
        let _ = statement.await;
        let failed = Known::new("hung", Outcome::Unknown { stage: Stage::Wait });
        if hangs { Err(failed) } else { Ok(()) }
    }
}

/// Calls come in at their pace, whatever became of those before.
async fn load<F: Future<Output = bool> + Send + 'static>(
    database: &Arc<Database>,
    call: impl Fn(Arc<Database>) -> F,
) -> Result {
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let (began, call) = (clock::now(), call(Arc::clone(database)));
        calls.spawn(async move { call.await.then(|| clock::now().since(began)) });
        tokio::time::sleep(EVERY).await;
    }
    let mut took: Vec<Duration> = calls.join_all().await.into_iter().flatten().collect();
    took.sort();
    Result {
        attempts: database.calls.load(Ordering::Relaxed),
        in_time: took.iter().filter(|took| **took <= PATIENCE).count() as u64,
        median: took.get(took.len() / 2).copied().unwrap_or_default(),
    }
}

fn amplification(result: &Result) -> f64 {
    result.attempts as f64 / CALLS as f64
}

#[tokio::test(start_paused = true)]
async fn r9_a_retry_storm_stays_within_a_tenth() {
    let database = Database::new();
    let plain = load(&database, |database| async move {
        for _ in 0..4 {
            if let Ok(Ok(())) = tokio::time::timeout(PER_TRY, database.query()).await {
                return true;
            }
        }
        false
    })
    .await;

    let database = Database::new();
    let policy = RetryPolicy::new().attempts(4).per_try(PER_TRY).effect(Effect::ReadOnly).build().unwrap();
    let draws = Arc::clone(&database);
    let retries = Retries::to("database", policy).random(move || draws.draw()).build().unwrap();
    let ours = load(&database, |database| {
        let retries = retries.clone();
        async move {
            let op = Operation::begin("order", PATIENCE);
            op.run(retries.run(&Effect::ReadOnly, |_| {
                let database = Arc::clone(&database);
                async move { database.query().await }
            }))
            .await
            .is_ok_and(|result| result.is_ok())
        }
    })
    .await;

    println!("{CALLS} calls, 12 % hang, three retries allowed           plain loop     tokens");
    println!("  calls that reached the database               {:>12} {:>10}", plain.attempts, ours.attempts);
    println!(
        "  amplification                                 {:>12.2} {:>10.2}",
        amplification(&plain),
        amplification(&ours)
    );
    println!("  answered within {PATIENCE:?}                             {:>12} {:>10}", plain.in_time, ours.in_time);
    println!("  median of those                               {:>12.1?} {:>10.1?}", plain.median, ours.median);
    assert!(amplification(&ours) <= 1.1, "{ours:?}");
    assert!(amplification(&plain) > 1.5, "the naive way fails the same check by far: {plain:?}");
    assert!(ours.in_time > plain.in_time);
}
