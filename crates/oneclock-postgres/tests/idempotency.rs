//! Idempotency records in a real PostgreSQL, and under processes that are killed and stopped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/relay.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod relay;
#[path = "main/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;

#[path = "idempotency/records.rs"]
mod records;

#[cfg(unix)]
#[path = "idempotency/child.rs"]
mod child;
#[cfg(unix)]
#[path = "idempotency/crash.rs"]
mod crash;
#[path = "idempotency/once.rs"]
mod once;
#[cfg(unix)]
#[path = "idempotency/stopped.rs"]
mod stopped;
#[path = "idempotency/store.rs"]
mod store;

#[cfg(unix)]
#[path = "../../oneclock-idempotency/tests/main/killed.rs"]
#[allow(dead_code, reason = "shared with other crates, which use all of it")]
mod killed;
#[path = "../../oneclock-idempotency/tests/main/notes.rs"]
#[allow(dead_code, reason = "shared with other crates, which use all of it")]
mod notes;
#[path = "../../oneclock-idempotency/tests/main/store_rules.rs"]
mod store_rules;
