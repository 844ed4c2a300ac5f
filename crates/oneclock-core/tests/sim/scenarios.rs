//! The situations: one function each. They say the world; what stands before the slots is given to them.
//!
//! 16 slots, 10 ms of work in the mean, a warm time at 0.7 of what they can do, then the overload, then 0.7 again. `s8` has
//! no hedges, and refusals cost nothing here.

use std::ops::Range;

use oneclock_core::Importance;

use crate::chance::Service;
use crate::engine::run;
use crate::report::{Figures, Report};
use crate::world::{MS, Make, SECOND, Slow, Stream, Tier, Tries, World};

pub(crate) const SLOTS: usize = 16;
/// What 16 slots do in a second with work of 10 ms.
const CAPACITY: f64 = 1_600.0;

/// The shapes of work: hardly any spread, what handlers often look like, a long tail (3 in 1000 take more than 100 ms).
pub(crate) const LOW: Service = Service::LogNormal(10.0, 0.2);
pub(crate) const USUAL: Service = Service::LogNormal(10.0, 0.66);
pub(crate) const WIDE: Service = Service::LogNormal(10.0, 1.3);

/// When the overload begins, and for how long it is watched after its end. The first second, in which everything is empty and nothing is known, is not counted.
const WARM: u64 = 4 * SECOND;
const AFTER: u64 = 6 * SECOND;

/// One run, with the times that its figures are taken of.
pub(crate) struct Outcome {
    pub(crate) figures: Figures,
    pub(crate) report: Report,
    pub(crate) during: Range<u64>,
}

impl Outcome {
    /// Success of one stream in the overload.
    pub(crate) fn success(&self, stream: usize) -> f64 {
        self.report.success(Some(stream), &self.during)
    }

    pub(crate) fn streams(&self) -> usize {
        self.report.streams()
    }
}

/// Load over time: 0.7, `times` for so many seconds, 0.7.
fn spike(times: f64, seconds: u64, share: f64) -> Vec<(u64, f64)> {
    let (end, base) = (WARM + seconds * SECOND, 0.7 * CAPACITY * share);
    vec![(WARM, base), (end, times * CAPACITY * share), (end + AFTER, base)]
}

fn chain(tiers: usize, service: Service, streams: Vec<Stream>, tries: Tries) -> World {
    let until = streams.iter().filter_map(|stream| stream.shape.last()).map(|last| last.0).max().unwrap_or(0);
    let tiers = vec![Tier::new(SLOTS, &[service]); tiers];
    World { tiers, streams, tries, cancels: true, tells: true, holds: false, until }
}

pub(crate) fn outcome(world: &World, during: Range<u64>, make: Make<'_>, seed: u64) -> Outcome {
    let report = run(world, make, seed);
    Outcome { figures: report.figures(SECOND..WARM, during.clone()), report, during }
}

/// The overload without its first half second, in which queues fill.
fn settled(seconds: u64) -> Range<u64> {
    WARM + SECOND / 2..WARM + seconds * SECOND
}

/// One tier, 100 ms.
pub(crate) fn s1(times: f64, service: Service, cancels: bool, make: Make<'_>, seed: u64) -> Outcome {
    let seconds = if times > 5.0 { 3 } else { 6 };
    let streams = vec![Stream::new(100, &spike(times, seconds, 1.0))];
    let world = World { cancels, ..chain(1, service, streams, Tries::one()) };
    outcome(&world, settled(seconds), make, seed)
}

/// Three tiers, 300 ms or a tight 80 ms.
pub(crate) fn s2(budget: u64, service: Service, tries: Tries, make: Make<'_>, seed: u64) -> Outcome {
    let streams = vec![Stream::new(budget, &spike(3.0, 10, 1.0))];
    outcome(&chain(3, service, streams, tries), WARM..WARM + 10 * SECOND, make, seed)
}

/// The same, but a slot is kept until the answer: those before have as many more as it then takes.
pub(crate) fn s2_holding(budget: u64, service: Service, tries: Tries, make: Make<'_>, seed: u64) -> Outcome {
    let streams = vec![Stream::new(budget, &spike(3.0, 10, 1.0))];
    let mut world = World { holds: true, ..chain(3, service, streams, tries) };
    (world.tiers[0].slots, world.tiers[1].slots) = (3 * SLOTS, 2 * SLOTS);
    outcome(&world, WARM..WARM + 10 * SECOND, make, seed)
}

