//! The figures of both ways, side by side, and one tap as a tree.

use std::fmt;
use std::time::Duration;

use oneclock_core::Tick;
use serde::Serialize;

use crate::app::{Visit, VisitEnd};
use crate::overload::Overload;
use crate::stale_queue::StaleQueue;
use crate::story::Story;
use crate::transport::Transport;
use crate::witness::{End, Execution, Witness};

/// What the demo found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed of the load.
    pub seed: u64,
    /// What pricing and payment were reached over.
    pub transport: Transport,
    /// One entry for each scenario that ran.
    pub scenarios: Vec<Scenario>,
    /// The spike, if it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// The stale queue, if it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_queue: Option<StaleQueue>,
}

/// One scenario, both ways.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// How many times faster than told it ran.
    pub scale: u32,
    /// The service whose work is counted in `executions`.
    pub counted: &'static str,
    /// How many of the taps met work that takes longer than their users wait.
    pub hopeless: usize,
    /// How long the user waits, as run.
    pub patience_ms: u64,
    /// With independent timeouts.
    pub independent: Side,
    /// With one budget.
    pub propagated: Side,
}

/// One way of running the shop. Times are as measured, not scaled back.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// How many purchases somebody tapped "buy" for.
    pub taps: usize,
    /// Those answered within the time that the user gives them.
    pub answers_in_time: usize,
    /// Those answered later, in one of the app's further tries.
    pub answers_late: usize,
    /// How long the user waited for an answer, a refusal or the end of all tries: median.
    pub waited_ms_p50: u64,
    /// The same, 99th percentile.
    pub waited_ms_p99: u64,
    /// How often the counted service went to work for each purchase.
    pub executions_per_tap: f64,
    /// Executions, at any service, that ran to their end although their caller had left.
    pub finished_after_caller_left: usize,
    /// For how long those went on in total.
    pub finished_after_caller_left_seconds: f64,
    /// Executions, at any service, still at work 50 ms after the user's time was up: after the deadline, or after they
    /// left.
    pub running_50ms_after_deadline: usize,
    /// Charges that payment recorded when their caller had left, as its own records say.
    pub charged_for_nobody: usize,
    /// Charges beyond the first for one purchase, as payment's own records say.
    pub double_charges: usize,
    /// With records on PostgreSQL: what the server says after the last user of the load has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backends: Option<Backends>,
    /// One tap that met the trouble.
    pub typical: Typical,
    /// Where its time went. With independent timeouts no part of the shop could tell: there it is what the witness saw.
    pub ledger: Option<Node>,
}

/// What payment's records say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charges {
    /// Beyond the first for one purchase.
    pub(crate) double: usize,
    /// Whose caller had left by then.
    pub(crate) for_nobody: usize,
}

/// The shop's backends in `pg_stat_activity`, after the last user of the load has left.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Backends {
    /// How many are at work 50 ms later.
    pub at_work_50ms_after: usize,
    /// After how long none is, zero if none was; `None` if some still were when the demo stopped looking, after 10 s.
    pub idle_after_ms: Option<u64>,
}

/// One tap that met the trouble, after the load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Typical {
    /// Whether it was answered.
    pub answered: bool,
    /// How long its user waited.
    pub waited_ms: u64,
    /// How often the counted service went to work for it.
    pub executions: usize,
    /// Executions still at work 50 ms after the user's time was up.
    pub running_50ms_after_deadline: usize,
}

/// One line of a tree.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// What the time was spent on.
    pub name: String,
    /// How long it took.
    #[serde(rename = "took_ms", serialize_with = "millis")]
    pub took: Duration,
    /// The budget of the operation, if this line is one.
    #[serde(rename = "budget_ms", serialize_with = "some_millis", skip_serializing_if = "Option::is_none")]
    pub budget: Option<Duration>,
    /// What the operation had left when this was over.
    #[serde(rename = "left_ms", serialize_with = "some_millis", skip_serializing_if = "Option::is_none")]
    pub left: Option<Duration>,
    /// Why it ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// What the calling side knows of the far side, if it got no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What it was made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Node>,
}

