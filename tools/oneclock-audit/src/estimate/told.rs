//! A finding's price, where the topology file says how often requests come: how many are worked on for nobody, and how
//! many requests repeating can make.

use std::collections::HashSet;
use std::time::Duration;

use super::{PerSecond, Share, short, zombies};
use crate::catalogue::Kind;
use crate::graph::Graph;
use crate::inventory::{ComponentId, Entry};
use crate::rules::Finding;

/// The rules whose findings have a price.
const OUTER: &str = "outer-before-inner";
const SERVER: &str = "server-outlives-caller";
const RETRIES: &str = "retry-amplification";

/// Adds it to what follows from the findings. Without a rate nothing is added: a number that nobody measured is none.
pub(crate) fn amend(graph: &Graph<'_>, findings: &mut [Finding]) {
    let reached: Vec<Reached<'_>> =
        graph.inventory.entries.iter().filter_map(|entry| Reached::of(graph, entry)).collect();
    if reached.is_empty() {
        return;
    }
    for finding in findings {
        let Some(first) = finding.between.first() else { continue };
        let from = reached.iter().filter(|reached| reached.names.contains(first.as_str()));
        let Some(entry) = from.max_by(|a, b| a.rate.get().total_cmp(&b.rate.get())) else { continue };
        let price = match finding.rule {
            OUTER | SERVER => for_nobody(graph, finding, entry),
            RETRIES => repeated(graph, finding, entry),
            _ => None,
        };
        if let Some(price) = price {
            let separator = if finding.consequence.is_empty() { "" } else { "; " };
            finding.consequence.push_str(separator);
            finding.consequence.push_str(&price);
        }
    }
}

/// An entry with its rate, and the names of whom its requests can reach.
struct Reached<'a> {
    entry: &'a str,
    rate: PerSecond,
    names: HashSet<&'a str>,
}

impl<'a> Reached<'a> {
    fn of(graph: &Graph<'a>, entry: &'a Entry) -> Option<Self> {
        let rate = entry.rate?;
        let mut seen: HashSet<ComponentId> = HashSet::new();
        let mut next = vec![graph.who_answers(entry)?];
        while let Some(id) = next.pop() {
            if seen.insert(id) {
                next.extend(graph.calls_of(id).filter_map(|hop| hop.to));
            }
        }
        Some(Self { entry: &entry.name, rate, names: seen.into_iter().map(|id| graph.name(id)).collect() })
    }
}

/// How long the innermost one goes on after the outermost one gave up.
fn for_nobody(graph: &Graph<'_>, finding: &Finding, entry: &Reached<'_>) -> Option<String> {
    let extra = extra(graph, finding)?;
    let one = zombies(entry.rate, Share::percent(1.0)?, extra);
    Some(format!(
        "of {} of {}, each percent that runs into it keeps {} at work for nobody at any moment",
        entry.rate,
        entry.entry,
        short(one),
    ))
}

fn extra(graph: &Graph<'_>, finding: &Finding) -> Option<Duration> {
    let (outer, inner) = (graph.hops.get(*finding.hops.first()?)?, graph.hops.get(*finding.hops.last()?)?);
    let outer = outer.limits.gives_up()?.after;
    let inner = match finding.rule {
        SERVER => inner.to.and_then(|to| graph.serving(to, Kind::ServerKill))?.amount.after()?,
        _ => inner.limits.patience().time()?,
    };
    Some(inner.saturating_sub(outer)).filter(|extra| !extra.is_zero())
}

fn repeated(graph: &Graph<'_>, finding: &Finding, entry: &Reached<'_>) -> Option<String> {
    let mut factor = 1.0;
    for hop in &finding.hops {
        let tries = graph.hops.get(*hop)?.limits.tries()?;
        factor *= super::amplification(Share::ALL, tries);
    }
    let (last, most) = (finding.between.last()?, entry.rate.times(factor)?);
    Some(format!("of {} of {} up to {most} arrive at {last}", entry.rate, entry.entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_price_is_a_rule() {
        for id in [OUTER, SERVER, RETRIES] {
            assert!(crate::rules::rule(id).is_some(), "{id}");
        }
    }
}
