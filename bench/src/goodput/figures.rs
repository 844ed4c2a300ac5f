//! What a run says: every figure from what callers saw and what the servers did. Decides nothing about good and bad.

use serde::Serialize;

use crate::caller::Came;
use crate::load::{Load, Seen};
use crate::meter::Done;
use crate::scenario::{Kind, Phase, Scenario};
use crate::tag::TIERS;
use crate::tier::Model;

/// A service is back to normal when it succeeds this often, relative to before, for this many seconds in a row.
const NORMAL: f64 = 0.95;
const NORMAL_SECONDS: usize = 2;
/// With fewer refusals a second than this nothing is said of their cost.
const FEW: f64 = 50.0;

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    /// In time, per second, in units of the capacity; with the physical limit. One for each load that was tried.
    pub(crate) goodput: Vec<Goodput>,
    /// The share in time at the base load before the spike, or at 0.8 where there are steps.
    pub(crate) base: f64,
    /// Of the work for requests of the spike, the share that was for none that succeeded.
    pub(crate) wasted: f64,
    /// How often each tier was asked for each request of the spike.
    pub(crate) asked: Vec<f64>,
    /// Seconds after the spike until it is back to normal. `None`: not while anybody looked; not a number: nobody did.
    pub(crate) recovery: Option<f64>,
    pub(crate) ok_ms: Quantiles,
    pub(crate) refused_ms: Quantiles,
    pub(crate) classes: Vec<OfClass>,
    /// Processor time of the servers for one answer in time at the base load, and for one refusal: for work that spins, what
    /// one more takes; at one load only, all that is not work for each that arrives, so at most.
    pub(crate) cpu_ok_us: f64,
    pub(crate) cpu_refused_us: f64,
    /// Work that came to its end for nobody.
    pub(crate) for_nobody: u64,
    /// Of all requests, how late the generator was with one in a hundred.
    pub(crate) late_p99_ms: f64,
    /// Each second: offered, and answered in time.
    pub(crate) seconds: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Goodput {
    pub(crate) load: f64,
    pub(crate) ratio: f64,
    /// The same in work instead of requests.
    pub(crate) work: f64,
    pub(crate) limit: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// In the spike.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OfClass {
    pub(crate) name: &'static str,
    pub(crate) in_time: f64,
    /// Relative to what all requests together get: 1 is neutral.
    pub(crate) share: f64,
}

impl Figures {
    pub(crate) fn of(scenario: Scenario, phases: &[Phase], capacity: f64, load: &Load, done: &Done) -> Self {
        let run = Run { scenario, phases, capacity, load, done };
        let (cpu_ok_us, cpu_refused_us) = run.cpu();
        Self {
            goodput: run.goodput(cpu_refused_us),
            base: share(run.of_phase(run.quiet())),
            wasted: run.wasted(),
            asked: run.asked(),
            recovery: run.recovery(),
            ok_ms: quantiles(run.spike().filter(|seen| in_time(seen)).map(|seen| seen.took_us as f64)),
            refused_ms: quantiles(run.spike().flat_map(|seen| seen.call.refused_us.iter().map(|us| f64::from(*us)))),
            classes: run.classes(),
            cpu_ok_us,
            cpu_refused_us,
            for_nobody: done.for_nobody,
            late_p99_ms: quantiles(load.seen.iter().map(|seen| seen.late_us as f64)).p99,
            seconds: run.seconds(),
        }
    }
}

/// Per second.
struct Costs {
    cpu_us: f64,
    worked_us: f64,
    answered: f64,
    refused: f64,
    arrived: f64,
}

impl Costs {
    /// All that is not work.
    fn other_us(&self) -> f64 {
        self.cpu_us - self.worked_us
    }
}

struct Run<'r> {
    scenario: Scenario,
    phases: &'r [Phase],
    capacity: f64,
    load: &'r Load,
    done: &'r Done,
}

