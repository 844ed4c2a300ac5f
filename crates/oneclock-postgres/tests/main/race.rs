//! D3: a cancel that comes late never hits the next statement on its connection.

use std::time::Duration;

use oneclock::Operation;
use oneclock_postgres::tokio_postgres::error::SqlState;
use oneclock_postgres::tokio_postgres::{Client, Connection, NoTls};

use crate::support::{BOUND, Database, ms};

const ROUNDS: u64 = 600;

/// Enough to show that the naive way does harm.
const NAIVE_ROUNDS: u64 = 200;

/// How long the statement takes; its end and its cancel are made to coincide.
const TAKES: Duration = ms(3);

fn sleeps() -> String {
    format!("SELECT pg_sleep({})", TAKES.as_secs_f64())
}

/// Offsets that spread the cancel around the natural end.
fn offset(round: u64) -> Duration {
    TAKES.saturating_sub(ms(1)) + Duration::from_micros(100 * (round % 40))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_six_hundred_cancels_harm_no_innocent_statement() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let sql = sleeps();
    let op = Operation::begin("innocent", Duration::from_secs(120));
    let (mut harmed, mut cancelled) = (0, 0);
    for round in 0..ROUNDS {
        let mut client = pool.get_in(&op, "guilty").await.unwrap();
        if tokio::time::timeout(offset(round), client.batch_execute(&sql)).await.is_err() {
            cancelled += 1;
        }
        drop(client);
        let mut innocent = pool.get_in(&op, "innocent").await.unwrap();
        if innocent.batch_execute("SELECT pg_sleep(0.002)").await.is_err() {
            harmed += 1;
        }
    }
    let naive = naive(&database.config().connect(NoTls).await.map(spawned).unwrap()).await;
    let status = pool.status();
    println!(
        "innocent statements harmed by a late cancel: oneclock {harmed} of {ROUNDS} ({cancelled} abandoned, {} cancels \
         sent), without the fence {naive} of {NAIVE_ROUNDS}",
        status.cancels_sent
    );
    assert_eq!(harmed, 0);
    assert!(cancelled > 0 && status.cancels_sent > 0, "there was a race at all: {status:?}");
    assert_eq!(status.discarded, 0, "{status:?}");
    assert!(naive > 0, "the naive way does harm, or this test would show nothing");
}

/// The same, with the connection used again as soon as the statement is answered, while the cancel may be on its way.
async fn naive(client: &Client) -> u64 {
    let sql = sleeps();
    let mut harmed = 0;
    for round in 0..NAIVE_ROUNDS {
        let token = client.cancel_token();
        let cancel = tokio::spawn(async move {
            tokio::time::sleep(offset(round)).await;
            token.cancel_query(NoTls).await
        });
        drop(client.batch_execute(&sql).await);
        if let Err(error) = client.batch_execute("SELECT pg_sleep(0.002)").await {
            assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
            harmed += 1;
        }
        drop(tokio::time::timeout(BOUND, cancel).await.unwrap().unwrap());
    }
    harmed
}

fn spawned<S, T>((client, connection): (Client, Connection<S, T>)) -> Client
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(connection);
    client
}
