//! A real Redis, real sockets, real time: bounds are generous, and what is waited for is an event. Whatever stalls or kills a
//! server has a private one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/support.rs"]
mod support;

#[path = "main/blocking.rs"]
mod blocking;
#[path = "main/budget.rs"]
mod budget;
#[path = "main/late.rs"]
mod late;
#[path = "main/lost.rs"]
mod lost;
#[path = "main/outcome.rs"]
mod outcome;
#[path = "main/queue.rs"]
mod queue;
#[path = "main/ready.rs"]
mod ready;
#[path = "main/server.rs"]
mod server;
#[path = "main/stall.rs"]
mod stall;
#[path = "main/subscribe.rs"]
mod subscribe;
