//! What an operation has to do with scarce places: how much its caller needs it, and the place that it was given.
//!
//! Decides that a part is at most as important as the whole (contract C7), and that a place is given back when the operation is
//! over, or when the last step that must finish is.

use std::sync::{Arc, OnceLock};

use oneclock_core::estimate::Sample;
use oneclock_core::{Importance, Reason, Tick};

use super::{Driver, Inner, Operation};
use crate::admission::{Admission, Place};
use crate::clock;

/// A step that holds, beside it, the place of the operation in it.
pub(crate) struct HoldsPlace(Operation);

impl Operation {
    /// Whether whoever waits for it needs it (contract C7). What it calls inside the trust boundary is told, and sheds what is
    /// optional first.
    pub fn importance(&self) -> Importance {
        self.0.context.importance
    }

    /// The same operation, and its caller can do without: under overload it is refused before what is required. What it begins
    /// is at most as important. Call it right after the operation was begun; later it has no effect, and is an error in the log.
    ///
    /// The optional parts of a [`fan_out`](Self::fan_out) are optional without being told so.
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_core::Importance; use std::time::Duration;
    /// let prefetch = Operation::begin("prefetch", Duration::from_secs(5)).optional();
    /// assert_eq!(prefetch.importance(), Importance::Optional);
    /// ```
    ///
    /// # Panics
    /// Then, in debug builds.
    #[must_use]
    pub fn optional(mut self) -> Self {
        if let Some(inner) = self.unshared("an importance") {
            inner.context.importance = Importance::Optional;
        }
        self
    }

    /// Gives back the place that this operation, or the one that it is a part of, was given at its arrival: what follows waits
    /// for others, and needs none. What it takes to its end is still measured. Nothing if it has none.
    ///
    /// Where a pool bounds the local work of a handler, this is what lets the next one in while the handler waits for another
    /// service.
    pub fn vacate(&self) {
        if let Some(place) = self.0.place() {
            place.vacate();
        }
    }

    /// If it has ended, its place goes back, whoever still holds what it left behind. For layers whose answers outlive its end in
    /// somebody else's hands.
    pub fn leave_places_if_over(&self) {
        let now = clock::now();
        if self.over_at(now).is_some() {
            self.0.leave_place(false, || now);
        }
    }

    /// What was answered says nothing of what such work takes: it failed, perhaps at once. For layers.
    pub fn unmeasured(&self) {
        if let Some(place) = self.0.place.get() {
            place.unmeasured();
        }
    }

    /// The place before `admission` that this operation or one above it has, if it has one.
    pub(crate) fn hold_place_before(&self, admission: &Admission) -> Option<HoldsPlace> {
        self.with_places().find_map(|holder| {
            let place = holder.0.place.get().filter(|place| place.is_before(admission))?;
            place.hold().then(|| HoldsPlace(holder.clone()))
        })
    }

    /// Whether it, or what it is a part of, has a place before `admission`. For layers: a request that asked there already is in.
    pub fn has_place_before(&self, admission: &Admission) -> bool {
        self.with_places().any(|holder| holder.0.place.get().is_some_and(|place| place.is_before(admission)))
    }

    /// This operation and those above it; of a step that must finish also those that it is a step of.
    fn with_places(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |op| op.0.parent.as_ref().or_else(|| op.0.step_of.get()))
    }

    /// Keeps the places of this operation and of those above it taken until this is dropped.
    pub(crate) fn hold_places(&self) -> Vec<HoldsPlace> {
        let held = self.with_places().filter(|holder| holder.0.place.get().is_some_and(Place::hold));
        held.map(|holder| HoldsPlace(holder.clone())).collect()
    }

    /// This is a step of `whole`, whose places it may use.
    pub(crate) fn is_step_of(&self, whole: &Self) {
        let _ = self.0.step_of.set(whole.clone());
    }
}

impl Drop for HoldsPlace {
    fn drop(&mut self) {
        if let Some(place) = self.0.0.place.get() {
            place.let_go(clock::now());
        }
    }
}

impl Driver {
    /// The same, of a request that was given this place: it gives it back when it is over.
    pub fn holding(mut self, place: Place) -> Self {
        match Arc::get_mut(&mut self.operation.0) {
            Some(inner) if inner.place.get().is_none() => inner.place = OnceLock::from(place), // cheaper than to set it
            _ => self.hold(place),
        }
        self
    }

    /// It was given this place, after a wait.
    pub fn hold(&self, place: Place) {
        if let Err(second) = self.operation().0.place.set(place) {
            second.unused(); // a mistake of the layer's: it has one
        }
    }

    /// The same, of a request that is this important. Call it before the operation is cloned; later it has no effect, and is an
    /// error in the log.
    ///
    /// # Panics
    /// Then, in debug builds.
    pub fn of_importance(mut self, importance: Importance) -> Self {
        if importance != Importance::Required
            && let Some(inner) = self.operation.unshared("an importance")
        {
            inner.context.importance = inner.context.importance.at_most(importance);
        }
        self
    }
}

impl Inner {
    /// The place of this operation or of the nearest above it that has one.
    fn place(&self) -> Option<&Place> {
        std::iter::once(self).chain(self.above()).find_map(|inner| inner.place.get())
    }

    /// It is over: its place goes back, and what it took is remembered.
    pub(super) fn leave_place(&self, is_done: bool, now: impl FnOnce() -> Tick) {
        if let Some(place) = self.place.get().filter(|place| !place.is_settled()) {
            let sample = match (is_done, self.answered.get()) {
                (true, None) => Sample::Whole,
                (true, Some(Reason::Deadline | Reason::Cap)) | (false, _) => Sample::CutOff,
                (true, Some(_)) => {
                    place.unmeasured(); // something that it needed was refused: that says nothing of what it takes
                    Sample::CutOff
                }
            };
            place.over_at(sample, now());
        }
    }
}
