//! The proxy over real sockets: callers before it, upstreams behind it, and what each of them sees.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

mod access;
mod admin;
mod breaks_off;
mod certificates;
mod chain;
mod chains;
mod common;
mod concurrent;
mod ends;
mod forwards;
mod keys;
mod listeners;
mod reloads;
mod retries;
mod upgrades;
mod upstream_tls;
