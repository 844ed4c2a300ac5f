//! The picture: one page of HTML, complete in itself. No script, no font, no address: it can be attached to a report and opened
//! without a network. Names come from anybody's system, so the template escapes every value.

mod notes;

use std::collections::BTreeMap;
use std::time::Duration;

use minijinja::{Environment, Error, context};
use notes::{Note, notes, notes_of_all};
use oneclock_core::time::Legible;
use serde::Serialize;

use crate::total::{Count, Total};
use crate::trace::{Row, Trace};
use crate::tree::Own;

/// The most spans of one trace that are drawn: those that are charged most.
const MOST_ROWS: usize = 400;
/// As many colours as the page has; services beyond share them.
const COLOURS: usize = 8;

#[derive(Serialize)]
struct Picture {
    id: String,
    elapsed: String,
    spans: usize,
    hidden: usize,
    roots: usize,
    between: Option<String>,
    ticks: Vec<Tick>,
    rows: Vec<Bar>,
    shares: Vec<Part>,
    legend: Vec<(String, usize)>,
    notes: Vec<Note>,
}

#[derive(Serialize)]
struct Tick {
    at: String,
    text: String,
}

/// One line of the waterfall. Places and lengths are per cent of the whole.
#[derive(Serialize)]
struct Bar {
    name: String,
    service: String,
    kind: &'static str,
    depth: usize,
    colour: usize,
    left: String,
    width: String,
    waited_for: bool,
    charged_left: String,
    charged_width: String,
    zombie: Option<(String, String)>,
    /// Where the budget that it began with ended.
    budget: Option<String>,
    label_left: String,
    label_before: bool,
    took: String,
    charged: String,
    own: String,
    error: bool,
    bound: Option<String>,
    grave: Vec<String>,
    tags: Vec<String>,
}

/// One part of a ledger's bar, and its line below.
#[derive(Serialize)]
struct Part {
    name: String,
    time: String,
    share: String,
    width: String,
    colour: usize,
}

/// Draws these traces, and says what all of them came to.
///
/// # Errors
/// When the page cannot be put together, which would be a defect.
pub fn render(traces: &[Trace], total: &Total) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.add_template("page.html", include_str!("page/page.html"))?;
    let mut services = Services::default();
    let parts = parts(total.names.iter().map(|name| (&*name.service, &*name.name, name.own_ns)), total, &mut services);
    let pictures: Vec<Picture> = traces.iter().map(|trace| Picture::of(trace, &mut services)).collect();
    environment.get_template("page.html")?.render(context! {
        traces => total.traces,
        spans => total.spans,
        elapsed => span(total.elapsed_ns),
        many => total.traces > traces.len() as u64 || total.traces > 1,
        shown => traces.len(),
        facts => facts(total),
        parts,
        notes => notes_of_all(total),
        pictures,
    })
}

/// The colour of each service, by the order in which it was met.
#[derive(Default)]
struct Services(BTreeMap<String, usize>);

impl Services {
    fn colour(&mut self, service: &str) -> usize {
        let next = self.0.len() % COLOURS;
        *self.0.entry(service.to_owned()).or_insert(next)
    }
}

fn span(ns: u64) -> String {
    Legible(Duration::from_nanos(ns)).to_string()
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.3}", part as f64 * 100.0 / whole.max(1) as f64)
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

fn named(service: &str, name: &str) -> String {
    match (service, name) {
        ("", name) => name.to_owned(),
        (service, "") => service.to_owned(),
        (service, name) => format!("{service}: {name}"),
    }
}

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The figures at the top: what, how much, in how many, and whether it is bad.
fn facts(total: &Total) -> Vec<(&'static str, String, String, bool)> {
    let of = |count: &Count| format!("{} of {}", plural(count.count, "span"), plural(count.traces, "trace"));
    let resets: u64 = total.resets.iter().map(|hop| hop.count).sum();
    let told = [
        ("ran on for nobody", span(total.zombies.ns), of(&total.zombies), total.zombies.count),
        ("begun for nobody", span(total.begun_after.ns), of(&total.begun_after), total.begun_after.count),
        (
            "retries",
            total.retries.count.to_string(),
            format!("in {}", plural(total.retries.traces, "trace")),
            total.retries.count,
        ),
        ("clock reset", plural(resets, "time"), plural(total.resets.len() as u64, "hop"), resets),
        (
            "look like timeouts",
            total.timeouts.len().to_string(),
            "round durations".to_owned(),
            total.timeouts.len() as u64,
        ),
        (
            "never recorded",
            total.unrecorded.count.to_string(),
            "other sides of calls".to_owned(),
            total.unrecorded.count,
        ),
    ];
    told.into_iter().map(|(what, figure, about, count)| (what, figure, about, count > 0)).collect()
}

fn parts<'a>(
    names: impl Iterator<Item = (&'a str, &'a str, u64)>,
    total: &Total,
    services: &mut Services,
) -> Vec<Part> {
    ledger(names, total.between_roots_ns, total.elapsed_ns, services)
}

/// The largest parts one by one, and the rest together, so that they sum to the whole.
fn ledger<'a>(
    names: impl Iterator<Item = (&'a str, &'a str, u64)>,
    between: u64,
    whole: u64,
    services: &mut Services,
) -> Vec<Part> {
    const MOST: usize = 12;
    let names: Vec<_> = names.filter(|(_, _, own)| *own > 0).collect();
    let part = |name: String, own: u64, colour: usize| Part {
        name,
        time: span(own),
        share: share(own, whole),
        width: percent(own, whole),
        colour,
    };
    let mut parts: Vec<Part> = names
        .iter()
        .take(MOST)
        .map(|(service, name, own)| part(named(service, name), *own, services.colour(service)))
        .collect();
    let rest: u64 = names.iter().skip(MOST).map(|(_, _, own)| own).fold(0, |sum, own| sum.saturating_add(*own));
    if rest > 0 {
        parts.push(part(format!("{} more", names.len() - MOST), rest, COLOURS));
    }
    if between > 0 {
        parts.push(part("unaccounted: between roots".to_owned(), between, COLOURS));
    }
    parts
}

