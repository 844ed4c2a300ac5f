//! The alerts, one function each: what it means that they fire, and which entry of the playbook says what to do.

use std::collections::BTreeMap;

use oneclock_telemetry::names::{
    BUDGET_AT_ARRIVAL, CALL_SECONDS, CALLS, CANCELLATIONS, KEYED, MISSING, Metric, OPERATION_SECONDS, OPERATIONS,
    OVERFLOW, RETRIES, ZOMBIES,
};

use super::Rule;
use super::ends::{self, HANDLER};
use super::requests::Recorded;
use crate::playbook::Entry;
use crate::policy::{Burn, Policy, Share, Span};
use crate::query::{Series, series, sum_of};

mod shedding;

/// An alert, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Alert {
    /// Warns: the share of requests that ran out of time.
    Timeouts,
    /// Pages: the same, higher.
    TimeoutsHigh,
    /// Pages: work for nobody fills a pool.
    Zombies,
    /// Warns: more attempts than first attempts.
    Amplification,
    /// Warns: a layer does not see the ends that it should.
    EndsNotPassedOn,
    /// Warns: requests come without a deadline.
    DeadlineMissing,
    /// Ticket: limits should be measured again.
    CalibrationDue,
    /// Pages: the error budget is used up fast.
    ErrorBudgetFast,
    /// Ticket: the error budget is used up too soon.
    ErrorBudgetSlow,
    /// Ticket: what happens is counted without its name.
    NamesOverflow,
    /// Warns: requests that are needed get no place.
    ShedsRequired,
}

/// What an alert asks of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Page,
    Warning,
    Ticket,
}

// === Alert ===

impl Alert {
    /// All of them, in the order in which they are written.
    pub const ALL: &[Self] = &[
        Self::Timeouts,
        Self::TimeoutsHigh,
        Self::Zombies,
        Self::Amplification,
        Self::EndsNotPassedOn,
        Self::DeadlineMissing,
        Self::CalibrationDue,
        Self::ErrorBudgetFast,
        Self::ErrorBudgetSlow,
        Self::NamesOverflow,
        Self::ShedsRequired,
    ];

    /// Its name in Prometheus.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeouts => "OneclockTimeouts",
            Self::TimeoutsHigh => "OneclockTimeoutsHigh",
            Self::Zombies => "OneclockZombies",
            Self::Amplification => "OneclockRetriesAmplify",
            Self::EndsNotPassedOn => "OneclockEndsNotPassedOn",
            Self::DeadlineMissing => "OneclockDeadlineMissing",
            Self::CalibrationDue => "OneclockCalibrationDue",
            Self::ErrorBudgetFast => "OneclockErrorBudgetFast",
            Self::ErrorBudgetSlow => "OneclockErrorBudgetSlow",
            Self::NamesOverflow => "OneclockNamesOverflow",
            Self::ShedsRequired => "OneclockShedsRequired",
        }
    }

    /// What to do then.
    pub const fn playbook(self) -> Entry {
        match self {
            Self::Timeouts | Self::TimeoutsHigh | Self::ErrorBudgetFast | Self::ErrorBudgetSlow => Entry::Timeouts,
            Self::Zombies => Entry::Zombies,
            Self::Amplification => Entry::RetriesOff,
            Self::EndsNotPassedOn => Entry::Propagation,
            Self::DeadlineMissing => Entry::DeadlineMissing,
            Self::CalibrationDue => Entry::Calibration,
            Self::NamesOverflow => Entry::Overflow,
            Self::ShedsRequired => Entry::Shedding,
        }
    }

    const fn severity(self) -> Severity {
        match self {
            Self::TimeoutsHigh | Self::Zombies | Self::ErrorBudgetFast => Severity::Page,
            Self::Timeouts
            | Self::Amplification
            | Self::EndsNotPassedOn
            | Self::DeadlineMissing
            | Self::ShedsRequired => Severity::Warning,
            Self::CalibrationDue | Self::ErrorBudgetSlow | Self::NamesOverflow => Severity::Ticket,
        }
    }

    fn rule(self, policy: &Policy, for_: Option<Span>, expr: String, summary: &str, description: String) -> Rule {
        let own = policy.labels.iter().map(|(label, value)| (label.to_string(), value.clone()));
        let mut labels: BTreeMap<_, _> = own.collect();
        labels.insert("severity".to_owned(), self.severity().as_str().to_owned());
        let entry = self.playbook().name();
        let mut annotations = BTreeMap::from([
            ("summary", summary.to_owned()),
            ("description", description),
            ("runbook", format!("oneclock playbook {entry}")),
        ]);
        if let Some(url) = &policy.runbook_url {
            annotations.insert("runbook_url", format!("{url}#{entry}"));
        }
        let for_ = for_.map(|span| span.to_string());
        Rule::Alert { alert: self.name(), expr, for_, labels, annotations }
    }
}