pub(crate) const A_LITTLE: Duration = Duration::from_millis(50);

// === Side ===

impl Side {
    /// The figures of the load; the tap that comes after it is added by whoever makes it.
    pub(crate) fn of_load(story: &Story, taps: usize, visits: &[Visit], witness: &Witness, charges: Charges) -> Self {
        let zombies = witness.zombies();
        let in_time = |visit: &&Visit| visit.end == VisitEnd::Answered && visit.waited <= story.patience;
        let late = |visit: &&Visit| visit.end == VisitEnd::Answered && visit.waited > story.patience;
        let stayed = visits.iter().filter(|visit| visit.end != VisitEnd::Left);
        let mut waits: Vec<Duration> = stayed.map(|visit| visit.waited).collect();
        waits.sort_unstable();
        Self {
            taps,
            answers_in_time: visits.iter().filter(in_time).count(),
            answers_late: visits.iter().filter(late).count(),
            waited_ms_p50: percentile(&waits, 0.50),
            waited_ms_p99: percentile(&waits, 0.99),
            executions_per_tap: rounded(witness.executions_at(story.counted) as f64 / taps.max(1) as f64),
            finished_after_caller_left: zombies.finished,
            finished_after_caller_left_seconds: rounded(zombies.time.as_secs_f64()),
            running_50ms_after_deadline: visits.iter().map(|visit| running_after(story, visit, witness)).sum(),
            charged_for_nobody: charges.for_nobody,
            double_charges: charges.double,
            backends: None,
            typical: Typical { answered: false, waited_ms: 0, executions: 0, running_50ms_after_deadline: 0 },
            ledger: None,
        }
    }
}

fn running_after(story: &Story, visit: &Visit, witness: &Witness) -> usize {
    let over = match visit.end {
        VisitEnd::Left => visit.waited,
        VisitEnd::Answered | VisitEnd::Unanswered => story.patience,
    };
    witness.at_work_for(visit.tap, visit.visit, visit.began + over + A_LITTLE)
}

impl Typical {
    pub(crate) fn of(story: &Story, visit: &Visit, witness: &Witness) -> Self {
        let executions = witness.executions_for(visit.tap);
        Self {
            answered: visit.end == VisitEnd::Answered,
            waited_ms: as_millis(visit.waited),
            executions: executions.iter().filter(|execution| execution.service == story.counted).count(),
            running_50ms_after_deadline: running_after(story, visit, witness),
        }
    }
}

/// In milliseconds; zero where there is nothing.
pub(crate) fn percentile(sorted: &[Duration], quantile: f64) -> u64 {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    as_millis(sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default())
}

fn as_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

fn millis<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((span.as_secs_f64() * 10_000.0).round() / 10.0)
}

fn some_millis<S: serde::Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    millis(&span.unwrap_or_default(), serializer)
}

/// An outcome, for somebody who has not read the glossary.
fn in_words(outcome: &str) -> &str {
    match outcome {
        "not_sent" => "nothing was sent",
        "rejected" => "nothing was done",
        "applied" => "it was done",
        "failed" => "it failed",
        _ => "what it did is unknown",
    }
}

// === Node ===

impl Node {
    pub(crate) fn new(name: &str, took: Duration) -> Self {
        Self { name: name.to_owned(), took, budget: None, left: None, ended: None, outcome: None, parts: Vec::new() }
    }

    /// One visit within one budget, for the services' ledgers to be added to.
    pub(crate) fn of_visit(story: &Story, visit: &Visit) -> Self {
        let mut root = Self::new("tap", visit.waited);
        root.budget = Some(story.patience);
        root.ended = visit.said.clone();
        root
    }

