//! The rows and what they ask, from the question that comes first to the one that comes last: what is there to spend, how did
//! it end, where, what goes on for nobody, what is tried again, who is not told, what was refused, and for want of a place, what
//! became of work in queues, what came in.

use oneclock_core::BoundBy;
use oneclock_telemetry::names::*;

use super::{CHOSEN, Line, Panel, Row, overload};
use crate::query::{Series, buckets, series};

/// What the axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// So many a second.
    PerSecond,
    /// A number.
    Count,
    /// A part of the whole.
    Share,
}

impl Unit {
    pub(super) const fn as_grafana_spells_it(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::PerSecond => "ops",
            Self::Count => "short",
            Self::Share => "percentunit",
        }
    }
}

const INTERVAL: &str = "$__rate_interval";

fn rate(by: &str, of: Series<'_>) -> String {
    format!("sum by ({by}) ({})", of.chosen_by(CHOSEN).rate(INTERVAL))
}

pub(super) fn quantile(rank: f64, by: &str, of: &Metric) -> String {
    let of = buckets(of).chosen_by(CHOSEN).rate(INTERVAL);
    format!("histogram_quantile({rank}, sum by ({by}, le) ({of}))")
}

pub(super) fn line(expr: String, legend: &'static str) -> Line {
    Line { expr, legend }
}

pub(super) fn panel(title: &'static str, unit: Unit, description: &'static str, lines: Vec<Line>) -> Panel {
    Panel { title, description, unit, lines }
}

/// One line for each value of what it is split by.
pub(super) fn counted(
    title: &'static str,
    description: &'static str,
    of: &Metric,
    by: &str,
    legend: &'static str,
) -> Panel {
    panel(title, Unit::PerSecond, description, vec![line(rate(by, series(of)), legend)])
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        budget(),
        endings(),
        places(),
        for_nobody(),
        retries(),
        propagation(),
        refusals(),
        overload::row(),
        durable(),
        arrivals(),
    ]
}

const BY_OPERATION: &str = "job, operation";
const OPERATION: &str = "{{job}} {{operation}}";

fn budget() -> Row {
    let both = |of: &Metric, by| vec![line(quantile(0.5, by, of), ""), line(quantile(0.1, by, of), "")];
    let named = |lines: Vec<Line>, legends: [&'static str; 2]| {
        lines.into_iter().zip(legends).map(|(line, legend)| Line { legend, ..line }).collect()
    };
    Row {
        title: "The budget, hop by hop",
        panels: vec![
            panel(
                "Left at arrival",
                Unit::Seconds,
                "What requests had left when a service accepted them. From hop to hop it falls; where it does not, the clock was \
                 started anew.",
                named(
                    both(&BUDGET_AT_ARRIVAL, BY_OPERATION),
                    ["{{job}} {{operation}}: half", "{{job}} {{operation}}: a tenth have less"],
                ),
            ),
            panel(
                "Left at a call",
                Unit::Seconds,
                "What operations had left when they called a dependency. Near nothing: the call is made for nothing.",
                named(
                    both(&REMAINING_AT_CALL, "job, dependency"),
                    ["{{job}} → {{dependency}}: half", "{{job}} → {{dependency}}: a tenth have less"],
                ),
            ),
            panel(
                "Given by callers, and what it takes",
                Unit::Seconds,
                "The median of what callers give, and the median of what the operation takes. Where the first is below the \
                 second, callers ask for what cannot be.",
                vec![
                    line(
                        format!(
                            "histogram_quantile(0.5, sum by ({BY_OPERATION}, le) ({}))",
                            buckets(&BUDGET_AT_ARRIVAL)
                                .chosen_by(CHOSEN)
                                .with("bound", BoundBy::Caller.as_str())
                                .rate(INTERVAL)
                        ),
                        "{{job}} {{operation}}: given",
                    ),
                    line(quantile(0.5, BY_OPERATION, &OPERATION_SECONDS), "{{job}} {{operation}}: takes"),
                ],
            ),
            panel(
                "How long operations take",
                Unit::Seconds,
                "The 99th percentile. What was cut off is in it with the time until then, so it ends at the limits.",
                vec![line(quantile(0.99, BY_OPERATION, &OPERATION_SECONDS), OPERATION)],
            ),
            panel(
                "How long attempts take",
                Unit::Seconds,
                "The 99th percentile of attempts at dependencies, those that were cut off included.",
                vec![line(quantile(0.99, "job, dependency", &CALL_SECONDS), "{{job}} → {{dependency}}")],
            ),
        ],
    }
}

