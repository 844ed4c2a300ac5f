//! The first step: one layer around an axum service. Handlers stay as they are.
//!
//! `cargo run -p oneclock-examples --example first` serves until ctrl-c. Ask it from another terminal:
//!
//! ```sh
//! curl -i http://127.0.0.1:8080/                              # how much time this request has
//! curl -i http://127.0.0.1:8080/slow                          # 504 after 800 ms, and the handler is dropped
//! curl -i -H 'x-remaining-ms: 100' http://127.0.0.1:8080/slow # its caller has 100 ms: 504 after those
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::{Router, routing::get};
use oneclock::events::{Event, observe_globally};
use oneclock_axum::{Op, Policy, PolicyExt as _, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    observe_globally(Arc::new(|event: &Event<'_>| eprintln!("{event}")))?; // prints each arrival and each end
    let clock = Policy::named("order").when_absent(Duration::from_millis(800)).build()?;
    let app = Router::new()
        .route("/", get(|Op(op): Op| async move { format!("{:.1?} left\n", op.remaining()) }))
        .route("/slow", get(|| tokio::time::sleep(Duration::from_secs(10))))
        .layer(clock.layer());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    serve(listener, app).await?;
    Ok(())
}
