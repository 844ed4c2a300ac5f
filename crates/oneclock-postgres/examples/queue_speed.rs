//! What leases, fences and counts cost: jobs published by several at a time, taken in batches and settled one by one, through
//! `PgQueue` and through plain tokio-postgres on a table with the same columns, checks and indices; in turns in one run, so that
//! both meet the same noise.
//!
//! `cargo run --release -p oneclock-postgres --features queue --example queue_speed`, with a server in `ONECLOCK_POSTGRES_URL` or
//! on loopback. `JOBS=20000 ROUNDS=10` for more, `NOTIFY=0` for a queue that is polled, as the plain one is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use oneclock::{Operation, clock};
use oneclock_postgres::tokio_postgres::{Client, Config, NoTls};
use oneclock_postgres::{PgQueue, Pool};
use oneclock_queue::{Broker as _, Delivery as _, Lane, Message, Settle};
use tokio_util::sync::CancellationToken;

const AT_A_TIME: usize = 8;
const BATCH: usize = 64;

const PUBLISH: &str = "INSERT INTO plain_queue (queue, headers, body) VALUES ($1, $2, $3)";
const TAKE: &str = "UPDATE plain_queue SET attempts = attempts + 1, lease_until = clock_timestamp() + interval '30 seconds'
    WHERE id = ANY (ARRAY(SELECT id FROM plain_queue WHERE queue = $1 AND lane = 'main' AND visible_at <= statement_timestamp()
        AND (lease_until IS NULL OR lease_until <= statement_timestamp())
        ORDER BY visible_at, id LIMIT 64 FOR UPDATE SKIP LOCKED)) RETURNING id, headers, body";
const GONE: &str = "DELETE FROM plain_queue WHERE id = $1";

type Failed = Box<dyn std::error::Error>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failed> {
    let number = |name: &str, or: usize| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let (jobs, rounds) = (number("JOBS", 10_000), number("ROUNDS", 10));
    let url = std::env::var("ONECLOCK_POSTGRES_URL");
    let mut config: Config = url.as_deref().unwrap_or("postgres://postgres@127.0.0.1:5432/postgres").parse()?;
    let schema = format!("queue_speed_{}", std::process::id());
    config.options(format!("-c search_path={schema}"));
    let plain: Vec<Client> = try_join_all((0..AT_A_TIME).map(|_| connect(&config))).await?;
    let first = plain.first().ok_or("a connection")?;
    first.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    let pool = Pool::configured(config).size(AT_A_TIME).build()?;
    let queue = PgQueue::builder("jobs", pool.clone()).poll(Duration::from_millis(20));
    let queue = if number("NOTIFY", 1) == 0 { queue.without_notify() } else { queue }.build()?;
    queue.create().await?;
    first.batch_execute("CREATE TABLE plain_queue (LIKE oneclock_queue INCLUDING ALL)").await?;

    let each = jobs / rounds;
    let (mut published, mut consumed) = ([Duration::ZERO; 2], [Duration::ZERO; 2]);
    for round in 0..rounds {
        for turn in 0..2 {
            // Whoever goes first changes from round to round.
            let ours = (round + turn) % 2 == 1;
            let began = clock::now();
            if ours {
                publish(&queue, each).await?
            } else {
                publish_plain(&plain, each).await?
            }
            let between = clock::now();
            if ours {
                consume(&queue, each).await?
            } else {
                consume_plain(&plain, each).await?
            }
            let over = clock::now();
            // A look that was dropped at the end may still run: it would take the first jobs of the next turn.
            while pool.status().busy > 0 || pool.status().settling > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let (of, to) = (usize::from(ours), |times: &mut [Duration; 2], of: usize, time| {
                if let Some(sum) = times.get_mut(of) {
                    *sum += time;
                }
            });
            to(&mut published, of, between.since(began));
            to(&mut consumed, of, over.since(between));
        }
    }
    let done = u32::try_from(each * rounds)?;
    for (what, [plain, ours]) in [("publish", published), ("take and settle", consumed)] {
        let rate = |time: Duration| f64::from(done) / time.as_secs_f64();
        println!(
            "{what}: plain {:.0}/s, PgQueue {:.0}/s, ratio {:.2}",
            rate(plain),
            rate(ours),
            rate(ours) / rate(plain)
        );
    }
    println!("{:?}", queue.stats().await?.rates);
    first.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
    Ok(())
}

async fn connect(config: &Config) -> Result<Client, Failed> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection); // ends with the process
    Ok(client)
}

fn message(n: usize) -> Message {
    let mut message = Message::new("confirm-order", "speed", format!("order {n}: {}", "x".repeat(200)));
    message.fields.push(("traceparent".into(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()));
    message
}

async fn publish(queue: &PgQueue, jobs: usize) -> Result<(), Failed> {
    try_join_all((0..AT_A_TIME).map(async |one| {
        let op = Operation::begin("request", Duration::from_secs(600));
        let all = async {
            for n in (one..jobs).step_by(AT_A_TIME) {
                queue.publish(&message(n)).await?;
            }
            Ok::<_, Failed>(())
        };
        op.run(all).await?
    }))
    .await
    .map(|_| ())
}

async fn publish_plain(clients: &[Client], jobs: usize) -> Result<(), Failed> {
    try_join_all(clients.iter().enumerate().map(async |(one, client)| {
        let publish = client.prepare(PUBLISH).await?;
        for n in (one..jobs).step_by(AT_A_TIME) {
            let message = message(n);
            let mut headers = Vec::new();
            message.write("ce-", |name, value| headers.extend([name.to_owned(), value.to_owned()]));
            client.execute(&publish, &[&"jobs", &headers, &&*message.body]).await?;
        }
        Ok::<_, Failed>(())
    }))
    .await
    .map(|_| ())
}

async fn consume(queue: &PgQueue, jobs: usize) -> Result<(), Failed> {
    let left = AtomicUsize::new(jobs);
    let over = CancellationToken::new();
    try_join_all((0..AT_A_TIME).map(async |_| {
        // Not dropped while there is anything to be taken.
        while let Some(received) = over.run_until_cancelled(Box::pin(queue.receive(Lane::Main, BATCH))).await {
            for delivery in received? {
                delivery.settle(&Settle::Gone).await?;
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    over.cancel();
                }
            }
        }
        Ok::<_, Failed>(())
    }))
    .await
    .map(|_| ())
}

async fn consume_plain(clients: &[Client], jobs: usize) -> Result<(), Failed> {
    let left = AtomicUsize::new(jobs);
    try_join_all(clients.iter().map(async |client| {
        let (take, gone) = (client.prepare(TAKE).await?, client.prepare(GONE).await?);
        while left.load(Ordering::Relaxed) > 0 {
            let rows = client.query(&take, &[&"jobs"]).await?;
            if rows.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            for row in rows {
                let (headers, body): (Vec<String>, Vec<u8>) = (row.try_get(1)?, row.try_get(2)?);
                std::hint::black_box((headers, body));
                client.execute(&gone, &[&row.try_get::<_, i64>(0)?]).await?;
                left.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok::<_, Failed>(())
    }))
    .await
    .map(|_| ())
}
