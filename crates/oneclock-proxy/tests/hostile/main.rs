//! Hostile input against the sidecar: each vector is bytes on the wire, and what is right is judged by what the upstream
//! reads and by whether others are served meanwhile.
//!
//! ```text
//! smuggling.rs   HTTP/1.1: two lengths, codings, line ends, targets, chunks (vectors.rs)
//! downgrade.rs   HTTP/2 in, HTTP/1.1 out
//! heads.rs       heads that are too large
//! slow.rs        heads and bodies that come slowly, on many connections
//! floods.rs      HTTP/2 frames that cost the sender little
//! idle.rs        more idle connections than there are places
//!
//! oracle.rs      reads what an upstream got, in the one way that is beyond doubt
//! raw.rs         the upstream that records every byte; the caller that sends any
//! frames.rs      HTTP/2 frames, byte for byte
//! process.rs     a proxy in a process of its own, and somebody who behaves
//! ```

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "all of this is tests, helpers included"
)]

mod downgrade;
mod floods;
mod frames;
mod heads;
mod idle;
mod oracle;
mod process;
mod raw;
mod slow;
mod smuggling;
mod vectors;

use std::time::Duration;

/// More than any exchange on the loopback interface needs.
const AMPLE: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
