//! What is done with work that was delivered, and whether a step of it may begin.
//!
//! Decides at receive, at every redelivery and before each consequential effect (contract Q3, Q4, Q5). What is certainly live
//! runs; what is certainly expired ends as its contract says; in between nothing is discarded and nothing irreversible begins:
//! what is to be discarded is held until that is certain, what somebody is to look at goes there now. Work that must be
//! completed runs in every zone, late.

use std::fmt;
use std::time::Duration;

use super::{Expires, Policy, Stamp, Zone};
use crate::Tick;
use crate::wire::Wall;

/// What is done with work that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Its handler runs.
    Run(Terms),
    /// It is of no use any more, or perhaps: look again at this moment, when that is certain. It is not done meanwhile.
    Hold {
        /// By our clock.
        until: Wall,
    },
    /// It ends here.
    Discard(Why),
    /// Somebody looks at it.
    DeadLetter(Why),
}

/// On what terms a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long it has at most, until its expiry may have come. `None`: it has no end of its own, and its handler's limit alone
    /// counts.
    pub within: Option<Duration>,
    /// After how long it has certainly expired. `None` as above.
    pub expired_after: Option<Duration>,
    /// It has expired, or may have, and is done all the same: in the late lane.
    pub late: bool,
}

/// Why work ended without being done, or stands where somebody looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// It had expired.
    Expired,
    /// It may have expired, by clocks that are not known better.
    ExpiryUncertain,
    /// What was left of its life was less than its handler needs.
    InsufficientBudget,
    /// When it expires cannot be understood.
    ExpiryUnreadable,
    /// It has no key that can be understood, and may only be done under one.
    KeyUnreadable,
    /// Its key was used for other work.
    KeyReused,
    /// It failed as often as it may.
    AttemptsExhausted,
    /// It may have been done, or not, and may not be done twice.
    OutcomeUnknown,
    /// Its handler said that it will never succeed.
    Rejected,
}

/// Until when steps of work may begin, once its expiry was turned into moments of the monotonic clock: from then on the wall clock
/// is not asked again, so that its steps change nothing (contract K2).
///
/// ```
/// # use oneclock_core::{Tick, expiry::*}; use std::time::Duration;
/// let secs = Duration::from_secs;
/// let terms = Terms { within: Some(secs(9)), expired_after: Some(secs(11)), late: false };
/// let (start, gate) = (Tick::from_nanos(0), Gate::new(&terms, Tick::from_nanos(0)));
/// assert_eq!(gate.may_begin(start + secs(8)), Ok(()));
/// assert_eq!(gate.may_begin(start + secs(9)), Err(Stop::Uncertain));
/// assert_eq!(gate.may_begin(start + secs(11)), Err(Stop::Expired));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    live_until: Option<Tick>,
    expired_from: Option<Tick>,
}

/// A step of work may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// It has expired.
    #[error("the work has expired: nothing of it may begin any more")]
    Expired,
    /// It may have expired.
    #[error("the work may have expired, by clocks that are not known better: nothing irreversible may begin")]
    Uncertain,
    /// Somebody else may have it by now.
    #[error("the lease on the work is over: somebody else may have it by now")]
    LeaseLost,
}

