//! Spans over real sockets: a caller, a gateway and a service behind it, each with its layers, in one process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arrivals;
mod calls;
mod ends;
mod hops;
mod otlp;
mod sampling;
mod support;
