//! A service as Prometheus would see it: what comes in, what runs out of time, what goes on, step by step.
//!
//! Decides the series. Which alerts should fire on them `fires` says, from the same figures.

use std::collections::BTreeMap;

use oneclock_core::admission::Why;
use oneclock_core::{BoundBy, Cause, Reason, Stage};
use oneclock_telemetry::names::{
    ANSWERED, BUDGET_AT_ARRIVAL, CALL_SECONDS, CALLS, CANCELLATIONS, CANCELLED, DEADLINE_EXCEEDED, EXPIRED, MISSING,
    Metric, NONE, NOT_ADMITTED, OPERATION_SECONDS, OPERATIONS, OVERFLOW, RAN_ON, RETRIES, ZOMBIES,
};

use super::{InputSeries, Millis};
use crate::policy::{Label, Layer, Policy, Span};

mod fires;
mod time;

/// A stretch of time in which everything goes on evenly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) steps: u64,
    /// Requests in each step.
    pub(super) requests: f64,
    /// The part of them that runs out of time.
    pub(super) late: f64,
}

#[derive(Clone, Debug)]
pub(super) struct World<'a> {
    policy: &'a Policy,
    pub(super) phases: Vec<Phase>,
    /// What had made the deadline of those that run out of time, and how long it was.
    pub(super) bound: BoundBy,
    pub(super) late_budget: f64,
    /// Whether handlers notice before their own deadline, so that their operations end well.
    pub(super) says_so: bool,
    /// Whether as many came too late, and were refused.
    pub(super) refused: bool,
    /// Whether as many streams reached their total limit.
    pub(super) streams: bool,
    /// Attempts per first attempt; there is one call for each request.
    pub(super) attempts: f64,
    pub(super) zombies: Option<(Layer, u32)>,
    /// Early ends that handlers see in each step, the part of them that the database sees, and the part of the time that is
    /// spent there.
    pub(super) ends: f64,
    pub(super) seen: f64,
    /// The part of them that a service sees that is called as well.
    pub(super) seen_elsewhere: f64,
    pub(super) share: f64,
    /// The parts of them that ended in the body, out of time and left by their caller, and the part whose steps ran on by
    /// declaration.
    pub(super) in_body: f64,
    pub(super) left_in_body: f64,
    pub(super) must_finish: f64,
    /// The part of the requests in time that comes without a deadline.
    pub(super) missing: f64,
    /// Where as many again come without one, by labels of the policy's.
    pub(super) edge: Option<&'a BTreeMap<Label, String>>,
    /// How many operations are counted without their name in each step, if any ever were.
    pub(super) unnamed: Option<f64>,
    /// For each request that was accepted, how many were refused a place as they arrived, and the part of those that was needed;
    /// and the part of the accepted ones that was dropped from the queue.
    pub(super) shed_at_arrival: f64,
    pub(super) shed_required: f64,
    pub(super) shed_in_queue: f64,
}

/// How many of something there are in each step of a phase.
type Count<'a> = &'a dyn Fn(&Phase) -> f64;

/// What requests usually take, in seconds, and two budgets: one in which that fits, and one in which it does not.
const USUAL: f64 = 0.05;
const LONG: f64 = 0.8;
pub(super) const SHORT: f64 = 0.005;
/// Edges between these.
const EDGES: &[(f64, &str)] = &[(0.01, "0.01"), (0.1, "0.1"), (1.0, "1"), (f64::INFINITY, "+Inf")];

/// What the service offers.
const ROUTE: [(&str, &str); 2] = [("operation", "order"), ("route", "/orders")];

/// Something else that it offers, or another service, as an edge's labels say.
fn at(edge: &BTreeMap<Label, String>) -> BTreeMap<&str, &str> {
    let mut labels = BTreeMap::from([("operation", "webhook"), ("route", "/webhook")]);
    labels.extend(edge.iter().map(|(label, value)| (label.as_str(), value.as_str())));
    labels
}

/// Further above a threshold than rounding.
const ABOVE: f64 = 1.37;