// === Severity ===

impl Severity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Warning => "warning",
            Self::Ticket => "ticket",
        }
    }
}

// === What fires them ===

pub(super) fn all(policy: &Policy) -> Vec<Rule> {
    let recorded = Recorded::of(policy);
    let timeouts = &policy.timeouts;
    let mut rules = vec![
        ran_out(policy, &recorded, Alert::Timeouts, timeouts.warn),
        ran_out(policy, &recorded, Alert::TimeoutsHigh, timeouts.page),
    ];
    rules.extend(zombies(policy, &recorded));
    rules.push(amplification(policy, &recorded));
    rules.push(ends_not_passed_on(policy, &recorded));
    rules.extend(policy.propagation.unmetered.then(|| ends_not_seen_at_all(policy, &recorded)));
    rules.extend(policy.deadline_missing.watched.then(|| deadline_missing(policy, &recorded)));
    rules.push(calibration_due(policy, &recorded));
    rules.extend(error_budget(policy, &recorded, Alert::ErrorBudgetFast, &policy.objective.page));
    rules.extend(error_budget(policy, &recorded, Alert::ErrorBudgetSlow, &policy.objective.ticket));
    rules.extend(policy.overflow.watched.then(|| names_overflow(policy, &recorded)));
    rules.push(shedding::sheds_required(policy, &recorded));
    rules
}

const VALUE: &str = "{{ $value | humanizePercentage }}";

/// So many in a window, as a rate: the least for a ratio to mean anything.
fn a_second(minimum: u32, window: Span) -> String {
    format!("{minimum} / {}", window.seconds())
}

fn ran_out(policy: &Policy, recorded: &Recorded, alert: Alert, above: Share) -> Rule {
    let Recorded { requests, timeouts, by_route, .. } = recorded;
    let window = policy.timeouts.window;
    let enough = a_second(policy.minimum, window);
    let above = above.fraction();
    alert.rule(
        policy,
        Some(policy.timeouts.for_),
        format!("{timeouts} / ({requests} > 0) > {above}\nand on ({by_route})\n{requests} >= {enough}"),
        "{{ $labels.operation }} {{ $labels.route }}: requests run out of time",
        format!(
            "{VALUE} of the requests of the last {window} ran out of time. Those whose callers gave less than the route \
             usually takes are not among them."
        ),
    )
}

fn zombies(policy: &Policy, recorded: &Recorded) -> Vec<Rule> {
    let by = comma(&recorded.by_service);
    let minimum = policy.zombies.minimum;
    let of_a_pool = policy.zombies.pools.iter().map(|(layer, size)| {
        let work = series(&ZOMBIES).of(&policy.matching).with("layer", layer.as_str());
        let work = format!("sum by ({by}instance, layer) ({work})");
        let above = policy.zombies.page.fraction();
        Alert::Zombies.rule(
            policy,
            Some(policy.zombies.for_),
            format!("{work} / {size} > {above}\nand\n{work} >= {minimum}"),
            "{{ $labels.instance }}: {{ $labels.layer }} work goes on for nobody",
            format!("Work whose operation is over holds {VALUE} of a pool of {size}. Whoever comes next waits for it."),
        )
    });
    of_a_pool.collect()
}

fn amplification(policy: &Policy, recorded: &Recorded) -> Rule {
    let by = comma(&recorded.by_service);
    let retries = &policy.retries;
    let window = retries.window;
    let rate = |of: Series<'_>| format!("sum by ({by}dependency) ({})", of.of(&policy.matching).rate(window));
    let (calls, further) = (rate(series(&CALLS)), rate(series(&RETRIES)));
    let first = format!("({calls} - {further})");
    let (above, enough) = (retries.amplification, a_second(policy.minimum, window));
    Alert::Amplification.rule(
        policy,
        Some(retries.for_),
        format!("{calls}\n/ ({first} > 0)\n> {above}\nand\n{first} >= {enough}"),
        "{{ $labels.dependency }} is called more often than it is asked for",
        format!(
            "{{{{ $value | humanize }}}} attempts per first attempt in the last {window}. Retries feed what makes them \
             necessary."
        ),
    )
}