/// What is done with work that was delivered at `now`, by a clock that may be wrong by `ours`, to a handler that needs
/// `min_useful`.
///
/// ```
/// # use oneclock_core::{expiry::*, wire::Wall}; use std::time::Duration;
/// # const fn secs(n: u64) -> Wall { Wall::from_nanos(n * 1_000_000_000) }
/// let (half, second) = (Duration::from_millis(500), Duration::from_secs(1));
/// let stamp = |policy| Stamp { expires: Expires::At(secs(2_000)), policy, ..Stamp::default() };
///
/// let live = judge(&stamp(Policy::Discard), secs(1_990), half, second);
/// assert_eq!(live, Judged::Run(Terms {
///     within: Some(Duration::from_millis(9_500)), expired_after: Some(Duration::from_millis(10_501)), late: false,
/// }));
/// let perhaps = judge(&stamp(Policy::Discard), secs(2_000), half, second);
/// assert!(matches!(perhaps, Judged::Hold { .. }));
/// assert_eq!(judge(&stamp(Policy::Discard), secs(2_001), half, second), Judged::Discard(Why::Expired));
/// assert_eq!(judge(&stamp(Policy::DeadLetter), secs(2_001), half, second), Judged::DeadLetter(Why::Expired));
/// let late = judge(&stamp(Policy::MustComplete), secs(2_001), half, second);
/// assert_eq!(late, Judged::Run(Terms { within: None, expired_after: None, late: true }));
/// ```
pub fn judge(stamp: &Stamp, now: Wall, ours: Duration, min_useful: Duration) -> Judged {
    let zone = stamp.zone(now, ours);
    let late = Terms { within: None, expired_after: None, late: zone != Zone::Live };
    let at = match (stamp.expires, stamp.policy) {
        (Expires::Never, _) => return Judged::Run(late),
        // Nobody knows whether it is late.
        (Expires::Unreadable(_), Policy::MustComplete) => return Judged::Run(Terms { late: false, ..late }),
        (Expires::Unreadable(_), Policy::Discard | Policy::DeadLetter) => {
            return Judged::DeadLetter(Why::ExpiryUnreadable);
        }
        (Expires::At(_), Policy::MustComplete) => return Judged::Run(late),
        (Expires::At(at), Policy::Discard | Policy::DeadLetter) => at,
    };
    let within = at.since(now + stamp.uncertainty(ours));
    let why = match zone {
        Zone::Live if within >= min_useful && !within.is_zero() => {
            let expired_after = Some(certain(at, stamp.uncertainty(ours)).since(now));
            return Judged::Run(Terms { within: Some(within), expired_after, late: false });
        }
        Zone::Live => Why::InsufficientBudget,
        Zone::Uncertain => Why::ExpiryUncertain,
        Zone::Expired => Why::Expired,
    };
    match (stamp.policy, zone) {
        (Policy::Discard, Zone::Expired) => Judged::Discard(why),
        (Policy::Discard, _) => Judged::Hold { until: certain(at, stamp.uncertainty(ours)) },
        _ => Judged::DeadLetter(why),
    }
}

/// From when on it is certain that what expires at `at` has expired.
fn certain(at: Wall, uncertainty: Duration) -> Wall {
    at + uncertainty + Duration::from_millis(1)
}

/// The same for what this says, if it says a moment.
pub(super) fn certain_of(stamp: &Stamp, ours: Duration) -> Option<Wall> {
    stamp.expires.at().map(|at| certain(at, stamp.uncertainty(ours)))
}

// === Judged ===

impl Judged {
    /// The same, unless it [may not run](super::may_run) at all: then somebody looks at it. What is discarded is not run anyway, and
    /// of no use to anybody, whatever was done of it before.
    #[must_use]
    pub const fn if_allowed(self, may_run: Result<(), Why>) -> Self {
        match (self, may_run) {
            (Self::Discard(_), _) | (_, Ok(())) => self,
            (_, Err(why)) => Self::DeadLetter(why),
        }
    }
}

// === Gate ===

impl Gate {
    /// For what was judged at `at`.
    pub fn new(terms: &Terms, at: Tick) -> Self {
        Self { live_until: terms.within.map(|span| at + span), expired_from: terms.expired_after.map(|span| at + span) }
    }

    /// Whether a consequential step may begin at `now` (contract Q3). One of work that must be completed may, always.
    ///
    /// # Errors
    /// [`Stop::Expired`] or [`Stop::Uncertain`].
    pub fn may_begin(&self, now: Tick) -> Result<(), Stop> {
        match (self.live_until, self.expired_from) {
            (Some(_), Some(expired)) if now >= expired => Err(Stop::Expired),
            (Some(live), _) if now >= live => Err(Stop::Uncertain),
            _ => Ok(()),
        }
    }
}

// === Why ===

impl Why {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 9] = [
        Self::Expired,
        Self::ExpiryUncertain,
        Self::InsufficientBudget,
        Self::ExpiryUnreadable,
        Self::KeyUnreadable,
        Self::KeyReused,
        Self::AttemptsExhausted,
        Self::OutcomeUnknown,
        Self::Rejected,
    ];

    /// The word for labels and for the headers of dead letters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::ExpiryUncertain => "expiry_uncertain",
            Self::InsufficientBudget => "insufficient_budget",
            Self::ExpiryUnreadable => "expiry_unreadable",
            Self::KeyUnreadable => "key_unreadable",
            Self::KeyReused => "key_reused",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Rejected => "rejected",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == word)
    }

    /// The sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Expired => "it had expired before it was done",
            Self::ExpiryUncertain => "it may have expired, by clocks that are not known better",
            Self::InsufficientBudget => "what was left of its life was less than its handler needs",
            Self::ExpiryUnreadable => "when it expires cannot be understood",
            Self::KeyUnreadable => "it has no key that can be understood, and may only be done under one",
            Self::KeyReused => "its key was used for other work",
            Self::AttemptsExhausted => "it failed as often as it may",
            Self::OutcomeUnknown => {
                "it may have been done, or not, and may not be done twice: find out before it is put back"
            }
            Self::Rejected => "its handler said that it will never succeed",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

