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
use oneclock_postgres::{IdempotencyStore, PgQueue, Pool};
use support::Database;

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
