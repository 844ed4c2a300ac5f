//! A hop in the middle of a chain of languages: told what is left, it works for 40 ms and calls the next one.
//!
//! `relay NEXT_URL` prints its own URL and serves until its standard input ends. For `clients/python/chain.py`.

use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use oneclock_axum::{Client, Op, Policy, PolicyExt as _, Problem, Trust, collect_json, serve, successful};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Says what this hop had, and what the one behind it says of itself.
async fn relay(Op(op): Op, State(next): State<Client>) -> Result<Json<Value>, Problem> {
    let had_us = u64::try_from(op.remaining().as_micros()).unwrap_or(u64::MAX);
    tokio::time::sleep(Duration::from_millis(40)).await; // work
    let behind: Value = collect_json(successful(next.get("/").await?)?.into_body(), 64 * 1024).await?;
    Ok(Json(json!({ "hop": "rust", "had_us": had_us, "behind": behind })))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let next = std::env::args().nth(1).ok_or("which URL comes next?")?;
    let next = Client::builder("next", &*next).trust(Trust::Inside).cap(Duration::from_secs(9)).build()?;
    let clock = Policy::named("relay").build()?;
    let app = Router::new().route("/", get(relay)).with_state(next).layer(clock.layer());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    let input_ends = async {
        let mut rest = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    };
    serve(listener, app).trust(Trust::Inside).shutdown(input_ends, Duration::from_secs(1)).await?;
    Ok(())
}
