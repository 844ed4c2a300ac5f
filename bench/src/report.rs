//! The table, the same as JSON, and what falls short of the targets.

use std::fmt;

use serde_json::{Value, json};

use crate::callgrind::Cost;
use crate::cases::{Answers, Ask, Case, Failed, Fields, Run, Served, Stack};
use crate::wall;

/// At most this much above the bare service, for one request through `Ingress`.
const MOST_INSTRUCTIONS: f64 = 2_500.0;
const MOST_ALLOCATIONS: f64 = 6.0;
/// At most this long for what is left. Wall time swings with the machine, so `--check` allows [`SLACK`] times as much.
const MOST_NANOS: f64 = 100.0;
const SLACK: f64 = 3.0;
/// A run has some allocations of its own, a thousandth of which shows in each request.
const ROUNDING: f64 = 0.05;

/// Everything that was counted in one run.
pub(crate) struct Report {
    rows: Vec<Row>,
}

/// One case, and what it costs above its bare counterpart.
struct Row {
    case: Case,
    cost: Cost,
    above: Option<Cost>,
    nanos: f64,
    nanos_above: Option<f64>,
}

// === Report ===

impl Report {
    pub(crate) fn measure() -> Result<Self, Failed> {
        let cases = Case::all();
        let nanos = wall::nanos(&cases)?;
        let mut rows: Vec<Row> = Vec::new();
        for (number, (case, nanos)) in cases.iter().copied().zip(nanos).enumerate() {
            eprint!("\r{}/{} ", number + 1, cases.len());
            let cost = Cost::of(case)?;
            let bare = bare(case).and_then(|bare| rows.iter().find(|row| row.case == bare));
            let above = bare.map(|bare| cost.above(bare.cost));
            let nanos_above = bare.map(|bare| nanos - bare.nanos);
            rows.push(Row { case, cost, above, nanos, nanos_above });
        }
        eprintln!();
        Ok(Self { rows })
    }

    /// Every target that is missed, in words.
    pub(crate) fn missed(&self) -> Vec<String> {
        self.rows.iter().flat_map(Row::missed).collect()
    }

    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        json!({
            "cpu": cpu(),
            "targets": { "instructions": MOST_INSTRUCTIONS, "allocations": MOST_ALLOCATIONS, "nanos": MOST_NANOS },
            "missed": self.missed(),
            "rows": rows,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", cpu())?;
        writeln!(f, "per request, above the bare service (the bare rows: as they are)\n")?;
        writeln!(f, "{:<62} {:>6} {:>6} {:>6} {:>7} {:>6}", "", "instr", "alloc", "clock", "timers", "ns")?;
        let mut section = None;
        for row in &self.rows {
            if section != Some(row.section()) {
                section = Some(row.section());
                writeln!(f, "{}", row.section())?;
            }
            let (cost, nanos) = (row.above.unwrap_or(row.cost), row.nanos_above.unwrap_or(row.nanos));
            writeln!(
                f,
                "  {:<60} {:>6.0} {:>6.1} {:>6.1} {:>7.1} {:>6.0}{}",
                row.what(),
                cost.instructions,
                cost.allocations,
                cost.clock_reads,
                cost.timers,
                nanos,
                if row.missed().is_empty() { "" } else { " *" }
            )?;
        }
        writeln!(
            f,
            "\n* above a target: at most {MOST_INSTRUCTIONS} instructions and {MOST_ALLOCATIONS} allocations for one \
             request through Ingress, {MOST_NANOS} ns for what is left"
        )
    }
}

// === Row ===

impl Row {
    /// The targets that this one misses, in words.
    fn missed(&self) -> Vec<String> {
        let (Some(above), Some(nanos)) = (self.above, self.nanos_above) else { return Vec::new() };
        let judged = match self.case {
            Case::Request(Run { stack: Stack::Ingress, .. }) => vec![
                ("instructions above the bare service", above.instructions, MOST_INSTRUCTIONS),
                ("allocations above the bare service", above.allocations, MOST_ALLOCATIONS),
            ],
            Case::Request(_) | Case::Turn(_) => Vec::new(),
            Case::Ask(_) => vec![("ns", nanos, MOST_NANOS * SLACK)],
        };
        let missed = judged.into_iter().filter(|(_, is, most)| *is > most + ROUNDING);
        missed.map(|(what, is, most)| format!("{}: {is:.1} {what}, {most} is the most", self.name())).collect()
    }

    fn section(&self) -> &'static str {
        match self.case {
            Case::Request(Run { answers: Answers::AtOnce, .. }) => "answered at once",
            Case::Request(Run { answers: Answers::AfterAWait, .. }) => "answered after a wait",
            Case::Turn(_) => "a place, with nothing around it",
            Case::Ask(_) => "what is left",
        }
    }

    fn what(&self) -> String {
        let run = match self.case {
            Case::Request(run) => run,
            Case::Turn(round) => return round.what().to_owned(),
            Case::Ask(Ask::Nothing) => return "an empty loop".to_owned(),
            Case::Ask(Ask::CurrentRemaining) => return "Operation::current().map(|op| op.remaining())".to_owned(),
            Case::Ask(Ask::Remaining) => return "oneclock::remaining()".to_owned(),
        };
        let stack = match run.stack {
            Stack::Bare => "bare service",
            Stack::Tower => "tower Timeout",
            Stack::TowerLimit => "tower ConcurrencyLimit",
            Stack::TowerShed => "tower LoadShed",
            Stack::TowerAll => "tower LoadShed, ConcurrencyLimit, Timeout",
            Stack::TowerHttp => "tower-http TimeoutLayer",
            Stack::Ingress => "Ingress",
            Stack::IngressRouted => "Ingress, a route",
            Stack::IngressAdmitting => "Ingress, a route, admission",
            Stack::IngressObserved => "Ingress, a route, an observer that does nothing",
            Stack::IngressCounted => "Ingress, a route, metrics",
            Stack::IngressTraced => "Ingress, a route, metrics and spans",
            Stack::BareCalling => "bare service, one bare call",
            Stack::IngressCalling => "Ingress, one call through Egress",
            Stack::IngressCallingCounted => "Ingress, one call through Egress, a route, metrics",
        };
        let fields = match run.fields {
            Fields::None => "",
            Fields::Ordinary => ", ordinary fields",
            Fields::Remaining => ", x-remaining-ms",
            Fields::Grpc => ", grpc-timeout",
        };
        let served = match run.served {
            Served::Elsewhere => "",
            Served::ByUs => ", under serve",
        };
        format!("{stack}{fields}{served}")
    }

    fn name(&self) -> String {
        format!("{} ({})", self.what(), self.section())
    }

    fn json(&self) -> Value {
        let cost = |cost: Cost, nanos: f64| {
            json!({
                "instructions": cost.instructions.round(),
                "allocations": cost.allocations,
                "clock_reads": cost.clock_reads,
                "timers": cost.timers,
                "nanos": nanos.round(),
            })
        };
        json!({
            "section": self.section(),
            "what": self.what(),
            "whole": cost(self.cost, self.nanos),
            "above_bare": self.above.zip(self.nanos_above).map(|(above, nanos)| cost(above, nanos)),
        })
    }
}

fn bare(case: Case) -> Option<Case> {
    let bare = match case {
        Case::Request(run) => Case::Request(run.bare()),
        Case::Turn(_) | Case::Ask(_) => Case::Ask(Ask::Nothing),
    };
    (bare != case).then_some(bare)
}

/// The machine, as far as it matters here.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown CPU");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.trim_start_matches(['\t', ' ', ':']))
}
