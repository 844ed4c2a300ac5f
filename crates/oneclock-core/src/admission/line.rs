//! Those that wait for a place: who may join them, who is next, who is told that it will be too late.
//!
//! Decides under the lock of the line. What is passed in with [`Stand`] is how things are with the places at that moment.

use std::sync::Arc;
use std::time::Duration;

use super::held::Held;
use super::lanes::Lanes;
use super::{Asking, Class, Due, Refusal, Settled, Why};
use crate::queue::{Key, Order, Pace, Queue, Waiter};
use crate::{Deadline, Importance, Tick};

/// What the estimate would refuse waits all the same this often at most, and is one in a hundred of the turns at most: so it is
/// found out if the estimate is wrong.
const ANYWAY: Duration = Duration::from_millis(100);
const ANYWAY_ONE_IN: u32 = 100;

pub(super) struct Line<T> {
    queue: Queue<Waiting<T>>,
    most: usize,
    lanes: Lanes,
    budget: Held, // what those that begin to wait have left
    anyway_at: Tick,
}

struct Waiting<T> {
    class: Arc<Class>,
    lane: usize,
    anyway: bool, // whatever the estimate says
    item: T,
}

/// How things are with the places.
#[derive(Clone, Copy)]
pub(super) struct Stand {
    pub(super) held: Duration, // for how long one is
    pub(super) limit: u32,     // how many there are
    pub(super) now: Tick,
}

impl Stand {
    /// The time between two turns.
    fn turn(self) -> Duration {
        self.held / self.limit.max(1)
    }

    /// How long whoever has so many before it waits.
    pub(super) fn wait_behind(self, ahead: usize) -> Duration {
        (self.turn() / 2).saturating_mul(u32::try_from(2 * ahead + 1).unwrap_or(u32::MAX))
    }
}

impl<T> Line<T> {
    pub(super) fn new(most: usize) -> Self {
        let (queue, lanes, budget) = (Queue::new(), Lanes::new(), Held::new());
        Self { queue, most, lanes, budget, anyway_at: Tick::default() }
    }

    pub(super) fn stands(&self) -> bool {
        self.queue.order() == Order::Newest
    }

    /// Whether one may wait; and if so, whether it does so in spite of the estimate.
    pub(super) fn may_wait(&mut self, asking: &Asking<'_>, stand: Stand) -> Result<bool, Refusal> {
        let remaining = asking.deadline.remaining(stand.now);
        let lane = Lanes::of(asking.class.id, remaining);
        let is_short = self.lanes.is_short(lane);
        self.lanes.arrived(lane);
        let refused = |why, ahead| {
            let (wait, places) = (stand.wait_behind(ahead), stand.limit);
            Refusal { wait, places, ..Refusal::of(why, asking, stand.now) }
        };
        let len = self.queue.len();
        if self.stands() && asking.importance == Importance::Optional {
            return Err(refused(Why::Optional, len));
        }
        if len >= self.most && !self.stands() && !self.queue.has_optional() {
            return Err(refused(Why::Full, len));
        }
        let needed = asking.class.estimate.needed_at(stand.now);
        // Those ahead are counted only where it matters how many they are.
        if is_short || remaining >= stand.wait_behind(len).saturating_add(needed) {
            return Ok(false);
        }
        let ahead = self.queue.ahead_of(asking.deadline, asking.importance);
        if remaining >= stand.wait_behind(ahead).saturating_add(needed) {
            return Ok(false);
        }
        if stand.now < self.anyway_at {
            return Err(refused(Why::Doomed, ahead));
        }
        self.anyway_at = stand.now + ANYWAY.max(stand.turn() * ANYWAY_ONE_IN);
        Ok(true)
    }

    /// One more waits. With when to ask whether it is [`due`](Self::due).
    pub(super) fn wait(&mut self, asking: &Asking<'_>, anyway: bool, item: T, now: Tick) -> (Key, Tick) {
        let Asking { class, deadline, importance, peer } = *asking;
        let remaining = deadline.remaining(now);
        self.budget.add(remaining); // of those that are refused at once nobody's patience is to suffer
        let lane = Lanes::of(class.id, remaining);
        let start_by = self.start_by(deadline, class, lane, anyway, now);
        let waiting = Waiting { class: Arc::clone(class), lane, anyway, item };
        (self.queue.push(Waiter { deadline, importance, peer, since: now }, waiting), start_by)
    }

