//! What the other process does. It is this test binary again, told by its environment.

use oneclock_sqlite::IdempotencyStore;

use crate::killed::{Step, Told, block_on, reap, recover, serve};

pub(crate) fn store(told: &Told) -> IdempotencyStore {
    told.folder().store_ahead(told.shift)
}

#[test]
#[ignore = "the other process of other tests"]
fn child() {
    let Some((role, told)) = Told::of_this_process() else { return };
    block_on(async {
        match role.as_str() {
            "serve" => serve(&told, store(&told)).await,
            "serve-naive" => serve_naive(&told),
            "recover" => recover(&told, store(&told)).await,
            "reap" => reap(&told, store(&told)).await,
            "stall" => crate::stopped::stall(&told).await,
            #[cfg(target_os = "linux")]
            "claims" => crate::synced::claims(&told).await,
            #[cfg(target_os = "linux")]
            "claims-unsynced" => crate::synced::claims_unsynced(&told),
            other => panic!("no such role: {other}"),
        }
    });
}

/// An attempt with a record that is written after the work.
fn serve_naive(told: &Told) {
    let (key, folder) = (&told.key, told.folder());
    let attempt = if folder.notes("history").is_empty() { "first" } else { "second" };
    told.note(&format!("invoke {key} {attempt}"));
    if folder.notes("records").is_empty() {
        told.kills_at(Step::BeforeEffect);
        told.note(&format!("effect {key} {attempt}"));
        told.kills_at(Step::AfterEffect);
        folder.note("records", "receipt");
    }
    told.note(&format!("ok {key} {attempt} receipt"));
}