/// What a layer should see is the ends that it could be told of (`ends`), by the share of the handlers' time that is spent in
/// it: of a service that asks its database for a tenth of the time, the database sees a tenth of the ends.
fn ends_not_passed_on(policy: &Policy, recorded: &Recorded) -> Rule {
    let Recorded { by_service: by, by_route, .. } = recorded;
    let propagation = &policy.propagation;
    let window = propagation.window;
    let rate = |of: Series<'_>| of.of(&policy.matching).rate(window);
    // Of requests only: the parts of a fan-out are operations, too, and their time is part of their request's.
    let whole = format!(
        "sum by ({by}) (\n    sum by ({by_route}) ({})\n    and on ({by_route}) {}\n  )",
        rate(sum_of(&OPERATION_SECONDS)),
        series(&BUDGET_AT_ARRIVAL).of(&policy.matching),
    );
    let below = format!("sum by ({}layer) ({})", comma(by), rate(sum_of(&CALL_SECONDS)));
    let share = format!("clamp_max(\n  {below}\n  / on ({by}) group_left ()\n  ({whole} > 0),\n  1\n)");
    let expected = format!("{share}\n* on ({by}) group_left ()\n{}", ends::to_pass_on(policy));
    let seen = series(&CANCELLATIONS).without("layer", HANDLER);
    let seen = format!("sum by ({}layer) ({})", comma(by), rate(seen));
    let (least, enough) = (propagation.seen.fraction(), a_second(propagation.minimum, window));
    Alert::EndsNotPassedOn.rule(
        policy,
        Some(propagation.for_),
        format!("(\n  {seen}\n  or 0 * {below}\n)\n/ (\n{expected}\n>= {enough}\n)\n< {least}"),
        "the {{ $labels.layer }} layer is not told when operations end",
        format!(
            "It saw {VALUE} of the early ends of the last {window} that it should have seen, by the share of the time that \
             is spent in it. What it was asked for goes on for nobody."
        ),
    )
}

/// What goes around the adapters is in no share of the time: a hop that forwards nothing shows only in that nothing below it
/// sees any end.
fn ends_not_seen_at_all(policy: &Policy, recorded: &Recorded) -> Rule {
    let by = &recorded.by_service;
    let propagation = &policy.propagation;
    let window = propagation.window;
    let sum = |of: Series<'_>| format!("sum by ({by}) ({})", of.of(&policy.matching).rate(window));
    let ends = ends::to_pass_on(policy);
    let below = sum(series(&CANCELLATIONS).without("layer", HANDLER));
    let calls = sum(series(&CALLS));
    let (least, enough) = (propagation.seen.tenth(), a_second(propagation.minimum, window));
    Alert::EndsNotPassedOn.rule(
        policy,
        Some(propagation.for_),
        format!(
            "({below} or 0 * {ends})\n/ ({ends} >= {enough})\n< {least}\nand on ({by})\n\
             {calls} > 0" // what calls nothing has nobody to tell
        ),
        "operations end, and nothing below is told",
        format!(
            "Of the early ends of the last {window} that could be passed on, everything that is called saw {VALUE}. The \
             handlers call around their adapters, or detach what they do, or compute all the time."
        ),
    )
}

/// The hop before does not forward what it was given, or was never told itself. Of an edge, whose callers never send one, this
/// says nothing: the policy names those.
fn deadline_missing(policy: &Policy, recorded: &Recorded) -> Rule {
    let by = &recorded.by_service;
    let missing = &policy.deadline_missing;
    let window = missing.window;
    let behind_an_edge = |metric: &Metric| {
        let of = |labels| series(metric).of(labels).rate(window);
        let all = of(&policy.matching);
        let edges = missing.edges.iter().map(|edge| format!("\n  unless {}", of(edge)));
        let edges = edges.collect::<String>();
        if edges.is_empty() { format!("sum by ({by}) ({all})") } else { format!("sum by ({by}) (\n  {all}{edges}\n)") }
    };
    let (without, requests) = (behind_an_edge(&MISSING), behind_an_edge(&BUDGET_AT_ARRIVAL));
    let (above, enough) = (missing.warn.fraction(), a_second(policy.minimum, window));
    Alert::DeadlineMissing.rule(
        policy,
        Some(missing.for_),
        format!("{without}\n/ ({requests} >= {enough})\n> {above}"),
        "requests arrive without a deadline",
        format!(
            "{VALUE} of the requests of the last {window} came without one: whoever calls does not forward it, and the \
             clock starts anew here. Are these callers that never send one, name them in the policy, as edges."
        ),
    )
}

