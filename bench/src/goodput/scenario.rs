//! What callers want in each scenario: how much, for how long, within which time, and what they do without an answer.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp, LogNormal};

use crate::caller::Manners;
use crate::system::System;
use crate::tag::TIERS;
use crate::tier::Model;

/// How long the ordinary phases are, in seconds: warm at the base load, the spike, the base load again.
const WARM: f64 = 3.0;
const SPIKE: f64 = 5.0;
const AFTER: f64 = 4.0;
/// Of these, in a run that only shows that everything works.
const SMOKE: f64 = 0.15;
/// The load before and after, in units of the capacity.
const BASE: f64 = 0.7;
/// Slots of each tier, and what one request takes of one, in microseconds.
const SLOTS: usize = 8;
const MEAN_US: f64 = 20_000.0;
const SIGMA: f64 = 0.6;
const SPIN_US: u32 = 1_000;
/// How much slower the service is in a slow-down.
const SLOWER: f64 = 8.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scenario {
    /// S1: 0.8, 1.5, 3 and 10 times the capacity, one after another.
    Steps,
    /// S1 at 3 times.
    Spike,
    /// S2: three tiers, 300 ms, 3 times.
    Chain,
    /// S2 within 80 ms.
    ChainTight,
    /// S3: budgets of 30, 100, 300 and 1000 ms.
    Budgets,
    /// S4: nine cheap requests for one costly.
    Classes,
    /// S5: the service becomes slower.
    SlowDown,
    /// S7: callers leave after 100 ms.
    Abandon,
    /// S9: work that takes the processor that refuses, at 3 and 6 times.
    Refusals,
    /// S9 at 10 times; callers of ours hold back.
    Throttled,
}

/// A stretch of time under one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) kind: Kind,
    pub(crate) seconds: f64,
    /// In units of the capacity.
    pub(crate) load: f64,
    pub(crate) slower: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not looked at.
    Warm,
    /// The base load before.
    Before,
    /// What the scenario is about.
    Spike,
    /// The base load after.
    After,
}

/// One request, drawn before the run, so that each system sees the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) phase: usize,
    pub(crate) class: usize,
    pub(crate) budget: Duration,
    pub(crate) work_us: [u32; TIERS],
}

/// A kind of request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    share: f64,
    mean_us: f64,
    sigma: f64,
    budget_ms: u64,
}

const fn class(name: &'static str, share: f64, budget_ms: u64) -> Class {
    Class { name, path: "/work", share, mean_us: MEAN_US, sigma: SIGMA, budget_ms }
}

const WIDE: &[Class] = &[class("all", 1.0, 300)];
/// Half the work at each tier: 30 of 80 ms, or most would not be in time however few there are.
const TIGHT: &[Class] = &[Class { mean_us: MEAN_US / 2.0, ..class("all", 1.0, 80) }];
/// Between the service time and eight times that: a slow run cannot be in time, a fast one easily is.
const SLOWED: &[Class] = &[class("all", 1.0, 120)];
const BUDGETS: &[Class] =
    &[class("30 ms", 0.25, 30), class("100 ms", 0.25, 100), class("300 ms", 0.25, 300), class("1000 ms", 0.25, 1_000)];
const CLASSES: &[Class] = &[
    Class { name: "cheap", path: "/cheap", share: 0.9, mean_us: 5_000.0, sigma: 0.3, budget_ms: 300 },
    Class { name: "costly", path: "/costly", share: 0.1, mean_us: 55_000.0, sigma: 0.3, budget_ms: 300 },
];
const SPUN: &[Class] = &[Class { name: "all", path: "/work", share: 1.0, mean_us: 0.0, sigma: 0.0, budget_ms: 100 }];

