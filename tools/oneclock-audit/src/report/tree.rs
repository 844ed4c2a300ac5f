//! The graph as an indented tree, from the outside in: on each arrow how long the caller waits, and what is wrong with it.
//! Whom several call is drawn once; calls that lead no further and say the same are one line.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use super::words::{arrow, broken, counted, fit, route, rules};
use super::{Detail, Report};
use crate::graph::paths::DEEPEST;
use crate::graph::{Graph, Hop};
use crate::inventory::{ComponentId, Propagates};
use crate::report::text::{BAD, DIM, HEADING};

/// The most lines that are drawn, unless all is asked for.
const MOST: usize = 40;
/// The most names in one line.
const NAMES: usize = 4;

struct Drawing<'g, 'a> {
    graph: &'g Graph<'a>,
    broken: HashMap<usize, Vec<&'static str>>,
    drawn: HashSet<ComponentId>,
    lines: Vec<String>,
}

/// Who begins, and what is below: of several that say the same, once.
struct Block {
    names: Vec<String>,
    product: String,
    lines: Vec<String>,
}

/// `a, b, c, d and 12 more`, each name once; whether it is told that several have one name.
fn some(all: &[String], in_all: bool) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in all {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(NAMES);
    let several = if in_all && names.len() < all.len() { format!(" ({} in all)", all.len()) } else { String::new() };
    names.truncate(NAMES);
    let names = names.join(", ");
    if more > 0 { format!("{names} and {more} more{several}") } else { format!("{names}{several}") }
}

/// Writes it, those with findings first.
pub(super) fn write(out: &mut dyn Write, report: &Report<'_>, detail: Detail) -> io::Result<()> {
    let graph = &report.graph;
    let broken = broken(report.audited, graph).into_iter().map(|(hop, found)| (hop, rules(&found))).collect();
    let mut drawing = Drawing { graph, broken, drawn: HashSet::new(), lines: Vec::new() };
    let mut roots: Vec<ComponentId> = Vec::new();
    let mut seen = HashSet::new();
    for path in graph.paths() {
        if let Some(first) = path.hops.first()
            && seen.insert(first.from)
        {
            roots.push(first.from);
        }
    }
    roots.sort_by_key(|root| !drawing.leads_to_broken(*root));
    let mut blocks: Vec<Block> = Vec::new();
    for root in roots {
        // A way may begin in the middle, where all of them are too many.
        if drawing.drawn.contains(&root) && graph.calls_to(root).next().is_some() {
            continue;
        }
        let product = graph.component(root).map_or("", |component| component.product.as_str());
        drawing.below(root, "", 0);
        let lines = std::mem::take(&mut drawing.lines);
        let (name, product) = (fit(graph.name(root), 60), fit(product, 30));
        match blocks.iter_mut().find(|block| block.product == product && block.lines == lines) {
            Some(same) => same.names.push(name),
            None => blocks.push(Block { names: vec![name], product, lines }),
        }
    }
    for block in blocks {
        let names = some(&block.names, true);
        let product = if block.product.is_empty() { String::new() } else { format!("  {DIM}{}{DIM:#}", block.product) };
        drawing.lines.push(format!("{names}{product}"));
        drawing.lines.extend(block.lines);
    }
    if drawing.lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADING}who calls whom, and how long each waits{HEADING:#}\n")?;
    let all = drawing.lines.len();
    let shown = if detail == Detail::Verbose || all <= MOST + 1 { all } else { MOST };
    for line in drawing.lines.iter().take(shown) {
        writeln!(out, "  {line}")?;
    }
    if all > shown {
        writeln!(out, "  {DIM}and {} more: --verbose has all of them{DIM:#}", counted(all - shown, "line"))?;
    }
    writeln!(out)
}

impl<'g, 'a> Drawing<'g, 'a> {
    fn leads_to_broken(&self, root: ComponentId) -> bool {
        let mut seen = HashSet::new();
        let mut next = vec![root];
        while let Some(id) = next.pop() {
            if !seen.insert(id) {
                continue;
            }
            for hop in self.graph.calls_of(id) {
                if self.broken.contains_key(&hop.number) {
                    return true;
                }
                next.extend(hop.to);
            }
        }
        false
    }

    fn below(&mut self, id: ComponentId, indent: &str, depth: usize) {
        if depth >= DEEPEST || !self.drawn.insert(id) {
            return;
        }
        let groups = self.alike(id);
        let last = groups.len().saturating_sub(1);
        for (at, hops) in groups.iter().enumerate() {
            let Some(hop) = hops.first() else { continue };
            let (branch, under) = if at == last { ("└─", "   ") } else { ("├─", "│  ") };
            let names: Vec<String> = hops.iter().map(|hop| fit(&self.graph.callee(hop), 60)).collect();
            let names = some(&names, false);
            let route = if hops.len() == 1 { fit(&route(self.graph, hop), 48) } else { String::new() };
            let wrong = match self.broken.get(&hop.number) {
                Some(rules) => format!("  {BAD}✗ {}{BAD:#}", rules.join(", ")),
                None => String::new(),
            };
            let drawn = hop.to.is_some_and(|to| self.drawn.contains(&to) && self.graph.calls_of(to).next().is_some());
            let above = if drawn { format!("  {DIM}(drawn above){DIM:#}") } else { String::new() };
            let limit = arrow(hop);
            let handed = if hop.call.propagates == Propagates::Deadline { ", hands on what is left" } else { "" };
            self.lines.push(format!(
                "{DIM}{indent}{branch}{DIM:#} {limit}{handed} {DIM}→{DIM:#} {names}{DIM}{route}{DIM:#}{wrong}{above}"
            ));
            if let Some(to) = hop.to {
                self.below(to, &format!("{indent}{under}"), depth + 1);
            }
        }
    }

    /// The calls of a component; those that lead no further and say the same together.
    fn alike(&self, id: ComponentId) -> Vec<Vec<&'g Hop<'a>>> {
        let mut groups: Vec<Vec<&'g Hop<'a>>> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let graph = self.graph;
        for hop in graph.calls_of(id) {
            let ends = hop.to.is_none_or(|to| graph.calls_of(to).next().is_none());
            let wrong = self.broken.get(&hop.number);
            let whom = if ends { String::new() } else { graph.callee(hop) };
            let key = format!("{ends}{whom}{}{:?}{wrong:?}", arrow(hop), hop.call.propagates);
            match known.get(&key).and_then(|at| groups.get_mut(*at)) {
                Some(group) => group.push(hop),
                None => {
                    known.insert(key, groups.len());
                    groups.push(vec![hop]);
                }
            }
        }
        groups
    }
}
