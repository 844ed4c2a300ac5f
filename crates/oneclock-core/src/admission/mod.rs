//! Who may start, who waits for a turn, who is refused before anything is spent on it.
//!
//! One [`Admission`] stands before one resource with a limited number of places: a pool, the cores, a service behind. It decides
//! (contract I5, X7, C7):
//!
//! 1. What is expired never starts.
//! 2. A free place and an empty queue: it starts. No estimate refuses anything then, so an estimate that has gone wrong is
//!    found out by what runs.
//! 3. Else it is doomed if what it has left is less than the wait before it and what such work needs (an
//!    [`Estimate`], 0.9 of it, downstream included): refused at once.
//! 4. Else it waits. The earliest deadline is served first; once the queue stands, the newest, and the wait of the queue is
//!    bounded: the oldest go ([`queue`](crate::queue)).
//! 5. One that waits is told when it *becomes* doomed, not when its turn comes, so that its caller can use what is left.
//! 6. No sort of work and no sort of budget falls below a share of what the others get: an estimate that says that it never
//!    fits does not starve it in silence (`lanes`).
//!
//! Everything is `&self`. Who finds a free place and an empty queue takes it by one atomic exchange, and no lock; the rest is
//! behind one. What
//! wakes those that wait is the driver's: a `T` for each, handed back exactly once.
//!
//! ```
//! use oneclock_core::admission::*;
//! use oneclock_core::{Deadline, Tick};
//! use std::time::Duration;
//! # fn at(ms: u64) -> Tick { Tick::default() + Duration::from_millis(ms) }
//!
//! let pool = Admission::new(Settings::fixed(1));
//! let lookup = pool.class();
//! let asking = |deadline| Asking::new(&lookup, Deadline::at(at(deadline)));
//! assert!(matches!(pool.arrive(&asking(100), "first", at(0)), Arrival::Runs { .. }));
//! assert!(matches!(pool.arrive(&asking(100), "second", at(1)), Arrival::Waits { .. }));
//! assert!(matches!(pool.arrive(&asking(2), "third", at(2)), Arrival::Refused("third", _)), "expired");
//!
//! let next = pool.vacate(Duration::from_millis(10), at(10));
//! assert!(matches!(next[..], [Settled::Runs("second")]), "the place goes on");
//! assert!(pool.vacate(Duration::from_millis(10), at(20)).is_empty());
//! ```

mod asking;
mod held;
mod lanes;
mod limit;
mod line;
mod refusal;
mod settings;
mod slots;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Tick;
use crate::estimate::{Estimate, Sample};
use crate::queue::Key;
pub use asking::{Arrival, Asking, Class, Due, Settled};
use held::Held;
use limit::Limit;
use line::{Line, Stand};
pub use refusal::{Refusal, Why};
pub use settings::{Mode, NotSettings, Places, Settings};
use slots::Slots;

/// Stands before one resource.
pub struct Admission<T> {
    settings: Settings,
    mode: AtomicU8,
    slots: Slots<AtomicU64>,
    limit: Limit,
    held: Held,
    stands: AtomicBool,
    classes: AtomicU32,
    line: Mutex<Line<T>>,
}

// === Admission ===

impl<T> Admission<T> {
    /// Nobody is there yet. Of what contradicts itself ([`Settings::check`]) the nearest that does not counts.
    pub fn new(settings: Settings) -> Self {
        Self {
            mode: AtomicU8::new(settings.mode.code()),
            slots: Slots::new(),
            limit: Limit::new(settings.places),
            held: Held::new(),
            stands: AtomicBool::new(false),
            classes: AtomicU32::new(0),
            line: Mutex::new(Line::new(settings.queue)),
            settings,
        }
    }

    /// One more sort of work.
    pub fn class(&self) -> Arc<Class> {
        let id = self.classes.fetch_add(1, Ordering::Relaxed);
        Arc::new(Class { id, estimate: Estimate::new(self.settings.quantile) })
    }