impl<'r> Run<'r> {
    fn of_phase(&self, number: usize) -> impl Iterator<Item = &'r Seen> {
        self.load.seen.iter().filter(move |seen| seen.planned.phase == number)
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &'r Seen> {
        let phases = self.phases;
        self.load.seen.iter().filter(move |seen| phases[seen.planned.phase].kind == kind)
    }

    fn spike(&self) -> impl Iterator<Item = &'r Seen> {
        self.of_kind(Kind::Spike)
    }

    /// The phase whose success is called the base.
    fn quiet(&self) -> usize {
        let before = self.phases.iter().position(|phase| phase.kind == Kind::Before);
        before.or_else(|| self.phases.iter().position(|phase| phase.kind == Kind::Spike)).unwrap_or_default()
    }

    fn goodput(&self, cpu_refused_us: f64) -> Vec<Goodput> {
        let mut began = 0.0;
        let phases = self.phases.iter().enumerate().map(|(number, phase)| {
            began += phase.seconds;
            (number, phase, began - phase.seconds)
        });
        let spikes = phases.filter(|(_, phase, _)| phase.kind == Kind::Spike).map(|(number, phase, began)| {
            let whole = self.capacity / phase.slower * phase.seconds;
            // What is answered while the phase lasts, whenever it was asked: long budgets reach over its end.
            let during = |seen: &&Seen| (began..began + phase.seconds).contains(&ended(seen));
            let answered = || self.load.seen.iter().filter(|seen| in_time(seen)).filter(during);
            let mean = mean(self.of_phase(number).map(work));
            let arrived: u32 = self.of_phase(number).map(|seen| seen.call.tries).sum();
            Goodput {
                load: phase.load,
                ratio: answered().count() as f64 / whole,
                work: answered().map(work).sum::<f64>() / (mean * whole),
                limit: self.limit(f64::from(arrived) / whole, cpu_refused_us).min(phase.load * phase.slower),
            }
        });
        spikes.collect()
    }

    /// What no control can exceed when this many requests arrive for each that could be served: refusing them takes the
    /// processor that the work needs, where it does.
    fn limit(&self, arriving: f64, refusal_us: f64) -> f64 {
        match self.scenario.model() {
            Model::Sleep => 1.0,
            Model::Spin => {
                let part = refusal_us / mean(self.spike().map(work));
                ((1.0 - part * arriving) / (1.0 - part)).clamp(0.0, 1.0)
            }
        }
    }

    fn wasted(&self) -> f64 {
        let (mut all, mut useful) = (0.0, 0.0);
        for seen in self.spike() {
            let worked = self.done.requests.get(&seen.id).map_or(0.0, |of| of.worked_us as f64);
            all += worked;
            useful += if in_time(seen) { worked.min(work(seen)) } else { 0.0 };
        }
        if all > 0.0 { 1.0 - useful / all } else { 0.0 }
    }

    fn asked(&self) -> Vec<f64> {
        let mut asked = [0_u32; TIERS];
        let mut offered = 0_u32;
        for seen in self.spike() {
            offered += 1;
            asked[0] += seen.call.tries;
            let below = self.done.requests.get(&seen.id).map_or([0; TIERS], |of| of.asked);
            asked.iter_mut().zip(below).skip(1).for_each(|(asked, below)| *asked += below);
        }
        asked[..self.scenario.tiers()].iter().map(|asked| f64::from(*asked) / f64::from(offered.max(1))).collect()
    }

    fn recovery(&self) -> Option<f64> {
        let before = share(self.of_phase(self.quiet()));
        let until = |kind| {
            let phases = self.phases.iter().take_while(|phase| phase.kind != kind);
            phases.map(|phase| phase.seconds).sum::<f64>()
        };
        let ended = until(Kind::After);
        let second = |number: usize| {
            let from = ended + number as f64;
            share(self.of_kind(Kind::After).filter(|seen| {
                let at = seen.planned.at.as_secs_f64();
                at >= from && at < from + 1.0
            }))
        };
        let after: f64 = self.phases.iter().filter(|phase| phase.kind == Kind::After).map(|phase| phase.seconds).sum();
        let normal: Vec<bool> = (0..after as usize).map(|number| second(number) >= NORMAL * before).collect();
        if normal.len() < NORMAL_SECONDS {
            return Some(f64::NAN); // nobody looked for long enough
        }
        normal
            .windows(NORMAL_SECONDS)
            .position(|seconds| seconds.iter().all(|normal| *normal))
            .map(|second| second as f64)
    }

    fn classes(&self) -> Vec<OfClass> {
        let all = share(self.spike());
        let classes = self.scenario.classes().iter().enumerate().map(|(number, class)| {
            let in_time = share(self.spike().filter(|seen| seen.planned.class == number));
            OfClass { name: class.name, in_time, share: if all > 0.0 { in_time / all } else { 0.0 } }
        });
        classes.collect()
    }

    /// For one in time, and for one refused.
    fn cpu(&self) -> (f64, f64) {
        let quiet = self.costs(self.quiet());
        let spikes = self.phases.iter().enumerate().filter(|(_, phase)| phase.kind == Kind::Spike);
        let spikes: Vec<Costs> = spikes.map(|(number, _)| self.costs(number)).collect();
        let ok = quiet.cpu_us / quiet.answered.max(1.0);
        let (Some(first), Some(last)) = (spikes.first(), spikes.last()) else { return (ok, 0.0) };
        if last.refused < FEW {
            return (ok, 0.0);
        }
        let refused = match self.scenario.model() {
            Model::Sleep => (last.cpu_us - last.answered * ok) / last.refused,
            // At two loads that both use all there is, the difference is what the refusals took.
            Model::Spin if spikes.len() > 1 => {
                (last.other_us() - first.other_us()) / (last.refused - first.refused).max(1.0)
            }
            Model::Spin => last.other_us() / last.arrived.max(1.0),
        };
        (ok, refused.max(0.0))
    }

    /// What a phase took.
    fn costs(&self, number: usize) -> Costs {
        let worked =
            self.of_phase(number).filter_map(|seen| self.done.requests.get(&seen.id)).map(|of| of.worked_us as f64);
        let count = |of: fn(&Seen) -> u32| f64::from(self.of_phase(number).map(of).sum::<u32>());
        let seconds = self.phases.get(number).map_or(1.0, |phase| phase.seconds);
        let used = self.load.cpu.get(number).map_or(0.0, |used| used.as_secs_f64() * 1e6);
        Costs {
            cpu_us: used / seconds,
            worked_us: worked.sum::<f64>() / seconds,
            answered: count(|seen| u32::from(in_time(seen))) / seconds,
            refused: count(|seen| u32::try_from(seen.call.refused_us.len()).unwrap_or(u32::MAX)) / seconds,
            arrived: count(|seen| seen.call.tries) / seconds,
        }
    }

    fn seconds(&self) -> Vec<(u32, u32)> {
        let whole: f64 = self.phases.iter().map(|phase| phase.seconds).sum();
        let mut seconds = vec![(0, 0); whole.ceil() as usize];
        for seen in &self.load.seen {
            if let Some((offered, _)) = seconds.get_mut(seen.planned.at.as_secs() as usize) {
                *offered += 1;
            }
            if let Some((_, answered)) = seconds.get_mut(ended(seen) as usize) {
                *answered += u32::from(in_time(seen));
            }
        }
        seconds
    }
}

