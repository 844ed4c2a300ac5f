//! The figures of both ways, side by side, and one ledger as a tree.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::app::Waited;
use crate::story::Story;
use crate::witness::Witness;

/// What the demo found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed of the load.
    pub seed: u64,
    /// One entry for each scenario that ran.
    pub scenarios: Vec<Scenario>,
}

/// One scenario, both ways.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// How many times faster than told it ran.
    pub scale: u32,
    /// With independent timeouts.
    pub independent: Side,
    /// With one budget.
    pub propagated: Side,
}

/// One way of running the shop. Times are as measured, not scaled back.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// How often somebody tapped "buy".
    pub taps: usize,
    /// Taps answered within the time that the user gives them.
    pub answers_in_time: usize,
    /// How long the user waited for an answer or the end of all tries: median.
    pub waited_ms_p50: u64,
    /// The same, 99th percentile.
    pub waited_ms_p99: u64,
    /// Executions at pricing for each tap.
    pub executions_per_tap: f64,
    /// Executions that ran to their end although their caller had left.
    pub finished_after_caller_left: usize,
    /// For how long those went on in total.
    pub finished_after_caller_left_seconds: f64,
    /// Executions still at work 50 ms after their tap's deadline.
    pub running_50ms_after_deadline: usize,
    /// Where the time of one typical tap went, while pricing was slow. Only one budget can tell.
    pub ledger: Option<Node>,
}

/// One line of a ledger tree.
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
    /// What it was made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Node>,
}

// === Side ===

impl Side {
    pub(crate) fn from(story: &Story, waits: &[Waited], witness: &Witness) -> Self {
        let zombies = witness.zombies();
        let in_time = |waited: &&Waited| waited.answered && waited.waited <= story.patience;
        let running = |waited: &Waited| {
            let deadline = waited.began + story.patience;
            witness.at_work_for(waited.tap, deadline + Duration::from_millis(50))
        };
        let mut spans: Vec<Duration> = waits.iter().map(|waited| waited.waited).collect();
        spans.sort_unstable();
        let taps = waits.len();
        Self {
            taps,
            answers_in_time: waits.iter().filter(in_time).count(),
            waited_ms_p50: percentile(&spans, 0.50),
            waited_ms_p99: percentile(&spans, 0.99),
            executions_per_tap: rounded(witness.executions() as f64 / taps.max(1) as f64),
            finished_after_caller_left: zombies.finished,
            finished_after_caller_left_seconds: rounded(zombies.time.as_secs_f64()),
            running_50ms_after_deadline: waits.iter().map(running).sum(),
            ledger: None,
        }
    }
}

/// In milliseconds; zero where there is nothing.
fn percentile(sorted: &[Duration], quantile: f64) -> u64 {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    let span = sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default();
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn rounded(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

fn millis<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((span.as_secs_f64() * 10_000.0).round() / 10.0)
}

fn some_millis<S: serde::Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    millis(&span.unwrap_or_default(), serializer)
}

// === Node ===

impl Node {
    pub(crate) fn new(name: &str, took: Duration) -> Self {
        Self { name: name.to_owned(), took, budget: None, left: None, ended: None, parts: Vec::new() }
    }

    fn line(&self) -> String {
        let mut line = format!("{:>5} ms", self.took.as_millis());
        match self.left {
            Some(left) => line.push_str(&format!("{:>6} left", left.as_millis())),
            None => line.push_str("           "),
        }
        if let Some(budget) = self.budget {
            line.push_str(&format!("   budget {} ms", budget.as_millis()));
        }
        if let Some(ended) = &self.ended {
            line.push_str(&format!("   {ended}"));
        }
        line
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, head: &str, indent: &str, width: usize) -> fmt::Result {
        let label = format!("{head}{}", self.name);
        let pad = width.saturating_sub(label.chars().count());
        writeln!(f, "{label}{:pad$} {}", "", self.line())?;
        // What took no time worth a line is in the JSON.
        let parts: Vec<&Self> = self.parts.iter().filter(|part| part.took >= Duration::from_millis(1)).collect();
        for (index, part) in parts.iter().enumerate() {
            let last = index + 1 == parts.len();
            let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            part.write(f, &format!("{indent}{branch}"), &format!("{indent}{below}"), width)?;
        }
        Ok(())
    }

    /// The columns that names and branches take.
    fn width(&self, depth: usize) -> usize {
        let own = depth * 3 + self.name.chars().count();
        self.parts.iter().map(|part| part.width(depth + 1)).max().unwrap_or(0).max(own)
    }
}

/// The tree, a line each.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "", "", self.width(0))
    }
}
