//! The layers of this crate, in memory with paused time where a moment is asserted, and over real sockets.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // helpers of tests: to panic is how a test fails

mod breaks_off;
mod broken_off;
mod calls;
mod chain;
mod direct;
mod fields;
mod passing_on;
mod support;
mod vectors;
mod ways;
mod web;
