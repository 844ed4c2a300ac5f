//! A queue and an outbox in a real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/relay.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod relay;
#[path = "main/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;

#[path = "queue/shop.rs"]
mod shop;
#[path = "queue/target.rs"]
mod target;

#[path = "queue/consumers.rs"]
mod consumers;
#[path = "queue/fields.rs"]
mod fields;
#[path = "queue/numbers.rs"]
mod numbers;
#[path = "queue/outbox.rs"]
mod outbox;
#[path = "queue/relays.rs"]
mod relays;
#[path = "queue/stopped.rs"]
mod stopped;
#[path = "../../oneclock-queue/tests/stopping/mod.rs"]
mod stopping;
#[path = "queue/waking.rs"]
mod waking;
