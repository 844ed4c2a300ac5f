//! What to do when an alert fires: the steps in their order, what to look at, and how to take each back.
//!
//! Decides the entries and their form. Their contents are in `pages`, the queries in them in `questions`, so that a test can
//! ask a Prometheus whether it understands them.

use std::fmt::Write as _;

use serde::Serialize;

use crate::rules::Alert;

mod pages;
mod questions;
mod shedding;

/// An entry of the playbook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Entry {
    /// Deadline errors rose: which of the five causes?
    Timeouts,
    /// Work goes on for nobody.
    Zombies,
    /// Ends are not passed on.
    Propagation,
    /// Requests come without a deadline.
    DeadlineMissing,
    /// Switching retries off for one class.
    RetriesOff,
    /// Breaking the circuit to a dependency.
    Breaker,
    /// Measuring the limits again.
    Calibration,
    /// What happens is counted without its name.
    Overflow,
    /// Requests that are needed get no place.
    Shedding,
}

/// What an entry says.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Page {
    /// The word after `oneclock playbook`.
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// When it is the right one.
    pub when: &'static str,
    /// The alerts that lead to it.
    pub alerts: Vec<&'static str>,
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// The causes among which a step decides, if one does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Possible>,
}

/// One thing to do.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// What.
    pub action: &'static str,
    /// What to ask Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// What to run, or to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<&'static str>,
    /// How to take it back; `None` where nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<&'static str>,
}

/// One of several causes of the same.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Possible {
    /// What happened.
    pub cause: &'static str,
    /// What tells it apart.
    pub query: String,
    /// How its answer reads if it is this one.
    pub it_is_this: &'static str,
    /// What to do then.
    pub then: &'static str,
    /// How to take that back.
    pub rollback: &'static str,
}

impl Entry {
    /// All of them, in the order of a table of contents.
    pub const ALL: &[Self] = &[
        Self::Timeouts,
        Self::Zombies,
        Self::Propagation,
        Self::DeadlineMissing,
        Self::RetriesOff,
        Self::Breaker,
        Self::Calibration,
        Self::Overflow,
        Self::Shedding,
    ];

    /// The word after `oneclock playbook`, and after `#` in a link.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeouts => "timeouts",
            Self::Zombies => "zombies",
            Self::Propagation => "propagation",
            Self::DeadlineMissing => "deadline-missing",
            Self::RetriesOff => "retries-off",
            Self::Breaker => "breaker",
            Self::Calibration => "calibration",
            Self::Overflow => "overflow",
            Self::Shedding => "shedding",
        }
    }

    /// The entry with this name.
    ///
    /// ```
    /// use oneclock_alerts::Entry;
    ///
    /// assert_eq!(Entry::named("retries-off"), Some(Entry::RetriesOff));
    /// assert_eq!(Entry::named("restart-everything"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|entry| entry.name() == name)
    }

    /// What it says.
    pub fn page(self) -> Page {
        let mut page = match self {
            Self::Timeouts => pages::timeouts(),
            Self::Zombies => pages::zombies(),
            Self::Propagation => pages::propagation(),
            Self::DeadlineMissing => pages::deadline_missing(),
            Self::RetriesOff => pages::retries_off(),
            Self::Breaker => pages::breaker(),
            Self::Calibration => pages::calibration(),
            Self::Overflow => pages::overflow(),
            Self::Shedding => shedding::page(),
        };
        page.name = self.name();
        let alerts = Alert::ALL.iter().filter(|alert| alert.playbook() == self);
        page.alerts = alerts.map(|alert| alert.name()).collect();
        page
    }
}

