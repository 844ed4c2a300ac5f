//! `oneclock queue` over real brokers: what it prints, what it puts back and ends, and how it exits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests: to panic is how a test fails

mod connecting;
mod nats;
mod postgres;
mod rabbitmq;
mod support;