impl<'a> World<'a> {
    pub(super) fn healthy(policy: &'a Policy) -> Self {
        let mut world = Self {
            policy,
            phases: Vec::new(),
            bound: BoundBy::Caller,
            late_budget: LONG,
            says_so: false,
            refused: false,
            streams: false,
            attempts: 1.0,
            zombies: None,
            ends: 0.0,
            seen: 1.0,
            seen_elsewhere: 0.0,
            share: 1.0,
            in_body: 0.0,
            left_in_body: 0.0,
            must_finish: 0.0,
            missing: policy.deadline_missing.warn.fraction() / 2.0,
            edge: None,
            unnamed: None,
            shed_at_arrival: 0.0,
            shed_required: 1.0,
            shed_in_queue: 0.0,
        };
        // Twice as many as are needed, in the shortest window and in all the time together.
        let steps = world.whole();
        let of_window = |minimum: u32, window: Span| f64::from(minimum) / world.steps_in(window);
        let least = [
            of_window(policy.minimum, policy.timeouts.window),
            of_window(policy.minimum, policy.retries.window),
            of_window(policy.minimum, policy.deadline_missing.window),
            of_window(policy.minimum, policy.shedding.window),
            f64::from(policy.calibration.minimum.max(policy.minimum)) / steps as f64,
        ];
        let requests = 2.0 * least.into_iter().fold(0.0, f64::max);
        let late = world.thresholds().into_iter().fold(1.0, f64::min) / 2.0;
        world.phases = vec![Phase { steps, requests, late }];
        world
    }

    // --- changes ---

    /// So many run out of time, or a little more.
    pub(super) fn late(&mut self, threshold: f64) {
        let mut late = if threshold < 0.5 { threshold * ABOVE } else { threshold };
        while self.thresholds().iter().any(|other| (late / other - 1.0).abs() < 0.02) {
            late *= 1.05; // so near that rounding would decide
        }
        self.phases.iter_mut().for_each(|phase| phase.late = late.min(1.0));
    }

    /// Fewer requests, in all the time, than the least minimum.
    pub(super) fn sparse(&mut self) {
        let least = self.policy.minimum.min(self.policy.calibration.minimum);
        let steps = self.steps() as f64;
        self.phases.iter_mut().for_each(|phase| phase.requests = 0.4 * f64::from(least) / steps);
    }

    pub(super) fn attempts_above(&self) -> f64 {
        self.policy.retries.amplification.of_one() * ABOVE
    }

    pub(super) fn enough_ends(&self) -> f64 {
        2.0 * f64::from(self.policy.propagation.minimum) / self.steps_in(self.policy.propagation.window)
    }

    /// Half way from the threshold to all of them.
    pub(super) fn missing_above(&self) -> f64 {
        f64::midpoint(self.policy.deadline_missing.warn.fraction(), 1.0)
    }

    /// For each accepted one so many that the share of all of them is a little above the threshold.
    pub(super) fn shed_above(&self) -> f64 {
        let share = (self.policy.shedding.warn.fraction() * ABOVE).min(0.9);
        share / (1.0 - share)
    }

    // --- the series ---