    /// One more waits than may: somebody goes. A queue that stands may take as long to serve as a place is held, or a quarter of
    /// what those that wait had left when they came.
    pub(super) fn make_room(&mut self, stand: Stand) -> Option<(T, Refusal)> {
        let before = self.queue.len().checked_sub(1).filter(|before| *before > 0 || self.most == 0)?;
        let longest = stand.held.max(self.budget.mean() / 4);
        if before < self.most && !(self.stands() && stand.wait_behind(before) > longest) {
            return None;
        }
        let (waiter, waiting) = self.queue.pop_oldest()?;
        let why = if waiter.deadline.is_past(stand.now) { Why::Expired } else { Why::Full };
        Some(self.refused(why, &waiter, waiting, stand))
    }

    /// One that is only nice to have, if more comes than goes.
    pub(super) fn shed_optional(&mut self, stand: Stand) -> Option<(T, Refusal)> {
        if !self.stands() || !self.queue.has_optional() {
            return None;
        }
        let (waiter, waiting) = self.queue.pop_oldest()?;
        let why = if waiter.deadline.is_past(stand.now) { Why::Expired } else { Why::Optional };
        Some(self.refused(why, &waiter, waiting, stand))
    }

    /// One leaves.
    pub(super) fn leave(&mut self, key: Key) -> Option<T> {
        self.queue.remove(key).map(|(_, waiting)| waiting.item)
    }

    /// Whether one that waits would still be done in time.
    pub(super) fn due(&mut self, key: Key, stand: Stand) -> Due<T> {
        let Some((waiter, waiting)) = self.queue.get(key) else { return Due::Gone };
        let start_by = self.start_by(waiter.deadline, &waiting.class, waiting.lane, waiting.anyway, stand.now);
        if stand.now < start_by {
            return Due::Later(start_by);
        }
        let Some((waiter, waiting)) = self.queue.remove(key) else { return Due::Gone };
        let why = if waiter.deadline.is_past(stand.now) { Why::Expired } else { Why::Doomed };
        let (item, refusal) = self.refused(why, &waiter, waiting, stand);
        Due::Refused(item, refusal)
    }

    /// Who is next, and whether it has the place. The last one has it whatever the estimate says, as whoever finds one free.
    pub(super) fn next(&mut self, stand: Stand, enforced: bool) -> Option<Settled<T>> {
        let soon = (self.budget.mean() / 8).min(4 * stand.held);
        let (waiter, waiting) = self.queue.pop(stand.now, Pace { turn: stand.turn(), soon })?;
        let is_doomed = |remaining: Duration| {
            let counts = enforced && !self.queue.is_empty() && !waiting.anyway && !self.lanes.is_short(waiting.lane);
            counts && remaining < waiting.class.estimate.needed_at(stand.now)
        };
        let why = match waiter.deadline.remaining(stand.now) {
            Duration::ZERO => Why::Expired,
            remaining if is_doomed(remaining) => Why::Doomed,
            _ => {
                self.lanes.admitted(waiting.lane);
                return Some(Settled::Runs(waiting.item));
            }
        };
        let (item, refusal) = self.refused(why, &waiter, waiting, stand);
        Some(Settled::Refused(item, refusal))
    }

    /// When one that waits is doomed.
    fn start_by(&self, deadline: Deadline, class: &Class, lane: usize, anyway: bool, now: Tick) -> Tick {
        let counts = !anyway && !self.lanes.is_short(lane);
        deadline.less(if counts { class.estimate.needed_at(now) } else { Duration::ZERO }).tick()
    }

    fn refused(&self, why: Why, waiter: &Waiter, waiting: Waiting<T>, stand: Stand) -> (T, Refusal) {
        let refusal = Refusal {
            why,
            remaining: waiter.deadline.remaining(stand.now),
            needed: waiting.class.estimate.needed_at(stand.now),
            waited: stand.now.since(waiter.since),
            wait: stand.wait_behind(self.queue.len()),
            places: stand.limit,
        };
        (waiting.item, refusal)
    }
}
