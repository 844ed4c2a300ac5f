//! What this bench takes for now: real time, since real sockets are the point.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Now, for spans within one process.
#[expect(clippy::disallowed_methods, reason = "the bench measures from outside what others decide by their clocks")]
pub fn now() -> Instant {
    Instant::now()
}

/// Now in microseconds that all processes of this machine share.
pub fn wall_us() -> u64 {
    us(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Whole microseconds.
pub fn us(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
