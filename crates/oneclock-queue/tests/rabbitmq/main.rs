//! RabbitMQ as a broker, on a real one: what a copy keeps, what strangers send, what becomes of a delivery whose connection or whose
//! broker is gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod broken;
mod lanes;
mod private;
mod publishing;
mod raw;
mod strangers;
mod support;
