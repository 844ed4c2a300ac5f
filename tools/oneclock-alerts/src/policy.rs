//! What is alerted on, and from where on: the few numbers that differ from team to team.
//!
//! Decides the defaults, with which an empty file is a whole policy, and what contradicts itself. Reading a value is
//! `values`' work, saying what is wrong with a file `refused`'s. A key that nobody knows is an error: a threshold that is
//! misspelt would otherwise be a default that nobody chose.

use std::collections::BTreeMap;

use oneclock_telemetry::names::{BUDGET_AT_ARRIVAL, MISSING};
use serde::Deserialize;

mod defaults;
mod refused;
mod values;

pub use refused::PolicyRefused;
pub use values::{Label, Layer, Share, Span, Times};

/// The policy: what `oneclock alerts` makes rules from.
///
/// ```
/// let policy = oneclock_alerts::Policy::parse("timeouts: { warn: 0.5%, page: 2% }").unwrap();
/// assert_eq!(policy.timeouts.warn.to_string(), "0.5%");
/// assert_eq!(policy.timeouts.window.to_string(), "5m", "what is not said keeps its default");
///
/// let refused = oneclock_alerts::Policy::parse("timeouts:\n  wran: 2%\n").unwrap_err();
/// assert_eq!(refused.to_string(), "2:3: there is no key `wran` here; did you mean `warn`? Known: warn, page, window, for");
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The labels that tell services apart: those that Prometheus adds, not ours.
    pub by: Vec<Label>,
    /// Only series with these labels.
    #[serde(rename = "match")]
    pub matching: BTreeMap<Label, String>,
    /// Put on every alert, beside its severity.
    pub labels: BTreeMap<Label, String>,
    /// Where the playbook's Markdown is published: the alert's `runbook_url` is this, `#` and the entry's name.
    pub runbook_url: Option<String>,
    /// The least number of requests, or of calls, in a window for a ratio of them to mean anything.
    pub minimum: u32,
    /// Over what the usual of a route is measured.
    pub usual: Usual,
    /// Requests that ran out of time.
    pub timeouts: Timeouts,
    /// Work for nobody.
    pub zombies: Zombies,
    /// Further attempts.
    pub retries: Retries,
    /// Ends that are not passed on.
    pub propagation: Propagation,
    /// Requests that come without a deadline.
    pub deadline_missing: DeadlineMissing,
    /// Names that have no series of their own any more.
    pub overflow: Overflow,
    /// Requests that get no place although their callers need them.
    pub shedding: Shedding,
    /// When limits should be measured again.
    pub calibration: Calibration,
    /// The share of requests that should be answered in time, and how fast the rest may be used up.
    pub objective: Objective,
}

/// Over what the usual of a route is measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usual {
    /// How far back. Longer than any incident, or an incident becomes the usual and forgives itself.
    pub over: Span,
}

/// Requests that ran out of time, as a share of all of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Above this it warns.
    pub warn: Share,
    /// Above this it pages.
    pub page: Share,
    /// Over what the share is taken.
    pub window: Span,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub for_: Span,
}

/// Work that goes on although its operation is over.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Zombies {
    /// Above this share of a pool it pages.
    pub page: Share,
    /// How large the pool is in which each sort of work goes on, in each process. A sort that is not here is not watched:
    /// steps that must finish go on by declaration.
    pub pools: BTreeMap<Layer, u32>,
    /// The least number that pages: one statement in a pool of three is no incident.
    pub minimum: u32,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub for_: Span,
}

/// Further attempts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retries {
    /// Attempts per first attempt, above which it warns.
    pub amplification: Times,
    /// Over what that is taken.
    pub window: Span,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub for_: Span,
}

/// Early ends that a layer below should have seen.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Propagation {
    /// Below this share of what a layer should have seen it warns.
    pub seen: Share,
    /// Whether it also warns where hardly any end is seen by any layer below, a tenth of `seen`. Such a service calls around
    /// its adapters, or it computes all the time: for one that does, this is `false`.
    pub unmetered: bool,
    /// The least number that it should have seen in a window.
    pub minimum: u32,
    /// Over what that is taken.
    pub window: Span,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub for_: Span,
}

/// Requests that come without a deadline, as a share of all of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadlineMissing {
    /// Whether it warns at all.
    pub watched: bool,
    /// Above this share it warns.
    pub warn: Share,
    /// Where callers never send one: browsers, webhooks, probes. Each is a set of labels; requests with all of them are left
    /// out, of the share and of the whole.
    pub edges: Vec<BTreeMap<Label, String>>,
    /// Over what the share is taken.
    pub window: Span,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub for_: Span,
}

/// What is counted without its name, because its metric has as many names as it may.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overflow {
    /// Whether it is told at all.
    pub watched: bool,
    /// Over what it must grow.
    pub window: Span,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub for_: Span,
}

/// Requests that are refused a place because it is full, or because they would not be done in time, as a share of all of them.
/// What is optional and makes room is not among them: that is what it is for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shedding {
    /// Above this share it warns.
    pub warn: Share,
    /// Over what the share is taken.
    pub window: Span,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub for_: Span,
}