    /// What the witness saw of one visit: the tries, and what worked for each.
    pub(crate) fn as_seen(visit: &Visit, witness: &Witness) -> Self {
        let over = visit.began + visit.waited;
        let mut root = Self::new("tap", visit.waited);
        root.ended = visit.said.clone();
        let executions = witness.executions_for(visit.tap);
        let mut begins = visit.began;
        for number in 1.. {
            let mut of_try = executions.iter().filter(|execution| execution.of.number == number).peekable();
            let Some(first) = of_try.peek() else { break };
            let left = witness.left_at(first.of);
            let until = left.unwrap_or(over);
            let mut part = Self::new(&format!("try {number}"), until.since(begins));
            part.ended = left.map(|_| "given up".to_owned());
            part.parts = of_try.map(|execution| Self::as_seen_at_work(execution, left)).collect();
            root.parts.push(part);
            begins = until;
        }
        root
    }

    fn as_seen_at_work(execution: &Execution, left: Option<Tick>) -> Self {
        let ended = execution.ended.unwrap_or(execution.began);
        let mut node = Self::new(execution.service.name(), ended.since(execution.began));
        node.ended = match left {
            Some(left) if execution.end != End::Stopped && left < ended => {
                let on = ended.since(left.max(execution.began));
                Some(format!("worked on for {} ms, for nobody", on.as_millis()))
            }
            _ if execution.end == End::Stopped => Some("stopped".to_owned()),
            _ => None,
        };
        node
    }

    /// The columns after the name: what was spent, what the caller had left then, what was given, and how it ended.
    fn columns(&self) -> String {
        let millis = |span: Option<Duration>| span.map(|span| format!("{} ms", span.as_millis())).unwrap_or_default();
        let (spent, left, given) = (millis(Some(self.took)), millis(self.left), millis(self.budget));
        let ended = self.ended.as_deref().unwrap_or_default();
        let outcome = self.outcome.as_deref().map(in_words).unwrap_or_default();
        let comma = if ended.is_empty() || outcome.is_empty() { "" } else { ", " };
        format!("{spent:>9}{left:>13}{given:>12}   {ended}{comma}{outcome}").trim_end().to_owned()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, head: &str, indent: &str, width: usize) -> fmt::Result {
        let label = format!("{head}{}", self.name);
        let pad = width.saturating_sub(label.chars().count());
        writeln!(f, "{label}{:pad$} {}", "", self.columns())?;
        let parts: Vec<&Self> = self.shown().collect();
        for (index, part) in parts.iter().enumerate() {
            let last = index + 1 == parts.len();
            let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            part.write(f, &format!("{indent}{branch}"), &format!("{indent}{below}"), width)?;
        }
        Ok(())
    }

    /// What took no time worth a line is in the JSON.
    fn shown(&self) -> impl Iterator<Item = &Self> {
        self.parts.iter().filter(|part| part.took >= Duration::from_millis(2) || part.budget.is_some())
    }

    /// The columns that names and branches take.
    fn width(&self, depth: usize) -> usize {
        let own = depth * 3 + self.name.chars().count();
        self.shown().map(|part| part.width(depth + 1)).max().unwrap_or(0).max(own)
    }
}

/// The tree, a line each, under the names of its columns.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.width(0);
        let (left, given) = if self.budget.is_some() { ("left then", "was given") } else { ("", "") };
        writeln!(f, "{}", format!("{:width$} {:>9}{left:>13}{given:>12}", "", "spent").trim_end())?;
        self.write(f, "", "", width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_least_that_so_many_do_not_exceed() {
        let spans = |count: u64| (1..=count).map(Duration::from_millis).collect::<Vec<_>>();
        for (count, median, high) in [(0, 0, 0), (1, 1, 1), (2, 1, 2), (100, 50, 99), (101, 51, 100)] {
            assert_eq!((percentile(&spans(count), 0.5), percentile(&spans(count), 0.99)), (median, high), "{count}");
        }
    }
}
