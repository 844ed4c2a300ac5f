//! All traces together, in bounded memory: sums by name, hop and pair of processes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use crate::findings::Evidence;
use crate::fingerprint::{Durations, Fingerprint};
use crate::open::{Dropped, Limits, Peak};
use crate::read::{Format, Problem};
use crate::skew::Skew;
use crate::trace::Trace;

/// Everything that was read, in sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Total {
    /// How many traces.
    pub traces: u64,
    /// How many spans they had.
    pub spans: u64,
    /// The elapsed time of all operations: of the traces, and those inside them that nobody waits for.
    pub elapsed_ns: u64,
    /// What of that no root covers.
    pub between_roots_ns: u64,
    /// Where the rest went, the largest share first. Beyond the bound on names the last one is `others`.
    pub names: Vec<NameTotal>,
    /// Spans that ran on after their parents had ended, proven.
    pub zombies: Count,
    /// Spans that did not even begin before, proven: never waited for.
    pub begun_after: Count,
    /// Spans that ended after their parent as recorded, which clock skew would explain.
    pub unproven: Count,
    /// Attempts after the first, and in how many traces; `ns` is what they had left together when they began.
    pub retries: Count,
    /// Hops that reset the clock.
    pub resets: Vec<Hop>,
    /// Calls that were cut off, and whose other side was never recorded.
    pub unrecorded: Count,
    /// Durations that look like timeouts.
    pub timeouts: Vec<Fingerprint>,
    /// Pairs of processes whose clocks are apart.
    pub skews: Vec<SkewTotal>,
    /// Spans by format.
    pub formats: BTreeMap<Format, u64>,
    /// What was odd: spans recorded twice, circles cut, parents missing, times missing, negative lengths.
    pub oddities: crate::tree::Oddities,
    /// What was left out to keep within the bounds.
    pub dropped: Dropped,
    /// How much was held at once.
    pub peak: Peak,
    /// How many bytes were read.
    pub bytes: u64,
    /// What could not be read, the first ones.
    pub problems: Vec<Problem>,
    /// How many there were.
    pub problem_count: u64,
    /// Sums that did not hold, the first ones. Empty, or a defect of this crate.
    pub wrong: Vec<String>,
}

/// How often, in how many traces, and how long together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How often.
    pub count: u64,
    /// In how many traces.
    pub traces: u64,
    /// How long, in nanoseconds.
    pub ns: u64,
}

/// One name, in all traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NameTotal {
    /// Where.
    pub service: String,
    /// What.
    pub name: String,
    /// How many spans.
    pub spans: u64,
    /// How many of them failed.
    pub errors: u64,
    /// The time that they account for themselves.
    pub own_ns: u64,
    /// The time that they ran on after their parents, proven.
    pub zombie_ns: u64,
    /// How many did.
    pub zombies: u64,
    /// How many were attempts after the first.
    pub retries: u64,
    /// The least that one of these had left when it began: of the budget, or until its parent ended.
    pub least_left_ns: Option<u64>,
}

/// A hop that reset the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The service above.
    pub from: String,
    /// The service.
    pub service: String,
    /// What it did.
    pub name: String,
    /// How often.
    pub count: u64,
    /// One case.
    pub example: Evidence,
    /// The trace it is from.
    pub trace: String,
}

/// What all traces say of one pair of clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkewTotal {
    /// The narrowest interval. Where `unsteady`, that of the last trace.
    #[serde(flatten)]
    pub skew: Skew,
    /// In how many traces the called one's clock had to be moved.
    pub moved: u64,
    /// The traces exclude each other: the offset changed.
    pub unsteady: bool,
}

/// Adds traces up.
pub(crate) struct Adding {
    limits: Limits,
    total: Total,
    names: HashMap<(String, String), (NameTotal, Durations)>,
    others: Option<NameTotal>,
    hops: BTreeMap<(String, String, String), Hop>,
    skews: BTreeMap<(String, String), SkewTotal>,
}

