//! Moments and deadlines on a clock that somebody else reads.
//!
//! Decides only arithmetic: it saturates, it never panics, and nothing here makes a deadline later. The mapping from a
//! real (or paused) clock to [`Tick`] is `oneclock::clock`'s business. Contract K1, P6, C1.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment on the monotonic clock: nanoseconds since an anchor that the driver chose.
///
/// The number fits an atomic, prints in a fuzz case and means the same in the library, the sidecar and a simulation.
/// It lasts for 584 years after the anchor and saturates there.
///
/// ```
/// # use oneclock_core::Tick; use std::time::Duration;
/// let start = Tick::from_nanos(1_000);
/// assert_eq!(start + Duration::from_nanos(5), Tick::from_nanos(1_005));
/// assert_eq!(start.since(start + Duration::from_secs(1)), Duration::ZERO);
/// assert_eq!(start + Duration::MAX, Tick::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

/// The moment (monotonic clock) after which the result of an operation is useless.
///
/// A deadline can be brought forward, never pushed back: it has no setter and no `+`, and [`earliest`](Self::earliest)
/// is the only way to combine two (contract C1). It means nothing outside this process; what travels is
/// [`remaining`](Self::remaining), written by [`wire`](crate::wire) at the last moment (contract E4).
///
/// ```
/// # use oneclock_core::{Deadline, Tick}; use std::time::Duration; let now = Tick::from_nanos(0);
/// let callers = Deadline::after(now, Duration::from_millis(800));
/// let cap = Deadline::after(now, Duration::from_secs(2));
/// assert_eq!(cap.earliest(callers), callers);
/// assert_eq!(callers.remaining(now + Duration::from_secs(1)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline {
    at: Tick, // Invariant: fixed when the head of the request was read (contract K1).
}

/// A span as an error says it: no more digits than the clock is good for and a person reads.
///
/// ```
/// # use oneclock_core::time::Legible; use std::time::Duration;
/// assert_eq!(Legible(Duration::from_nanos(373_135_482)).to_string(), "373.1ms");
/// assert_eq!(Legible(Duration::from_millis(300)).to_string(), "300ms");
/// assert_eq!(Legible(Duration::from_nanos(10_001_364_222)).to_string(), "10.001s");
/// assert_eq!(Legible(Duration::from_nanos(600_700)).to_string(), "600µs");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Legible(pub Duration);

// === Tick ===

impl Tick {
    /// The last moment that can be expressed. Later ones saturate here.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` after the anchor.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the anchor.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` until this moment; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` before this one; the anchor if that would lie before it.
    pub fn back(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Tick {
    type Output = Self;

    /// Saturates at [`Tick::MAX`].
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after the anchor", Duration::from_nanos(self.0))
    }
}

// === Deadline ===

impl Deadline {
    /// The deadline `budget` after `now`. Saturates: a peer that sends `99999999H` costs one clamp, not a panic
    /// (contract P6).
    pub fn after(now: Tick, budget: Duration) -> Self {
        Self { at: now + budget }
    }

    /// The deadline at a known moment.
    pub const fn at(tick: Tick) -> Self {
        Self { at: tick }
    }

    /// The moment itself.
    pub const fn tick(self) -> Tick {
        self.at
    }

    /// What is left at `now`; zero once the deadline is past, never negative.
    pub const fn remaining(self, now: Tick) -> Duration {
        self.at.since(now)
    }

    /// Whether an answer would come too late. The moment itself is too late: true exactly when
    /// [`remaining`](Self::remaining) is zero.
    pub const fn is_past(self, now: Tick) -> bool {
        self.at.0 <= now.0
    }

    /// The earlier of two deadlines, which is the only way to combine them (contract C1).
    #[must_use]
    pub fn earliest(self, other: Self) -> Self {
        self.min(other)
    }

    /// This deadline brought forward by `reserve`, the time that a parent keeps back for itself.
    #[must_use]
    pub fn less(self, reserve: Duration) -> Self {
        Self { at: self.at.back(reserve) }
    }
}

// === Legible ===

impl fmt::Display for Legible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let grain = match micros {
            0..1_000 => 1,
            1_000..1_000_000 => 100,
            _ => 1_000,
        };
        let rounded = u64::try_from(micros / grain * grain).unwrap_or(u64::MAX);
        write!(f, "{:?}", Duration::from_micros(rounded))
    }
}

/// Nanoseconds of `span`, saturating: more than 584 years is as good as the end of the clock.
fn nanos(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(span.subsec_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn p6_no_arithmetic_on_moments_panics(at: u64, secs: u64, sub in 0u32..1_000_000_000, now: u64) {
            let span = Duration::new(secs, sub);
            let deadline = Deadline::after(Tick::from_nanos(at), span);
            let now = Tick::from_nanos(now);
            prop_assert_eq!(deadline.is_past(now), deadline.remaining(now).is_zero());
            prop_assert!(deadline.less(span) <= deadline);
        }

        #[test]
        fn c1_combining_never_extends(a: u64, b: u64, now: u64) {
            let (a, b) = (Deadline::at(Tick::from_nanos(a)), Deadline::at(Tick::from_nanos(b)));
            let now = Tick::from_nanos(now);
            prop_assert!(a.earliest(b).remaining(now) <= a.remaining(now));
            prop_assert!(a.earliest(b).remaining(now) <= b.remaining(now));
        }
    }
}