    /// Takes a place if one is free and nobody waits, whatever any estimate says. The whole cost in good times.
    #[must_use = "a place has to be given back"]
    pub fn enter(&self) -> bool {
        self.slots.take(self.limit.now())
    }

    /// One asks for a place. `item` is what the driver wakes it by.
    pub fn arrive(&self, asking: &Asking<'_>, item: T, now: Tick) -> Arrival<T> {
        if asking.deadline.is_past(now) {
            return Arrival::Refused(item, Refusal::of(Why::Expired, asking, now));
        }
        if self.slots.take(self.limit.now()) {
            return Arrival::Runs { item, would_refuse: None };
        }
        if self.mode() != Mode::Enforce {
            self.slots.take_anyway();
            return Arrival::Runs { item, would_refuse: self.would_refuse(asking, now) };
        }
        let mut line = self.line();
        let stand = self.stand(now);
        if self.mode() != Mode::Enforce {
            self.slots.take_anyway(); // switched off meanwhile: whoever was waiting then was let go
            return Arrival::Runs { item, would_refuse: None };
        }
        if self.slots.take_or_wait(stand.limit) {
            return Arrival::Runs { item, would_refuse: None };
        }
        let anyway = match line.may_wait(asking, stand) {
            Ok(anyway) => anyway,
            Err(refusal) => {
                self.slots.stop_waiting();
                return Arrival::Refused(item, refusal);
            }
        };
        let (key, start_by) = line.wait(asking, anyway, item, now);
        let evicted = line.make_room(stand);
        if evicted.is_some() {
            self.slots.stop_waiting();
        }
        Arrival::Waits { key, start_by, evicted }
    }

    /// One that waits has left, or was told something else. What was handed in, if it still waited.
    pub fn left(&self, key: Key) -> Option<T> {
        let mut line = self.line();
        let item = line.leave(key)?;
        self.slots.stop_waiting();
        self.note(&line);
        Some(item)
    }

    /// Whether one that waits would still be done in time. To be asked at the moment that [`Arrival::Waits`] said, and then
    /// at the one that this says.
    pub fn due(&self, key: Key, now: Tick) -> Due<T> {
        let mut line = self.line();
        let due = line.due(key, self.stand(now));
        if let Due::Refused(..) = due {
            self.slots.stop_waiting();
            self.note(&line);
        }
        due
    }

    /// A place was held for `held` and is free: who has it next, and who is refused on the way there.
    #[must_use = "those in it have places, or are to be told that they get none"]
    pub fn vacate(&self, held: Duration, now: Tick) -> Vec<Settled<T>> {
        self.vacate_after(held, Sample::Whole, now)
    }

    /// The same, of work that was cut off: it would have held the place for at least as long. So it may show that the resource has
    /// become slow, and never that it is quick.
    #[must_use = "those in it have places, or are to be told that they get none"]
    pub fn vacate_after(&self, held: Duration, sample: Sample, now: Tick) -> Vec<Settled<T>> {
        if self.vacates_quietly(held, sample, now) { Vec::new() } else { self.hand_on(now) }
    }

    /// The same as [`vacate_after`](Self::vacate_after), as far as nobody waits. If somebody does, the place is to be
    /// [handed on](Self::hand_on).
    #[must_use = "the place may have to be handed on"]
    pub fn vacates_quietly(&self, held: Duration, sample: Sample, now: Tick) -> bool {
        self.held.add(held);
        if let Limit::Found(found) = &self.limit {
            let (busy, waiting) = self.slots.now();
            found.held(held, sample, (busy, waiting > 0), now);
        }
        self.slots.give_back()
    }

    /// The same, of a place that was never used: whoever was handed it had just left. That says nothing of how long places are
    /// held.
    #[must_use = "those in it have places, or are to be told that they get none"]
    pub fn vacate_unused(&self, now: Tick) -> Vec<Settled<T>> {
        if self.slots.give_back() { Vec::new() } else { self.hand_on(now) }
    }

