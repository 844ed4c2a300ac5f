//! The figures of the spike, as they are printed.

use std::time::Duration;

use serde::Serialize;

use super::Spike;
use super::load::{Board, Got};
use super::tier::Tiers;
use crate::report::{percentile, rounded};

/// The spike, both ways.
#[derive(Clone, Debug, Serialize)]
pub struct Overload {
    /// Its name.
    pub name: &'static str,
    /// How many taps a second the shop can serve, in theory.
    pub capacity_per_second: f64,
    /// How long the user waits.
    pub patience_ms: u64,
    /// The seconds before the spike, those of it, and those that are watched after it.
    pub seconds: [u32; 3],
    /// With independent timeouts.
    pub independent: Course,
    /// With one budget.
    pub propagated: Course,
}

/// One way of running the chain.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// Second by second. A tap counts for the second in which it was due, whenever it is answered.
    pub seconds: Vec<Second>,
    /// How many tapped.
    pub taps: usize,
    /// Those answered within the time that the user gives them.
    pub answers_in_time: usize,
    /// Those answered later, in one of the app's further tries.
    pub answers_late: usize,
    /// Those that were told no while their user still waited.
    pub refused: usize,
    /// After how long they were told so: the median.
    pub refused_after_ms_p50: u64,
    /// Those that heard nothing in that time, or nothing at all.
    pub unanswered: usize,
    /// In-time answers a second.
    pub in_time_per_second: PerSecond,
    /// How long all places together were at work.
    pub work_seconds: f64,
    /// How much of that was for a try that got no answer in time: work for nobody.
    pub wasted_work_seconds: f64,
    /// How often each service was asked for one tap.
    pub calls_per_tap: CallsPerTap,
    /// How many seconds after the spike it was answering as before: in that second and in the next at least nineteen of
    /// twenty of the share that was answered in time before. `None` if it did not come back while it was watched.
    pub recovered_after_seconds: Option<u32>,
}

/// One second of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Second {
    /// How many should come, by how many the shop can serve.
    pub load: f64,
    /// How many came.
    pub taps: usize,
    /// How many of them were answered in time.
    pub answers_in_time: usize,
    /// How many of them were told no while their user still waited.
    pub refused: usize,
}

/// A mean for each phase.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PerSecond {
    /// Before the spike.
    pub before: f64,
    /// During it.
    pub spike: f64,
    /// After it.
    pub after: f64,
}

/// Arrivals at each service, by taps: what retries make of a load, and refusals spare.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CallsPerTap {
    /// At the gateway.
    pub gateway: f64,
    /// At the order service.
    pub order: f64,
    /// At pricing.
    pub pricing: f64,
}

/// As good as before: nineteen of twenty.
const AS_BEFORE: f64 = 0.95;

// === Overload ===

impl Overload {
    pub(super) fn of(spike: &Spike, independent: Course, propagated: Course) -> Self {
        Self {
            name: Spike::NAME,
            capacity_per_second: rounded(spike.capacity()),
            patience_ms: u64::try_from(spike.patience.as_millis()).unwrap_or(u64::MAX),
            seconds: spike.seconds,
            independent,
            propagated,
        }
    }
}

// === Course ===

impl Course {
    pub(super) fn of(spike: &Spike, board: &Board, tiers: &Tiers) -> Self {
        let all: Vec<Got> = (0..board.taps()).map(|index| board.got(index)).collect();
        let count = |which: fn(&Got) -> bool| all.iter().filter(|got| which(got)).count();
        let good = |tap: usize, number: u32| all.get(tap) == Some(&Got::InTime { number });
        let (work, wasted) = tiers.worked(good);
        let calls = tiers.all().each_ref().map(|tier| rounded(tier.arrived() as f64 / all.len().max(1) as f64));
        let seconds = board.seconds();
        let [before, during, after] = phases(spike, &seconds).map(|phase| {
            let answers: usize = phase.iter().map(|second| second.answers_in_time).sum();
            rounded(answers as f64 / phase.len().max(1) as f64)
        });
        Self {
            taps: all.len(),
            answers_in_time: count(|got| matches!(got, Got::InTime { .. })),
            answers_late: count(|got| *got == Got::Late),
            refused: count(|got| *got == Got::Refused),
            refused_after_ms_p50: percentile(&board.waits_for_a_no(), 0.5),
            unanswered: count(|got| *got == Got::Nothing),
            in_time_per_second: PerSecond { before, spike: during, after },
            work_seconds: seconds_of(work),
            wasted_work_seconds: seconds_of(wasted),
            calls_per_tap: CallsPerTap { gateway: calls[0], order: calls[1], pricing: calls[2] },
            recovered_after_seconds: recovered(spike, &seconds),
            seconds,
        }
    }

    /// Which part of its work was for nobody, in percent.
    pub fn wasted_percent(&self) -> f64 {
        if self.work_seconds > 0.0 { self.wasted_work_seconds / self.work_seconds * 100.0 } else { 0.0 }
    }
}

/// Before, during and after the spike.
fn phases<'a>(spike: &Spike, seconds: &'a [Second]) -> [&'a [Second]; 3] {
    let [before, during, _] = spike.seconds.map(|seconds| seconds as usize);
    let (first, rest) = seconds.split_at(before.min(seconds.len()));
    let (second, third) = rest.split_at(during.min(rest.len()));
    [first, second, third]
}

fn recovered(spike: &Spike, seconds: &[Second]) -> Option<u32> {
    let share = |seconds: &[Second]| {
        let sum = |of: fn(&Second) -> usize| seconds.iter().map(of).sum::<usize>() as f64;
        sum(|second| second.answers_in_time) / sum(|second| second.taps).max(1.0)
    };
    let [before, _, after] = phases(spike, seconds);
    let enough = AS_BEFORE * share(before);
    let good = |second: &Second| share(std::slice::from_ref(second)) >= enough;
    after.windows(2).position(|pair| pair.iter().all(good)).and_then(|second| u32::try_from(second).ok())
}

fn seconds_of(span: Duration) -> f64 {
    rounded(span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_recovered_when_two_seconds_in_a_row_are_as_good_as_before() {
        let spike = Spike { seconds: [2, 1, 4], ..Spike::default() };
        let after = |answers: [usize; 4]| {
            let all = [100, 100, 0].into_iter().chain(answers);
            let seconds: Vec<Second> =
                all.map(|answers_in_time| Second { taps: 100, answers_in_time, ..Second::default() }).collect();
            recovered(&spike, &seconds)
        };
        assert_eq!(after([95, 100, 0, 0]), Some(0));
        assert_eq!(after([94, 100, 100, 0]), Some(1));
        assert_eq!(after([100, 0, 100, 0]), None, "one good second is none");
        assert_eq!(after([0, 0, 0, 100]), None, "it is not known how the next one is");
    }
}
