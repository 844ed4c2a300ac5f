//! What a budget costs for each statement: a primary-key lookup with a prepared statement, on loopback, through plain
//! tokio-postgres, through deadpool-postgres, and through this pool; interleaved in one run, so that all meet the same noise.
//!
//! `cargo run --release -p oneclock-postgres --example overhead`, with a server in `ONECLOCK_POSTGRES_URL` or on loopback.

use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_postgres::tokio_postgres::{Config, NoTls};
use oneclock_postgres::{PgError, Pool};

const ROWS: i32 = 10_000;
const ROUNDS: usize = 400;
const LOOKUPS: usize = 50;
const SQL: &str = "SELECT n FROM oneclock_overhead WHERE i = $1";

type Failed = Box<dyn std::error::Error>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failed> {
    let url = std::env::var("ONECLOCK_POSTGRES_URL");
    let config: Config = url.as_deref().unwrap_or("postgres://postgres@127.0.0.1:5432/postgres").parse()?;
    let (plain, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection); // ends with the process
    plain
        .batch_execute(&format!(
            "DROP TABLE IF EXISTS oneclock_overhead; CREATE UNLOGGED TABLE oneclock_overhead (i int PRIMARY KEY, n int);
             INSERT INTO oneclock_overhead SELECT i, i FROM generate_series(1, {ROWS}) i; ANALYZE oneclock_overhead"
        ))
        .await?;
    let prepared = plain.prepare(SQL).await?;
    let manager = deadpool_postgres::Manager::new(config.clone(), NoTls);
    let deadpool = deadpool_postgres::Pool::builder(manager).max_size(1).build()?;
    let ours = Pool::configured(config).size(1).cap("lookup", Duration::from_secs(1)).build()?;

    let mut id = 0;
    let mut next = move || {
        id = id % ROWS + 1;
        id
    };
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..ROUNDS {
        // Whoever goes first changes from round to round.
        for turn in 0..times.len() {
            let which = (round + turn) % times.len();
            let began = clock::now();
            match which {
                0 => {
                    for _ in 0..LOOKUPS {
                        plain.query_one(&prepared, &[&next()]).await?;
                    }
                }
                1 => {
                    for _ in 0..LOOKUPS {
                        let client = deadpool.get().await?;
                        let prepared = client.prepare_cached(SQL).await?;
                        client.query_one(&prepared, &[&next()]).await?;
                    }
                }
                2 => {
                    let op = Operation::begin("request", Duration::from_secs(10));
                    let lookups = async {
                        for _ in 0..LOOKUPS {
                            ours.query_one("lookup", SQL, &[&next()]).await?;
                        }
                        Ok::<_, PgError>(())
                    };
                    op.run(lookups).await??;
                }
                _ => {
                    let op = Operation::begin("request", Duration::from_secs(10));
                    let mut client = ours.get_in(&op, "lookup").await?;
                    let prepared = client.prepare(SQL).await?;
                    for _ in 0..LOOKUPS {
                        client.query_one(&prepared, &[&next()]).await?;
                    }
                }
            }
            let each = clock::now().since(began) / u32::try_from(LOOKUPS)?;
            times.get_mut(which).ok_or("four ways")?.push(each);
        }
    }
    plain.batch_execute("DROP TABLE oneclock_overhead").await?;

    println!("{} lookups each, {LOOKUPS} in a row, µs for one:", ROUNDS * LOOKUPS);
    let names = ["tokio-postgres", "deadpool-postgres", "oneclock, a call each", "oneclock, one call"];
    let base = quantile(&mut times[0].clone(), 50);
    for (name, times) in names.iter().zip(&mut times) {
        let (p10, p50, p90) = (quantile(times, 10), quantile(times, 50), quantile(times, 90));
        println!("  {name:<24} p10 {p10:>6.1}  p50 {p50:>6.1}  p90 {p90:>6.1}   {:.2} × tokio-postgres", p50 / base);
    }
    ours.close().await;
    Ok(())
}

fn quantile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