    /// A place that is free, and for which somebody waited a moment ago, goes on.
    #[must_use = "those in it have places, or are to be told that they get none"]
    pub fn hand_on(&self, now: Tick) -> Vec<Settled<T>> {
        let mut settled = Vec::with_capacity(1);
        let mut line = self.line();
        let (stand, enforced) = (self.stand(now), self.mode() == Mode::Enforce);
        if enforced && self.slots.give_up_above(stand.limit) {
            return settled;
        }
        loop {
            let Some(next) = line.next(stand, enforced) else {
                self.slots.give_back_last();
                break;
            };
            self.slots.stop_waiting();
            let runs = matches!(next, Settled::Runs(_));
            settled.push(next);
            if !runs {
                continue;
            }
            // Those that waited when it was switched off are let go, all of them.
            if !enforced && self.slots.now().1 > 0 {
                self.slots.take_anyway();
            } else if !self.slots.take_for_waiting(stand.limit) {
                break;
            }
        }
        while let Some((item, refusal)) = line.shed_optional(stand) {
            self.slots.stop_waiting();
            settled.push(Settled::Refused(item, refusal));
        }
        self.note(&line);
        settled
    }

    /// What is in force.
    pub fn mode(&self) -> Mode {
        Mode::from_code(self.mode.load(Ordering::Relaxed))
    }

    /// From now on. Those that wait are let go, if nothing is enforced any more.
    #[must_use = "those in it have places, or are to be told that they get none"]
    pub fn set_mode(&self, mode: Mode, now: Tick) -> Vec<Settled<T>> {
        {
            let _line = self.line(); // nobody begins to wait who has not seen it
            self.mode.store(mode.code(), Ordering::Relaxed);
        }
        if mode == Mode::Enforce || self.waiting() == 0 {
            return Vec::new();
        }
        self.slots.take_anyway();
        self.vacate_unused(now)
    }

    /// How many places there are.
    pub fn places(&self) -> u32 {
        self.limit.now()
    }

    /// How many are taken.
    pub fn busy(&self) -> u32 {
        self.slots.now().0
    }

    /// How many wait.
    pub fn waiting(&self) -> u32 {
        self.slots.now().1
    }

    /// For how long a place is held, of late; zero while that is not known.
    pub fn held(&self) -> Duration {
        self.held.mean()
    }

    /// Whether more comes than goes: the newest are served first, and what is only nice to have is refused.
    pub fn is_standing(&self) -> bool {
        self.stands.load(Ordering::Relaxed)
    }

    /// Under [`Mode::Shadow`], whether one that runs although no place is free would have been refused: as if those that run
    /// too many waited.
    fn would_refuse(&self, asking: &Asking<'_>, now: Tick) -> Option<Refusal> {
        if self.mode() == Mode::Observe {
            return None;
        }
        let stand = self.stand(now);
        let ahead = self.busy().saturating_sub(1).saturating_sub(stand.limit) as usize; // it is among those that run
        let wait = stand.wait_behind(ahead);
        let refused = |why| Refusal { wait, places: stand.limit, ..Refusal::of(why, asking, now) };
        if asking.deadline.remaining(now) < wait.saturating_add(asking.class.estimate.needed_at(now)) {
            return Some(refused(Why::Doomed));
        }
        (ahead >= self.settings.queue).then(|| refused(Why::Full))
    }

    fn stand(&self, now: Tick) -> Stand {
        Stand { held: self.held.mean(), limit: self.limit.now(), now }
    }

    fn note(&self, line: &Line<T>) {
        self.stands.store(line.stands(), Ordering::Relaxed);
    }

    fn line(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Admission<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Admission");
        debug.field("places", &self.places()).field("busy", &self.busy()).field("waiting", &self.waiting());
        debug.field("held", &self.held()).field("mode", &self.mode()).finish_non_exhaustive()
    }
}