/// One tier, four budgets, as many callers of each: 30, 100, 300, 1000 ms.
pub(crate) fn s3(times: f64, make: Make<'_>, seed: u64) -> Outcome {
    let streams = [30, 100, 300, 1_000].map(|budget| Stream::new(budget, &spike(times, 10, 0.25)));
    outcome(&chain(1, LOW, streams.to_vec(), Tries::one()), settled(10), make, seed)
}

/// One tier, nine in ten of 5 ms, one in ten of 55 ms, and it is known which.
pub(crate) fn s4(times: f64, make: Make<'_>, seed: u64) -> Outcome {
    let cheap = Stream::new(200, &spike(times, 10, 0.9));
    let costly = Stream { class: 1, ..Stream::new(200, &spike(times, 10, 0.1)) };
    let mut world = chain(1, LOW, vec![cheap, costly], Tries::one());
    world.tiers[0].service = vec![Service::LogNormal(5.0, 0.2), Service::LogNormal(55.0, 0.2)];
    outcome(&world, settled(10), make, seed)
}

/// One tier at 0.7 whose work takes eight times as long for 10 s; 60 ms.
pub(crate) fn s5(service: Service, make: Make<'_>, seed: u64) -> Outcome {
    let streams = vec![Stream::new(60, &spike(0.7, 10, 1.0))];
    let mut world = chain(1, service, streams, Tries::one());
    let during = WARM..WARM + 10 * SECOND;
    world.tiers[0].slow = Some(Slow { during: during.clone(), times: 8, replica: None });
    outcome(&world, during, make, seed)
}

/// Three tiers, a spike to 3, everybody tries three times at every hop and waits 100 ms for each.
pub(crate) fn s6(tries: Tries, cancels: bool, tells: bool, make: Make<'_>, seed: u64) -> Outcome {
    let streams = vec![Stream::new(300, &spike(3.0, 10, 1.0))];
    let world = World { cancels, tells, ..chain(3, WIDE, streams, tries) };
    outcome(&world, WARM..WARM + 10 * SECOND, make, seed)
}

/// One tier. The deadline says one second, but whoever asks goes after 100 ms; or tries again then, three times in 300 ms.
pub(crate) fn s7(again: bool, make: Make<'_>, seed: u64) -> Outcome {
    let callers = Stream::new(1_000, &spike(3.0, 10, 1.0));
    let (patience, tries) = if again { (300, Tries::three_with_tokens().each(100)) } else { (100, Tries::one()) };
    let callers = Stream { patience: patience * MS, ..callers };
    outcome(&chain(1, WIDE, vec![callers], tries), settled(10), make, seed)
}

/// One tier of three replicas, one of which is eight times slower for 10 s; a refused call may try another.
pub(crate) fn s8(make: Make<'_>, seed: u64) -> Outcome {
    let streams = vec![Stream::new(100, &spike(0.7, 10, 3.0))];
    let mut world = chain(1, LOW, streams, Tries::three_with_tokens());
    let during = WARM..WARM + 10 * SECOND;
    world.tiers[0].replicas = 3;
    world.tiers[0].slow = Some(Slow { during: during.clone(), times: 8, replica: Some(0) });
    outcome(&world, during, make, seed)
}

/// One tier, two peers: one asks for 0.3 all the time, the other comes with 5 times what there is.
pub(crate) fn fairness(make: Make<'_>, seed: u64) -> Outcome {
    let end = WARM + 10 * SECOND + AFTER;
    let quiet = Stream { peer: 1, ..Stream::new(100, &[(end, 0.3 * CAPACITY)]) };
    let flood = [(WARM, 0.4), (WARM + 10 * SECOND, 5.0), (end, 0.4)].map(|(at, times)| (at, times * CAPACITY));
    let flood = Stream { peer: 2, ..Stream::new(100, &flood) };
    outcome(&chain(1, LOW, vec![quiet, flood], Tries::one()), settled(10), make, seed)
}

/// One tier, at 1.8: half of what comes is only nice to have.
pub(crate) fn importance(make: Make<'_>, seed: u64) -> Outcome {
    let needed = Stream::new(100, &spike(1.8, 10, 0.5));
    let optional = Stream { importance: Importance::Optional, ..needed.clone() };
    outcome(&chain(1, LOW, vec![needed, optional], Tries::one()), settled(10), make, seed)
}
