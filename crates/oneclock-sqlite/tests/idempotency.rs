//! The idempotency store on real files, and under processes that are killed and stopped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "idempotency/support.rs"]
mod support;

#[cfg(unix)]
#[path = "idempotency/child.rs"]
mod child;
#[cfg(unix)]
#[path = "idempotency/crash.rs"]
mod crash;
#[cfg(unix)]
#[path = "idempotency/stopped.rs"]
mod stopped;
#[path = "idempotency/store.rs"]
mod store;
#[cfg(target_os = "linux")]
#[path = "idempotency/synced.rs"]
mod synced;

#[cfg(unix)]
#[path = "../../oneclock-idempotency/tests/main/killed.rs"]
#[allow(dead_code, reason = "shared with other crates, which use all of it")]
mod killed;
#[path = "../../oneclock-idempotency/tests/main/notes.rs"]
#[allow(dead_code, reason = "shared with other crates, which use all of it")]
mod notes;
#[path = "../../oneclock-idempotency/tests/main/store_rules.rs"]
mod store_rules;
