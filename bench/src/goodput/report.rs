//! The table for people, the same as JSON. Every figure is the median of the runs, the worst one behind it in parentheses
//! where it is another.

use std::collections::BTreeMap;
use std::fmt;

use oneclock_bench::spread::Spread;
use serde_json::{Value, json};

use crate::cells::Cell;
use crate::figures::Figures;
use crate::scenario::Scenario;
use crate::system::System;
use crate::{cpu, targets};

/// Closer than this, two systems let through the same.
const TIE: f64 = 0.02;

/// All runs of one cell.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) runs: Vec<Figures>,
}

/// Everything of one invocation.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) command: String,
    /// By the scenario that was calibrated, in requests a second.
    pub(crate) capacity: BTreeMap<Scenario, f64>,
    pub(crate) rows: Vec<Row>,
    /// Cells that gave no figures, and why.
    pub(crate) failed: Vec<String>,
}

impl Row {
    /// The median over the runs, and the worst: the largest if `more_is_worse`.
    pub(crate) fn spread(&self, is: impl Fn(&Figures) -> f64, more_is_worse: bool) -> Spread {
        Spread::of(self.runs.iter().map(is), more_is_worse)
    }

    fn goodput(&self) -> f64 {
        self.spread(|run| run.goodput.last().map_or(0.0, |goodput| goodput.ratio), false).median
    }

    fn line(&self) -> String {
        let Some(first) = self.runs.first() else { return String::new() };
        let steps = (0..first.goodput.len()).map(|step| {
            let ratio = self.spread(|run| run.goodput.get(step).map_or(0.0, |goodput| goodput.ratio), false);
            let limit = self.spread(|run| run.goodput.get(step).map_or(0.0, |goodput| goodput.limit), false);
            format!("{} of {:.2}", ratio.shown(2), limit.median)
        });
        let percent = |spread: Spread, digits| {
            Spread { median: spread.median * 100.0, worst: spread.worst * 100.0 }.shown(digits)
        };
        let recovery = self.spread(|run| run.recovery.unwrap_or(f64::INFINITY), true);
        let recovery = recovery.shown(0);
        let asked = self.spread(|run| run.asked.iter().copied().fold(0.0, f64::max), true);
        let quantiles = |is: fn(&Figures) -> (f64, f64), digits: usize| {
            let (p50, p99) = (self.spread(|run| is(run).0, true).median, self.spread(|run| is(run).1, true).median);
            format!("{p50:.digits$} {p99:.digits$}")
        };
        format!(
            "  {:<16} {:<34} {:>13} {:>11} {:>12} {:>7} {:>9} {:>9} {:>6.0} {:>6.1}",
            self.cell.system.name(),
            steps.collect::<Vec<_>>().join(", "),
            percent(self.spread(|run| run.base, false), 1),
            percent(self.spread(|run| run.wasted, true), 1),
            asked.shown(2),
            recovery,
            quantiles(|run| (run.ok_ms.p50, run.ok_ms.p99), 0),
            quantiles(|run| (run.refused_ms.p50, run.refused_ms.p99), 1),
            self.spread(|run| run.cpu_ok_us, true).median,
            self.spread(|run| run.cpu_refused_us, true).median,
        )
    }

    /// By class, where there are several.
    fn classes(&self) -> Option<String> {
        let classes = &self.runs.first()?.classes;
        if classes.len() < 2 {
            return None;
        }
        let class = |number: usize| {
            let of = |is: fn(&crate::figures::OfClass) -> f64| {
                self.spread(|run| run.classes.get(number).map_or(0.0, is), false).median
            };
            format!(
                "{} {:.0} % (x{:.2})",
                classes[number].name,
                of(|class| class.in_time) * 100.0,
                of(|class| class.share)
            )
        };
        let work = self.spread(|run| run.goodput.last().map_or(0.0, |goodput| goodput.work), false);
        let all: Vec<String> = (0..classes.len()).map(class).collect();
        Some(format!("  {:<16} in work {}; in time: {}", "", work.shown(2), all.join(", ")))
    }
}

impl Report {
    pub(crate) fn missed(&self) -> Vec<String> {
        let mut missed = targets::missed(&self.rows);
        missed.extend(self.failed.iter().cloned());
        missed
    }

    pub(crate) fn json(&self) -> Value {
        let capacity = self.capacity.iter().map(|(scenario, capacity)| (scenario.name().to_owned(), json!(capacity)));
        let rows = self.rows.iter().map(
            |row| json!({ "scenario": row.cell.scenario.name(), "system": row.cell.system.name(), "runs": row.runs }),
        );
        json!({
            "cpu": cpu::machine(),
            "command": self.command,
            "capacity": serde_json::Map::from_iter(capacity),
            "missed": self.missed(),
            "cells": rows.collect::<Vec<_>>(),
        })
    }

    /// What tower's limit lets through as much of as ours.
    fn tie(&self, scenario: Scenario) -> Option<String> {
        let of = |system| self.rows.iter().find(|row| row.cell == Cell { scenario, system }).map(Row::goodput);
        let (ours, tower) = (of(System::Ours)?, of(System::Tower)?);
        ((ours - tower).abs() < TIE)
            .then(|| format!("  tower's limit and ours let through the same: {tower:.2} and {ours:.2}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", cpu::machine(), self.command)?;
        for (scenario, capacity) in &self.capacity {
            writeln!(f, "capacity, as {}: {capacity:.0} requests a second", scenario.name())?;
        }
        writeln!(
            f,
            "\n  {:<16} {:<34} {:>13} {:>11} {:>12} {:>7} {:>9} {:>9} {:>6} {:>6}",
            "",
            "goodput, of the limit",
            "before %",
            "wasted %",
            "asked",
            "back s",
            "ok ms",
            "refused",
            "us ok",
            "us ref"
        )?;
        for scenario in Scenario::ALL {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.cell.scenario == scenario).collect();
            if rows.is_empty() {
                continue;
            }
            writeln!(f, "{}: {}", scenario.name(), scenario.about())?;
            for row in rows {
                writeln!(f, "{}", row.line())?;
                if let Some(classes) = row.classes() {
                    writeln!(f, "{classes}")?;
                }
            }
            if let Some(tie) = self.tie(scenario) {
                writeln!(f, "{tie}")?;
            }
        }
        let late = self.rows.iter().flat_map(|row| &row.runs).map(|run| run.late_p99_ms).fold(0.0, f64::max);
        writeln!(
            f,
            "\nthe median of the runs, (the worst one); goodput in units of the capacity; before: in time at the base load, at \
             0.8 in the steps; asked: tries for each request, at the tier with the most; back: seconds until normal; ok and \
             refused: p50 and p99 in ms; us: of the servers' processors. The generator was at most {late:.1} ms late (p99)."
        )?;
        for missed in self.missed() {
            writeln!(f, "missed: {missed}")?;
        }
        Ok(())
    }
}