impl Page {
    /// For a terminal.
    pub fn to_text(&self) -> String {
        let mut out = format!("{}\n\n", self.title);
        paragraph(&mut out, "", self.when);
        if !self.alerts.is_empty() {
            paragraph(&mut out, "", &format!("Alerts that lead here: {}.", self.alerts.join(", ")));
        }
        for (index, step) in self.steps.iter().enumerate() {
            let _ = writeln!(out);
            numbered(&mut out, &format!("{}. ", index + 1), step.action);
            if let Some(query) = &step.query {
                block(&mut out, query);
            }
            if let Some(run) = step.run {
                block(&mut out, run);
            }
            if let Some(rollback) = step.rollback {
                paragraph(&mut out, "   ", &format!("To take it back: {rollback}"));
            }
        }
        for (letter, possible) in ('a'..).zip(&self.causes) {
            let _ = writeln!(out);
            numbered(&mut out, &format!("{letter}. "), possible.cause);
            block(&mut out, &possible.query);
            paragraph(&mut out, "   ", &format!("It is this if {}", possible.it_is_this));
            paragraph(&mut out, "   ", &format!("Then: {}", possible.then));
            paragraph(&mut out, "   ", &format!("To take it back: {}", possible.rollback));
        }
        out
    }

    /// As a section of a Markdown document; its anchor is the entry's name.
    pub fn to_markdown(&self) -> String {
        let mut out = format!("<a id=\"{}\"></a>\n\n## {}\n\n{}\n", self.name, self.title, self.when);
        if !self.alerts.is_empty() {
            let _ = writeln!(out, "\nAlerts that lead here: `{}`.", self.alerts.join("`, `"));
        }
        for (index, step) in self.steps.iter().enumerate() {
            let _ = writeln!(out, "\n{}. {}", index + 1, step.action);
            if let Some(query) = &step.query {
                fenced(&mut out, "promql", query);
            }
            if let Some(run) = step.run {
                fenced(&mut out, "", run);
            }
            if let Some(rollback) = step.rollback {
                let _ = writeln!(out, "\n   To take it back: {rollback}");
            }
        }
        for (letter, possible) in ('a'..).zip(&self.causes) {
            let _ = writeln!(out, "\n### {letter}. {}\n\n```promql\n{}\n```\n", possible.cause, possible.query);
            let _ = writeln!(out, "It is this if {}", possible.it_is_this);
            let _ = writeln!(out, "\nThen: {}", possible.then);
            let _ = writeln!(out, "\nTo take it back: {}", possible.rollback);
        }
        out
    }

    /// Every query in it.
    pub fn queries(&self) -> impl Iterator<Item = &str> {
        let of_steps = self.steps.iter().filter_map(|step| step.query.as_deref());
        of_steps.chain(self.causes.iter().map(|possible| possible.query.as_str()))
    }
}

/// The names of the entries, and what they are about.
pub fn contents() -> String {
    let width = Entry::ALL.iter().map(|entry| entry.name().len()).max().unwrap_or(0);
    let mut out = "What to do when an alert fires, step by step, and how to take each step back:\n\n".to_owned();
    for entry in Entry::ALL {
        let _ = writeln!(out, "  {:width$}  {}", entry.name(), entry.page().title);
    }
    let _ = writeln!(out, "\noneclock playbook NAME shows one of them.");
    out
}

/// All of them, as one document of Markdown.
pub fn to_markdown() -> String {
    let mut out = "# Playbook\n\nWritten by `oneclock playbook --markdown`.\n".to_owned();
    for entry in Entry::ALL {
        let _ = write!(out, "\n{}", entry.page().to_markdown());
    }
    out
}

/// What a terminal has at least, less a margin.
const WIDTH: usize = 100;

fn paragraph(out: &mut String, indent: &str, text: &str) {
    wrapped(out, indent, indent, text);
}

fn numbered(out: &mut String, number: &str, text: &str) {
    wrapped(out, number, &" ".repeat(number.len()), text);
}

fn wrapped(out: &mut String, first: &str, indent: &str, text: &str) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = indent.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{line}");
}

fn block(out: &mut String, text: &str) {
    for line in text.lines() {
        let _ = writeln!(out, "{}", format!("     {line}").trim_end());
    }
}

fn fenced(out: &mut String, language: &str, text: &str) {
    let _ = writeln!(out, "\n   ```{language}");
    for line in text.lines() {
        let _ = writeln!(out, "{}", format!("   {line}").trim_end());
    }
    let _ = writeln!(out, "   ```");
}
