//! The rules of a store, for the one in memory.

#[path = "store_rules.rs"]
mod rules;

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use oneclock_core::idempotency::{Claim, Fence, Fingerprint, Key, Owner, Scope, Takeover};
use oneclock_idempotency::{AnyStore, MemoryStore, Settle, Store as _};

#[tokio::test]
async fn the_store_in_memory_keeps_the_rules() {
    rules::all(MemoryStore::with_clock).await;
}

#[tokio::test]
async fn so_does_one_of_a_type_that_nobody_knows() {
    rules::all(|clock| AnyStore::new(MemoryStore::with_clock(clock))).await;
}

/// A clock that asks the store something would wait for itself if it was asked under the store's lock.
#[test]
fn the_clock_may_read_the_store() {
    let shown = Arc::new(OnceLock::<MemoryStore>::new());
    let of_clock = Arc::clone(&shown);
    let store = MemoryStore::with_clock(move || {
        let _ = of_clock.get().map(MemoryStore::len);
        oneclock::clock::wall()
    });
    shown.set(store.clone()).unwrap();
    let scope = Scope {
        principal: "shop".into(),
        method: "POST".into(),
        route: "/charges".into(),
        key: Key::parse(b"k").unwrap(),
    };
    let claim = Claim {
        fingerprint: Fingerprint([7; 32]),
        owner: Owner(1),
        made: None,
        lease: Duration::from_secs(10),
        retention: Duration::from_secs(60),
        takeover: Takeover::Never,
    };
    let (done, is_done) = mpsc::channel();
    // On a thread of its own, which is left behind if it never comes back.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            store.claim(&scope, &claim).await.unwrap();
            done.send("claim").unwrap();
            store.settle(&scope, Fence(1), Settle::Release).await.unwrap();
            done.send("settle").unwrap();
            store.read(&scope).await.unwrap();
            done.send("read").unwrap();
        });
    });
    for step in ["claim", "settle", "read"] {
        assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(step));
    }
}