impl Adding {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            total: Total::default(),
            names: HashMap::new(),
            others: None,
            hops: BTreeMap::new(),
            skews: BTreeMap::new(),
        }
    }

    pub(crate) fn read(&mut self, format: Format) {
        *self.total.formats.entry(format).or_default() += 1;
    }

    pub(crate) fn bytes(&mut self, bytes: u64) {
        self.total.bytes = bytes;
    }

    pub(crate) fn problem(&mut self, problem: Problem) {
        self.total.problem_count += 1;
        if self.total.problems.len() < self.limits.problems {
            self.total.problems.push(problem);
        }
    }

    pub(crate) fn trace(&mut self, trace: &Trace) {
        let total = &mut self.total;
        total.traces += 1;
        total.elapsed_ns = total.elapsed_ns.saturating_add(trace.operations_ns());
        total.between_roots_ns = total.between_roots_ns.saturating_add(trace.between_roots_ns);
        let odd = &mut total.oddities;
        odd.duplicates += trace.oddities.duplicates;
        odd.circles += trace.oddities.circles;
        odd.missing_parents += trace.oddities.missing_parents;
        odd.without_time += trace.oddities.without_time;
        odd.negative += trace.oddities.negative;
        odd.dropped += trace.oddities.dropped;
        for wrong in &trace.wrong {
            if total.wrong.len() < 20 {
                total.wrong.push(format!("trace {}: {wrong}", trace.id));
            }
        }
        let number = total.traces;
        for row in &trace.spans {
            let known = self.name(&row.service, &row.name);
            known.0.own_ns = known.0.own_ns.saturating_add(row.unaccounted_ns);
            if row.id.is_empty() {
                continue;
            }
            known.0.spans += 1;
            known.0.errors += u64::from(row.error);
            if let Some(durations) = known.1 {
                durations.take(Duration::from_nanos(row.took_ns), row.error, number);
            }
            self.total.spans += 1;
        }
        self.findings(trace);
        self.clocks(trace);
    }

    fn findings(&mut self, trace: &Trace) {
        let (mut zombies, mut unproven, mut begun_after) = (Count::default(), Count::default(), Count::default());
        let mut retries = Count::default();
        for zombie in &trace.findings.zombies {
            if !zombie.ran_on() {
                let count = if zombie.began_after { &mut begun_after } else { &mut unproven };
                count.add(zombie.after_ns);
                continue;
            }
            zombies.add(zombie.after_ns);
            let row = &trace.spans[zombie.span];
            let (known, _) = self.name(&row.service, &row.name);
            known.zombies += 1;
            known.zombie_ns = known.zombie_ns.saturating_add(zombie.after_ns);
        }
        for retry in &trace.findings.retries {
            let left = retry.left_ns.unwrap_or(retry.until_parent_ended_ns);
            retries.add(left);
            let row = &trace.spans[retry.span];
            let (known, _) = self.name(&row.service, &row.name);
            known.retries += 1;
            known.least_left_ns = Some(known.least_left_ns.map_or(left, |least| least.min(left)));
        }
        let mut unrecorded = Count::default();
        trace.findings.unrecorded.iter().for_each(|found| unrecorded.add(found.waited_ns));
        self.total.zombies.trace(zombies);
        self.total.unproven.trace(unproven);
        self.total.begun_after.trace(begun_after);
        self.total.retries.trace(retries);
        self.total.unrecorded.trace(unrecorded);
        for reset in &trace.findings.resets {
            let row = &trace.spans[reset.span];
            let from = row.parent.map_or(String::new(), |parent| trace.spans[parent].service.clone());
            let key = (from.clone(), row.service.clone(), row.name.clone());
            if let Some(hop) = self.hops.get_mut(&key) {
                hop.count += 1;
            } else if self.hops.len() < self.limits.names {
                let (service, name) = (row.service.clone(), row.name.clone());
                let hop = Hop { from, service, name, count: 1, example: reset.evidence, trace: trace.id.clone() };
                self.hops.insert(key, hop);
            }
        }
    }

    fn clocks(&mut self, trace: &Trace) {
        for skew in &trace.skews {
            let key = (skew.from.clone(), skew.to.clone());
            let moved = u64::from(skew.added_ns != 0);
            if let Some(known) = self.skews.get_mut(&key) {
                known.moved += moved;
                let calls = known.skew.calls + skew.calls;
                let at_least = known.skew.at_least_ns.max(skew.at_least_ns);
                let at_most = match (known.skew.at_most_ns, skew.at_most_ns) {
                    (Some(known), Some(new)) => Some(known.min(new)),
                    (known, new) => known.or(new),
                };
                if at_most.is_some_and(|at_most| at_most < at_least) {
                    known.unsteady = true;
                    known.skew = skew.clone();
                } else {
                    (known.skew.at_least_ns, known.skew.at_most_ns) = (at_least, at_most);
                }
                known.skew.calls = calls;
            } else if self.skews.len() < self.limits.names {
                self.skews.insert(key, SkewTotal { skew: skew.clone(), moved, unsteady: false });
            }
        }
    }

    fn name(&mut self, service: &str, name: &str) -> (&mut NameTotal, Option<&mut Durations>) {
        let key = (service.to_owned(), name.to_owned());
        if self.names.len() >= self.limits.names && !self.names.contains_key(&key) {
            let others = || NameTotal { name: "others".to_owned(), ..NameTotal::default() };
            return (self.others.get_or_insert_with(others), None);
        }
        let (total, durations) = self.names.entry(key).or_insert_with_key(|(service, name)| {
            let total = NameTotal { service: service.clone(), name: name.clone(), ..NameTotal::default() };
            (total, Durations::default())
        });
        (total, Some(durations))
    }

    pub(crate) fn end(self, dropped: Dropped, peak: Peak) -> Total {
        let mut total = Total { dropped, peak, ..self.total };
        for (name, durations) in self.names.values() {
            total.timeouts.extend(durations.fingerprints(&name.service, &name.name));
        }
        total.timeouts.sort_by_key(|timeout| (Reverse(timeout.spans), timeout.service.clone(), timeout.name.clone()));
        total.names = self.names.into_values().map(|(name, _)| name).collect();
        total.names.sort_by_key(|name| (Reverse(name.own_ns), name.service.clone(), name.name.clone()));
        total.names.extend(self.others);
        total.resets = self.hops.into_values().collect();
        total.resets.sort_by_key(|hop| Reverse(hop.count));
        total.skews = self.skews.into_values().collect();
        total
    }
}

impl Count {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }

    /// Takes in what one trace has.
    fn trace(&mut self, of: Self) {
        self.count += of.count;
        self.traces += u64::from(of.count > 0);
        self.ns = self.ns.saturating_add(of.ns);
    }
}
