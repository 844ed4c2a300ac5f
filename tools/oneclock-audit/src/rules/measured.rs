//! Limits against what was measured, and against what a person waits for.

use std::collections::HashSet;
use std::time::Duration;

use super::{Finding, Rule, Severity, words};
use crate::amount::shown;
use crate::graph::limits::Patience;
use crate::graph::{Graph, Hop};
use crate::inventory::{ComponentId, Entry, On, Role};

/// A limit is near, or far from, what is normal.
pub(super) const TIMEOUT_AND_P99: Rule = Rule {
    id: "timeout-and-p99",
    page: include_str!("../../rules/timeout-and-p99.md"),
    says: "a limit is too near to what is normal, or so far that it protects nobody",
    look: timeout_and_p99,
};

/// A breaker counts calls as slow that are over before they are.
pub(super) const BREAKER_AND_TIMEOUT: Rule = Rule {
    id: "breaker-and-timeout",
    page: include_str!("../../rules/breaker-and-timeout.md"),
    says: "a breaker waits for slow calls that a limit ends before they are slow",
    look: breaker_and_timeout,
};

/// A person waits for what should be a job.
pub(super) const SYNC_TOO_LONG: Rule = Rule {
    id: "sync-too-long",
    says: "somebody waits for an answer for longer than anybody waits",
    page: include_str!("../../rules/sync-too-long.md"),
    look: sync_too_long,
};

/// From when on a breaker counts a call as slow; other settings of breakers are of the same kind.
const SLOW_CALLS: &str = "resilience4j.circuitbreaker.slow_call";
/// Below twice the 99th percentile a limit cuts healthy calls; three to five times is healthy.
const TOO_NEAR: f64 = 2.0;
/// Beyond this many times it protects nobody.
const TOO_FAR: f64 = 20.0;
/// Longer than what somebody in front of a screen, or a load balancer, waits.
const A_LONG_WAIT: Duration = Duration::from_secs(30);

fn timeout_and_p99(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let (Some(limit), Some(decides)) = (hop.limits.attempt().time(), hop.limits.decides_attempt()) else {
            continue;
        };
        let (Some(p99), Some(at)) = (graph.measured_call(hop), graph.measured_at(hop.edge, hop.to)) else { continue };
        if p99.is_zero() {
            continue;
        }
        let ratio = limit.as_secs_f64() / p99.as_secs_f64();
        let (severity, consequence) = if ratio < TOO_NEAR {
            (Severity::Warning, "a little slower than usual, and healthy calls are cut off and tried again")
        } else if ratio > TOO_FAR {
            (Severity::Note, "a callee that hangs holds its callers for a long time before anybody gives up")
        } else {
            continue;
        };
        let says = format!(
            "{}: the limit of {} is {ratio:.1} times the P99 of {}",
            words::hop(graph, hop),
            shown(limit),
            shown(p99),
        );
        let finding = Finding::new(&TIMEOUT_AND_P99, severity, &decides.place, says)
            .label(words::setting(decides))
            .related(at, format!("P99 {}", shown(p99)))
            .along(graph, &[hop])
            .consequence(consequence)
            .help(advice(graph, hop, p99));
        findings.push(finding);
    }
}

/// A healthy limit, and no longer than whoever waits has.
fn advice(graph: &Graph<'_>, hop: &Hop<'_>, p99: Duration) -> String {
    let (least, most) = (p99.saturating_mul(3), p99.saturating_mul(5));
    let entries = graph.inventory.entries.iter().filter(|entry| reaches(graph, entry, hop.from));
    let tightest = entries.min_by_key(|entry| entry.budget.saturating_sub(entry.reserve));
    let Some((entry, has)) = tightest.map(|entry| (entry, entry.budget.saturating_sub(entry.reserve))) else {
        return format!("between {} and {} would be 3 to 5 times", words::about(least), words::about(most));
    };
    if least > has {
        return format!(
            "3 to 5 times would be {} to {}, and {} has {}: make the callee faster, or wait longer out there",
            words::about(least),
            words::about(most),
            entry.name,
            shown(has),
        );
    }
    let most = most.min(has);
    let why = if most == has { format!(", within what {} has", entry.name) } else { String::new() };
    format!("between {} and {} would be 3 to 5 times{why}", words::about(least), words::about(most))
}

/// Whether an entry's requests come to a component.
fn reaches(graph: &Graph<'_>, entry: &Entry, to: ComponentId) -> bool {
    let mut seen = HashSet::new();
    let mut next: Vec<ComponentId> = graph.who_answers(entry).into_iter().collect();
    while let Some(id) = next.pop() {
        if id == to {
            return true;
        }
        if seen.insert(id) {
            next.extend(graph.calls_of(id).filter_map(|hop| hop.to));
        }
    }
    false
}

fn breaker_and_timeout(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for breaker in graph.inventory.settings.iter().filter(|one| one.known.id == SLOW_CALLS) {
        let hop = graph.hops.iter().find(|hop| breaker.on == On::Edge(hop.edge));
        let Some((hop, slow)) = hop.zip(breaker.amount.after()) else { continue };
        let Some(limit) = hop.limits.attempt().at_most().filter(|limit| *limit < slow) else { continue };
        let Some(decides) = hop.limits.decides_attempt().filter(|decides| words::is_written(decides)) else { continue };
        let says = format!(
            "{}: a call counts as slow from {} on, and is over after {}",
            words::hop(graph, hop),
            shown(slow),
            shown(limit),
        );
        let finding = Finding::new(&BREAKER_AND_TIMEOUT, Severity::Warning, &breaker.place, says)
            .label(words::setting(breaker))
            .related(&decides.place, words::setting(decides))
            .along(graph, &[hop])
            .consequence("no call is ever slow: of a callee that gets slower the breaker sees nothing but failures")
            .help(format!("call slow what takes {} or so", words::about(limit / 2)));
        findings.push(finding);
    }
}

fn sync_too_long(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let from_outside = graph.component(hop.from).is_some_and(|component| component.role == Role::Gateway);
        let Patience::AtMost(limit) = hop.limits.attempt() else { continue };
        let Some(decides) = hop.limits.decides_attempt().filter(|setting| words::is_written(setting)) else { continue };
        if !from_outside || hop.call.streaming || limit <= A_LONG_WAIT {
            continue;
        }
        let says = format!("{} may keep somebody waiting for {}", words::hop(graph, hop), shown(limit));
        let finding = Finding::new(&SYNC_TOO_LONG, Severity::Note, &decides.place, says)
            .label(words::setting(decides))
            .along(graph, &[hop])
            .consequence("whoever waits has gone, and something on the way has given up, long before")
            .help("accept the work with 202 and a place to ask for its state, and let it run as a job");
        findings.push(finding);
    }
}
