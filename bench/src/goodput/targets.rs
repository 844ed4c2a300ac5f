//! What must hold for our library, all in one table.

use crate::figures::Figures;
use crate::report::Row;
use crate::scenario::Scenario;
use crate::system::System;

/// One target.
struct Target {
    scenario: Scenario,
    what: &'static str,
    is: fn(&Figures) -> f64,
    bound: Bound,
    runs: Runs,
}

#[derive(Clone, Copy)]
enum Bound {
    Least(f64),
    Most(f64),
}

/// Which of a cell's runs have to be within the bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    Median,
    Every,
}

use Bound::{Least, Most};
use Runs::{Every, Median};
use Scenario::{Abandon, Budgets, Chain, ChainTight, Classes, Refusals, SlowDown, Steps, Throttled};

#[rustfmt::skip] // a table
const TARGETS: &[Target] = &[
    Target { scenario: Steps,      what: "goodput of the limit from 1.5 to 10 times", is: least_of_limit, bound: Least(0.97),  runs: Median },
    Target { scenario: Steps,      what: "in time at 0.8 of the capacity",            is: base,           bound: Least(0.999), runs: Median },
    Target { scenario: Chain,      what: "goodput",                                   is: goodput,        bound: Least(0.92),  runs: Median },
    Target { scenario: Chain,      what: "wasted",                                    is: wasted,         bound: Most(0.02),   runs: Median },
    Target { scenario: Chain,      what: "asked for each request, at any tier",       is: asked,          bound: Most(1.1),    runs: Median },
    Target { scenario: Chain,      what: "seconds until normal",                      is: recovery,       bound: Most(1.0),    runs: Median },
    Target { scenario: ChainTight, what: "goodput",                                   is: goodput,        bound: Least(0.88),  runs: Median },
    Target { scenario: Budgets,    what: "goodput",                                   is: goodput,        bound: Least(0.95),  runs: Median },
    Target { scenario: Budgets,    what: "of its neutral share, the least of a budget", is: least_share,  bound: Least(0.5),   runs: Median },
    Target { scenario: Classes,    what: "goodput in work",                           is: in_work,        bound: Least(0.95),  runs: Median },
    Target { scenario: Classes,    what: "of its neutral share, the least of a class", is: least_share,   bound: Least(0.5),   runs: Median },
    Target { scenario: SlowDown,   what: "seconds until normal",                      is: recovery,       bound: Most(2.0),    runs: Median },
    Target { scenario: Abandon,    what: "goodput",                                   is: goodput,        bound: Least(0.93),  runs: Every },
    Target { scenario: Refusals,   what: "us of processor for a refusal",             is: refusal,        bound: Most(12.0),   runs: Median },
    Target { scenario: Throttled,  what: "goodput",                                   is: goodput,        bound: Least(0.9),   runs: Median },
];

fn goodput(figures: &Figures) -> f64 {
    figures.goodput.last().map_or(0.0, |goodput| goodput.ratio)
}

fn in_work(figures: &Figures) -> f64 {
    figures.goodput.last().map_or(0.0, |goodput| goodput.work)
}

/// At loads above the capacity, the least.
fn least_of_limit(figures: &Figures) -> f64 {
    let overloads = figures.goodput.iter().filter(|goodput| goodput.load > 1.0);
    overloads.map(|goodput| goodput.ratio / goodput.limit).fold(f64::INFINITY, f64::min)
}

fn base(figures: &Figures) -> f64 {
    figures.base
}

fn wasted(figures: &Figures) -> f64 {
    figures.wasted
}

fn asked(figures: &Figures) -> f64 {
    figures.asked.iter().copied().fold(0.0, f64::max)
}

fn recovery(figures: &Figures) -> f64 {
    figures.recovery.unwrap_or(f64::INFINITY)
}

fn least_share(figures: &Figures) -> f64 {
    figures.classes.iter().map(|class| class.share).fold(f64::INFINITY, f64::min)
}

fn refusal(figures: &Figures) -> f64 {
    figures.cpu_refused_us
}

/// Every target that is missed, in words. A cell that did not run misses nothing.
pub(crate) fn missed(rows: &[Row]) -> Vec<String> {
    let missed = TARGETS.iter().filter_map(|target| {
        let cell = |row: &&Row| row.cell.scenario == target.scenario && row.cell.system == System::Ours;
        let row = rows.iter().find(cell)?;
        let spread = row.spread(target.is, matches!(target.bound, Most(_)));
        let is = if target.runs == Every { spread.worst } else { spread.median };
        let (held, bound) = match target.bound {
            Least(least) => (is >= least, format!("at least {least}")),
            Most(most) => (is <= most, format!("at most {most}")),
        };
        let held = held || is.is_nan(); // too short a run to tell
        let runs = if target.runs == Every { ", in every run" } else { "" };
        (!held).then(|| format!("{}: {}: {is:.3}, must be {bound}{runs}", row.cell.name(), target.what))
    });
    missed.collect()
}
