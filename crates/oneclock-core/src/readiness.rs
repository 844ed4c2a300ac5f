//! Whether a process should be sent work: from what was proven inside of it, never from what its callers meet.
//!
//! Decides what one check of readiness holds back and for how long it counts ([`Check`]), when work that nobody waits for does
//! ([`Pressure`]), and whether an answer proves that a spent budget is refused ([`judge`]). Running the checks is the driver's
//! business. What a dependency is like is no reason to take a process out of service: every process would go at the same time,
//! and the ones that are left would get their load.

mod pressure;
mod spent;

pub use pressure::{Fleet, Marks, NotMarks, Pressure};
pub use spent::{Answer, Judged, NotProven, judge, spent};

use std::fmt;
use std::time::Duration;

use crate::Tick;
use crate::time::Legible;

/// What a check is of, which says what an unclear result means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Something of this process alone: that its layers refuse a spent budget. It has to be proven again and again.
    Own,
    /// Something of this process and of one that it depends on. Proven once it counts until it is disproven: that the other
    /// one does not answer proves nothing about this one.
    Shared,
}

/// What one run of a check showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// What it looks for is so.
    Kept,
    /// It is not so: a promise is broken.
    Broken,
    /// Neither: no answer, no connection, no room, no time.
    Unclear,
}

/// One check: what its runs showed, and whether that keeps the process from being ready.
///
/// ```
/// use oneclock_core::{Tick, readiness::{Check, HeldBack, Shown, Sort}};
/// use std::time::Duration;
///
/// let now = Tick::from_nanos(0);
/// let mut postgres = Check::new(Sort::Shared, Duration::from_secs(100), now);
/// assert_eq!(postgres.holds_back(now), Some(HeldBack::NotYet));
/// postgres.saw(Shown::Kept, now);
/// postgres.saw(Shown::Unclear, now); // the server went away: that is shown elsewhere
/// assert_eq!(postgres.holds_back(now), None);
/// postgres.saw(Shown::Broken, now);  // the server is back, behind a pooler
/// assert_eq!(postgres.holds_back(now), Some(HeldBack::Broken));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Check {
    sort: Sort,
    fresh_for: Duration,
    latest: Option<Shown>,
    looked_at: Tick,       // when the latest run was over; before the first, when the check was made
    kept_at: Option<Tick>, // the last time
    broken: bool,          // by the latest clear result
    not_kept: u32,         // runs in a row
}

/// Why a check keeps the process from being ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// Its first run is not over.
    NotYet,
    /// It is proven that a promise is broken.
    Broken,
    /// It was never proven that it is kept.
    NeverKept,
    /// It was proven too long ago: every run since was unclear.
    Outdated {
        /// How long ago.
        ago: Duration,
    },
    /// No run was over for too long: what runs it has died or stalled.
    Stalled {
        /// For how long.
        silent: Duration,
    },
}

impl Check {
    /// A check that has not run yet. Its results count for `fresh_for`: several times what lies between two runs, so that a
    /// process that is only slow is not taken for a dead one.
    pub const fn new(sort: Sort, fresh_for: Duration, now: Tick) -> Self {
        Self { sort, fresh_for, latest: None, looked_at: now, kept_at: None, broken: false, not_kept: 0 }
    }

    /// A run was over at `now`, and showed this.
    pub fn saw(&mut self, shown: Shown, now: Tick) {
        self.latest = Some(shown);
        self.looked_at = now;
        match shown {
            Shown::Kept => {
                self.kept_at = Some(now);
                self.broken = false;
                self.not_kept = 0;
            }
            Shown::Broken => self.broken = true,
            Shown::Unclear => {} // what was proven last stands
        }
        if shown != Shown::Kept {
            self.not_kept = self.not_kept.saturating_add(1);
        }
    }

    /// Why it keeps the process from being ready at `now`, if it does.
    pub fn holds_back(&self, now: Tick) -> Option<HeldBack> {
        let silent = now.since(self.looked_at);
        if silent > self.fresh_for {
            return Some(HeldBack::Stalled { silent });
        }
        if self.latest.is_none() {
            return Some(HeldBack::NotYet);
        }
        if self.broken {
            return Some(HeldBack::Broken);
        }
        let Some(kept_at) = self.kept_at else { return Some(HeldBack::NeverKept) };
        let ago = now.since(kept_at);
        match self.sort {
            Sort::Own if ago > self.fresh_for => Some(HeldBack::Outdated { ago }),
            Sort::Own | Sort::Shared => None,
        }
    }

    /// How long from the latest run to the next: `retry` while there is no clear result yet, else `interval`.
    pub fn pause(&self, interval: Duration, retry: Duration) -> Duration {
        if self.kept_at.is_none() && !self.broken { retry.min(interval) } else { interval }
    }

    /// What the latest run showed.
    pub const fn latest(&self) -> Option<Shown> {
        self.latest
    }

    /// How long ago the latest run was over; before the first, how long ago the check was made.
    pub const fn age(&self, now: Tick) -> Duration {
        now.since(self.looked_at)
    }

    /// How many of the latest runs in a row did not show that it is kept.
    pub const fn not_kept_in_a_row(&self) -> u32 {
        self.not_kept
    }

    /// Whether it was ever shown to be kept.
    pub const fn ever_kept(&self) -> bool {
        self.kept_at.is_some()
    }
}

