//! How long the answers of one destination usually take to begin.
//!
//! Decides only what "usually" means for [`Told`](super::Told): nine of ten. For that a single word that forgets slowly is
//! better than an estimate of the last seconds ([`estimate`](crate::estimate)): calls to a destination may be few, and while it
//! answers nobody it must stay known what it needed before.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::word::Word;

/// With fewer answers nothing is known.
const LEAST: u64 = 20;
/// An answer that took longer moves it up by this part of itself, one that did not moves it down by a ninth of that: it rests
/// where nine come in below for each one above.
const STEP: u64 = 18;
const COUNT_BITS: u32 = 5;
const MOST: u64 = u64::MAX >> COUNT_BITS;

/// The time within which nine of ten answers of a destination begin.
///
/// ```
/// # use oneclock_core::throttle::Usual; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// let usual = Usual::new();
/// assert_eq!(usual.get(), None);
/// for n in 0..2_000 { usual.answered_after(ms(if n % 20 == 0 { 900 } else { 10 + n % 5 })); }
/// let known = usual.get().unwrap();
/// assert!(ms(11) < known && known < ms(18), "one in twenty is not usual: {known:?}");
/// ```
pub struct Usual(AtomicU64); // nanoseconds, and how many were counted, up to the least

// === Usual ===

impl Usual {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self(AtomicU64::holding(0))
    }

    /// An answer began after `took`. Only of calls that were not refused for load, and not of those that were cut off.
    pub fn answered_after(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).clamp(1, MOST);
        let mut before = self.0.read();
        loop {
            let (usual, count) = (before >> COUNT_BITS, before & ((1 << COUNT_BITS) - 1));
            let usual = match count {
                0 => took,
                // Until it is known it is the longest: that is on the safe side, and comes down from there.
                _ if count < LEAST => usual.max(took),
                _ if took > usual => (usual + usual / STEP + 1).min(MOST),
                _ => usual - usual / (STEP * 9),
            };
            match self.0.swap_if(before, usual << COUNT_BITS | (count + 1).min(LEAST)) {
                Ok(()) => return,
                Err(instead) => before = instead,
            }
        }
    }

    /// The time, if it is known.
    pub fn get(&self) -> Option<Duration> {
        let word = self.0.read();
        let known = word & ((1 << COUNT_BITS) - 1) >= LEAST;
        known.then(|| Duration::from_nanos(word >> COUNT_BITS))
    }
}

impl Default for Usual {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Usual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Usual").field(&self.get()).finish()
    }
}
