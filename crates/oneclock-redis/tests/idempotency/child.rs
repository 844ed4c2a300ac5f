//! What the other process does. It is this test binary again, told by its environment.

use oneclock::clock;
use oneclock_redis::IdempotencyStore;

use crate::killed::{Told, block_on, reap, recover, serve};
use crate::support::{BOUND, client};

fn store(told: &Told) -> IdempotencyStore {
    let shift = told.shift;
    let store = IdempotencyStore::builder(client(|redis| redis)).prefix(&told.place).within(BOUND);
    store.clock(move || clock::wall() + shift).build().unwrap()
}

#[test]
#[ignore = "the other process of other tests"]
fn child() {
    let Some((role, told)) = Told::of_this_process() else { return };
    block_on(async {
        match role.as_str() {
            "serve" => serve(&told, store(&told)).await,
            "recover" => recover(&told, store(&told)).await,
            "reap" => reap(&told, store(&told)).await,
            other => panic!("no such role: {other}"),
        }
    });
}
