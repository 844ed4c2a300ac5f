//! What a destination's owner says of its breaker.
//!
//! Decides what makes no breaker, when it is built: so that it shows when a service starts. And for how long one is open.

use std::time::Duration;

use super::state;

/// When a breaker opens, for how long, and when it closes.
///
/// ```
/// # use oneclock_core::breaker::*; use std::time::Duration;
/// let policy = BreakerPolicy::new()
///     .share(0.1)                                                  // of the calls failed
///     .least(50)                                                   // and there were this many
///     .open(Duration::from_millis(500), Duration::from_secs(10))   // at first, and at most
///     .build()?;
/// assert!(BreakerPolicy::new().share(0.0).build().is_err(), "that would open without a failure");
/// # Ok::<(), NotABreaker>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    pub(super) permille: u32,
    pub(super) least: u32,
    pub(super) window: Duration,
    pub(super) first: Duration,
    pub(super) longest: Duration,
    pub(super) probes: u8,
}

/// Builds a [`BreakerPolicy`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a policy is made by `build`"]
pub struct BreakerPolicyBuilder {
    policy: BreakerPolicy,
    share: f64,
}

/// These settings make no breaker.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NotABreaker {
    /// The share opens it always, or never.
    #[error("share = {share}: write 0.01 to 1, the share of calls that failed; 0.2 unless said otherwise")]
    Share {
        /// The share given.
        share: f64,
    },
    /// So few calls are no share.
    #[error(
        "least = {least}: write 5 to 10000, the calls within the window before it may open; 20 unless said otherwise"
    )]
    Least {
        /// The number given.
        least: u32,
    },
    /// The window is too short to count anything in.
    #[error("window = {window:?}: write at least 1s; 30s unless said otherwise")]
    Window {
        /// The window given.
        window: Duration,
    },
    /// It would open for no time, or for less each time.
    #[error("open = {first:?} to {longest:?}: write at least 10ms, the shorter one first, and at most an hour")]
    Open {
        /// For how long it opens at first.
        first: Duration,
        /// For how long at most.
        longest: Duration,
    },
    /// Without a probe it would never close.
    #[error("probes = {probes}: write 1 to 15, how many have to go well before it closes; 3 unless said otherwise")]
    Probes {
        /// The number given.
        probes: u8,
    },
}

// === BreakerPolicy ===

impl BreakerPolicy {
    /// Begins a policy: opens when a fifth of at least 20 calls within 30 s failed, for a second at first and 30 s at most, and
    /// closes after three probes in a row.
    #[expect(clippy::new_ret_no_self, reason = "a policy is made by `build`, which may refuse")]
    pub fn new() -> BreakerPolicyBuilder {
        BreakerPolicyBuilder { policy: Self::default(), share: 0.2 }
    }
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            permille: 200,
            least: 20,
            window: Duration::from_secs(30),
            first: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            probes: 3,
        }
    }
}

impl BreakerPolicyBuilder {
    /// The share of the calls that have to fail, from 0 to 1; 0.2 unless said otherwise. Below 0.1 it opens on an ordinary day:
    /// of calls with just enough time one in ten is cut off.
    pub fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    /// How many calls there have to be within the window; 20 unless said otherwise. Each instance of a service has a breaker of
    /// its own, and sees only its own calls: with few, chance opens it.
    pub fn least(mut self, least: u32) -> Self {
        self.policy.least = least;
        self
    }

    /// Over which time calls are counted; 30 s unless said otherwise.
    pub fn window(mut self, window: Duration) -> Self {
        self.policy.window = window;
        self
    }

    /// For how long it is open: at most `first`, twice that when it opens again soon, and so on up to `longest`; the second
    /// half of each is left to chance, so that callers do not come back together. A second and 30 s unless said otherwise.
    pub fn open(mut self, first: Duration, longest: Duration) -> Self {
        (self.policy.first, self.policy.longest) = (first, longest);
        self
    }

    /// How many probes in a row have to go well before it closes; 3 unless said otherwise.
    pub fn probes(mut self, probes: u8) -> Self {
        self.policy.probes = probes;
        self
    }

    /// The policy.
    ///
    /// # Errors
    /// [`NotABreaker`], if it would always open, or never.
    pub fn build(self) -> Result<BreakerPolicy, NotABreaker> {
        let Self { mut policy, share } = self;
        let BreakerPolicy { least, window, first, longest, probes, .. } = policy;
        if !(0.01..=1.0).contains(&share) {
            return Err(NotABreaker::Share { share });
        }
        if !(5..=10_000).contains(&least) {
            return Err(NotABreaker::Least { least });
        }
        if window < Duration::from_secs(1) {
            return Err(NotABreaker::Window { window });
        }
        if first < Duration::from_millis(10) || longest < first || longest > Duration::from_secs(3_600) {
            return Err(NotABreaker::Open { first, longest });
        }
        if !(1..=state::MOST_PROBES).contains(&probes) {
            return Err(NotABreaker::Probes { probes });
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "10 to 1000")]
        let permille = (share * 1_000.0).round() as u32;
        policy.permille = permille;
        Ok(policy)
    }
}

impl BreakerPolicy {
    /// For how long it is open when it opened `again` times in a row, by 64 random bits.
    pub(super) fn open_for(&self, again: u8, random: u64) -> Duration {
        let most = self.first.saturating_mul(1 << again.min(20)).min(self.longest);
        let half = most / 2;
        let drawn = (half.as_nanos() * u128::from(random)) >> 64;
        most - half + Duration::from_nanos(u64::try_from(drawn).unwrap_or(u64::MAX))
    }
}
