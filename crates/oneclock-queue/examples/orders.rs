//! Orders over HTTP that are confirmed later, by way of NATS: 202 with a monitor, a consumer in the same process, and an end that leaves
//! nothing half done.
//!
//! ```sh
//! nats-server -js &
//! cargo run -p oneclock-queue --features http,nats --example orders
//! curl -i -H 'idempotency-key: tap-7' -d 'order 7' http://127.0.0.1:8080/orders
//! curl -i -H 'prefer: wait=5' http://127.0.0.1:8080/jobs/…   # what `Location` says
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Response;
use axum::http::request::Parts;
use axum::routing::post;
use oneclock::Shutdown;
use oneclock::events::{Event, observe_globally};
use oneclock_axum::{Policy, PolicyExt as _, Problem, serve};
use oneclock_idempotency::{Body, Idempotency, MemoryStore};
use oneclock_queue::nats::{Nats, async_nats};
use oneclock_queue::{Consumer, Job, JobError, Jobs, Producer, Work};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    observe_globally(Arc::new(|event: &Event<'_>| {
        if let Event::Delivered(delivered) = event {
            println!("{delivered}"); // one for each delivery, whatever becomes of it
        }
    }))?;
    let nats = std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let mails = Nats::builder(async_nats::connect(nats).await?, "example.mails").build().await?;
    let store = MemoryStore::new(); // goes with the process: a service takes that of `oneclock-postgres` or `oneclock-sqlite`

    // Who takes orders.
    let once = Idempotency::builder("orders", store.clone())
        .one_principal() // or `.principal(|head| …)`: who may ask what became of the work
        .retention(WEEK) // longer than a mail lives and may be redriven
        .monitor_at("/jobs")
        .build()?;
    let jobs = Arc::new(Jobs::new(Producer::new("order-service", mails.clone()), once.clone())?);
    let clock = Policy::named("orders").when_absent(MS * 800).ceiling(MS * 10_000).build()?;
    let app = Router::new()
        .route("/orders", post(order))
        .with_state(jobs)
        .route_service("/jobs/{handle}", once.monitor())
        .layer(clock.layer());

    // Who confirms them.
    let consumer = Consumer::builder(mails)
        .limit(MS * 5_000)
        .once(store, WEEK) // the same store: the monitor shows what becomes of the work
        .build(confirm)?;

    // Both end together: nothing new is taken, and what is under way has ten seconds.
    let shutdown = Shutdown::process();
    let confirming = tokio::spawn(async move { consumer.run(shutdown).await });
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    serve(listener, app).with_shutdown(shutdown).shutdown(ctrl_c(), MS * 10_000).await?;
    confirming.await?;
    Ok(())
}

/// Answers within the caller's time. The mail has its own.
async fn order(
    State(jobs): State<Arc<Jobs<Nats, MemoryStore>>>,
    head: Parts,
    order: String,
) -> Result<Response<Body>, Problem> {
    let mail = Work::new("confirm-order", order).expires_in(HOUR).discard();
    Ok(jobs.accept(&head, mail).await?)
}

async fn confirm(job: Job) -> Result<(), JobError> {
    let order = std::str::from_utf8(job.body()).map_err(JobError::rejected)?; // never again: somebody looks at it
    tokio::time::sleep(MS * 200).await; // … the mail is written
    job.before_effect()?; // and now it is sent
    println!("confirmed: {order}");
    Ok(())
}
