//! A real server, real sockets, real time: bounds are generous, and what is waited for is an event.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/relay.rs"]
mod relay;
#[path = "main/support.rs"]
mod support;

#[path = "main/abandoned.rs"]
mod abandoned;
#[path = "main/basics.rs"]
mod basics;
#[path = "main/borrowers.rs"]
mod borrowers;
#[path = "main/endings.rs"]
mod endings;
#[path = "main/faults.rs"]
mod faults;
#[path = "main/race.rs"]
mod race;
#[path = "main/statements.rs"]
mod statements;
#[path = "main/tls.rs"]
mod tls;
#[path = "main/transactions.rs"]
mod transactions;
