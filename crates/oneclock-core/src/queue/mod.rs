//! Who of those that wait for a turn is next.
//!
//! Decides the order: the earliest deadline first while the queue empties again and again, the newest first once it stands,
//! back when it is empty. Under a standing queue the earliest deadline is the worst choice: everything then starts with
//! nothing left. A queue stands when, for 100 ms, even at its shortest it was too long to be served soon (as `CoDel` has it, by
//! the length: waits of those that are served say little where deadlines decide who is).
//!
//! What is only nice to have comes last in either order. Under a standing queue, callers that were served least come before
//! the newest of those that were served most.

mod callers;
mod standing;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::time::Duration;

use crate::{Deadline, Importance, Tick};
use callers::Callers;
use standing::Standing;

/// What is known of one that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// After this its answer is useless.
    pub deadline: Deadline,
    /// Who is shed first.
    pub importance: Importance,
    /// Whose it is: any number for a caller, the same for all that it asks; 0 if that is not known.
    pub peer: u64,
    /// When it began to wait.
    pub since: Tick,
}

/// Who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The earliest deadline: nobody needs to be left out.
    EarliestDeadline,
    /// The newest: not all can be served, so those that are still have time left.
    Newest,
}

/// How fast turns come, and what is too long to wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time between two turns.
    pub turn: Duration,
    /// A queue that takes longer than this to serve, and never less, stands.
    pub soon: Duration,
}

/// One that waits, as the queue knows it. Not reused for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    place: u32,
    generation: u32,
}

/// Those that wait, with something of the driver's for each: whatever it wakes them by.
///
/// ```
/// # use oneclock_core::{queue::*, Deadline, Importance, Tick}; use std::time::Duration;
/// # fn at(ms: u64) -> Tick { Tick::default() + Duration::from_millis(ms) }
/// let (mut queue, pace) = (Queue::new(), Pace { turn: Duration::from_millis(1), soon: Duration::from_millis(50) });
/// let waiter = |since, deadline| Waiter { deadline: Deadline::at(at(deadline)), importance: Importance::Required, peer: 0, since: at(since) };
/// let patient = queue.push(waiter(0, 900), "patient");
/// queue.push(waiter(1, 300), "hurried");
/// assert_eq!(queue.pop(at(2), pace).map(|(_, who)| who), Some("hurried"));
/// assert_eq!(queue.remove(patient).map(|(_, who)| who), Some("patient"), "its caller left");
/// assert!(queue.is_empty());
/// ```
pub struct Queue<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    len: usize,
    by_deadline: BinaryHeap<Reverse<(Importance, Deadline, u32, u32)>>, // may hold keys of those that left
    by_age: VecDeque<Key>,                                              // so may this; the oldest is in front
    optional: usize,
    standing: Standing,
    callers: Callers,
}

struct Place<T> {
    generation: u32,
    taken: Option<(Waiter, T)>,
}

/// How far back from the newest is looked for a caller that was served less.
const LOOK_BACK: usize = 64;
/// How many of those that wait are looked at to tell how many are ahead.
const SAMPLE: usize = 64;
/// How many keys of those that left are kept beyond as many as there are.
const SLACK: usize = 64;

// === Queue ===

impl<T> Queue<T> {
    /// Nobody waits.
    pub fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            len: 0,
            by_deadline: BinaryHeap::new(),
            by_age: VecDeque::new(),
            optional: 0,
            standing: Standing::default(),
            callers: Callers::default(),
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In which order they are served now.
    pub fn order(&self) -> Order {
        if self.standing.is_on() { Order::Newest } else { Order::EarliestDeadline }
    }

    /// About how many would be served before one with this deadline that came now: none where the newest is next; else those that
    /// have an earlier one, counted among 64 of those that wait. What is only nice to have is not ahead of what is needed.
    pub fn ahead_of(&self, deadline: Deadline, importance: Importance) -> usize {
        if self.len == 0 || self.order() == Order::Newest {
            return 0;
        }
        let every = (self.by_age.len() / SAMPLE).max(1);
        let looked_at = self.by_age.iter().step_by(every).filter_map(|key| self.get(*key));
        let (seen, ahead) = looked_at.fold((0, 0), |(seen, ahead), (waiter, _)| {
            let is_ahead = (waiter.importance, waiter.deadline) <= (importance, deadline);
            (seen + 1, ahead + usize::from(is_ahead))
        });
        self.len * ahead / seen.max(1)
    }

