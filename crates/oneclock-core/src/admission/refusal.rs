//! Why something does not start, with the figures that it was decided by.

use std::fmt;
use std::time::Duration;

use super::Asking;
use crate::time::Legible;
use crate::{Reason, Tick};

/// Why something was refused a place. Nothing of it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// Its deadline has passed.
    Expired,
    /// It would not have been done in time.
    Doomed,
    /// More comes than goes, and somebody had to make room.
    Full,
    /// More comes than goes, and it was only nice to have.
    Optional,
}

/// A refusal, and what it was decided by. Printed, it is one line for the person on call.
///
/// ```
/// # use oneclock_core::{admission::*, Reason}; use std::time::Duration;
/// # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// let refusal = Refusal { why: Why::Doomed, remaining: ms(30), needed: ms(36), waited: ms(0), wait: ms(12), places: 8 };
/// assert_eq!(refusal.reason(), Reason::InsufficientBudget);
/// assert_eq!(refusal.to_string(), "30ms are left: such work needs 36ms after a wait of 12ms for one of 8 places; not started");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub why: Why,
    /// What it had left.
    pub remaining: Duration,
    /// What such work needs, at the quantile of the settings; zero if too little is known.
    pub needed: Duration,
    /// How long it had waited.
    pub waited: Duration,
    /// How long one that came now would wait.
    pub wait: Duration,
    /// How many places there are.
    pub places: u32,
}

// === Why ===

impl Why {
    /// The word for logs and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Doomed => "doomed",
            Self::Full => "full",
            Self::Optional => "optional",
        }
    }
}

// === Refusal ===

impl Refusal {
    pub(super) fn of(why: Why, asking: &Asking<'_>, now: Tick) -> Self {
        let (remaining, needed) = (asking.deadline.remaining(now), asking.class.estimate.needed_at(now));
        Self { why, remaining, needed, waited: Duration::ZERO, wait: Duration::ZERO, places: 0 }
    }

    /// What the caller is told.
    pub const fn reason(&self) -> Reason {
        match self.why {
            Why::Expired => Reason::ExpiredBeforeStart,
            Why::Doomed => Reason::InsufficientBudget,
            Why::Full | Why::Optional => Reason::Shed,
        }
    }

    /// When it may be worth to come again: once those that wait now have been served. Only where something else than the
    /// caller's budget was short.
    pub fn come_again(&self) -> Option<Duration> {
        matches!(self.why, Why::Full | Why::Optional).then_some(self.wait)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, remaining, needed, waited, wait, places } = *self;
        match why {
            Why::Expired => write!(f, "its deadline has passed")?,
            Why::Doomed => {
                let (remaining, needed, wait) = (Legible(remaining), Legible(needed), Legible(wait));
                write!(
                    f,
                    "{remaining} are left: such work needs {needed} after a wait of {wait} for one of {places} places"
                )?;
            }
            Why::Full => write!(f, "more comes than goes: the wait for one of {places} places is {}", Legible(wait))?,
            Why::Optional => write!(f, "more comes than goes, and it was only nice to have")?,
        }
        if !waited.is_zero() {
            write!(f, "; it had waited for {}", Legible(waited))?;
        }
        f.write_str("; not started")
    }
}

impl std::error::Error for Refusal {}
