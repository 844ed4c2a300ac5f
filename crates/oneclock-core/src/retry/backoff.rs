//! How long to wait before another attempt: full jitter, so that those who failed together do not come back together.

use std::time::Duration;

/// A wait that may be anything between nothing and a limit that doubles with each attempt.
///
/// Full jitter: the wait is drawn evenly from the whole range, not from a part at its end. So callers that were cut off at
/// the same moment spread over the whole time.
///
/// ```
/// # use oneclock_core::retry::Backoff; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// let backoff = Backoff::new(ms(25), ms(250));
/// assert_eq!((backoff.at_most(1), backoff.at_most(2), backoff.at_most(9)), (ms(25), ms(50), ms(250)));
/// assert_eq!(backoff.wait(2, 0), ms(0));
/// assert_eq!(backoff.wait(2, u64::MAX), ms(50));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

// === Backoff ===

impl Backoff {
    /// At most `first` before the second attempt, twice that before each further one, and never more than `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The most that is waited after `attempts` attempts (at least one).
    pub fn at_most(&self, attempts: u32) -> Duration {
        let doubled = 2_u32.checked_pow(attempts.saturating_sub(1)).and_then(|times| self.first.checked_mul(times));
        doubled.unwrap_or(self.longest).min(self.longest)
    }

    /// The wait after `attempts` attempts, drawn by 64 random bits.
    pub fn wait(&self, attempts: u32, random: u64) -> Duration {
        let most = self.at_most(attempts).as_nanos();
        // The product of a span (below 2^94 ns) and 64 bits may not fit; what is longer than 584 years is cut.
        let most = most.min(u128::from(u64::MAX));
        let drawn = (most * u128::from(random)).div_ceil(u128::from(u64::MAX));
        Duration::from_nanos(u64::try_from(drawn).unwrap_or(u64::MAX))
    }

    pub(super) const fn longest(&self) -> Duration {
        self.longest
    }

    pub(super) const fn first(&self) -> Duration {
        self.first
    }
}

impl Default for Backoff {
    /// 25 ms at first, 250 ms at most.
    fn default() -> Self {
        Self::new(Duration::from_millis(25), Duration::from_millis(250))
    }
}
