//! What came of it: for people, and the same as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::caller::Got;
use crate::child::Child;
use crate::memory::{self, Held, Line};
use crate::plan::Way;
use crate::{Arguments, Failed};

/// What every healthy run says at its end: nothing was left that a drain would have to wait for.
const NOTHING_LEFT: &str = "of at most 0ns that were left";

pub(super) struct Report {
    seed: u64,
    made: u64,
    took: Duration,
    reloads: u64,
    samples: Vec<Held>,
    line: Option<Line>,
    pub(super) outcomes: BTreeMap<(Way, Got), u64>,
    descriptors: (usize, usize),
    drain: Duration,
    /// What must not be.
    pub(super) findings: Vec<String>,
}

impl Report {
    pub(super) fn new(arguments: &Arguments, made: u64, took: Duration, reloads: u64, samples: Vec<Held>) -> Self {
        let line = Line::through(&samples);
        Self {
            seed: arguments.seed,
            made,
            took,
            reloads,
            samples,
            line,
            outcomes: BTreeMap::new(),
            descriptors: (0, 0),
            drain: Duration::ZERO,
            findings: line.and_then(Line::finding).into_iter().collect(),
        }
    }

    /// With everybody gone: what is left of it.
    pub(super) async fn ended(&mut self, child: Arc<Child>, before: usize) -> Result<(), Failed> {
        self.descriptors = (before, child.settled(before).await);
        if self.descriptors.1 > before {
            let (before, after) = self.descriptors;
            self.findings.push(format!("{after} descriptors are open, before there were {before}"));
        }
        let live = child.live().await?;
        if live > 0 {
            self.findings.push(format!("{live} operations are live, and nobody waits for them"));
        }
        let stopped = child.stop().await?;
        self.drain = stopped.took;
        if !stopped.status.success() {
            self.findings.push(format!("it ended with {}", stopped.status));
        }
        if !stopped.lines.iter().any(|line| line.contains(NOTHING_LEFT)) {
            let last = stopped.lines.last().map_or("nothing", String::as_str);
            self.findings.push(format!("operations were left when it was told to stop: {last}"));
        }
        let panics = stopped.lines.iter().filter(|line| line.contains("panicked")).take(3);
        self.findings.extend(panics.map(|line| format!("it says: {line}")));
        let refused = stopped.lines.iter().filter(|line| line.contains("what held before goes on"));
        let (mistakes, refused) = (self.reloads.div_ceil(5).max(1), refused.count() as u64);
        if refused > mistakes {
            self.findings.push(format!("{refused} configurations were refused, and {mistakes} had a mistake at most"));
        }
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        let outcomes = self
            .outcomes
            .iter()
            .map(|((way, got), count)| json!({ "way": way.name(), "came_to": got.name(), "requests": count }));
        json!({
            "seed": self.seed,
            "requests": self.made,
            "seconds": self.took.as_secs_f64(),
            "reloads": self.reloads,
            "outcomes": outcomes.collect::<Vec<_>>(),
            "memory": {
                "bytes_a_minute": self.line.map(|line| line.slope),
                "samples": memory::json(&self.samples),
            },
            "descriptors": { "before": self.descriptors.0, "after": self.descriptors.1 },
            "drain_ms": self.drain.as_secs_f64() * 1e3,
            "findings": self.findings,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (made, seed, seconds) = (self.made, self.seed, self.took.as_secs_f64());
        writeln!(f, "{made} requests with seed {seed} in {seconds:.0} s, {} reloads\n", self.reloads)?;
        write!(f, "{:<12}", "")?;
        Got::ALL.iter().try_for_each(|got| write!(f, "{:>13}", got.name()))?;
        writeln!(f)?;
        for way in Way::ALL {
            write!(f, "{:<12}", way.name())?;
            let count = |got: &Got| self.outcomes.get(&(way, *got)).copied().unwrap_or(0);
            Got::ALL.iter().try_for_each(|got| write!(f, "{:>13}", count(got)))?;
            writeln!(f)?;
        }
        let mib = |bytes: f64| bytes / 1024.0 / 1024.0;
        let held = |held: Option<&Held>| held.map_or(0.0, |held| mib(held.resident as f64));
        let most = self.samples.iter().max_by_key(|held| held.resident);
        writeln!(
            f,
            "\nmemory: {:.1} MiB at first, {:.1} at the most, {:.1} at last",
            held(self.samples.first()),
            held(most),
            held(self.samples.last()),
        )?;
        if let Some(line) = self.line {
            let (slope, rises) = (line.slope / 1024.0, mib(line.rises));
            writeln!(
                f,
                "  after the warm-up {slope:+.1} KiB a minute, {rises:+.2} MiB in all ({} samples)",
                line.samples
            )?;
        }
        let most = self.samples.iter().map(|held| held.descriptors).max().unwrap_or(0);
        writeln!(f, "descriptors: {} before, {most} at the most, {} after", self.descriptors.0, self.descriptors.1)?;
        writeln!(f, "told to stop it was gone after {:?}", self.drain)?;
        for finding in &self.findings {
            writeln!(f, "finding: {finding}")?;
        }
        if self.findings.is_empty() {
            writeln!(f, "nothing was lost, and nothing is left")?;
        }
        Ok(())
    }
}
