//! The proxy over real sockets: callers before it, upstreams behind it, and what each of them sees.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

mod common;
mod ends;
mod forwards;
mod reloads;
mod upgrades;