    pub(super) fn series(&self) -> Vec<InputSeries> {
        let mut series = Vec::new();
        let each = |of: &dyn Fn(&Phase) -> f64| self.counter(of);
        let mut put = |selector: String, values: String| series.push(InputSeries { series: selector, values });

        let route = ROUTE;
        let late_bound = self.bound.as_str();
        let in_time: Count<'_> = &|phase| phase.requests * (1.0 - phase.late);
        let told: Count<'_> = &|phase| in_time(phase) * (1.0 - self.missing);
        let silent: Count<'_> = &|phase| in_time(phase) * self.missing;
        let late: Count<'_> = &|phase| phase.requests * phase.late;

        // Those in time have the long budget of a caller, and take what is usual. Those that are late take what they had.
        let mut budgets = BTreeMap::new();
        let (caller, absent) = (BoundBy::Caller.as_str(), BoundBy::Absent.as_str());
        for (of, bound, budget) in [(told, caller, LONG), (silent, absent, LONG), (late, late_bound, self.late_budget)]
        {
            budgets.entry(bound).or_insert_with(Vec::new).push((of, budget));
        }
        for (bound, of) in budgets {
            let labels = [&route[..], &[("bound", bound)]].concat();
            self.histogram(&BUDGET_AT_ARRIVAL, &labels, &of, &mut put);
        }
        put(self.selector(&MISSING, "", &route), each(silent));
        if let Some(edge) = self.edge {
            let here = at(edge);
            let here: Vec<_> = here.iter().map(|(label, value)| (*label, *value)).collect();
            let all: Count<'_> = &|phase| phase.requests / (1.0 - self.policy.deadline_missing.warn.fraction());
            put(self.selector(&MISSING, "", &here), each(all));
            self.histogram(&BUDGET_AT_ARRIVAL, &[&here[..], &[("bound", absent)]].concat(), &[(all, LONG)], &mut put);
        }
        let took = self.late_budget * 1.01;
        if OPERATION_SECONDS.labels.contains(&"cause") {
            let deadline = Cause::Deadline.as_str();
            for (of, cause, seconds) in [(in_time, NONE, USUAL), (late, deadline, took)] {
                self.histogram(
                    &OPERATION_SECONDS,
                    &[&route[..], &[("cause", cause)]].concat(),
                    &[(of, seconds)],
                    &mut put,
                );
            }
        } else {
            self.histogram(&OPERATION_SECONDS, &route, &[(in_time, USUAL), (late, took)], &mut put);
        }

        if !self.says_so {
            let labels = [&route[..], &[("bound", late_bound), ("stage", Stage::Wait.as_str())]].concat();
            put(self.selector(&DEADLINE_EXCEEDED, "", &labels), each(late));
        }
        let labels = [&route[..], &[("reason", Reason::Deadline.as_str())]].concat();
        put(self.selector(&ANSWERED, "", &labels), each(late));

        if self.streams {
            let own = [("bound", BoundBy::Cap.as_str()), ("stage", Stage::Body.as_str())];
            put(self.selector(&DEADLINE_EXCEEDED, "", &[&route[..], &own].concat()), each(&|phase| phase.requests));
        }
        if self.refused {
            let all: Count<'_> = &|phase| phase.requests;
            for reason in [Reason::ExpiredBeforeStart, Reason::InsufficientBudget] {
                put(self.selector(&ANSWERED, "", &[&route[..], &[("reason", reason.as_str())]].concat()), each(all));
            }
            let labels = [&route[..], &[("stage", Stage::Arrival.as_str())]].concat();
            put(self.selector(&EXPIRED, "", &labels), each(all));
        }

        let database = [("dependency", "stock"), ("layer", "database")];
        let calls = [&database[..], &[("outcome", "applied")]].concat();
        put(self.selector(&CALLS, "", &calls), each(&|phase| phase.requests * self.attempts));
        let retries = [("dependency", "stock"), ("kind", "retry")];
        put(self.selector(&RETRIES, "", &retries), each(&|phase| phase.requests * (self.attempts - 1.0).max(0.0)));
        let in_operations = |phase: &Phase| phase.requests * ((1.0 - phase.late) * USUAL + phase.late * took);
        put(self.selector(&CALL_SECONDS, "_sum", &database), each(&|phase| in_operations(phase) * self.share));
        put(self.selector(&CANCELLATIONS, "", &[("layer", "handler")]), each(&|_| self.ends));
        if self.seen > 0.0 {
            put(self.selector(&CANCELLATIONS, "", &[("layer", "database")]), each(&|_| self.ends * self.seen));
        }
        if self.seen_elsewhere > 0.0 {
            let seen = each(&|_| self.ends * self.seen_elsewhere);
            put(self.selector(&CANCELLATIONS, "", &[("layer", "service")]), seen);
        }
        // At a limit of their own, which is no timeout of a request.
        let in_body = [("bound", BoundBy::Cap.as_str()), ("stage", Stage::Body.as_str())];
        let left = [("cause", Cause::CallerGone.as_str()), ("stage", Stage::Body.as_str())];
        let ran_on = [("operation", "order"), ("layer", Layer::MustFinish.as_str())];
        for (part, metric, labels) in [
            (self.in_body, &DEADLINE_EXCEEDED, [&route[..], &in_body].concat()),
            (self.left_in_body, &CANCELLED, [&route[..], &left].concat()),
            (self.must_finish, &RAN_ON, ran_on.to_vec()),
        ] {
            if part > 0.0 {
                put(self.selector(metric, "", &labels), each(&|_| self.ends * part));
            }
        }
        if let Some(more) = self.unnamed {
            let labels = [("operation", OVERFLOW), ("route", OVERFLOW), ("cause", NONE)];
            put(self.selector(&OPERATIONS, "", &labels), format!("7+{more}x{}", self.steps()));
        }
        let of = |why: Why, stage: Stage| [&route[..], &[("why", why.as_str()), ("stage", stage.as_str())]].concat();
        let at_arrival = self.shed_at_arrival;
        for (part, why, stage) in [
            (at_arrival * self.shed_required, Why::Full, Stage::Arrival),
            (at_arrival * (1.0 - self.shed_required), Why::Optional, Stage::Arrival),
            (self.shed_in_queue, Why::Doomed, Stage::Queue),
        ] {
            if part > 0.0 {
                put(self.selector(&NOT_ADMITTED, "", &of(why, stage)), each(&|phase| phase.requests * part));
            }
        }
        if let Some((layer, count)) = self.zombies {
            let values = format!("{count}+0x{}", self.steps());
            put(self.selector(&ZOMBIES, "", &[("layer", layer.as_str())]), values);
        }
        series
    }

