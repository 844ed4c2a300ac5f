//! Readiness: stacks of axum and tonic with and without their layer, self-tests, zombies, and what a probe is told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests: to panic is how a test fails

mod asked;
mod postgres;
mod self_tests;
mod stacks;
mod support;
mod zombies;
