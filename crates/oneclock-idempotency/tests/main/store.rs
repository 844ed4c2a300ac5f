//! The rules of a store, for the one in memory.

#[path = "store_rules.rs"]
mod rules;

use oneclock_idempotency::MemoryStore;

#[tokio::test]
async fn the_store_in_memory_keeps_the_rules() {
    rules::all(MemoryStore::with_clock).await;
}
