//! Work that is accepted over HTTP, with its records and its queue in a real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "../../oneclock-queue/tests/jobs_rules/mod.rs"]
#[allow(dead_code, reason = "shared with other crates, which use all of it")]
mod jobs_rules;
#[path = "main/relay.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod relay;
#[path = "main/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;

use jobs_rules::{Shop, over};
use oneclock_postgres::{IdempotencyStore, PgQueue, Pool, Relay};
use oneclock_queue::MemoryBroker;
use support::Database;
use tokio_util::task::AbortOnDropHandle;

async fn open() -> Shop {
    let database = Database::new().await;
    let pool = || Pool::configured(database.config()).size(4).build().unwrap();
    let queue = PgQueue::builder("jobs", pool()).build().unwrap();
    queue.create().await.unwrap();
    let store = IdempotencyStore::builder(pool()).build().unwrap();
    store.create().await.unwrap();
    Shop::open(queue, store, database).await
}

over!(open);

/// Accepted into an outbox, from which a relay moves them to another broker, whose consumer does them: whoever asks for one is told
/// what became of it there.
mod through_an_outbox {
    use super::*;

    async fn open() -> Shop {
        let database = Database::new().await;
        let pool = || Pool::configured(database.config()).size(4).build().unwrap();
        let outbox = PgQueue::builder("jobs-outbox", pool()).outbox_of("jobs").build().unwrap();
        outbox.create().await.unwrap();
        let store = IdempotencyStore::builder(pool()).build().unwrap();
        store.create().await.unwrap();
        let elsewhere = MemoryBroker::new("jobs");
        let relay = Relay::new(outbox.clone(), elsewhere.clone()).unwrap();
        let moving = AbortOnDropHandle::new(tokio::spawn(async move { relay.run(std::future::pending()).await }));
        Shop::between(outbox, elsewhere, store, (database, moving)).await
    }

    over!(open);
}
