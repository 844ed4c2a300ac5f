//! What a next hop is told when its configuration does not say. Contract E7.
//!
//! One convention each: a hop that understands more is configured with a set of its own, and then every field of that
//! set carries the same deadline.

use super::{Convention, Conventions};

/// A plain HTTP hop: `x-remaining-ms`.
pub const fn plain_http() -> Conventions {
    const SET: &[Convention] = &[Convention::X_REMAINING_MS];
    Conventions::fixed(SET)
}

/// A gRPC hop: `grpc-timeout`.
pub const fn grpc() -> Conventions {
    const SET: &[Convention] = &[Convention::GRPC_TIMEOUT];
    Conventions::fixed(SET)
}

/// A hop that speaks the Connect protocol: `connect-timeout-ms`.
pub const fn connect() -> Conventions {
    const SET: &[Convention] = &[Convention::CONNECT_TIMEOUT_MS];
    Conventions::fixed(SET)
}