impl Shown {
    /// The word for labels and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Broken => "broken",
            Self::Unclear => "unclear",
        }
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYet => f.write_str("the first run is not over"),
            Self::Broken => f.write_str("a promise is broken"),
            Self::NeverKept => f.write_str("not proven since the start"),
            Self::Outdated { ago } => write!(f, "proven {} ago, and nothing clear since", Legible(*ago)),
            Self::Stalled { silent } => write!(f, "no run was over for {}: it has died or stalled", Legible(*silent)),
        }
    }
}

/// Spreads what is done at an interval: three quarters to five quarters of it, by 64 random bits, so that processes that were
/// started together do not look, and flip, together.
pub fn spread(interval: Duration, random: u64) -> Duration {
    let quarter = interval / 4;
    let part = (random >> 32) as u32; // 2^32 parts of half the interval
    let more = (interval / 2).as_nanos().saturating_mul(u128::from(part)) >> 32;
    (interval - quarter).saturating_add(Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRESH: Duration = Duration::from_secs(100);

    fn at(secs: u64) -> Tick {
        Tick::default() + Duration::from_secs(secs)
    }

    #[track_caller]
    fn held(sort: Sort, runs: &[(u64, Shown)], now: u64, want: Option<HeldBack>) {
        let mut check = Check::new(sort, FRESH, at(0));
        for (secs, shown) in runs {
            check.saw(*shown, at(*secs));
        }
        assert_eq!(check.holds_back(at(now)), want, "{sort:?} {runs:?} at {now}s");
    }

    #[test]
    fn nothing_is_ready_before_it_was_looked_at() {
        for sort in [Sort::Own, Sort::Shared] {
            held(sort, &[], 1, Some(HeldBack::NotYet));
            held(sort, &[(1, Shown::Unclear)], 2, Some(HeldBack::NeverKept));
            held(sort, &[(1, Shown::Broken)], 2, Some(HeldBack::Broken));
            held(sort, &[(1, Shown::Kept)], 2, None);
        }
    }

    #[test]
    fn a_dependency_that_went_away_is_no_reason() {
        let runs = [(0, Shown::Kept), (90, Shown::Unclear), (180, Shown::Unclear), (270, Shown::Unclear)];
        held(Sort::Shared, &runs, 300, None);
        let ago = Duration::from_secs(300);
        held(Sort::Own, &runs, 300, Some(HeldBack::Outdated { ago }));
    }

    #[test]
    fn a_broken_promise_stays_broken_until_it_is_kept() {
        let mut runs = vec![(0, Shown::Kept), (30, Shown::Broken), (60, Shown::Unclear)];
        held(Sort::Shared, &runs, 61, Some(HeldBack::Broken));
        runs.push((90, Shown::Kept));
        held(Sort::Shared, &runs, 91, None);
    }

    #[test]
    fn who_is_silent_for_too_long_has_died() {
        let silent = Duration::from_secs(101);
        for sort in [Sort::Own, Sort::Shared] {
            held(sort, &[(0, Shown::Kept)], 100, None);
            held(sort, &[(0, Shown::Kept)], 101, Some(HeldBack::Stalled { silent }));
            held(sort, &[], 101, Some(HeldBack::Stalled { silent }));
        }
    }

    #[test]
    fn it_asks_again_soon_until_something_is_clear() {
        let (interval, retry) = (Duration::from_secs(30), Duration::from_secs(1));
        let mut check = Check::new(Sort::Shared, FRESH, at(0));
        check.saw(Shown::Unclear, at(0));
        assert_eq!(check.pause(interval, retry), retry);
        assert_eq!(check.not_kept_in_a_row(), 1);
        check.saw(Shown::Broken, at(1));
        assert_eq!(check.pause(interval, retry), interval, "what a handler did once it need not do every second");
        check.saw(Shown::Kept, at(2));
        check.saw(Shown::Unclear, at(3));
        assert_eq!(check.pause(interval, retry), interval);
        assert_eq!(check.pause(Duration::from_millis(1), retry), Duration::from_millis(1));
    }

    proptest! {
        #[test]
        fn spread_stays_around_its_interval(nanos in 0_u64..u64::MAX / 2, random: u64) {
            let interval = Duration::from_nanos(nanos);
            let spread = spread(interval, random);
            prop_assert!(spread >= interval - interval / 4 && spread <= interval + interval / 4);
        }

        /// Whatever its runs show: ready only after a proof, and never on one that is too old.
        #[test]
        fn nothing_is_ready_without_a_proof(
            runs in prop::collection::vec((0_u64..200, 0_u8..3), 0..20), own: bool, later in 0_u64..300
        ) {
            let sort = if own { Sort::Own } else { Sort::Shared };
            let mut check = Check::new(sort, FRESH, at(0));
            let (mut now, mut clear, mut kept_at, mut looked) = (0, None, None, 0);
            for (pause, shown) in runs {
                let shown = [Shown::Kept, Shown::Broken, Shown::Unclear][usize::from(shown)];
                now += pause;
                looked = now;
                check.saw(shown, at(now));
                if shown != Shown::Unclear { clear = Some(shown) }
                if shown == Shown::Kept { kept_at = Some(now) }
            }
            now += later;
            if check.holds_back(at(now)).is_none() {
                prop_assert_eq!(clear, Some(Shown::Kept));
                prop_assert!(now - looked <= 100);
                prop_assert!(!own || kept_at.is_some_and(|kept| now - kept <= 100));
            }
        }
    }
}