fn in_time(seen: &Seen) -> bool {
    seen.call.came == Came::InTime
}

/// In seconds from the beginning.
fn ended(seen: &Seen) -> f64 {
    seen.planned.at.as_secs_f64() + seen.took_us as f64 / 1e6
}

/// In microseconds, over all tiers.
fn work(seen: &Seen) -> f64 {
    seen.planned.work_us.iter().map(|us| f64::from(*us)).sum()
}

fn share<'s>(of: impl Iterator<Item = &'s Seen>) -> f64 {
    let (mut all, mut good) = (0_u32, 0_u32);
    for seen in of {
        all += 1;
        good += u32::from(in_time(seen));
    }
    if all == 0 { 0.0 } else { f64::from(good) / f64::from(all) }
}

fn mean(of: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = of.fold((0_u32, 0.0), |(count, sum), one| (count + 1, sum + one));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// Of microseconds, in milliseconds.
fn quantiles(of: impl Iterator<Item = f64>) -> Quantiles {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    let at = |quantile: f64| all.get(((all.len() as f64 * quantile) as usize).min(all.len().saturating_sub(1)));
    let at = |quantile| at(quantile).map_or(0.0, |us| us / 1_000.0);
    Quantiles { p50: at(0.5), p99: at(0.99) }
}

#[cfg(test)]
mod tests;