// === Stop ===

impl Stop {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Uncertain => "expiry_uncertain",
            Self::LeaseLost => "lease_lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wall(millis: u64) -> Wall {
        Wall::from_nanos(millis * 1_000_000)
    }

    fn stamps() -> impl Strategy<Value = Stamp> {
        (0_u64..20_000, 0_usize..3, 0_u64..2_000).prop_map(|(at, policy, uncertainty)| Stamp {
            expires: Expires::At(wall(at)),
            policy: Policy::ALL[policy],
            uncertainty: Duration::from_millis(uncertainty),
            ..Stamp::default()
        })
    }

    proptest! {
        /// By any clock that is wrong by no more than it says: nothing live is discarded, and no effect begins of what is expired.
        #[test]
        fn q4_no_clock_within_its_uncertainty_discards_early_or_begins_late(
            stamp in stamps(), truth in 0_u64..25_000, ours in 0_u64..2_000, off in -1.0_f64..1.0, later in 0_u64..25_000,
        ) {
            // The producer's clock is the truth here, shifted by up to its own uncertainty: its part of the sum.
            let theirs = i64::try_from(stamp.uncertainty.as_millis()).unwrap();
            let off = (off * (ours as f64 + theirs as f64)) as i64;
            let Some(said) = truth.checked_add_signed(off) else { return Ok(()) };
            let (now, ours) = (wall(said), Duration::from_millis(ours));
            let expired_at = |truth| stamp.expires.at().unwrap() < wall(truth);
            let judged = judge(&stamp, now, ours, Duration::ZERO);
            if matches!(judged, Judged::Discard(_)) {
                prop_assert!(expired_at(truth));
            }
            let Judged::Run(terms) = judged else { return Ok(()) };
            if stamp.policy != Policy::MustComplete {
                prop_assert!(!expired_at(truth));
                // Any step of it, however much later by a clock that does not step.
                let start = Tick::from_nanos(0);
                let may = Gate::new(&terms, start).may_begin(start + Duration::from_millis(later));
                prop_assert!(may.is_err() || !expired_at(truth + later));
                prop_assert!(may != Err(Stop::Expired) || expired_at(truth + later));
            }
        }

        #[test]
        fn what_must_be_completed_always_runs(
            stamp in stamps(), now in 0_u64..25_000, ours in 0_u64..2_000, least in 0_u64..5_000, later in any::<u32>(),
        ) {
            let stamp = Stamp { policy: Policy::MustComplete, ..stamp };
            let ms = Duration::from_millis;
            let Judged::Run(terms) = judge(&stamp, wall(now), ms(ours), ms(least)) else { panic!("it does not run") };
            prop_assert_eq!(terms.within, None);
            let start = Tick::from_nanos(0);
            prop_assert!(Gate::new(&terms, start).may_begin(start + ms(later.into())).is_ok());
        }

        /// What is held is decided at the moment that was named, and was not before.
        #[test]
        fn a_hold_ends_when_it_says(stamp in stamps(), now in 0_u64..25_000, ours in 0_u64..2_000, least in 0_u64..5_000) {
            let (ours, least) = (Duration::from_millis(ours), Duration::from_millis(least));
            if let Judged::Hold { until } = judge(&stamp, wall(now), ours, least) {
                prop_assert!(until > wall(now));
                prop_assert_eq!(judge(&stamp, until, ours, least), Judged::Discard(Why::Expired));
                prop_assert_ne!(judge(&stamp, Wall::from_nanos(until.as_nanos() - 2_000_000), ours, least), Judged::Discard(Why::Expired));
            }
        }
    }

    #[test]
    fn every_reason_has_a_word_that_reads_back() {
        for why in Why::ALL {
            assert_eq!(Why::parse(why.as_str()), Some(why));
            assert!(!why.sentence().ends_with('.'));
        }
    }
}
