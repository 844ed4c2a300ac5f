//! RabbitMQ as a broker, on a real one: what a copy keeps, what strangers send, what becomes of a delivery whose connection or whose
//! broker is gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod broken;
mod consuming;
mod lanes;
mod private;
mod publishing;
mod raw;
#[path = "../stopping/mod.rs"]
mod stopping;
mod strangers;
mod support;
