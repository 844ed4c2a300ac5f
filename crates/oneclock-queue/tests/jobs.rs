//! Work that is accepted over HTTP: the rules for every store, over the one in memory, and queues that take nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

mod jobs_rules;
#[path = "jobs/refusing.rs"]
mod refusing;

mod memory {
    use crate::jobs_rules::{Shop, over};
    use oneclock_idempotency::MemoryStore;
    use oneclock_queue::MemoryBroker;

    async fn open() -> Shop {
        Shop::open(MemoryBroker::new("jobs"), MemoryStore::new(), ()).await
    }

    over!(open);
}