    /// One more waits.
    pub fn push(&mut self, waiter: Waiter, item: T) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, taken: None });
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX) // bounded by whoever pushes
        });
        let Place { generation, taken } = &mut self.places[place as usize];
        *taken = Some((waiter, item));
        let key = Key { place, generation: *generation };
        self.by_deadline.push(Reverse((waiter.importance, waiter.deadline, key.place, key.generation)));
        self.by_age.push_back(key);
        self.optional += usize::from(waiter.importance == Importance::Optional);
        self.callers.came(waiter.peer);
        self.len += 1;
        key
    }

    /// One leaves; nothing if it is not there any more.
    pub fn remove(&mut self, key: Key) -> Option<(Waiter, T)> {
        let place = self.places.get_mut(key.place as usize).filter(|place| place.generation == key.generation)?;
        let (waiter, item) = place.taken.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.place);
        self.len -= 1;
        self.optional -= usize::from(waiter.importance == Importance::Optional);
        self.callers.went(waiter.peer);
        if self.len == 0 {
            self.standing.emptied();
            self.by_age.clear();
            self.by_deadline.clear();
        } else if self.by_age.len() > 2 * self.len + SLACK || self.by_deadline.len() > 2 * self.len + SLACK {
            self.forget_gone();
        }
        Some((waiter, item))
    }

    /// What is known of one that waits; `None` if it does not any more.
    pub fn get(&self, key: Key) -> Option<&(Waiter, T)> {
        let place = self.places.get(key.place as usize).filter(|place| place.generation == key.generation)?;
        place.taken.as_ref()
    }

    /// The next one, at `now`.
    pub fn pop(&mut self, now: Tick, pace: Pace) -> Option<(Waiter, T)> {
        let key = match self.order() {
            Order::EarliestDeadline => {
                self.drop_gone();
                let Reverse((_, _, place, generation)) = self.by_deadline.pop()?;
                Key { place, generation }
            }
            Order::Newest => self.newest()?,
        };
        let (waiter, item) = self.remove(key)?;
        self.callers.served(waiter.peer);
        if self.len > 0 {
            let takes = pace.turn.saturating_mul(u32::try_from(self.len).unwrap_or(u32::MAX));
            self.standing.takes(takes, pace.soon, now);
        }
        Some((waiter, item))
    }

    /// The one that has waited longest, for whoever has to make room; those that are only nice to have first.
    pub fn pop_oldest(&mut self) -> Option<(Waiter, T)> {
        let is_first_to_go = |waiter: &Waiter| self.optional == 0 || waiter.importance == Importance::Optional;
        let found =
            self.by_age.iter().copied().find(|key| self.get(*key).is_some_and(|(waiter, _)| is_first_to_go(waiter)))?;
        while self.by_age.front().is_some_and(|key| *key == found || self.get(*key).is_none()) {
            self.by_age.pop_front();
        }
        self.remove(found)
    }

    /// Whether somebody waits for what is only nice to have.
    pub fn has_optional(&self) -> bool {
        self.optional > 0
    }

    /// Among the newest, one of the caller that was served least; the newest of these.
    fn newest(&mut self) -> Option<Key> {
        while self.by_age.back().is_some_and(|key| self.get(*key).is_none()) {
            self.by_age.pop_back();
        }
        let far = if self.optional == 0 && !self.callers.are_several() { 1 } else { LOOK_BACK };
        let live = self.by_age.iter().rev().filter_map(|key| Some((*key, &self.get(*key)?.0))).take(far);
        let least = live.min_by_key(|(_, waiter)| (waiter.importance, self.callers.served_of(waiter.peer)));
        least.map(|(key, _)| key)
    }

    /// The earliest that is still there comes to the top.
    fn drop_gone(&mut self) {
        while let Some(Reverse((_, _, place, generation))) = self.by_deadline.peek() {
            if self.get(Key { place: *place, generation: *generation }).is_some() {
                return;
            }
            self.by_deadline.pop();
        }
    }

    fn forget_gone(&mut self) {
        let places = &self.places;
        let is_there = |place: u32, generation: u32| {
            places.get(place as usize).is_some_and(|there| there.generation == generation && there.taken.is_some())
        };
        self.by_age.retain(|key| is_there(key.place, key.generation));
        self.by_deadline.retain(|Reverse((_, _, place, generation))| is_there(*place, *generation));
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("len", &self.len).field("order", &self.order()).finish_non_exhaustive()
    }
}
