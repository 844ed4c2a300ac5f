//! How long a backend works on after the caller has left, end to end: a client closes its connection to an HTTP service, and
//! the backend that works for it becomes idle. 50 requests in flight; departures spread over a second, then all at once.
//!
//! `cargo run --release -p oneclock-postgres --example cancel_latency`, with a server in `ONECLOCK_POSTGRES_URL` or on
//! loopback that has room for 60 sessions. What is printed contains the time of the look at the server, about 2 ms.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use oneclock::clock;
use oneclock_axum::{Policy, PolicyExt as _, Trust, serve};
use oneclock_core::Tick;
use oneclock_postgres::Pool;
use oneclock_postgres::tokio_postgres::{Client, Config, NoTls};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

const IN_FLIGHT: u32 = 50;
const ROUNDS: u32 = 8;

type Failed = Box<dyn std::error::Error>;

async fn work(State(pool): State<Pool>, Path(caller): Path<u32>) -> String {
    let sql = format!("SELECT pg_sleep(60) /* caller {caller} */");
    match pool.run("work", async |client| client.batch_execute(&sql).await).await {
        Ok(()) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failed> {
    let url = std::env::var("ONECLOCK_POSTGRES_URL");
    let config: Config = url.as_deref().unwrap_or("postgres://postgres@127.0.0.1:5432/postgres").parse()?;
    let (outside, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection); // ends with the process
    let pool = Pool::configured(config).size(usize::try_from(IN_FLIGHT)?).build()?;
    let clock =
        Policy::named("service").when_absent(Duration::from_secs(60)).ceiling(Duration::from_secs(60)).build()?;
    let app = Router::new().route("/orders/{caller}", get(work)).with_state(pool.clone()).layer(clock.layer());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move {
        if let Err(error) = serve(listener, app).trust(Trust::Inside).await {
            eprintln!("the service ended: {error}");
        }
    });

    for (what, spread) in [("spread over a second", Duration::from_secs(1)), ("at one moment", Duration::ZERO)] {
        let mut waits = Vec::new();
        for _ in 0..ROUNDS {
            waits.extend(round(address, &outside, spread).await?);
        }
        waits.sort();
        let at = |percent: usize| waits.get((waits.len() * percent / 100).min(waits.len() - 1));
        println!(
            "{IN_FLIGHT} in flight, departures {what}, {} of them: p50 {:.1?}, p90 {:.1?}, p99 {:.1?}, longest {:.1?}",
            waits.len(),
            at(50).ok_or("no departure")?,
            at(90).ok_or("no departure")?,
            at(99).ok_or("no departure")?,
            waits.last().ok_or("no departure")?
        );
    }
    println!("{:?}", pool.status());
    server.abort();
    pool.close().await;
    Ok(())
}

/// All callers arrive, work, and leave; how long each one's backend worked on.
async fn round(address: SocketAddr, outside: &Client, spread: Duration) -> Result<Vec<Duration>, Failed> {
    let mut callers = Vec::new();
    for caller in 0..IN_FLIGHT {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET /orders/{caller} HTTP/1.1\r\nhost: service\r\n\r\n").as_bytes()).await?;
        callers.push((caller, stream));
    }
    while working(outside).await?.len() < callers.len() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let gap = spread / IN_FLIGHT;
    let (told, mut leaving) = tokio::sync::mpsc::unbounded_channel::<(u32, Tick)>();
    let departures = tokio::spawn(async move {
        for (caller, stream) in callers {
            let now = clock::now();
            drop(stream);
            if told.send((caller, now)).is_err() {
                return;
            }
            if !gap.is_zero() {
                tokio::time::sleep(gap).await;
            }
        }
    });
    let (mut left, mut waits) = (BTreeMap::new(), Vec::new());
    while waits.len() < usize::try_from(IN_FLIGHT)? {
        while let Ok((caller, at)) = leaving.try_recv() {
            left.insert(caller, at);
        }
        let working = working(outside).await?;
        let now = clock::now();
        left.retain(|caller, at| {
            let works = working.contains(caller);
            if !works {
                waits.push(now.since(*at));
            }
            works
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    departures.await?;
    Ok(waits)
}

/// The callers for whom a backend works, as the server says.
async fn working(outside: &Client) -> Result<HashSet<u32>, Failed> {
    let sql = "SELECT substring(query from 'caller (\\d+)')::int FROM pg_stat_activity \
               WHERE state = 'active' AND query LIKE 'SELECT pg_sleep(60) /* caller%'";
    let rows = outside.query(sql, &[]).await?;
    rows.iter().map(|row| Ok(u32::try_from(row.get::<_, i32>(0))?)).collect()
}
