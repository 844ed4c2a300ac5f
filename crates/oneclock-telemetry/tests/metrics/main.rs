//! Metrics: every event in its series, once; within bounds; in a text that Prometheus takes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod bounds;
mod calls;
mod documents;
mod health;
mod operations;
mod programs;
mod race;
mod scraped;
mod support;
mod zombies;
