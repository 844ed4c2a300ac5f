//! What one child may spend: the least of the parent's remaining time less its reserve, and the local cap.
//!
//! Decides only. The header is written by [`wire`](crate::wire), the wait is cut off by the runtime. Contract C1, E3, E5,
//! K4.

use std::time::Duration;

use crate::time::Legible;
use crate::{Bound, BoundBy, Deadline, Tick};

/// The least that is useful unless something else is said: below it a timer of one millisecond's grain cannot keep its
/// word (contract K3, K4).
pub const DEFAULT_MIN_USEFUL: Duration = Duration::from_millis(5);

/// What a child asks for: a cap, a reserve that its parent keeps, and the least that would be useful.
///
/// ```
/// # use oneclock_core::{grant::*, Bound, BoundBy, Deadline, Tick}; use std::time::Duration;
/// # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// let now = Tick::from_nanos(0);
/// let parent = Budget { deadline: Deadline::after(now, ms(800)), bound: Bound { by: BoundBy::Caller, limit: ms(800) } };
///
/// let granted = Ask::new().reserve(ms(150)).cap(ms(300)).of(parent, now)?;
/// assert_eq!(granted.deadline.remaining(now), ms(300));
/// assert_eq!(granted.bound.by, BoundBy::Cap);
///
/// let refused = Ask::new().reserve(ms(798)).of(parent, now).unwrap_err();
/// assert!(matches!(refused, Refused::TooLittle { .. }));
/// # Ok::<(), Refused>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    cap: Option<Duration>, // None asks for all that the parent has left, which is finite
    reserve: Duration,
    way_home: Duration,
    min_useful: Duration,
}

/// A deadline and what made it: what an operation owns and what a grant gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The moment after which the result is useless.
    pub deadline: Deadline,
    /// What made it, and the limit it set.
    pub bound: Bound,
}

/// Why a child gets no time. Nothing was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The parent's deadline is past (contract E3).
    #[error("no time left (bound: {bound})")]
    Expired {
        /// What made the parent's deadline.
        bound: Bound,
    },
    /// Something is left, but less than is useful (contract C1, compared before the cap).
    #[error("{}, {} is the least that is useful (bound: {bound})", left(*.remaining, *.reserve), Legible(*.min_useful))]
    TooLittle {
        /// What the parent has left.
        remaining: Duration,
        /// What of that is reserved.
        reserve: Duration,
        /// The least that this child finds useful.
        min_useful: Duration,
        /// What made the parent's deadline.
        bound: Bound,
    },
    /// The cap is below the child's own minimum, so no parent could ever satisfy it. A mistake in the code.
    #[error("the cap of {cap:?} is below the least that is useful, {min_useful:?}: raise the one or lower the other")]
    CapBelowMinimum {
        /// The cap asked for.
        cap: Duration,
        /// The minimum it contradicts.
        min_useful: Duration,
    },
}

// === Ask ===

impl Ask {
    /// All that the parent has left, if that is at least [`DEFAULT_MIN_USEFUL`].
    pub const fn new() -> Self {
        Self { cap: None, reserve: Duration::ZERO, way_home: Duration::ZERO, min_useful: DEFAULT_MIN_USEFUL }
    }

