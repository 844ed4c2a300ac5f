//! A service on SQLite: its statements end with the request, and what became of a transaction is known.
//!
//! `cargo run -p oneclock-examples --example sqlite` starts it, sells the last article, asks for one that is not there, and for
//! a report that takes longer than it may; each event is printed beside the answers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use oneclock::events::{Event, observe_globally};
use oneclock_axum::{Client, Op, Operation, Policy, PolicyExt as _, Problem, Trust, collect, serve};
use oneclock_sqlite::rusqlite::OptionalExtension as _;
use oneclock_sqlite::{Decision, Pool};
use tokio::net::TcpListener;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The work runs on another thread, so it owns what it uses: `move`.
async fn stock(Op(op): Op, State(pool): State<Pool>, Path(item): Path<i64>) -> Result<String, Problem> {
    let ask = "SELECT n FROM stock WHERE item = ?1";
    let n: Option<i64> = pool
        .run_in(&op, "lookup", move |conn| conn.query_row(ask, [item], |row| row.get(0)).optional())
        .await
        .map_err(Problem::of)?; // out of time: 504. SQLite failed: 500, and the log says why
    let n = n.ok_or_else(|| Problem::with_status(StatusCode::NOT_FOUND, "no such item"))?;
    Ok(format!("{n} left"))
}

/// Committed, or not a trace of it: nothing is sold that is not there.
async fn sell(Op(op): Op, State(pool): State<Pool>, Path(item): Path<i64>) -> Result<&'static str, Problem> {
    let sold = pool.decide_in(&op, "sell", move |tx| {
        let taken = tx.execute("UPDATE stock SET n = n - 1 WHERE item = ?1 AND n > 0", [item])?;
        tx.execute("INSERT INTO sales (item) VALUES (?1)", [item])?;
        Ok(if taken == 0 { Decision::RollBack(false) } else { Decision::Commit(true) })
    });
    if sold.await.map_err(Problem::of)? {
        Ok("sold")
    } else {
        Err(Problem::with_status(StatusCode::CONFLICT, "sold out"))
    }
}

/// Counting to a billion takes a minute, and gets 100 ms.
async fn report(Op(op): Op, State(pool): State<Pool>) -> Result<String, Problem> {
    let count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e9) SELECT count(*) FROM n";
    let report = pool.run_in(&op, "report", move |conn| conn.query_row(count, [], |row| row.get::<_, i64>(0)));
    Ok(report.await.map_err(Problem::of)?.to_string())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    observe_globally(Arc::new(|event: &Event<'_>| println!("    {event}")))?;
    let pool = Pool::builder(":memory:") // or the path of a file
        .cap("lookup", ms(50))
        .cap("report", ms(100))
        .require_operation() // a call outside of any is a mistake here
        .build()?;
    let tables = "CREATE TABLE stock (item INTEGER PRIMARY KEY, n INTEGER NOT NULL); INSERT INTO stock VALUES (7, 1);
                  CREATE TABLE sales (id INTEGER PRIMARY KEY, item INTEGER NOT NULL)";
    pool.run_in(&Operation::begin("setup", ms(5_000)), "tables", |conn| conn.execute_batch(tables)).await?;

    let clock = Policy::named("shop").when_absent(ms(800)).build()?;
    let app = Router::new()
        .route("/stock/{item}", get(stock).post(sell))
        .route("/report", post(report))
        .with_state(pool)
        .layer(clock.layer());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let visitor = visit(format!("http://{}", listener.local_addr()?)); // a real service would wait for ctrl-c here
    serve(listener, app).trust(Trust::Inside).shutdown(visitor, ms(5_000)).await?;
    Ok(())
}

async fn visit(url: String) {
    let visits =
        [("GET", "/stock/7"), ("POST", "/stock/7"), ("POST", "/stock/7"), ("GET", "/stock/8"), ("POST", "/report")];
    for (method, path) in visits {
        let visit = Operation::begin("visit", ms(800));
        match visit.run(ask(&url, method, path)).await {
            Ok(Ok(answer)) => println!("{method} {path}: {answer}"),
            Ok(Err(error)) => println!("{method} {path}: {error}"),
            Err(ended) => println!("{method} {path}: {ended}"),
        }
    }
}

async fn ask(url: &str, method: &str, path: &str) -> Result<String, BoxError> {
    let shop = Client::builder("shop", url).trust(Trust::Inside).build()?;
    let answer = shop.request(Request::builder().method(method).uri(path).body(String::new())?).await?;
    let status = answer.status();
    let text = collect(answer.into_body(), 64 * 1024).await?;
    Ok(format!("{status} {}", String::from_utf8_lossy(&text)))
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
