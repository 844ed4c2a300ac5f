//! What happens, in order of time and then of cause: one heap of events, one generator, no clock. The same world, control
//! and seed give the same figures.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use oneclock_core::Tick;

use crate::chance::Chance;
use crate::control::{Asked, Control, How, Id, Next, Verdict};
use crate::report::Report;
use crate::state::{By, Call, Due, Event, Hop, Job, Phase, Root};
use crate::world::{Make, SECOND, Tries, World};

pub(crate) struct Engine<'w> {
    world: &'w World,
    chance: Chance,
    now: u64,
    events: BinaryHeap<Reverse<Due>>,
    number: u64,
    roots: Vec<Root>,
    jobs: Vec<Job>,
    hops: Vec<Hop>,
    controls: Vec<Vec<Box<dyn Control>>>,
    running: Vec<Vec<usize>>,
}

/// Runs a world from its beginning until nothing is left to do.
pub(crate) fn run(world: &World, make: Make<'_>, seed: u64) -> Report {
    let mut engine = Engine {
        world,
        chance: Chance::new(seed),
        now: 0,
        events: BinaryHeap::new(),
        number: 0,
        roots: Vec::new(),
        jobs: Vec::new(),
        hops: world.tiers.iter().map(|_| Hop::default()).collect(),
        controls: world.tiers.iter().map(|tier| (0..tier.replicas).map(|_| make(tier.slots)).collect()).collect(),
        running: world.tiers.iter().map(|tier| vec![0; tier.replicas]).collect(),
    };
    for stream in 0..world.streams.len() {
        engine.next_arrival(stream, 0);
    }
    while let Some(Reverse(Due(key, event))) = engine.events.pop() {
        engine.now = (key >> 64) as u64;
        // What nobody stops may feed itself for ever; long after the last arrival it says nothing new.
        if engine.now > world.until + 60 * SECOND {
            break;
        }
        engine.on(event);
    }
    let told = engine.controls.iter().flatten().map(|control| control.told()).collect();
    Report::new(world, engine.roots, engine.hops, told)
}

// === Engine ===