impl Scenario {
    pub(crate) const ALL: [Self; 10] = [
        Self::Steps,
        Self::Spike,
        Self::Chain,
        Self::ChainTight,
        Self::Budgets,
        Self::Classes,
        Self::SlowDown,
        Self::Abandon,
        Self::Refusals,
        Self::Throttled,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Steps => "s1-steps",
            Self::Spike => "s1-3x",
            Self::Chain => "s2-300ms",
            Self::ChainTight => "s2-80ms",
            Self::Budgets => "s3-budgets",
            Self::Classes => "s4-classes",
            Self::SlowDown => "s5-slow",
            Self::Abandon => "s7-abandon",
            Self::Refusals => "s9-cpu",
            Self::Throttled => "s9-cpu-10x",
        }
    }

    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Steps => "one tier, 300 ms, at 0.8, 1.5, 3 and 10 times its capacity",
            Self::Spike => "one tier, 300 ms, 3 times its capacity",
            Self::Chain => "three tiers, 300 ms, 3 times their capacity, 3 tries at each hop",
            Self::ChainTight => "three tiers of 10 ms each, 80 ms, 3 times their capacity, 3 tries at each hop",
            Self::Budgets => "budgets of 30, 100, 300 and 1000 ms, 3 times the capacity",
            Self::Classes => "90 % at 5 ms and 10 % at 55 ms of work, 3 times the capacity",
            Self::SlowDown => "work that takes 8 times as long, 120 ms, at 0.7 of the capacity",
            Self::Abandon => "callers who leave after 100 ms and try again, 3 times the capacity",
            Self::Refusals => "1 ms of processor for each request, 3 and 6 times the capacity",
            Self::Throttled => "the same, 10 times; callers of ours hold back when refused",
        }
    }

    pub(crate) const fn is_chain(self) -> bool {
        matches!(self, Self::Chain | Self::ChainTight)
    }

    pub(crate) const fn tiers(self) -> usize {
        if self.is_chain() { TIERS } else { 1 }
    }

    pub(crate) const fn model(self) -> Model {
        match self {
            Self::Refusals | Self::Throttled => Model::Spin,
            _ => Model::Sleep,
        }
    }

    pub(crate) const fn slots(self) -> usize {
        match self.model() {
            Model::Sleep => SLOTS,
            Model::Spin => 1,
        }
    }

    pub(crate) const fn classes(self) -> &'static [Class] {
        match self {
            Self::Steps | Self::Spike | Self::Chain | Self::Abandon => WIDE,
            Self::ChainTight => TIGHT,
            Self::Budgets => BUDGETS,
            Self::Classes => CLASSES,
            Self::SlowDown => SLOWED,
            Self::Refusals | Self::Throttled => SPUN,
        }
    }

    /// The longest budget: what a fixed timeout has to be set to.
    pub(crate) fn longest(self) -> Duration {
        Duration::from_millis(self.classes().iter().map(|class| class.budget_ms).max().unwrap_or_default())
    }

    /// Which scenario's capacity is its: those with the same work share one.
    pub(crate) const fn calibrated_as(self) -> Self {
        match self {
            Self::Classes => Self::Classes,
            Self::ChainTight => Self::ChainTight,
            Self::Refusals | Self::Throttled => Self::Refusals,
            _ => Self::Spike,
        }
    }

    /// What its callers do, with this system.
    pub(crate) fn manners(self, system: System) -> Manners {
        let leaves = self == Self::Abandon;
        Manners {
            tries: 3,
            per_try: if leaves { Some(Duration::from_millis(100)) } else { system.per_try() },
            budget: system.budgets_retries(self),
            throttled: self == Self::Throttled && system.is_ours(),
            tells: system.told(),
            leaves_unannounced: leaves,
        }
    }

    pub(crate) fn phases(self, smoke: bool) -> Vec<Phase> {
        let scale = if smoke { SMOKE } else { 1.0 };
        let phase = |kind, seconds: f64, load, slower| Phase { kind, seconds: seconds * scale, load, slower };
        let around = |spike: Vec<Phase>| {
            let mut phases = vec![phase(Kind::Warm, 1.0, BASE, 1.0), phase(Kind::Before, WARM - 1.0, BASE, 1.0)];
            phases.extend(spike);
            phases.push(phase(Kind::After, AFTER, BASE, 1.0));
            phases
        };
        match self {
            Self::Steps => {
                let step = |load| phase(Kind::Spike, 4.0, load, 1.0);
                vec![phase(Kind::Warm, 2.0, BASE, 1.0), step(0.8), step(1.5), step(3.0), step(10.0)]
            }
            Self::SlowDown => around(vec![phase(Kind::Spike, 10.0, BASE, SLOWER)]),
            // Two loads, so that the difference shows what a refusal takes.
            Self::Refusals => around(vec![phase(Kind::Spike, SPIKE, 3.0, 1.0), phase(Kind::Spike, SPIKE, 6.0, 1.0)]),
            Self::Throttled => around(vec![phase(Kind::Spike, SPIKE, 10.0, 1.0)]),
            // Twice as long: a chain takes its time to fill, and that is a part of it.
            Self::Chain | Self::ChainTight => around(vec![phase(Kind::Spike, 2.0 * SPIKE, 3.0, 1.0)]),
            _ => around(vec![phase(Kind::Spike, SPIKE, 3.0, 1.0)]),
        }
    }

    /// All requests of a run: Poisson arrivals, at `capacity` requests a second times the load of the phase.
    pub(crate) fn plan(self, phases: &[Phase], capacity: f64, seed: u64) -> Vec<Planned> {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut planned, mut began) = (Vec::new(), 0.0);
        for (number, phase) in phases.iter().enumerate() {
            let Ok(gap) = Exp::new(capacity * phase.load) else { continue }; // a load of nothing
            let mut at = began;
            began += phase.seconds;
            loop {
                at += gap.sample(&mut random);
                if at >= began {
                    break;
                }
                planned.push(self.draw(&mut random, number, phase.slower, Duration::from_secs_f64(at)));
            }
        }
        planned
    }

    /// One request.
    pub(crate) fn draw(self, random: &mut StdRng, phase: usize, slower: f64, at: Duration) -> Planned {
        let mut at_most = random.random::<f64>();
        let mut number = 0;
        while number + 1 < self.classes().len() && at_most >= self.classes()[number].share {
            at_most -= self.classes()[number].share;
            number += 1;
        }
        let class = self.classes()[number];
        let mut work_us = [0; TIERS];
        for work in &mut work_us[..self.tiers()] {
            *work = match self.model() {
                Model::Sleep => (class.takes_us(random) * slower) as u32,
                Model::Spin => SPIN_US,
            };
        }
        Planned { at, phase, class: number, budget: Duration::from_millis(class.budget_ms), work_us }
    }
}