/// When limits should be measured again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Calibration {
    /// Above this share of requests that ran out of time.
    pub due: Share,
    /// The least number of requests: below 299 the 99th percentile has no upper bound that could be relied on.
    pub minimum: u32,
    /// Over what the share is taken.
    pub window: Span,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub for_: Span,
}

/// The share of requests that should be answered in time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Objective {
    /// What is promised. What is left of the whole is the error budget.
    pub in_time: Share,
    /// What pages.
    pub page: Vec<Burn>,
    /// What makes a ticket.
    pub ticket: Vec<Burn>,
}

/// A burn rate: how many times faster than allowed the error budget is used up, over two windows at once. The long one says
/// that it is serious, the short one that it is still so.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burn {
    /// How many times.
    pub times: Times,
    /// The short window.
    pub short: Span,
    /// The long window.
    pub long: Span,
}

// === Policy ===

impl Policy {
    /// Reads a policy. An empty text is the default one.
    ///
    /// # Errors
    /// [`PolicyRefused`] says where and what to write instead.
    pub fn parse(text: &str) -> Result<Self, PolicyRefused> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let policy: Self = refused::read(text)?;
        policy.check().map_err(PolicyRefused::nowhere)?;
        Ok(policy)
    }

    /// What no part can see alone.
    fn check(&self) -> Result<(), String> {
        for label in self.by.iter().chain(self.labels.keys()).chain(self.matching.keys()) {
            if OURS.contains(&label.as_str()) {
                return Err(format!(
                    "{label} is a label that the rules use themselves: take it out of `by`, `match` and `labels`"
                ));
            }
        }
        let minimums = [
            ("minimum", self.minimum),
            ("zombies.minimum", self.zombies.minimum),
            ("propagation.minimum", self.propagation.minimum),
            ("calibration.minimum", self.calibration.minimum),
        ];
        if let Some((key, _)) = minimums.iter().find(|(_, minimum)| *minimum == 0) {
            return Err(format!("{key} is 0: a share of nothing means nothing, so write at least 1"));
        }
        if let Some((layer, _)) = self.zombies.pools.iter().find(|(_, size)| **size == 0) {
            let layer = layer.as_str();
            return Err(format!("zombies.pools.{layer} is 0: write how large the pool is, or leave it out"));
        }
        let Timeouts { warn, page, .. } = &self.timeouts;
        if warn >= page {
            return Err(format!("timeouts.warn is {warn}, and timeouts.page is {page}: it must warn before it pages"));
        }
        if self.retries.amplification <= Times::new(1.0) {
            return Err(format!(
                "retries.amplification is {}: without any retry it is 1 already, so write more than 1",
                self.retries.amplification
            ));
        }
        for (kind, burns) in [("page", &self.objective.page), ("ticket", &self.objective.ticket)] {
            for (index, burn) in burns.iter().enumerate() {
                self.objective.check(burn).map_err(|why| format!("objective.{kind}, window {}: {why}", index + 1))?;
            }
        }
        for (index, edge) in self.deadline_missing.edges.iter().enumerate() {
            check_edge(edge).map_err(|why| format!("deadline_missing.edges, edge {}: {why}", index + 1))?;
        }
        let burns = self.objective.page.iter().chain(&self.objective.ticket);
        let shortest = burns.map(|burn| burn.short).chain([self.calibration.window]).min();
        if let Some(shortest) = shortest.filter(|shortest| *shortest < self.timeouts.window) {
            return Err(format!(
                "timeouts.window is {}, and a window of {shortest} is shorter: longer windows are made of those of \
                 timeouts.window, so make that the shortest",
                self.timeouts.window
            ));
        }
        Ok(())
    }
}

fn check_edge(edge: &BTreeMap<Label, String>) -> Result<(), String> {
    if edge.is_empty() {
        return Err("it has no labels, so it would be everything: write `watched: false` for that".to_owned());
    }
    // Of the request that came without one the other metric must know the label, too, or the share would be of two things.
    let of_one = |label: &str| label == "le" || BUDGET_AT_ARRIVAL.labels.contains(&label);
    match edge
        .iter()
        .find(|(label, value)| value.is_empty() || of_one(label.as_str()) && !MISSING.labels.contains(&label.as_str()))
    {
        Some((label, value)) if value.is_empty() => {
            Err(format!("{label} is empty, which is a service without that label: write its value"))
        }
        Some((label, _)) => Err(format!(
            "{} is not split by {label}: write labels of services, or one of {}",
            MISSING.name,
            MISSING.labels.join(", ")
        )),
        None => Ok(()),
    }
}

impl Objective {
    fn check(&self, burn: &Burn) -> Result<(), String> {
        let Burn { times, short, long } = burn;
        if short >= long {
            return Err(format!("short is {short}, and long is {long}: write a short window that is shorter"));
        }
        let above = times.of(self.in_time.rest());
        if above >= 1.0 {
            return Err(format!(
                "{times} times the error budget of in_time {} is more than all requests, so it would never fire: write \
                 fewer times",
                self.in_time
            ));
        }
        Ok(())
    }
}

/// Labels that the rules put there or sum by.
const OURS: &[&str] = &["operation", "route", "dependency", "layer", "instance", "le", "severity", "alertname"];
