//! Real files, real threads, real time: bounds are generous, and what is waited for is an event.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/support.rs"]
mod support;

#[path = "main/build.rs"]
mod build;
#[path = "main/deadline.rs"]
mod deadline;
#[path = "main/fence.rs"]
mod fence;
#[path = "main/locks.rs"]
mod locks;
#[path = "main/naive.rs"]
mod naive;
#[path = "main/queue.rs"]
mod queue;
#[path = "main/transactions.rs"]
mod transactions;
