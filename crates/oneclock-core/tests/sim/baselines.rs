//! What others do in front of their slots, as small as it can be said.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::time::Duration;

use oneclock_core::{Deadline, Tick};

use crate::control::{Asked, Control, How, Id, Next, Verdict};

/// First come, first served: the plain one, one that looks at the deadline when it takes from the queue, one with a short
/// queue, and one without any.
pub(crate) struct Fifo {
    free: usize,
    waiting: VecDeque<Asked>,
    most: usize,
    expired: Expired,
    credit: u64, // of the valve, in thousandths
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expired {
    Run,
    Drop,
    /// At most one in five is dropped; the rest is run although it is too late.
    Valve,
}

/// Refuses what cannot be finished in time by the quantile of what it took before; the queue has no bound.
pub(crate) struct Doomed {
    slots: usize,
    free: usize,
    order: Order,
    waiting: Waiting,
    gone: HashSet<Id>,
    taken: Quantile,
    /// Whether what is called further down counts as time that is needed.
    residual: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Whoever is due first.
    Due,
    /// Whoever came last; a free slot takes anybody when nobody waits.
    Last,
}

enum Waiting {
    Due(BinaryHeap<Reverse<(Tick, Id)>>),
    Last(Vec<(Tick, Id)>),
}

/// The quantile of the last thousand samples, brought up to date with every 64th.
struct Quantile {
    q: f64,
    samples: VecDeque<Duration>,
    seen: usize,
    is: Duration,
    mean: Duration,
}

// === Fifo ===

impl Fifo {
    fn boxed(free: usize, most: usize, expired: Expired) -> Box<dyn Control> {
        Box::new(Self { free, waiting: VecDeque::new(), most, expired, credit: 0 })
    }

    pub(crate) fn plain(slots: usize) -> Box<dyn Control> {
        Self::boxed(slots, usize::MAX, Expired::Run)
    }

    pub(crate) fn drop_expired(slots: usize) -> Box<dyn Control> {
        Self::boxed(slots, usize::MAX, Expired::Drop)
    }

    /// Finagle's: a deposit of 1 with each that is served, 5 for each that is dropped.
    pub(crate) fn valve(slots: usize) -> Box<dyn Control> {
        Self::boxed(slots, usize::MAX, Expired::Valve)
    }

    /// A queue of half as many places as there are slots.
    pub(crate) fn capped(slots: usize) -> Box<dyn Control> {
        Self::boxed(slots, slots / 2, Expired::Run)
    }

    /// tower's concurrency limit under its `load_shed`.
    pub(crate) fn load_shed(slots: usize) -> Box<dyn Control> {
        Self::boxed(slots, 0, Expired::Run)
    }

    fn too_late(&mut self, asked: &Asked, now: Tick) -> bool {
        let past = asked.deadline.is_some_and(|due| due <= now);
        match self.expired {
            Expired::Run => false,
            Expired::Drop => past,
            Expired::Valve if past && self.credit >= 5_000 => {
                self.credit -= 5_000;
                true
            }
            Expired::Valve => {
                self.credit = (self.credit + 1_000).min(5_000 * 1_000);
                false
            }
        }
    }
}

impl Control for Fifo {
    fn arrive(&mut self, asked: &Asked, now: Tick, _next: &mut Vec<Next>) -> Verdict {
        if self.free > 0 {
            if self.too_late(asked, now) {
                return Verdict::Refuse;
            }
            self.free -= 1;
            return Verdict::Run;
        }
        if self.waiting.len() >= self.most {
            return Verdict::Refuse;
        }
        self.waiting.push_back(*asked);
        Verdict::Wait(None)
    }

    fn freed(&mut self, _id: Id, _ran: Duration, _how: How, now: Tick, next: &mut Vec<Next>) {
        while let Some(asked) = self.waiting.pop_front() {
            if !self.too_late(&asked, now) {
                next.push(Next::Start(asked.id));
                return;
            }
            next.push(Next::Drop(asked.id));
        }
        self.free += 1;
    }