    /// At most `cap`. A second cap can only shorten the first.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = Some(self.cap.map_or(cap, |before| before.min(cap)));
        self
    }

    /// What the parent keeps back for its later steps and for the way home. The latest value counts.
    #[must_use]
    pub const fn reserve(mut self, reserve: Duration) -> Self {
        self.reserve = reserve;
        self
    }

    /// What the child keeps back so that what it finds out at its end still reaches its parent: an eighth of what would be left
    /// beyond the least useful, and at most this. It never makes a child refused, it is part of a larger
    /// [`reserve`](Self::reserve), and a cap that leaves as much is not shortened.
    ///
    /// ```
    /// # use oneclock_core::{grant::*, BoundBy, Tick}; use std::time::Duration;
    /// # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
    /// let (now, ask) = (Tick::from_nanos(0), Ask::new().way_home(ms(25)));
    /// let granted = |left| ask.of(Budget::begin(BoundBy::Caller, left, now), now).map(|budget| budget.bound.limit);
    /// assert_eq!(granted(ms(800))?, ms(775));
    /// assert_eq!(granted(ms(85))?, ms(75));
    /// assert_eq!(granted(ms(5))?, ms(5));
    /// # Ok::<(), Refused>(())
    /// ```
    #[must_use]
    pub const fn way_home(mut self, at_most: Duration) -> Self {
        self.way_home = at_most;
        self
    }

    /// The least that is useful; below it the child is refused before it costs anything. The latest value counts.
    #[must_use]
    pub const fn min_useful(mut self, min_useful: Duration) -> Self {
        self.min_useful = min_useful;
        self
    }

    /// This, for one call that has a limit of its own: it shortens the cap, and never extends it (contract C1).
    ///
    /// # Errors
    /// [`Refused::TooLittle`], if that limit is below what is useful: the call is not worth making.
    pub fn shortened(self, limit: Duration) -> Result<Self, Refused> {
        let min_useful = self.min_useful;
        if limit < min_useful {
            let bound = Bound { by: BoundBy::Cap, limit };
            return Err(Refused::TooLittle { remaining: limit, reserve: Duration::ZERO, min_useful, bound });
        }
        Ok(self.cap(self.cap.map_or(limit, |own| own.min(limit))))
    }

    /// The cap, if there is one.
    pub const fn cap_value(&self) -> Option<Duration> {
        self.cap
    }

    /// The least that is useful.
    pub const fn min_useful_value(&self) -> Duration {
        self.min_useful
    }

    /// Checks that the cap does not contradict the minimum (contract C1). For builders, so that the mistake shows at
    /// construction and not at the first call.
    ///
    /// # Errors
    /// [`Refused::CapBelowMinimum`].
    pub const fn check(self) -> Result<Self, Refused> {
        match self.cap {
            Some(cap) if cap.as_nanos() < self.min_useful.as_nanos() => {
                Err(Refused::CapBelowMinimum { cap, min_useful: self.min_useful })
            }
            _ => Ok(self),
        }
    }

    /// What `parent` gives at `now`.
    ///
    /// The least useful time is compared with remaining - reserve, before the cap (contract C1). The child's limit is
    /// counted from `now`, its own start.
    ///
    /// # Errors
    /// [`Refused`], and nothing was begun.
    pub fn of(self, parent: Budget, now: Tick) -> Result<Budget, Refused> {
        self.check()?;
        let beyond = parent.deadline.remaining(now).saturating_sub(self.min_useful);
        let way_home = self.way_home.min(beyond / 8);
        let most = parent.deadline.less(self.reserve.max(way_home));
        let remaining = most.remaining(now);
        let bound = parent.bound;
        if parent.deadline.is_past(now) {
            return Err(Refused::Expired { bound });
        }
        if remaining.is_zero() || remaining < self.min_useful {
            let Self { reserve, min_useful, .. } = self;
            return Err(Refused::TooLittle { remaining: parent.deadline.remaining(now), reserve, min_useful, bound });
        }
        Ok(match self.cap {
            Some(cap) if cap < remaining => {
                Budget { deadline: Deadline::after(now, cap), bound: Bound { by: BoundBy::Cap, limit: cap } }
            }
            _ => Budget { deadline: most, bound: Bound { by: parent.bound.by, limit: remaining } },
        })
    }
}

/// How long a driver waits after the end of a call for what the far side says of it, if that could be `at_most`: less than
/// the call's operation has `left`, since what comes after its end reaches nobody. Where nothing is left whoever waits has a
/// reason of his own.
pub fn settling(at_most: Duration, left: Duration) -> Duration {
    if left.is_zero() { at_most } else { at_most.min(left / 4 * 3) }
}

impl Default for Ask {
    fn default() -> Self {
        Self::new()
    }
}

// === Budget ===

impl Budget {
    /// The budget of an operation that begins now under a limit of its own.
    pub fn begin(by: BoundBy, limit: Duration, now: Tick) -> Self {
        Self { deadline: Deadline::after(now, limit), bound: Bound { by, limit } }
    }

    /// This budget, shortened by another limit that was in force as well. The earlier deadline and its bound win; on a
    /// tie this one's.
    #[must_use]
    pub fn shortened(self, other: Self) -> Self {
        if other.deadline < self.deadline { other } else { self }
    }
}

// === Refused ===

impl Refused {
    /// What the caller above is told (contract section 5).
    pub const fn reason(&self) -> crate::Reason {
        match self {
            Self::Expired { .. } => crate::Reason::Deadline,
            Self::TooLittle { .. } => crate::Reason::InsufficientBudget,
            Self::CapBelowMinimum { .. } => crate::Reason::CalledOff,
        }
    }
}