impl Engine<'_> {
    fn on(&mut self, event: Event) {
        match event {
            Event::Arrives(stream) => self.arrives(stream),
            Event::Tries(by) => self.attempt(by),
            Event::Served(job) => self.served(job),
            Event::Look(job) => self.look(job),
            Event::TryOver(job) => self.try_over(job),
            Event::Leaves(root) => self.leaves(root),
        }
    }

    fn at(&mut self, when: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse(Due(u128::from(when) << 64 | u128::from(self.number), event)));
    }

    fn tick(&self) -> Tick {
        Tick::from_nanos(self.now)
    }

    fn next_arrival(&mut self, stream: usize, from: u64) {
        let mut from = from;
        for &(until, per_second) in &self.world.streams[stream].shape {
            if until <= from {
                continue;
            }
            // Memoryless: what is left of a gap when the rate changes is drawn anew.
            let when = from.saturating_add(self.chance.gap(per_second));
            if when < until {
                return self.at(when, Event::Arrives(stream));
            }
            from = until;
        }
    }

    fn arrives(&mut self, stream: usize) {
        let kind = &self.world.streams[stream];
        let (at, root) = (self.now, self.roots.len());
        let (deadline, leaves) = (at + kind.budget, at + kind.patience.min(kind.budget));
        let call = Call::default();
        self.roots.push(Root { stream, at, deadline, leaves, ended: None, ok: false, spent: 0, call });
        self.at(leaves, Event::Leaves(root));
        self.next_arrival(stream, at);
        self.attempt(By::Root(root));
    }

    fn call(&mut self, by: By) -> &mut Call {
        match by {
            By::Root(root) => &mut self.roots[root].call,
            By::Job(job) => &mut self.jobs[job].call,
        }
    }

    /// Whether the caller is past caring.
    fn over(&self, by: By) -> bool {
        match by {
            By::Root(root) => self.roots[root].ended.is_some(),
            By::Job(job) => self.jobs[job].phase == Phase::Over,
        }
    }

    fn attempt(&mut self, by: By) {
        if self.over(by) {
            return;
        }
        let (root, tier) = match by {
            By::Root(root) => (root, 0),
            By::Job(job) => (self.jobs[job].root, self.jobs[job].tier + 1),
        };
        let (id, replica, now) = (self.jobs.len(), self.replica(by, tier), self.now);
        self.jobs.push(Job { root, tier, replica, by, phase: Phase::Waits, started: now, call: Call::default() });
        let call = self.call(by);
        (call.current, call.last, call.tries) = (Some(id), replica, call.tries + 1);
        let first = call.tries == 1;
        self.hops[tier].sent(now, first);
        if let Some(each) = self.world.tries.each {
            self.at(now + each, Event::TryOver(id));
        }
        let kind = &self.world.streams[self.roots[root].stream];
        let deadline = self.world.tells.then(|| Tick::from_nanos(self.roots[root].deadline));
        let asked = Asked { id, class: kind.class, peer: kind.peer, importance: kind.importance, deadline };
        let mut next = Vec::new();
        let tick = self.tick();
        match self.controls[tier][replica].arrive(&asked, tick, &mut next) {
            Verdict::Run => self.start(id),
            Verdict::Wait(None) => {}
            Verdict::Wait(Some(look)) => self.at(look.as_nanos().max(now), Event::Look(id)),
            Verdict::Refuse => self.failed(id),
        }
        self.apply(next);
    }

    /// Any, but after a failure another one than that.
    fn replica(&mut self, by: By, tier: usize) -> usize {
        let many = self.world.tiers[tier].replicas;
        if many == 1 {
            return 0;
        }
        let (tries, last) = (self.call(by).tries, self.call(by).last);
        match tries {
            0 => self.chance.below(many),
            _ => (last + 1 + self.chance.below(many - 1)) % many,
        }
    }

    fn apply(&mut self, next: Vec<Next>) {
        for each in next {
            match each {
                Next::Start(id) => self.start(id),
                Next::Drop(id) => {
                    assert_eq!(self.jobs[id].phase, Phase::Waits, "only one that waits can be dropped");
                    self.failed(id);
                }
            }
        }
    }

    fn start(&mut self, id: Id) {
        let Job { root, tier, replica, phase, .. } = self.jobs[id];
        assert_eq!(phase, Phase::Waits, "nobody is started twice, or after its end");
        let kind = &self.world.tiers[tier];
        let class = self.world.streams[self.roots[root].stream].class;
        let mut takes = self.chance.takes(kind.service[class]);
        if let Some(slow) = &kind.slow
            && slow.during.contains(&self.now)
            && slow.replica.is_none_or(|only| only == replica)
        {
            takes *= slow.times;
        }
        let running = &mut self.running[tier][replica];
        *running += 1;
        assert!(*running <= kind.slots, "more run than there are slots");
        (self.jobs[id].phase, self.jobs[id].started) = (Phase::Runs, self.now);
        self.at(self.now + takes, Event::Served(id));
    }

    fn served(&mut self, id: Id) {
        let Job { tier, phase, .. } = self.jobs[id];
        if phase != Phase::Runs {
            return;
        }
        self.worked(id);
        if tier + 1 == self.world.tiers.len() {
            return self.answered(id, How::Served);
        }
        self.jobs[id].phase = Phase::Calls;
        if !self.world.holds {
            self.free(id, How::Served);
        }
        self.attempt(By::Job(id));
    }

    /// What its own work took so far is spent.
    fn worked(&mut self, id: Id) {
        let Job { root, started, .. } = self.jobs[id];
        self.roots[root].spent += self.now - started;
    }

    /// Gives the slot back.
    fn free(&mut self, id: Id, how: How) {
        let Job { tier, replica, started, .. } = self.jobs[id];
        let (mut next, now) = (Vec::new(), self.tick());
        self.running[tier][replica] -= 1;
        self.controls[tier][replica].freed(id, now.since(Tick::from_nanos(started)), how, now, &mut next);
        self.apply(next);
    }

    /// The answer of one that was started: its control learns from it, its caller has it.
    fn answered(&mut self, id: Id, how: How) {
        let Job { tier, replica, started, by, phase, .. } = self.jobs[id];
        let now = self.tick();
        self.jobs[id].phase = Phase::Over;
        self.controls[tier][replica].answered(id, now.since(Tick::from_nanos(started)), how, now);
        self.tell(id, by, tier, how);
        if phase == Phase::Runs || self.world.holds {
            self.free(id, how);
        }
    }

    fn tell(&mut self, id: Id, by: By, tier: usize, how: How) {
        if self.over(by) || self.call(by).current != Some(id) {
            return; // nobody waits for it
        }
        if how != How::Served {
            return self.try_again(by, tier);
        }
        self.hops[tier].tokens.succeeded();
        match by {
            By::Root(root) => (self.roots[root].ended, self.roots[root].ok) = (Some(self.now), true),
            By::Job(caller) => self.answered(caller, How::Served),
        }
    }

    /// The answer to one that was not started.
    fn failed(&mut self, id: Id) {
        self.jobs[id].phase = Phase::Over;
        let Job { tier, by, .. } = self.jobs[id];
        if !self.over(by) && self.call(by).current == Some(id) {
            self.try_again(by, tier);
        }
    }

    fn try_again(&mut self, by: By, tier: usize) {
        self.call(by).current = None;
        let (tries, random) = (self.call(by).tries, self.chance.bits());
        let Tries { most, tokens, backoff, .. } = self.world.tries;
        let when = self.now + backoff.wait(tries, random).as_nanos() as u64;
        // A caller at the front knows when it goes; one in the middle only what it was told.
        let end = match by {
            By::Root(root) => self.roots[root].leaves,
            By::Job(job) if self.world.tells => self.roots[self.jobs[job].root].deadline,
            By::Job(_) => u64::MAX,
        };
        let now = self.tick();
        if tries < most && when < end && (!tokens || self.hops[tier].tokens.take(now)) {
            return self.at(when, Event::Tries(by));
        }
        match by {
            By::Root(root) => self.roots[root].ended = Some(self.now),
            By::Job(job) => self.answered(job, How::Failed),
        }
    }

    fn look(&mut self, id: Id) {
        let Job { tier, replica, phase, .. } = self.jobs[id];
        if phase == Phase::Waits {
            let (mut next, now) = (Vec::new(), self.tick());
            if let Some(again) = self.controls[tier][replica].look(id, now, &mut next) {
                assert!(again > now, "looking again at once would never end");
                self.at(again.as_nanos(), Event::Look(id));
            }
            self.apply(next);
        }
    }

    fn try_over(&mut self, id: Id) {
        let Job { tier, by, .. } = self.jobs[id];
        if self.over(by) || self.call(by).current != Some(id) {
            return;
        }
        self.call(by).current = None;
        if self.world.cancels {
            self.cancel(id);
        }
        self.try_again(by, tier);
    }

    fn leaves(&mut self, root: usize) {
        if self.roots[root].ended.is_none() {
            self.roots[root].ended = Some(self.now);
            if let Some(id) = self.roots[root].call.current.filter(|_| self.world.cancels) {
                self.cancel(id);
            }
        }
    }

    /// Stops an attempt and everything that it called.
    fn cancel(&mut self, id: Id) {
        let Job { tier, replica, phase, .. } = self.jobs[id];
        match phase {
            Phase::Waits => {
                self.jobs[id].phase = Phase::Over;
                let (mut next, now) = (Vec::new(), self.tick());
                self.controls[tier][replica].left(id, now, &mut next);
                self.apply(next);
            }
            Phase::Runs => {
                self.worked(id);
                self.answered(id, How::Cut);
            }
            Phase::Calls => {
                let below = self.jobs[id].call.current.take();
                self.answered(id, How::Cut);
                if let Some(below) = below {
                    self.cancel(below);
                }
            }
            Phase::Over => {}
        }
    }
}
