//! What is drawn: boxes and arrows, as many as a picture holds. Calls between the same two are one arrow; leaves of one
//! caller that say the same are one box.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use super::layout::Place;
use super::{escaped, text_width};
use crate::amount::shown;
use crate::catalogue::Kind;
use crate::graph::Hop;
use crate::inventory::{ComponentId, Role};
use crate::report::Report;
use crate::report::words::{arrow, broken, fit, rules};
use crate::rules::Severity;

/// More than these, and nobody sees anything.
const MOST_NODES: usize = 70;
/// And more than these neither.
const MOST_LINKS: usize = 120;
/// From so many leaves on that say the same, they are one box.
const TOGETHER: usize = 4;
/// The longest name that fits into a box.
const LONGEST_NAME: usize = 30;
/// The longest words on an arrow.
const LONGEST_LABEL: usize = 42;

/// A box.
#[derive(Debug)]
pub(in crate::report) struct Node {
    pub(super) name: String,
    /// Below the name, smaller.
    about: String,
    /// All that it stands for.
    whole: String,
    class: &'static str,
}

/// An arrow.
#[derive(Debug)]
pub(in crate::report) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) limit: String,
    pub(super) rules: Vec<&'static str>,
    pub(super) severity: Option<Severity>,
}

/// Who is drawn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Outside(usize),
    Component(ComponentId),
    /// Nobody here answers to it.
    Name(String),
    /// Leaves of one caller, by one of them.
    Leaves(ComponentId, String),
}

/// Calls between the same two.
#[derive(Default)]
struct Between {
    limits: Vec<String>,
    rules: Vec<&'static str>,
    severity: Option<Severity>,
}

/// Boxes and arrows.
pub(super) struct Drawn {
    pub(super) nodes: Vec<Node>,
    pub(super) links: Vec<Link>,
    /// How many services there was no room for.
    pub(super) nodes_left: usize,
    /// How many calls.
    pub(super) links_left: usize,
}

/// What is broken, and as much of the rest as there is room for.
pub(super) fn drawn(report: &Report<'_>) -> Drawn {
    let graph = &report.graph;
    let broken = broken(report.audited, graph);
    let leaves = leaves(report, &broken.keys().copied().collect());
    let whom = |hop: &Hop<'_>| match leaves.get(&hop.number) {
        Some(limit) => Who::Leaves(hop.from, limit.clone()),
        None => hop.to.map_or_else(|| Who::Name(graph.callee(hop)), Who::Component),
    };
    let mut order: Vec<Who> = Vec::new();
    let mut between: HashMap<(Who, Who), Between> = HashMap::new();
    let mut pairs: Vec<(Who, Who)> = Vec::new();
    let mut stands_for: HashMap<Who, Vec<String>> = HashMap::new();
    for (at, entry) in graph.inventory.entries.iter().enumerate() {
        if let Some(to) = graph.who_answers(entry) {
            let pair = (Who::Outside(at), Who::Component(to));
            between.entry(pair.clone()).or_default().limits.push(format!("budget {}", shown(entry.budget)));
            pairs.push(pair);
        }
    }
    // What is broken first: it is drawn whatever else is not.
    let (first, then): (Vec<&Hop<'_>>, Vec<&Hop<'_>>) =
        graph.hops.iter().partition(|hop| broken.contains_key(&hop.number));
    for hop in first.into_iter().chain(then) {
        let pair = (Who::Component(hop.from), whom(hop));
        stands_for.entry(pair.1.clone()).or_default().push(graph.callee(hop));
        let known = between.entry(pair.clone()).or_insert_with(|| {
            pairs.push(pair);
            Between::default()
        });
        let limit = arrow(hop);
        if !known.limits.contains(&limit) {
            known.limits.push(limit);
        }
        if let Some(found) = broken.get(&hop.number) {
            known.severity = known.severity.into_iter().chain(found.iter().map(|one| one.finding.severity)).min();
            known.rules = rules(found);
        }
    }
    let mut numbers: HashMap<Who, usize> = HashMap::new();
    let mut left_out: HashSet<Who> = HashSet::new();
    let mut links = Vec::new();
    let mut links_left = 0;
    for pair in pairs {
        let new: Vec<&Who> = [&pair.0, &pair.1].into_iter().filter(|who| !numbers.contains_key(*who)).collect();
        if order.len() + new.len() > MOST_NODES || links.len() >= MOST_LINKS {
            left_out.extend(new.into_iter().cloned());
            links_left += 1;
            continue;
        }
        for who in new.into_iter().cloned().collect::<Vec<_>>() {
            numbers.insert(who.clone(), order.len());
            order.push(who);
        }
        let (Some(from), Some(to), Some(calls)) = (numbers.get(&pair.0), numbers.get(&pair.1), between.remove(&pair))
        else {
            continue;
        };
        links.push(Link {
            from: *from,
            to: *to,
            limit: limits(&calls.limits),
            rules: calls.rules,
            severity: calls.severity,
        });
    }
    let names = |who: &Who| stands_for.get(who).map(Vec::as_slice).unwrap_or_default();
    let nodes = order.iter().map(|who| node(report, who, names(who))).collect();
    let nodes_left = left_out.iter().filter(|who| !numbers.contains_key(who)).count();
    Drawn { nodes, links, nodes_left, links_left }
}

