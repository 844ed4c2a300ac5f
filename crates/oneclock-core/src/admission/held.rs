//! A mean that follows what comes: the last thirty or so count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How much of the difference a new value makes up for.
const OF: u64 = 32;

pub(super) struct Held(AtomicU64);

impl Held {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Two at once may lose one: it is a mean.
    pub(super) fn add(&self, value: Duration) {
        let value = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        let before = self.0.load(Ordering::Relaxed);
        let after = if before == 0 { value } else { before - before / OF + value / OF };
        self.0.store(after, Ordering::Relaxed);
    }

    /// Zero while nothing is known.
    pub(super) fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