    fn histogram(
        &self,
        metric: &Metric,
        labels: &[(&str, &str)],
        of: &[(Count<'_>, f64)],
        put: &mut impl FnMut(String, String),
    ) {
        let up_to = |edge: f64| {
            self.counter(&|phase| {
                let counts = of.iter().filter(|(_, value)| *value <= edge).map(|(count, _)| count(phase));
                counts.fold(0.0, |sum, count| sum + count) // the sum of none would be -0, which is no value there
            })
        };
        for (edge, le) in EDGES {
            put(self.selector(metric, "_bucket", &[labels, &[("le", le)]].concat()), up_to(*edge));
        }
        put(self.selector(metric, "_count", labels), up_to(f64::INFINITY));
        let sum = self.counter(&|phase| of.iter().map(|(count, value)| count(phase) * value).sum());
        put(self.selector(metric, "_sum", labels), sum);
    }

    /// `0+6x90`: from nothing, six more in each of ninety steps.
    fn counter(&self, of: &dyn Fn(&Phase) -> f64) -> String {
        let mut value = 0.0;
        let mut values = Vec::new();
        for (index, phase) in self.phases.iter().enumerate() {
            let more = of(phase);
            let first = if index == 0 { value } else { value + more };
            let times = if index == 0 { phase.steps } else { phase.steps.saturating_sub(1) };
            values.push(format!("{first}+{more}x{times}"));
            value += more * phase.steps as f64;
        }
        values.join(" ")
    }

    fn service(&self) -> BTreeMap<&str, &str> {
        let mut labels = BTreeMap::from([("instance", "10.0.0.1:9464")]);
        labels.extend(self.policy.by.iter().map(|label| (label.as_str(), "shop")));
        labels.extend(self.policy.matching.iter().map(|(label, value)| (label.as_str(), value.as_str())));
        labels
    }

    /// Whether the service itself is at this edge.
    pub(super) fn is_at(&self, edge: &BTreeMap<Label, String>) -> bool {
        let mut here = self.service();
        here.extend(ROUTE);
        edge.iter().all(|(label, value)| here.get(label.as_str()) == Some(&value.as_str()))
    }

    fn selector(&self, metric: &Metric, part: &str, own: &[(&str, &str)]) -> String {
        let mut labels = self.service();
        labels.extend(own.iter().copied());
        let labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}={value:?}")).collect();
        format!("{}{part}{{{}}}", metric.name, labels.join(","))
    }
}
