//! What became of a call that was tried, in types: what an error knows of the far side, and why there was no further attempt.
//!
//! Decides the words; whether a call is tried again follows from [`HasOutcome`], by `oneclock_core::retry`.

use std::fmt;

use oneclock_core::name::Hop;
use oneclock_core::retry::{Pushback, Stop, Tried};
use oneclock_core::{Name, Outcome, Reason};

use crate::grant::{NotBegun, Stopped};
use crate::run::Ended;

/// An error that knows what became of the far side, so that it can be decided whether the call may be repeated.
///
/// For errors that do not, there is [`Known`].
pub trait HasOutcome {
    /// What is known of the far side.
    fn outcome(&self) -> Outcome;

    /// That, and what else the far side said.
    fn tried(&self) -> Tried {
        Tried::new(self.outcome())
    }
}

/// Any error, with what is known of the far side.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Known<E> {
    /// The error.
    pub error: E,
    /// What is known of the far side.
    pub outcome: Outcome,
    /// What it said of when to come again.
    pub pushback: Pushback,
}

/// What one attempt came to, if not to success.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttemptFailed<E> {
    /// It was not begun, or it was cut off: by its own limit, by the deadline of the whole, or because the operation ended.
    Stopped(Box<Stopped>),
    /// It failed by itself.
    Failed(E),
}

/// A call had no success, and is not tried again.
#[derive(Debug)]
#[non_exhaustive]
pub struct GaveUp<E> {
    /// The operation that made the call.
    pub operation: Name,
    /// What was called.
    pub call: Name,
    /// How many attempts were made.
    pub attempts: u32,
    /// Why there was no further one.
    pub why: Stop,
    /// What the last one came to.
    pub last: AttemptFailed<E>,
}

// === HasOutcome ===

impl HasOutcome for Ended {
    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}

impl HasOutcome for NotBegun {
    fn outcome(&self) -> Outcome {
        Outcome::NotSent
    }

    fn tried(&self) -> Tried {
        self.tried()
    }
}

impl HasOutcome for Stopped {
    fn outcome(&self) -> Outcome {
        self.outcome()
    }

    fn tried(&self) -> Tried {
        self.tried()
    }
}

impl<E: HasOutcome> HasOutcome for AttemptFailed<E> {
    fn outcome(&self) -> Outcome {
        self.tried().outcome
    }

    fn tried(&self) -> Tried {
        match self {
            Self::Stopped(stopped) => Stopped::tried(stopped),
            Self::Failed(error) => error.tried(),
        }
    }
}

impl<E> HasOutcome for Known<E> {
    fn outcome(&self) -> Outcome {
        self.outcome
    }

    fn tried(&self) -> Tried {
        Tried::new(self.outcome).pushback(self.pushback)
    }
}

// === Known ===

impl<E> Known<E> {
    /// `error`, with what is known of the far side.
    pub const fn new(error: E, outcome: Outcome) -> Self {
        Self { error, outcome, pushback: Pushback::Unsaid }
    }

    /// What the far side said of when to come again.
    #[must_use]
    pub fn pushback(mut self, pushback: Pushback) -> Self {
        self.pushback = pushback;
        self
    }
}

impl<E: fmt::Display> fmt::Display for Known<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, outcome: {}", self.error, self.outcome)
    }
}

impl<E: std::error::Error> std::error::Error for Known<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source() // its own words are in ours
    }
}

// === AttemptFailed ===

impl<E> AttemptFailed<E> {
    pub(crate) fn stopped(stopped: impl Into<Stopped>) -> Self {
        Self::Stopped(Box::new(stopped.into()))
    }
}

impl<E: fmt::Display> fmt::Display for AttemptFailed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(stopped) => stopped.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for AttemptFailed<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stopped(stopped) => Some(&**stopped),
            Self::Failed(error) => Some(error),
        }
    }
}

// === GaveUp ===

impl<E> GaveUp<E> {
    /// What is known of the far side after the last attempt. Those before it are at most as certain: each was repeated because
    /// its effect allows it, or on proof that it had none.
    pub fn outcome(&self) -> Outcome
    where
        E: HasOutcome,
    {
        self.last.outcome()
    }

    /// What a caller is told, if our own clock or operation stopped the last attempt (contract section 5).
    pub fn reason(&self) -> Option<Reason> {
        match &self.last {
            AttemptFailed::Stopped(stopped) => Some(stopped.reason()),
            AttemptFailed::Failed(_) => None,
        }
    }
}

/// `order → inventory: gave up after 2 attempts: 40ms left, 5ms is the least that is useful`
impl<E> fmt::Display for GaveUp<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = if self.attempts == 1 { "attempt" } else { "attempts" };
        let Self { operation, call, attempts: made, why, .. } = self;
        let hop = Hop(operation, Some(call));
        write!(f, "{hop}: gave up after {made} {attempts}: {why}")
    }
}

impl<E: std::error::Error + 'static> std::error::Error for GaveUp<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.last)
    }
}
