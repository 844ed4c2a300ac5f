//! Which requests count, and which of them ran out of time: the series that the alerts are made of.
//!
//! Decides what does not count against a service. A deadline is the caller's, an objective is the service's: whoever gives a
//! route less time than it usually takes gets a deadline error, and the service has done nothing wrong
//! (`docs/guide/deadlines-are-no-slo.md`). So requests whose caller gave less than the route's own median are taken out, of
//! what ran out of time and of the whole.
//!
//! The median is that of a day (`usual.over`). Over the window of an incident it would be that of the incident, and every
//! incident would forgive itself. It is found without interpolation: an edge of the histogram is below the median where at
//! most half of the requests were done by then.

use oneclock_core::{BoundBy, Reason};
use oneclock_telemetry::names::{ANSWERED, BUDGET_AT_ARRIVAL, DEADLINE_EXCEEDED, Metric, NONE, OPERATION_SECONDS};

use super::Rule;
use crate::policy::Policy;
use crate::query::{Series, buckets, selector, series};

/// The edges of the histograms that are below a route's usual median.
const EDGES: &str = "oneclock:edges_below_usual";
const ARRIVALS: &str = "oneclock:arrivals";
const SHORT: &str = "oneclock:arrivals_below_usual";
const RAN_OUT: &str = "oneclock:ran_out";
const SHORT_RAN_OUT: &str = "oneclock:ran_out_below_usual";
const REQUESTS: &str = "oneclock:requests";
const TIMEOUTS: &str = "oneclock:timeouts";

/// What is recorded, as the alerts ask for it, and the labels that it has.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    /// Requests a second that count.
    pub(super) requests: String,
    /// How many of them ran out of time.
    pub(super) timeouts: String,
    /// The labels of a service.
    pub(super) by_service: String,
    /// The labels of what a service offers.
    pub(super) by_operation: String,
    /// The labels of a route.
    pub(super) by_route: String,
}

impl Recorded {
    pub(super) fn of(policy: &Policy) -> Self {
        // What is matched stays, so that the series of two policies are not the same.
        let matched = policy.matching.keys().filter(|label| !policy.by.contains(label));
        let by: Vec<_> = policy.by.iter().chain(matched).map(|label| label.as_str()).collect();
        let with = |more: &[&str]| [&by, more].concat().join(", ");
        let asked = |name| format!("{}{}", named(name, policy), selector(&policy.matching));
        Self {
            requests: asked(REQUESTS),
            timeouts: asked(TIMEOUTS),
            by_service: with(&[]),
            by_operation: with(&["operation"]),
            by_route: with(&["operation", "route"]),
        }
    }
}

/// `level:rate5m`, as Prometheus' own advice has it.
fn named(name: &str, policy: &Policy) -> String {
    format!("{name}:rate{}", policy.timeouts.window)
}

pub(super) fn recorded(policy: &Policy) -> Vec<Rule> {
    let Recorded { by_route: by, .. } = Recorded::of(policy);
    let ours = selector(&policy.matching);
    let window = policy.timeouts.window;
    let [arrivals, short, ran_out, short_ran_out] =
        [ARRIVALS, SHORT, RAN_OUT, SHORT_RAN_OUT].map(|name| format!("{}{ours}", named(name, policy)));
    let rate = |series: Series<'_>| format!("sum by ({by}) ({})", series.of(&policy.matching).rate(window));
    // Where nothing was counted yet there is no series, and an expression with one that is not there has no result.
    let or_none = |expr: &str| format!("({expr} or 0 * {arrivals})");
    let exceeded = |bound: Option<BoundBy>| {
        let all = series(&DEADLINE_EXCEEDED);
        or_none(&rate(match bound {
            Some(bound) => all.with("bound", bound.as_str()),
            None => all.without("bound", BoundBy::Cap.as_str()), // no request's: the limits of streams, which end so as planned
        }))
    };
    let answered = |reasons: &[Reason]| {
        let reasons: Vec<_> = reasons.iter().map(|reason| reason.as_str()).collect();
        or_none(&rate(series(&ANSWERED).with_any("reason", &reasons)))
    };

    let usual = policy.usual.over;
    let done = |of: Series<'_>| of_done_work(of, &OPERATION_SECONDS).of(&policy.matching).increase(usual);
    let edges = format!(
        "sum by ({by}, le) ({})\n<= on ({by}) group_left ()\n0.5 * (sum by ({by}) ({}) > 0)",
        done(buckets(&OPERATION_SECONDS)),
        done(series(&OPERATION_SECONDS)),
    );
    let by_callers = buckets(&BUDGET_AT_ARRIVAL).with("bound", BoundBy::Caller.as_str());
    let below = format!(
        "max by ({by}) (\n  sum by ({by}, le) ({})\n  and on ({by}, le) {EDGES}{ours}\n)\nor 0 * {arrivals}",
        by_callers.of(&policy.matching).rate(window),
    );
    // Most requests are in both: those that ended are answered, too, unless their caller had left or the head was out; those
    // whose handler gave up before the end are in the answers only. What is in both must not count twice, and no expression
    // can tell, so the larger counts: at worst somebody is told a little later.
    let larger = |a: &str, b: &str| format!("(\n  {a}\n  >= {b}\n)\nor {b}");
    let told = answered(&[Reason::Deadline, Reason::Cap]);
    let larger_of_callers = larger(&exceeded(Some(BoundBy::Caller)), &answered(&[Reason::Deadline]));
    let record = |name: &str, expr: String| Rule::Record { record: named(name, policy), expr };
    vec![
        Rule::Record { record: EDGES.to_owned(), expr: edges },
        record(ARRIVALS, rate(series(&BUDGET_AT_ARRIVAL))),
        record(SHORT, below),
        record(RAN_OUT, larger(&exceeded(None), &told)),
        record(
            SHORT_RAN_OUT,
            format!("(\n  {short}\n  <= (\n    {}\n  )\n)\nor {larger_of_callers}", indented(&larger_of_callers)),
        ),
        record(REQUESTS, format!("{arrivals} - {short}")),
        record(TIMEOUTS, format!("{ran_out} - {short_ran_out}")),
    ]
}

fn indented(expr: &str) -> String {
    expr.replace('\n', "\n    ")
}

/// Only work that was done, if the metric tells: the time of what was cut off says when it was cut off.
fn of_done_work<'a>(series: Series<'a>, metric: &Metric) -> Series<'a> {
    if metric.labels.contains(&"cause") { series.with("cause", NONE) } else { series }
}
