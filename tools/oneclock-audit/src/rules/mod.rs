//! What does not fit: one module a rule, or a few that ask the same question.
//!
//! A rule looks at the [`Graph`] and says what it found, with its place and with the place of the other side. How sure it
//! is decides how loud it is:
//!
//! - an **error** is what cannot work as it is written: every number is written (nobody's default, no variable), names are
//!   joined without doubt, and no way of running it makes it right;
//! - a **warning** is what will surprise as soon as something is slow;
//! - a **note** is worth knowing, and nothing that anybody has to change.
//!
//! To add one: a [`Rule`] with its id, a page in `rules/`, and cases in `tests/rules`: one that it finds, and the nearest one
//! that it must leave alone.

mod absent;
mod budget;
mod grouped;
mod headers;
mod layering;
mod measured;
mod parts;
mod retries;
mod reversed;
mod stores;
mod topology;
mod units;
mod words;

use std::collections::HashSet;

use serde::Serialize;

use crate::graph::{Graph, Hop};
use crate::source::Place;
pub(crate) use grouped::{Group, first, grouped};

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// As reports, baselines and ignores name it: `outer-before-inner`. Never changes.
    pub id: &'static str,
    /// In a sentence.
    pub says: &'static str,
    /// Its page: what it finds and why, an example of what it finds and one of what it leaves alone, how loud it is and
    /// why, and the way out. Markdown.
    pub page: &'static str,
    /// Looks.
    pub(crate) look: fn(&Graph<'_>, &mut Vec<Finding>),
}

/// How loud a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Cannot work as it is written.
    Error,
    /// Will surprise as soon as something is slow.
    Warning,
    /// Worth knowing.
    Note,
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's id.
    pub rule: &'static str,
    /// How loud.
    pub severity: Severity,
    /// The fact, with the numbers: lower case, no full stop.
    pub says: String,
    /// Where it has to be changed, or looked at.
    pub place: Place,
    /// What stands there, in a few words, for the excerpt.
    pub label: String,
    /// The other layers it is about, each with a few words.
    pub related: Vec<Related>,
    /// What follows for somebody who waits; may be empty.
    pub consequence: String,
    /// The way out.
    pub help: String,
    /// Between whom, for the drawing: names of components from the outside in; may be empty.
    pub between: Vec<String>,
    /// The calls between them, by their numbers in [`Graph::hops`]: two components may have several. Empty where nobody
    /// knows which.
    pub hops: Vec<usize>,
    /// With what it is told together, once what is ignored is gone.
    #[serde(skip)]
    pub(crate) group: Option<Group>,
}

/// Another place that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Related {
    /// Where.
    pub place: Place,
    /// What stands there.
    pub says: String,
}

/// All rules.
pub const RULES: &[&Rule] = &[
    &layering::OUTER_BEFORE_INNER,
    &layering::SERVER_OUTLIVES_CALLER,
    &layering::ANSWER_TOO_LATE,
    &parts::ATTEMPTS_EXCEED_TOTAL,
    &parts::INVALID_TOGETHER,
    &parts::CONNECT_LIMIT_WITHOUT_EFFECT,
    &retries::UNSAFE_RETRY,
    &retries::AMPLIFICATION,
    &absent::NO_LIMIT,
    &absent::IDLE_IS_NO_TOTAL,
    &absent::HIDDEN_DEFAULT,
    &absent::FLAT_TIMEOUTS,
    &budget::BUDGET_OVERDRAWN,
    &reversed::KEEP_ALIVE_ORDER,
    &reversed::REDELIVERED_WHILE_RUNNING,
    &reversed::GRACE_TOO_SHORT,
    &reversed::FORGOTTEN_TOO_SOON,
    &stores::STORE_OUTLASTS_CALLER,
    &stores::LOCK_LIMIT_WITHOUT_EFFECT,
    &measured::TIMEOUT_AND_P99,
    &measured::SYNC_TOO_LONG,
    &measured::BREAKER_AND_TIMEOUT,
    &headers::HEADER_UNITS,
    &units::SUSPICIOUS_UNIT,
    &topology::TOPOLOGY_NOT_UNDERSTOOD,
];

/// Asks every rule. What several ways through the graph lead to is told once; the loudest come first, then by place.
#[must_use]
pub fn judge(graph: &Graph<'_>) -> Vec<Finding> {
    first(places(graph)).collect()
}

/// The same, one for each place that it can be silenced at: what is ignored in one place is told of the next.
#[must_use]
pub(crate) fn places(graph: &Graph<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        (rule.look)(graph, &mut findings);
    }
    findings.iter_mut().for_each(|finding| alike(graph, finding));
    sort(&mut findings);
    findings.dedup();
    // Ways through a folder of alternatives lead to the same settings again and again: that is one thing to mend.
    let mut settings = HashSet::new();
    findings.retain(|one| {
        let unsure = one.group.is_some() && !one.related.is_empty();
        let places: Vec<Place> = one.places().cloned().collect();
        !unsure || settings.insert((one.rule, one.severity, places))
    });
    findings
}

/// Of a call to a name that several answer to, what is said of each of them in the same words is told once.
fn alike(graph: &Graph<'_>, finding: &mut Finding) {
    let hops: Vec<&Hop<'_>> = finding.hops.iter().filter_map(|number| graph.hops.get(*number)).collect();
    let Some(unsure) = hops.iter().find(|hop| hop.others > 0).filter(|_| finding.group.is_none()) else { return };
    let key = format!("{} {}", finding.says, unsure.call.place);
    let subject = finding.says.clone();
    finding.group = Some(Group { key, call: unsure.edge, subject, several: String::new() });
}

/// The loudest first, then by place.
pub(crate) fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let order = |one: &Finding| (one.severity, one.place.clone(), one.rule);
        order(a).cmp(&order(b)).then_with(|| a.says.cmp(&b.says)).then_with(|| a.related.cmp(&b.related))
    });
}

/// The rule of an id.
#[must_use]
pub fn rule(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id).copied()
}

// === Finding ===

impl Finding {
    /// The least that a finding has; the rest is added with the methods below.
    #[must_use]
    pub(crate) fn new(rule: &Rule, severity: Severity, place: &Place, says: impl Into<String>) -> Self {
        Self {
            rule: rule.id,
            severity,
            says: says.into(),
            place: place.clone(),
            label: String::new(),
            related: Vec::new(),
            consequence: String::new(),
            help: String::new(),
            between: Vec::new(),
            hops: Vec::new(),
            group: None,
        }
    }

    /// What stands at its place.
    #[must_use]
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Another layer.
    #[must_use]
    pub(crate) fn related(mut self, place: &Place, says: impl Into<String>) -> Self {
        self.related.push(Related { place: place.clone(), says: says.into() });
        self
    }

    /// What follows.
    #[must_use]
    pub(crate) fn consequence(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = consequence.into();
        self
    }

    /// The way out.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// Between whom.
    #[must_use]
    pub(crate) fn between(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.between = names.into_iter().map(Into::into).collect();
        self
    }

    /// Between whom, and by which calls, from the outside in.
    #[must_use]
    pub(crate) fn along(mut self, graph: &Graph<'_>, hops: &[&Hop<'_>]) -> Self {
        self.between = words::along(graph, hops);
        self.hops = hops.iter().map(|hop| hop.number).collect();
        self
    }

    /// Its place, and those of the other side.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        std::iter::once(&self.place).chain(self.related.iter().map(|related| &related.place))
    }

    /// With what it is told together.
    #[must_use]
    pub(crate) fn group(mut self, group: Group) -> Self {
        self.group = Some(group);
        self
    }
}