fn calibration_due(policy: &Policy, recorded: &Recorded) -> Rule {
    let Recorded { requests, timeouts, by_route, .. } = recorded;
    let calibration = &policy.calibration;
    let window = calibration.window;
    let (above, minimum) = (calibration.due.fraction(), calibration.minimum);
    Alert::CalibrationDue.rule(
        policy,
        Some(calibration.for_),
        format!(
            "sum_over_time({timeouts}[{window}]) / (sum_over_time({requests}[{window}]) > 0) > {above}\n\
             and on ({by_route})\n{} >= {minimum}",
            arrived(policy, by_route, window)
        ),
        "{{ $labels.operation }} {{ $labels.route }}: measure the limits again",
        format!(
            "{VALUE} of the requests of the last {window} ran out of time. The limits no longer fit what they limit."
        ),
    )
}

fn error_budget(policy: &Policy, recorded: &Recorded, alert: Alert, burns: &[Burn]) -> Option<Rule> {
    let Recorded { requests, timeouts, by_operation: by, .. } = recorded;
    let rest = policy.objective.in_time.rest();
    let ratio = |window: Span| {
        let over = |name: &str| format!("sum by ({by}) (sum_over_time({name}[{window}]))");
        format!("{} / ({} > 0)", over(timeouts), over(requests))
    };
    let both = burns.iter().map(|Burn { times, short, long }| {
        let above = times.of(rest);
        let enough = format!("{} >= {}", arrived(policy, by, *long), policy.minimum);
        format!("(\n  {} > {above}\n  and\n  {} > {above}\n  and\n  {enough}\n)", ratio(*long), ratio(*short))
    });
    let expr = both.collect::<Vec<_>>().join("\nor\n");
    let windows: Vec<_> =
        burns.iter().map(|burn| format!("{} times over {} and {}", burn.times, burn.long, burn.short)).collect();
    let objective = policy.objective.in_time;
    (!burns.is_empty()).then(|| {
        alert.rule(
            policy,
            None, // the long window is the wait
            expr,
            "{{ $labels.operation }}: the error budget is used up before its time",
            format!(
                "{VALUE} of the requests ran out of time, and {objective} should be answered in time. It fires at \
                 {}.",
                windows.join(", or ")
            ),
        )
    })
}

/// Each metric has a limit of its own; these three have all the names that others have.
fn names_overflow(policy: &Policy, recorded: &Recorded) -> Rule {
    let by = &recorded.by_service;
    let window = policy.overflow.window;
    let without_name = [(&OPERATIONS, "operation"), (&CALLS, "dependency"), (&KEYED, "route")];
    let rates =
        without_name.map(|(metric, name)| series(metric).of(&policy.matching).with(name, OVERFLOW).rate(window));
    Alert::NamesOverflow.rule(
        policy,
        Some(policy.overflow.for_),
        format!("sum by ({by}) (\n  {}\n) > 0", rates.join("\n  or\n  ")),
        "what happens is counted without its name",
        format!(
            "{{{{ $value | humanize }}}} a second in the last {window}, under the name `{OVERFLOW}`: a metric has as many names as \
             it may. The sums are right, and the other alerts do not see what has no name."
        ),
    )
}

/// How many requests came: counted, and not made of rates, which say nothing of a series that is new.
fn arrived(policy: &Policy, by: &str, window: Span) -> String {
    format!("sum by ({by}) ({})", series(&BUDGET_AT_ARRIVAL).of(&policy.matching).increase(window))
}

/// The labels, and a comma if there are any.
fn comma(by: &str) -> String {
    if by.is_empty() { String::new() } else { format!("{by}, ") }
}
