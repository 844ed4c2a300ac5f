//! Traces in, ledgers out: by format, by rule, for arbitrary trees, and for more traces than fit.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the helpers of a test are a test")]

mod formats;
mod places;
mod properties;
mod rules;
mod streaming;
mod support;