impl Picture {
    fn of(trace: &Trace, services: &mut Services) -> Self {
        let ends = trace.spans.iter().map(|row| row.began_ns.saturating_add(row.took_ns));
        let whole = ends.max().unwrap_or_default().max(trace.elapsed_ns).max(1);
        let shown = shown(trace);
        let bars: Vec<Bar> = trace
            .spans
            .iter()
            .enumerate()
            .filter(|(index, _)| shown[*index])
            .map(|(index, row)| Bar::of(trace, index, row, whole, services.colour(&row.service)))
            .collect();
        let shares = trace.shares();
        let names = shares.iter().map(|share| (&*share.service, &*share.name, share.own_ns));
        let mut legend: Vec<(String, usize)> = Vec::new();
        for row in &trace.spans {
            if legend.len() < 16 && !legend.iter().any(|(service, _)| *service == row.service) {
                legend.push((row.service.clone(), services.colour(&row.service)));
            }
        }
        Self {
            id: trace.id.clone(),
            elapsed: span(trace.elapsed_ns),
            spans: trace.spans.iter().filter(|row| !row.id.is_empty()).count(),
            hidden: trace.spans.len() - bars.len(),
            roots: trace.roots,
            between: (trace.roots > 1).then(|| span(trace.between_roots_ns)),
            ticks: (0..=4).map(|n| Tick { at: percent(n, 4), text: span(whole / 4 * n) }).collect(),
            shares: ledger(names, trace.between_roots_ns, trace.elapsed_ns, services),
            rows: bars,
            legend,
            notes: notes(trace),
        }
    }
}

fn shown(trace: &Trace) -> Vec<bool> {
    let all = trace.spans.len();
    if all <= MOST_ROWS {
        return vec![true; all];
    }
    let mut order: Vec<usize> = (0..all).collect();
    order.sort_by_key(|index| std::cmp::Reverse(trace.spans[*index].charged_ns));
    let (mut shown, mut count) = (vec![false; all], 0);
    for index in order {
        let mut at = Some(index).filter(|_| count < MOST_ROWS);
        while let Some(index) = at.filter(|index| !shown[*index]) {
            (shown[index], count) = (true, count + 1);
            at = trace.spans[index].parent;
        }
    }
    shown
}

impl Bar {
    fn of(trace: &Trace, index: usize, row: &Row, whole: u64, colour: usize) -> Self {
        let ended = row.began_ns.saturating_add(row.took_ns);
        let ran_on = trace.findings.zombies.iter().find(|zombie| zombie.span == index && zombie.ran_on());
        let zombie = ran_on.and_then(|_| {
            let parent = trace.spans.get(row.parent?)?;
            let from = parent.began_ns.saturating_add(parent.took_ns).max(row.began_ns);
            Some((percent(from, whole), percent(ended.saturating_sub(from), whole)))
        });
        let mut tags = Vec::new();
        tags.extend(row.own.map(|own| own_operation(own).to_owned()));
        tags.extend(row.left_at_start_ns.map(|left| format!("{} left", span(left))));
        tags.extend(row.given_ns.map(|given| format!("given {}", span(given))));
        let mut grave = Vec::new();
        grave.extend(row.cause.as_ref().map(|cause| format!("ended by {cause}")));
        grave.extend(trace.findings.resets.iter().any(|reset| reset.span == index).then(|| "clock reset".to_owned()));
        let unrecorded = trace.findings.unrecorded.iter().any(|found| found.span == index);
        grave.extend(unrecorded.then(|| "other side never recorded".to_owned()));
        grave
            .extend(row.outcome.as_ref().filter(|outcome| *outcome == "unknown").map(|_| "outcome unknown".to_owned()));
        let budget = row.left_at_start_ns.or(row.given_ns).map(|left| row.began_ns.saturating_add(left));
        let attempt = trace.findings.retries.iter().find(|retry| retry.span == index);
        tags.extend(attempt.map(|retry| format!("attempt {}", retry.attempt)));
        // Where there is no room behind the bar, its time stands before it.
        let label_before = ended as f64 / whole as f64 > 0.86;
        Self {
            name: if row.name.is_empty() { "unnamed".to_owned() } else { row.name.clone() },
            service: row.service.clone(),
            kind: row.kind.as_str(),
            depth: row.depth.min(24),
            colour,
            left: percent(row.began_ns, whole),
            width: percent(row.took_ns, whole),
            waited_for: row.charged_ns > 0,
            charged_left: percent(row.charged_from_ns, whole),
            charged_width: percent(row.charged_ns, whole),
            zombie,
            label_left: if label_before {
                percent(whole.saturating_sub(row.began_ns), whole)
            } else {
                percent(ended, whole)
            },
            label_before,
            took: span(row.took_ns),
            charged: span(row.charged_ns),
            own: span(row.unaccounted_ns),
            error: row.error,
            budget: budget.filter(|at| *at <= whole).map(|at| percent(at, whole)),
            bound: row.bound.clone(),
            grave,
            tags,
        }
    }
}

const fn own_operation(own: Own) -> &'static str {
    match own {
        Own::Message => "works on a message",
        Own::Follows => "follows",
        Own::Declared => "detached",
        Own::BegunAfter => "begun after its parent",
    }
}
