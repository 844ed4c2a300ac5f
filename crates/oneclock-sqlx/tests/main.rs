//! A real server, real sockets, real time: bounds are generous, and what is waited for is an event.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/support.rs"]
mod support;

#[path = "main/abandoned.rs"]
mod abandoned;
#[path = "main/borrow.rs"]
mod borrow;
#[path = "main/broken.rs"]
mod broken;
#[path = "main/build.rs"]
mod build;
#[path = "main/commit.rs"]
mod commit;
#[path = "main/drops.rs"]
mod drops;
#[path = "main/failover.rs"]
mod failover;
#[path = "main/midway.rs"]
mod midway;
#[path = "main/overhead.rs"]
mod overhead;
#[path = "main/pooler.rs"]
mod pooler;
#[path = "main/race.rs"]
mod race;
#[path = "main/streams.rs"]
mod streams;
#[path = "main/transactions.rs"]
mod transactions;