fn limits(all: &[String]) -> String {
    let more = all.len().saturating_sub(2);
    let some = all.iter().take(2).cloned().collect::<Vec<_>>().join(" | ");
    fit(&if more > 0 { format!("{some} and {more} more") } else { some }, LONGEST_LABEL)
}

/// The hops to leaves that are drawn as one box, and by what they are the same.
fn leaves(report: &Report<'_>, broken: &HashSet<usize>) -> HashMap<usize, String> {
    let graph = &report.graph;
    let mut alike: BTreeMap<(ComponentId, String), Vec<usize>> = BTreeMap::new();
    let entries: HashSet<ComponentId> =
        graph.inventory.entries.iter().filter_map(|entry| graph.who_answers(entry)).collect();
    for hop in graph.hops.iter().filter(|hop| !broken.contains(&hop.number)) {
        let alone = hop.to.is_none_or(|to| {
            graph.calls_of(to).next().is_none()
                && graph.calls_to(to).all(|call| call.from == hop.from)
                && !entries.contains(&to)
        });
        if alone {
            alike.entry((hop.from, arrow(hop))).or_default().push(hop.number);
        }
    }
    // One that is called in two ways is no leaf of either.
    let mut ways: HashMap<String, HashSet<&str>> = HashMap::new();
    for ((_, limit), hops) in &alike {
        for hop in hops.iter().filter_map(|number| graph.hops.get(*number)) {
            ways.entry(graph.callee(hop)).or_default().insert(limit);
        }
    }
    let mut leaves = HashMap::new();
    for ((_, limit), hops) in &alike {
        let hops: Vec<usize> = hops
            .iter()
            .copied()
            .filter(|number| {
                graph
                    .hops
                    .get(*number)
                    .is_some_and(|hop| ways.get(&graph.callee(hop)).is_some_and(|ways| ways.len() == 1))
            })
            .collect();
        if hops.len() >= TOGETHER {
            leaves.extend(hops.into_iter().map(|hop| (hop, limit.clone())));
        }
    }
    leaves
}

fn node(report: &Report<'_>, who: &Who, names: &[String]) -> Node {
    let graph = &report.graph;
    match who {
        Who::Outside(at) => {
            let name = graph.inventory.entries.get(*at).map_or("", |entry| &entry.name);
            Node { name: fit(name, LONGEST_NAME), about: "waits".to_owned(), whole: name.to_owned(), class: "outside" }
        }
        Who::Component(id) => {
            let component = graph.component(*id);
            let product = component.map_or("", |component| component.product.as_str());
            let ends = graph.serving(*id, Kind::ServerKill).and_then(|setting| setting.amount.after());
            let ends = ends.map(|time| format!("ends it after {}", shown(time)));
            let about: Vec<String> =
                std::iter::once(product.to_owned()).filter(|text| !text.is_empty()).chain(ends).collect();
            let class = match component.map(|component| component.role) {
                Some(Role::Gateway) => "box outside",
                Some(Role::Between) => "box between",
                _ => "box",
            };
            let name = graph.name(*id);
            Node { name: fit(name, LONGEST_NAME), about: fit(&about.join(", "), 36), whole: name.to_owned(), class }
        }
        Who::Name(name) => {
            Node { name: fit(name, LONGEST_NAME), about: String::new(), whole: name.clone(), class: "nobody" }
        }
        Who::Leaves(..) => {
            let mut names = names.to_vec();
            names.sort();
            names.dedup();
            let first = names.first().map(String::as_str).unwrap_or_default();
            let name = if names.len() > 1 {
                format!("{} and {} more", fit(first, 18), names.len() - 1)
            } else {
                fit(first, LONGEST_NAME)
            };
            Node { name, about: String::new(), whole: fit(&names.join(", "), 1_000), class: "box" }
        }
    }
}

// === Link ===

impl Link {
    /// The rules that it breaks, as much of them as fits: the first two, and how many more.
    pub(super) fn told_rules(&self) -> String {
        let more = self.rules.len().saturating_sub(2);
        let some = self.rules.iter().take(2).copied().collect::<Vec<_>>().join(", ");
        if more > 0 { format!("{some} and {more} more") } else { some }
    }
}

// === Node ===

impl Node {
    /// How wide its box has to be.
    pub(super) fn width(&self) -> f64 {
        (text_width(&self.name, 15.0).max(text_width(&self.about, 11.0)) + 28.0).max(96.0)
    }

    pub(super) fn write(&self, svg: &mut String, place: &Place) {
        let middle = place.y + place.height / 2.0;
        let x = place.x + place.width / 2.0;
        let _ = write!(
            svg,
            "<g><title>{}</title><rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"7\"/>\
             <text class=\"strong\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            escaped(&self.whole),
            self.class,
            place.x,
            place.y,
            place.width,
            place.height,
            if self.about.is_empty() { middle + 4.5 } else { middle - 2.0 },
            escaped(&self.name),
        );
        if !self.about.is_empty() {
            let y = middle + 14.0;
            let _ = write!(
                svg,
                "<text class=\"small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
                escaped(&self.about)
            );
        }
        svg.push_str("</g>\n");
    }
}
