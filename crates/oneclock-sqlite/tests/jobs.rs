//! Work that is accepted over HTTP, with its records in a real file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "../../oneclock-queue/tests/jobs_rules/mod.rs"]
#[allow(dead_code, reason = "shared with other crates, which use all of it")]
mod jobs_rules;
#[path = "main/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;

use jobs_rules::{Shop, over};
use oneclock_queue::MemoryBroker;
use oneclock_sqlite::IdempotencyStore;
use support::Folder;

async fn open() -> Shop {
    let folder = Folder::new();
    let store = IdempotencyStore::builder(folder.database()).build().unwrap();
    Shop::open(MemoryBroker::new("jobs"), store, folder).await
}

over!(open);
