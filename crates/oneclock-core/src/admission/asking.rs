//! What asks for a place, and what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use super::Refusal;
use crate::estimate::{Estimate, Sample};
use crate::queue::Key;
use crate::{Deadline, Importance, Tick};

/// One sort of work: a route, a method, a statement. Work of one sort takes about as long.
#[derive(Debug)]
pub struct Class {
    pub(super) id: u32,
    pub(super) estimate: Estimate,
}

/// One that asks for a place.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    pub(super) class: &'a Arc<Class>,
    pub(super) deadline: Deadline,
    pub(super) importance: Importance,
    pub(super) peer: u64,
}

/// What becomes of one that asks.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// It has a place, to be given back by [`Admission::vacate`](super::Admission::vacate). Under [`Mode::Shadow`](super::Mode::Shadow) with what would have refused it.
    Runs {
        /// What was handed in.
        item: T,
        /// Why it would have been refused, were this enforced.
        would_refuse: Option<Refusal>,
    },
    /// It waits; what was handed in comes back in a [`Settled`].
    Waits {
        /// For [`Admission::left`](super::Admission::left) and [`Admission::due`](super::Admission::due).
        key: Key,
        /// When to ask [`Admission::due`](super::Admission::due).
        start_by: Tick,
        /// One that had to make room for it.
        evicted: Option<(T, Refusal)>,
    },
    /// It does not start.
    Refused(T, Refusal),
}

/// What becomes of one that waited.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled<T> {
    /// It has a place, to be given back by [`Admission::vacate`](super::Admission::vacate).
    Runs(T),
    /// It does not start.
    Refused(T, Refusal),
}

/// What [`Admission::due`](super::Admission::due) says of one that waits.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<T> {
    /// It would not be done in time any more.
    Refused(T, Refusal),
    /// There is time until then.
    Later(Tick),
    /// It does not wait any more.
    Gone,
}

// === Class ===

impl Class {
    /// What such work needs.
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// Such work is over, `took` after its start; waiting for its turn is no part of that.
    pub fn took(&self, took: Duration, sample: Sample, now: Tick) {
        self.estimate.record(took, sample, now);
    }
}

// === Asking ===

impl<'a> Asking<'a> {
    /// Work of this sort, whose answer is useless after `deadline`. Required, and of a caller that is not known.
    pub const fn new(class: &'a Arc<Class>, deadline: Deadline) -> Self {
        Self { class, deadline, importance: Importance::Required, peer: 0 }
    }

    /// How much its caller needs it.
    #[must_use]
    pub const fn importance(mut self, importance: Importance) -> Self {
        self.importance = importance;
        self
    }

    /// Whose it is: any number that is the same for all that one caller asks; 0 if that is not known.
    #[must_use]
    pub const fn peer(mut self, peer: u64) -> Self {
        self.peer = peer;
        self
    }
}
