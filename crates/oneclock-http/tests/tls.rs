//! TLS over real sockets, from both sides: what holds without it holds with it. For what the usual building blocks do by
//! themselves, the same test fails once, on purpose.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

#[path = "tls/call.rs"]
mod call;
#[path = "tls/certificates.rs"]
mod certificates;
#[path = "tls/common.rs"]
mod common;
#[path = "tls/cut.rs"]
mod cut;
#[path = "tls/handshake.rs"]
mod handshake;
#[path = "tls/leave.rs"]
mod leave;
#[path = "tls/trust.rs"]
mod trust;