impl Class {
    fn takes_us(&self, random: &mut StdRng) -> f64 {
        // So that the mean is the mean whatever sigma is.
        let mu = self.mean_us.ln() - self.sigma * self.sigma / 2.0;
        LogNormal::new(mu, self.sigma).map_or(self.mean_us, |takes| takes.sample(random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_has_the_mean_that_it_should_have() {
        let mut random = StdRng::seed_from_u64(1);
        let mean = |scenario: Scenario, random: &mut StdRng| {
            let drawn = (0..20_000).map(|_| f64::from(scenario.draw(random, 0, 1.0, Duration::ZERO).work_us[0]));
            drawn.sum::<f64>() / 20_000.0
        };
        assert!((mean(Scenario::Spike, &mut random) / MEAN_US - 1.0).abs() < 0.03);
        assert!((mean(Scenario::Classes, &mut random) / 10_000.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn each_system_sees_the_same_requests() {
        let phases = Scenario::Chain.phases(true);
        let (one, other) = (Scenario::Chain.plan(&phases, 400.0, 7), Scenario::Chain.plan(&phases, 400.0, 7));
        assert!(one.len() > 500 && one.len() == other.len());
        assert!(one.iter().zip(&other).all(|(one, other)| one.at == other.at && one.work_us == other.work_us));
    }
}