    fn left(&mut self, id: Id, _now: Tick, _next: &mut Vec<Next>) {
        // Numbers only grow, and so does their place in the queue.
        if let Ok(place) = self.waiting.binary_search_by_key(&id, |asked| asked.id) {
            self.waiting.remove(place);
        }
    }
}

// === Doomed ===

impl Doomed {
    fn boxed(slots: usize, order: Order, residual: bool) -> Box<dyn Control> {
        let waiting = match order {
            Order::Due => Waiting::Due(BinaryHeap::new()),
            Order::Last => Waiting::Last(Vec::new()),
        };

        Box::new(Self { slots, free: slots, order, waiting, gone: HashSet::new(), taken: Quantile::new(0.9), residual })
    }

    /// Due first, by what this tier's own slots take.
    pub(crate) fn due_first(slots: usize) -> Box<dyn Control> {
        Self::boxed(slots, Order::Due, false)
    }

    /// Last come first, by what the whole answer takes.
    pub(crate) fn last_first(slots: usize) -> Box<dyn Control> {
        Self::boxed(slots, Order::Last, true)
    }

    fn fits(&self, due: Tick, now: Tick) -> bool {
        Deadline::at(due).remaining(now) >= self.taken.is
    }
}

impl Control for Doomed {
    fn arrive(&mut self, asked: &Asked, now: Tick, _next: &mut Vec<Next>) -> Verdict {
        let due = asked.deadline.unwrap_or(Tick::MAX);
        let waits = self.waiting.len() - self.gone.len();
        let conserves = self.order == Order::Last && waits == 0;
        if self.free > 0 && (conserves || self.fits(due, now)) {
            self.free -= 1;
            return Verdict::Run;
        }
        let ahead = if self.order == Order::Due { waits as u32 } else { 0 };
        if !self.fits(due, now + self.taken.mean * ahead / self.slots as u32) {
            return Verdict::Refuse;
        }
        self.waiting.push(due, asked.id);
        Verdict::Wait(None)
    }

    fn freed(&mut self, _id: Id, ran: Duration, _how: How, now: Tick, next: &mut Vec<Next>) {
        if !self.residual {
            self.taken.add(ran);
        }
        while let Some((due, id)) = self.waiting.pop() {
            if self.gone.remove(&id) {
                continue;
            }
            if self.fits(due, now) {
                next.push(Next::Start(id));
                return;
            }
            next.push(Next::Drop(id));
        }
        self.free += 1;
    }

    fn answered(&mut self, _id: Id, took: Duration, _how: How, _now: Tick) {
        if self.residual {
            self.taken.add(took);
        }
    }

    fn left(&mut self, id: Id, _now: Tick, _next: &mut Vec<Next>) {
        self.gone.insert(id);
    }
}

impl Waiting {
    fn push(&mut self, due: Tick, id: Id) {
        match self {
            Self::Due(heap) => heap.push(Reverse((due, id))),
            Self::Last(stack) => stack.push((due, id)),
        }
    }

    fn pop(&mut self) -> Option<(Tick, Id)> {
        match self {
            Self::Due(heap) => heap.pop().map(|Reverse(first)| first),
            Self::Last(stack) => stack.pop(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Due(heap) => heap.len(),
            Self::Last(stack) => stack.len(),
        }
    }
}

// === Quantile ===

impl Quantile {
    fn new(q: f64) -> Self {
        Self { q, samples: VecDeque::new(), seen: 0, is: Duration::ZERO, mean: Duration::ZERO }
    }

    fn add(&mut self, sample: Duration) {
        self.samples.push_back(sample);
        if self.samples.len() > 1_000 {
            self.samples.pop_front();
        }
        self.seen += 1;
        if self.seen.is_multiple_of(64) {
            let mut sorted: Vec<_> = self.samples.iter().copied().collect();
            sorted.sort_unstable();
            self.is = sorted[((sorted.len() - 1) as f64 * self.q) as usize];
            self.mean = sorted.iter().sum::<Duration>() / sorted.len() as u32;
        }
    }
}
