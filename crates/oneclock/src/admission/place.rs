//! A place that somebody has.
//!
//! Decides that it is given back exactly once, whatever becomes of whoever has it, and that what its work took is remembered.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use oneclock_core::Tick;
use oneclock_core::admission::{Class, Settled};
use oneclock_core::estimate::Sample;

use super::turn::Sleeper;
use super::{Admission, Shared};
use crate::operation::{HoldsPlace, Inner};
use crate::{Operation, clock};

/// A place before an [`Admission`](super::Admission). Dropped, it is given back, and what it was held for counts as what such
/// work takes.
#[must_use = "dropped, the place is given back"]
pub struct Place {
    shared: Arc<Shared>,
    class: Arc<Class>,
    since: Tick,
    // in use: not given up, not over; vacated: given up, not over, still measured; failed: over, not given up; done: both. It goes
    // back, once, with the last holder.
    holders: AtomicU32,   // whoever was given it, and steps that must finish; none: it was given back
    given_up: AtomicBool, // by whoever was given it
    over: AtomicBool,     // what its work took is remembered, or says nothing
    was_cut_off: AtomicBool, // it would have been held for longer
    of: Of,
}

/// Whose place it is.
enum Of {
    /// A request's: its driver says how it was over.
    Request,
    /// That of a step within this operation, over when it is dropped.
    Step(Weak<Inner>),
    /// One that the operation had already, and keeps while this is there.
    Shared(#[expect(dead_code, reason = "kept, not asked")] HoldsPlace),
}

impl Place {
    pub(super) fn new(shared: &Arc<Shared>, class: Arc<Class>, now: Tick) -> Self {
        let (given_up, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let (shared, holders) = (Arc::clone(shared), AtomicU32::new(1));
        let was_cut_off = AtomicBool::new(false);
        Self { shared, class, since: now, holders, given_up, over, was_cut_off, of: Of::Request }
    }

    /// The same, of a step within `operation`.
    pub(super) fn of_step(self, operation: &Operation) -> Self {
        let step = Of::Step(Arc::downgrade(&operation.0)); // it ends when it ends, whoever keeps this
        Self::with(self, step)
    }

    /// One that `held` has already.
    pub(super) fn shared(shared: &Arc<Shared>, class: Arc<Class>, held: HoldsPlace, now: Tick) -> Self {
        let place = Self::new(shared, class, now);
        place.given_up.store(true, Ordering::Relaxed);
        place.over.store(true, Ordering::Relaxed);
        Self::with(place, Of::Shared(held))
    }

    fn with(mut place: Self, of: Of) -> Self {
        place.of = of;
        place
    }

    /// Whether it is one before this, and not given back.
    pub(crate) fn is_before(&self, admission: &Admission) -> bool {
        Arc::ptr_eq(&self.shared, &admission.0) && !self.given_up.load(Ordering::Relaxed)
    }

    /// Gives the place back now, and goes on measuring what the work takes: what follows waits for others, and needs no place.
    pub fn vacate(&self) {
        if !self.given_up.load(Ordering::Relaxed) {
            self.vacate_at(clock::now());
        }
    }

    fn vacate_at(&self, now: Tick) {
        if !self.given_up.swap(true, Ordering::Relaxed) {
            self.let_go(now);
        }
    }

    /// One more holds it, if anybody still does.
    pub(crate) fn hold(&self) -> bool {
        let more = |holders: u32| (holders > 0).then(|| holders.saturating_add(1));
        self.holders.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// One of those who hold it does so no longer.
    pub(crate) fn let_go(&self, now: Tick) {
        if self.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            let sample = if self.was_cut_off.load(Ordering::Relaxed) { Sample::CutOff } else { Sample::Whole };
            if !self.shared.core.vacates_quietly(now.since(self.since), sample, now) {
                hand_on_all(&self.shared, self.shared.core.hand_on(now), now);
            }
        }
    }

    /// The work is over.
    pub(crate) fn over_at(&self, sample: Sample, now: Tick) {
        let is_measured = !self.over.swap(true, Ordering::Relaxed);
        if is_measured {
            self.class.took(now.since(self.since), sample, now);
        }
        if sample == Sample::CutOff || !is_measured {
            self.was_cut_off.store(true, Ordering::Relaxed);
        }
        self.vacate_at(now);
    }

    /// What its work took says nothing of what such work takes.
    pub(crate) fn unmeasured(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.over.load(Ordering::Relaxed) && self.given_up.load(Ordering::Relaxed)
    }

    /// It was never used: it says nothing of what work takes.
    pub(crate) fn unused(self) {
        self.over.store(true, Ordering::Relaxed);
        if !self.given_up.swap(true, Ordering::Relaxed) && self.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            let now = clock::now();
            hand_on_all(&self.shared, self.shared.core.vacate_unused(now), now);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_settled() {
            return;
        }
        let now = clock::now();
        let was_cut_off = match &self.of {
            Of::Step(operation) => {
                let ended = operation.upgrade().is_some_and(|inner| Operation(inner).over_at(now).is_some());
                ended || std::thread::panicking()
            }
            Of::Request | Of::Shared(_) => false,
        };
        self.over_at(if was_cut_off { Sample::CutOff } else { Sample::Whole }, now);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("of", &self.shared.name).field("since", &self.since).finish_non_exhaustive()
    }
}

/// Whoever is next is woken; outside of the lock.
pub(super) fn hand_on_all(shared: &Arc<Shared>, settled: Vec<Settled<Sleeper>>, now: Tick) {
    for settled in settled {
        match settled {
            Settled::Runs(sleeper) => {
                let place = Place::new(shared, Arc::clone(sleeper.class()), now);
                if let Err(Ok(place)) = sleeper.tell(Ok(place)) {
                    place.unused(); // it has just left
                }
            }
            Settled::Refused(sleeper, refusal) => {
                let _ = sleeper.tell(Err(refusal));
            }
        }
    }
}
