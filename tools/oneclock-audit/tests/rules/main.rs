//! What each rule finds, and the nearest thing that it must leave alone.

#![allow(clippy::expect_used, reason = "a test without its files says so")]

mod absent;
mod budget;
mod formats;
mod headers;
mod judged;
mod layering;
mod learned;
mod measured;
mod names;
mod pages;
mod parts;
mod retries;
mod reversed;
mod rpc;
mod stores;
mod units;
#[path = "../support/written.rs"]
mod written;