fn endings() -> Row {
    Row {
        title: "How operations end",
        panels: vec![
            counted(
                "Endings by cause",
                "none: the work was done, whatever was answered.",
                &OPERATIONS,
                "job, cause",
                "{{job}} {{cause}}",
            ),
            counted(
                "Answers by reason",
                "Answers that gave a reason of the contract's.",
                &ANSWERED,
                "job, reason",
                "{{job}} {{reason}}",
            ),
            panel(
                "Share that ran out of time",
                Unit::Share,
                "Of all operations that are over, short budgets of callers included. The alerts leave those out.",
                vec![line(
                    format!(
                        "{}\n/\n{}",
                        rate(BY_OPERATION, series(&DEADLINE_EXCEEDED)),
                        rate(BY_OPERATION, series(&OPERATIONS))
                    ),
                    OPERATION,
                )],
            ),
            counted(
                "Late, and delivered",
                "Answers that were whole at their deadline.",
                &LATE,
                BY_OPERATION,
                OPERATION,
            ),
        ],
    }
}

fn places() -> Row {
    Row {
        title: "Where they were",
        panels: vec![
            counted(
                "Out of time, by stage",
                "queue and pool: it waited before the work. wait: something else was slow. work: we were.",
                &DEADLINE_EXCEEDED,
                "job, stage",
                "{{job}} {{stage}}",
            ),
            counted(
                "Out of time, by bound",
                "What had made the deadline. caller: it was given no more. ceiling, cap, absent: a limit of our own.",
                &DEADLINE_EXCEEDED,
                "job, bound",
                "{{job}} {{bound}}",
            ),
            counted(
                "Attempts out of time, by dependency and stage",
                "pool and connect: not even sent.",
                &CALL_DEADLINE_EXCEEDED,
                "job, dependency, stage",
                "{{job}} → {{dependency}} {{stage}}",
            ),
            counted(
                "Ended early for another cause",
                "",
                &CANCELLED,
                "job, cause, stage",
                "{{job}} {{cause}} in {{stage}}",
            ),
        ],
    }
}

fn for_nobody() -> Row {
    let zombies = format!("sum by (job, instance, layer) ({})", series(&ZOMBIES).chosen_by(CHOSEN));
    let ready = format!("sum by (job, instance) ({})", series(&READY).chosen_by(CHOSEN));
    Row {
        title: "Work for nobody",
        panels: vec![
            panel(
                "Going on now",
                Unit::Count,
                "Work whose operation is over. must_finish is declared to go on; the others hold a connection or a thread.",
                vec![line(zombies, "{{instance}} {{layer}}")],
            ),
            counted("Went on, and is over", "", &RAN_ON, "job, operation, layer", "{{job}} {{operation}} {{layer}}"),
            panel(
                "How much of it",
                Unit::Count,
                "Seconds of such work a second: how many connections or threads it takes on average.",
                vec![line(rate("job, layer", series(&RAN_ON_SECONDS)), "{{job}} {{layer}}")],
            ),
            counted("Detached", "Begun to outlive their parent.", &DETACHED, BY_OPERATION, OPERATION),
            counted("Panicked", "", &PANICKED, BY_OPERATION, OPERATION),
            panel(
                "Ready",
                Unit::Count,
                "1: the process says that it is ready for work. Empty where its metrics are not told of its readiness.",
                vec![line(ready, "{{instance}}")],
            ),
        ],
    }
}

