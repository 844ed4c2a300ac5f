//! An atomic word of 64 bits, as the shared pieces here use one: `std`'s, or a model checker's in its place.
//!
//! Decides nothing. Whatever hangs on such a word is in the word itself, so relaxed order is enough.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic word of 64 bits.
pub(crate) trait Word {
    fn holding(value: u64) -> Self;
    fn read(&self) -> u64;
    /// Replaces `before` by `after`. On failure the value that is there instead.
    fn swap_if(&self, before: u64, after: u64) -> Result<(), u64>;
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
