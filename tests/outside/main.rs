//! What the outside does, over real sockets: callers that leave, bodies that stall, hostile input, a shutdown in the
//! middle of it, and all of it at once. Beside each rule stands the naive way, once, failing.
//!
//! ```text
//! leaving.rs    callers that leave, and callers that stop reading (contract N3, X8)
//! bodies.rs     bodies and uploads without progress; answers before the end of an upload (X3, X8, X9)
//! hostile.rs    what no well-meaning client sends (section 1 of the contract)
//! shutdown.rs   stopping with work under way (X10)
//! soak.rs       a small edition of the soak
//!
//! service.rs    the service that all of that meets, and what is known of it
//! told.rs       its events
//! alone.rs      tests that look at the whole process
//! load/         the soak itself, shared with the program of that name
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "all of this is tests, helpers included")]

mod alone;
mod bodies;
mod hostile;
mod leaving;
mod load;
mod service;
mod shutdown;
mod soak;
mod told;

use std::time::Duration;

/// What the promise of 50 ms may become on a machine that does ten things at once.
const NOTICED: Duration = Duration::from_millis(500);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Now, as the fixtures tell it.
#[allow(clippy::disallowed_methods, reason = "the fixtures tell instants of tokio's")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