fn retries() -> Row {
    let calls = rate("job, dependency", series(&CALLS));
    let further = rate("job, dependency", series(&RETRIES));
    Row {
        title: "Retries",
        panels: vec![
            panel(
                "Attempts per first attempt",
                Unit::Count,
                "1 is no retry at all. Above 1.2 retries feed what makes them necessary.",
                vec![line(
                    format!("{calls}\n/\n({calls} - ({further} or 0 * {calls}) > 0)"),
                    "{{job}} → {{dependency}}",
                )],
            ),
            counted("Further attempts", "", &RETRIES, "job, dependency, kind", "{{job}} → {{dependency}} {{kind}}"),
            counted(
                "Not tried again, by why",
                "no_tokens: the bucket bounds a storm. switched_off: somebody did.",
                &GAVE_UP,
                "job, dependency, why",
                "{{job}} → {{dependency}} {{why}}",
            ),
            counted("Not tried again: no time left", "", &RETRY_SKIPPED, "job, dependency", "{{job}} → {{dependency}}"),
        ],
    }
}

fn propagation() -> Row {
    Row {
        title: "Who is told of an end",
        panels: vec![
            counted(
                "Early ends, as each layer saw them",
                "A layer that sees far fewer than the handler is not told.",
                &CANCELLATIONS,
                "job, layer",
                "{{job}} {{layer}}",
            ),
            counted(
                "Attempts, by what is known of the far side",
                "unknown: it may have happened.",
                &CALLS,
                "job, dependency, outcome",
                "{{job}} → {{dependency}} {{outcome}}",
            ),
            counted(
                "Requests with an idempotency key",
                "What became of them, and of their records.",
                &KEYED,
                "job, outcome",
                "{{job}} {{outcome}}",
            ),
        ],
    }
}

fn refusals() -> Row {
    Row {
        title: "Refused before it cost anything",
        panels: vec![
            counted(
                "Not begun: too late, or too little left",
                "By where that was found. arrival: it came so. queue: it waited too long here.",
                &EXPIRED,
                "job, operation, stage",
                "{{job}} {{operation}} {{stage}}",
            ),
            counted(
                "Calls that were not made",
                "",
                &NOT_CALLED,
                "job, dependency, reason",
                "{{job}} → {{dependency}} {{reason}}",
            ),
        ],
    }
}

fn durable() -> Row {
    Row {
        title: "Work in queues",
        panels: vec![
            counted(
                "Deliveries, by what became of them",
                "done, done_late, duplicate, discarded and dead_lettered are through; the others come again. A reason stands by those \
                 that were not done.",
                &DELIVERIES,
                "job, queue, end, reason",
                "{{job}} {{queue}} {{end}} {{reason}}",
            ),
            panel(
                "How long work has waited",
                Unit::Seconds,
                "When it was delivered, by the clocks of its producer and its consumer. Near its life: it is about to expire in the queue.",
                vec![
                    line(quantile(0.5, "job, queue", &MESSAGE_WAIT), "{{job}} {{queue}}: half"),
                    line(quantile(0.99, "job, queue", &MESSAGE_WAIT), "{{job}} {{queue}}: 99 %"),
                ],
            ),
            counted(
                "Messages that do not say properly when they end",
                "",
                &MESSAGE_FAULTS,
                "job, queue, fault",
                "{{job}} {{queue}} {{fault}}",
            ),
        ],
    }
}

fn arrivals() -> Row {
    let share = |of: &Metric| {
        let all = rate(BY_OPERATION, series(&BUDGET_AT_ARRIVAL));
        vec![line(format!("{}\n/\n{all}", rate(BY_OPERATION, series(of))), OPERATION)]
    };
    Row {
        title: "What comes in",
        panels: vec![
            panel(
                "Without a deadline",
                Unit::Share,
                "Behind a hop of our own this should be nothing: whoever comes without one, its hop forwards nothing.",
                share(&MISSING),
            ),
            panel("Asked for more than they got", Unit::Share, "", share(&CLAMPED)),
            counted("With a field that cannot be read", "", &MALFORMED, BY_OPERATION, OPERATION),
            counted("Clocks that probably differ", "", &SKEW_SUSPECTED, BY_OPERATION, OPERATION),
        ],
    }
}
