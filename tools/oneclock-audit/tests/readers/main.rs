//! What each reader finds in small files of the shape of its format: who calls whom, and every setting with its value,
//! whether anybody wrote it, and its place.

#![allow(clippy::expect_used, reason = "a test without its files says so")]

mod gateway_api;
mod told;
mod topology;
