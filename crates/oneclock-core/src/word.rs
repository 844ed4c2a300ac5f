//! An atomic word of 64 bits, as the shared pieces here use one: `std`'s, or a model checker's in its place.
//!
//! Decides nothing. Whatever hangs on such a word is in the word itself, so relaxed order is enough.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Tick;

/// An atomic word of 64 bits.
pub(crate) trait Word {
    fn holding(value: u64) -> Self;
    fn read(&self) -> u64;
    /// Replaces `before` by `after`. On failure the value that is there instead.
    fn swap_if(&self, before: u64, after: u64) -> Result<(), u64>;
}

/// Whether this is the first in `span`: the word holds when the next one may come.
pub(crate) fn once_in<W: Word>(free_at: &W, span: Duration, now: Tick) -> bool {
    let mut before = free_at.read();
    while before <= now.as_nanos() {
        match free_at.swap_if(before, (now + span).as_nanos()) {
            Ok(()) => return true,
            Err(instead) => before = instead,
        }
    }
    false
}

impl Word for AtomicU64 {
    fn holding(value: u64) -> Self {
        Self::new(value)
    }

    fn read(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    fn swap_if(&self, before: u64, after: u64) -> Result<(), u64> {
        self.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed).map(drop)
    }
}

#[cfg(test)]
impl Word for loom::sync::atomic::AtomicU64 {
    fn holding(value: u64) -> Self {
        Self::new(value)
    }

    fn read(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    fn swap_if(&self, before: u64, after: u64) -> Result<(), u64> {
        // Strong: a weak one may fail for ever in a model.
        self.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).map(drop)
    }
}