fn left(remaining: Duration, reserve: Duration) -> String {
    match reserve {
        Duration::ZERO => format!("{} left", Legible(remaining)),
        _ => format!("{} left, {} of it reserved", Legible(remaining), Legible(reserve)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn parent(left: Duration, now: Tick) -> Budget {
        Budget::begin(BoundBy::Caller, left, now)
    }

    #[track_caller]
    fn grants(ask: Ask, left: Duration, want: Result<(Duration, BoundBy), &str>) {
        let now = Tick::from_nanos(77);
        let got = ask.of(parent(left, now), now);
        match want {
            Ok((remaining, by)) => {
                let got = got.expect("granted");
                assert_eq!((got.deadline.remaining(now), got.bound.by), (remaining, by));
            }
            Err(text) => assert_eq!(got.unwrap_err().to_string(), text),
        }
    }

    #[test]
    fn c1_the_least_of_rest_and_cap() {
        grants(Ask::new(), ms(800), Ok((ms(800), BoundBy::Caller)));
        grants(Ask::new().cap(ms(300)), ms(800), Ok((ms(300), BoundBy::Cap)));
        grants(Ask::new().cap(ms(900)), ms(800), Ok((ms(800), BoundBy::Caller)));
        grants(Ask::new().cap(ms(900)).cap(ms(100)).cap(ms(200)), ms(800), Ok((ms(100), BoundBy::Cap)));
        grants(Ask::new().reserve(ms(150)), ms(800), Ok((ms(650), BoundBy::Caller)));
    }

    #[test]
    fn c1_the_minimum_is_compared_after_the_reserve_and_before_the_cap() {
        grants(Ask::new().min_useful(ms(100)).reserve(ms(50)).cap(ms(100)), ms(150), Ok((ms(100), BoundBy::Caller)));
        grants(
            Ask::new().min_useful(ms(100)).reserve(ms(51)),
            ms(150),
            Err("150ms left, 51ms of it reserved, 100ms is the least that is useful (bound: caller 150ms)"),
        );
        grants(
            Ask::new().min_useful(ms(100)).cap(ms(99)),
            ms(800),
            Err("the cap of 99ms is below the least that is useful, 100ms: raise the one or lower the other"),
        );
    }

    #[test]
    fn c1_the_way_home_is_kept_and_refuses_nobody() {
        let ask = Ask::new().way_home(ms(25));
        grants(ask, ms(800), Ok((ms(775), BoundBy::Caller)));
        grants(ask.cap(ms(300)), ms(800), Ok((ms(300), BoundBy::Cap)));
        grants(ask.cap(ms(790)), ms(800), Ok((ms(775), BoundBy::Caller)));
        grants(ask.reserve(ms(100)), ms(800), Ok((ms(700), BoundBy::Caller)));
        grants(ask, ms(5), Ok((ms(5), BoundBy::Caller)));
        grants(ask, ms(4), Err("4ms left, 5ms is the least that is useful (bound: caller 4ms)"));
    }

    #[test]
    fn what_is_found_out_comes_before_the_end() {
        assert_eq!(settling(ms(25), ms(800)), ms(25));
        assert_eq!(settling(ms(25), ms(24)), ms(18));
        assert_eq!(settling(ms(25), ms(0)), ms(25), "the operation is over, and somebody waits all the same");
    }

    #[test]
    fn e3_nothing_left_is_refused() {
        grants(Ask::new(), ms(0), Err("no time left (bound: caller 0ns)"));
        grants(
            Ask::new().reserve(ms(800)),
            ms(800),
            Err("800ms left, 800ms of it reserved, 5ms is the least that is useful (bound: caller 800ms)"),
        );
        grants(Ask::new(), ms(4), Err("4ms left, 5ms is the least that is useful (bound: caller 4ms)"));
    }

    proptest! {
        /// Invariants I2 and I3: however long the chain, no link ends after the root.
        #[test]
        fn a_chain_of_grants_never_exceeds_the_root(
            root_ms in 0u64..10_000,
            links in prop::collection::vec(
                (prop::option::of(0u64..20_000), 0u64..500, 0u64..100, 0u64..300),
                0..12,
            ),
        ) {
            let mut now = Tick::from_nanos(1_000_000);
            let root = parent(ms(root_ms), now);
            let mut budget = root;
            for (cap, reserve, min_useful, passes) in links {
                let mut ask = Ask::new().reserve(ms(reserve)).way_home(ms(25)).min_useful(ms(min_useful));
                if let Some(cap) = cap { ask = ask.cap(ms(cap)); }
                let Ok(next) = ask.of(budget, now) else { break };
                prop_assert!(next.deadline <= budget.deadline);
                prop_assert!(next.deadline <= root.deadline);
                prop_assert!(cap.is_none_or(|cap| next.deadline.remaining(now) <= ms(cap)));
                prop_assert!(next.deadline.remaining(now) > Duration::ZERO);
                budget = next;
                now = now + ms(passes);
            }
        }
    }
}
