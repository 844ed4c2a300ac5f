//! Timeouts that nobody told us of: many durations just above one round number, and few around it.
//!
//! Decides what is a round number, what is just above it (a timer fires late, never early), and when there are enough.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// A round time that spans of one name took again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fingerprint {
    /// Where.
    pub service: String,
    /// What.
    pub name: String,
    /// The round time: the timeout, if it is one.
    pub round_ns: u64,
    /// How many spans took that long.
    pub spans: u64,
    /// Of how many, of that name.
    pub of: u64,
    /// In how many traces.
    pub traces: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The shortest and the longest of them.
    pub from_ns: u64,
    /// See above.
    pub to_ns: u64,
}

/// The mantissas of what people configure.
const MANTISSAS: [u64; 12] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 80, 90];
/// From 100 ms on, and 50 ms; what is shorter is nobody's timeout. Up to a day.
const SCALES_MS: [u64; 6] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
/// So many spans, in as many traces, are more than chance.
const ENOUGH: u64 = 3;

/// The very round number that this duration is just above, if any: for a single span, so it must not be met by chance. Of
/// durations that are spread evenly over orders of magnitude, fewer than one in a hundred is that near to one.
pub(crate) fn very_round_below(took: Duration) -> Option<Duration> {
    const MANTISSAS: [u64; 6] = [10, 15, 20, 30, 50, 60];
    let rounds = SCALES_MS.iter().flat_map(|scale| MANTISSAS.map(|mantissa| Duration::from_millis(mantissa * scale)));
    let late = |round: Duration| Duration::from_millis(2).min(round / 100).max(round / 500);
    rounds.into_iter().find(|round| (*round..=*round + late(*round)).contains(&took))
}

fn rounds() -> impl Iterator<Item = Duration> {
    let decimal = SCALES_MS.iter().flat_map(|scale| MANTISSAS.iter().map(move |mantissa| mantissa * scale));
    decimal.chain([50, 180_000, 3_600_000]).map(Duration::from_millis)
}

/// How late a timer, and the answer that it caused, may be.
fn late(round: Duration) -> Duration {
    Duration::from_millis(2) + round / 200
}

/// The durations of one name, as far as they are near a round number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    all: u64,
    near: BTreeMap<Duration, Near>,
}

#[derive(Clone, Debug, Default)]
struct Near {
    on: u64,
    failed: u64,
    around: u64,
    traces: u64,
    last_trace: u64,
    from: u64,
    to: u64,
}

impl Durations {
    /// Takes in one span of the trace with this number.
    pub(crate) fn take(&mut self, took: Duration, failed: bool, trace: u64) {
        self.all += 1;
        for round in rounds() {
            let late = late(round);
            if took < round.saturating_sub(late * 2) || took > round + late * 3 {
                continue;
            }
            let near = self.near.entry(round).or_default();
            if !(round..=round + late).contains(&took) {
                near.around += 1;
                continue;
            }
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            (near.from, near.to) =
                if near.on == 0 { (nanos, nanos) } else { (near.from.min(nanos), near.to.max(nanos)) };
            near.on += 1;
            near.failed += u64::from(failed);
            if near.last_trace != trace {
                (near.traces, near.last_trace) = (near.traces + 1, trace);
            }
        }
    }

    /// Those that stand out: enough of them, and at least as many as in the surroundings, which are four times as wide.
    pub(crate) fn fingerprints(&self, service: &str, name: &str) -> Vec<Fingerprint> {
        let stands_out = |near: &Near| near.on >= ENOUGH && near.traces >= ENOUGH && near.on >= near.around.max(1);
        let found = self.near.iter().filter(|(_, near)| stands_out(near)).map(|(round, near)| Fingerprint {
            service: service.to_owned(),
            name: name.to_owned(),
            round_ns: u64::try_from(round.as_nanos()).unwrap_or(u64::MAX),
            spans: near.on,
            of: self.all,
            traces: near.traces,
            failed: near.failed,
            from_ns: near.from,
            to_ns: near.to,
        });
        found.collect()
    }
}
