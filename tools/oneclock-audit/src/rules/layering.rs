//! Does what is inside end before what is outside? A caller that gives up first leaves work behind that nobody waits for,
//! and never sees the better answer of the layer that gives up later.
//!
//! Compared are a limit and the nearest limit outside of it; a shorter one further outside as long as what is left of that
//! goes along. Nothing is said where it goes along to the inner call: then the inner one ends with the outer, whatever number
//! it has.

use std::time::Duration;

use super::{Finding, Rule, Severity, absent, words};
use crate::amount::shown;
use crate::catalogue::Kind;
use crate::graph::limits::{GivesUp, Patience};
use crate::graph::paths::Path;
use crate::graph::{Graph, Hop};
use crate::inventory::{Propagates, Setting};

/// An inner call may take as long as its caller's caller waits, or longer.
pub(super) const OUTER_BEFORE_INNER: Rule = Rule {
    id: "outer-before-inner",
    says: "a caller gives up before the call inside of it does",
    page: include_str!("../../rules/outer-before-inner.md"),
    look: outer_before_inner,
};

/// A server ends a request's work no sooner than its caller gives up.
pub(super) const SERVER_OUTLIVES_CALLER: Rule = Rule {
    id: "server-outlives-caller",
    says: "a server goes on with a request after its caller gave up",
    page: include_str!("../../rules/server-outlives-caller.md"),
    look: server_outlives_caller,
};

/// What is inside is known to take longer than anybody outside waits.
pub(super) const ANSWER_TOO_LATE: Rule = Rule {
    id: "answer-too-late",
    says: "an answer is known to come after its caller gave up",
    page: include_str!("../../rules/answer-too-late.md"),
    look: answer_too_late,
};

/// A call that bounds those inside of it.
struct Outer<'g, 'a> {
    at: usize,
    hop: &'g Hop<'a>,
    gives_up: GivesUp<'a>,
}

/// How long the inner call may take.
enum Inner {
    /// As long as this, or longer where nobody knows how often it is tried.
    For(Duration),
    /// Nothing ends it.
    Forever,
}

fn outer_before_inner(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for path in graph.paths() {
        let mut outer: Option<Outer<'_, '_>> = None;
        for (at, hop) in path.hops.iter().enumerate() {
            if hop.call.streaming {
                continue;
            }
            if let Some(outer) = outer.as_ref().filter(|outer| !handed_on(&path, outer.at, at)) {
                match inner(graph, outer, hop) {
                    Some((Inner::For(time), decides)) if time >= outer.gives_up.after => {
                        findings.push(told_outer_before_inner(graph, &path, outer, at, time, decides));
                    }
                    Some((Inner::Forever, decides)) => findings.push(told_endless(graph, &path, outer, at, decides)),
                    _ => {}
                }
            }
            // Zero fires at once, whatever is inside: that is told by itself (`idle-is-no-total`).
            if let Some(gives_up) = hop.limits.gives_up().filter(|gives_up| !gives_up.after.is_zero()) {
                let shorter =
                    |outer: &Outer<'_, '_>| outer.gives_up.after <= gives_up.after && handed_on(&path, outer.at, at);
                if !outer.as_ref().is_some_and(shorter) {
                    outer = Some(Outer { at, hop, gives_up });
                }
            }
        }
    }
}

/// How long a call inside of another may take, and what decides it; `None` where nobody knows, or asks.
fn inner<'a>(graph: &Graph<'a>, outer: &Outer<'_, 'a>, hop: &Hop<'a>) -> Option<(Inner, &'a Setting)> {
    let limits = &hop.limits;
    if limits.patience() == Patience::Forever {
        // What only counts silence bounds nothing inside of it: that is `no-limit`.
        let bounded = outer.hop.limits.attempt().at_most().is_some();
        let asked = bounded && absent::is_asked(graph, hop) && !absent::is_ended(graph, hop);
        return Some((Inner::Forever, limits.unbounds()?)).filter(|_| asked);
    }
    // Nobody knows how many tries there are: one at least.
    let least = || limits.attempt().time().filter(|_| !limits.knows_tries());
    let time = limits.patience().time().or_else(least)?;
    Some((Inner::For(time), limits.decides().or_else(|| limits.decides_attempt())?))
}

/// Whether what is left of the outer call reaches the caller of the inner one.
fn handed_on(path: &Path<'_, '_>, outer: usize, inner: usize) -> bool {
    path.hops.get(outer..inner).is_some_and(|hops| hops.iter().all(|hop| hop.call.propagates == Propagates::Deadline))
}

/// Whether the callees along the way are known without doubt.
fn is_certain(path: &Path<'_, '_>, outer: usize, inner: usize) -> bool {
    path.hops.get(outer..inner).is_some_and(|hops| hops.iter().all(|hop| hop.others == 0))
}

/// How loud it is; `bounds`: whether both are known for certain, and bound the whole.
fn severity(path: &Path<'_, '_>, outer: &Outer<'_, '_>, at: usize, decides: &Setting, bounds: bool) -> Severity {
    let (inside, outside) = (words::is_written(decides), words::is_written(outer.gives_up.decides));
    let between = path.hops.get(outer.at..at).unwrap_or_default();
    let declared = between.iter().any(|hop| hop.call.propagates == Propagates::None);
    match (inside, outside) {
        (true, true) if bounds && declared && is_certain(path, outer.at, at) => Severity::Error,
        (false, false) => Severity::Note,
        _ => Severity::Warning,
    }
}

/// The finding without its consequence; the place is that of what somebody wrote.
fn told(
    graph: &Graph<'_>,
    path: &Path<'_, '_>,
    outer: &Outer<'_, '_>,
    at: usize,
    decides: &Setting,
    bounds: bool,
    says: String,
) -> Finding {
    let severity = severity(path, outer, at, decides, bounds);
    let outside = outer.gives_up.decides;
    let (first, second) = if words::is_written(decides) { (decides, outside) } else { (outside, decides) };
    Finding::new(&OUTER_BEFORE_INNER, severity, &first.place, says)
        .label(words::setting(first))
        .related(&second.place, words::setting(second))
        .along(graph, path.hops.get(outer.at..=at).unwrap_or_default())
}

fn told_outer_before_inner(
    graph: &Graph<'_>,
    path: &Path<'_, '_>,
    outer: &Outer<'_, '_>,
    at: usize,
    inner: Duration,
    decides: &Setting,
) -> Finding {
    let hop = path.hops.get(at).copied().unwrap_or(outer.hop);
    let known = hop.limits.knows_tries();
    let bounds = !outer.gives_up.silence && hop.limits.patience().at_most().is_some() && known;
    let after = shown(outer.gives_up.after);
    let may_take = match hop.limits.patience().time() {
        Some(_) => words::patience(hop),
        None => format!("{} and more (nobody knows how many tries there are)", shown(inner)),
    };
    let says = format!(
        "{} may take {may_take}, and {} gives up after {after}",
        words::hop(graph, hop),
        words::hop(graph, outer.hop)
    );
    let silence = if outer.gives_up.silence { " without hearing anything" } else { "" };
    let works = graph.name(hop.from);
    let consequence = match inner.saturating_sub(outer.gives_up.after) {
        Duration::ZERO => {
            format!("which of the two ends first is chance: after {after}{silence} {works} may still work, for nobody")
        }
        more => {
            format!("after {after}{silence} nobody waits for what {works} still does, for up to {} more", shown(more))
        }
    };
    told(graph, path, outer, at, decides, bounds, says).consequence(consequence).help(way_out(&after))
}

fn way_out(after: &str) -> String {
    format!(
        "let the inner one end first (well below {after}, with room for the way home), or hand on what is left of the budget"
    )
}

/// One for each file and setting: a gateway with twenty routes to services without limits has one thing to write.
fn told_endless(
    graph: &Graph<'_>,
    path: &Path<'_, '_>,
    outer: &Outer<'_, '_>,
    at: usize,
    decides: &Setting,
) -> Finding {
    let hop = path.hops.get(at).copied().unwrap_or(outer.hop);
    let after = shown(outer.gives_up.after);
    let silence = if outer.gives_up.silence { " without hearing anything" } else { "" };
    let call = words::hop(graph, hop);
    let several = format!(" may wait for ever, and {} gives up after {after}", words::hop(graph, outer.hop));
    told(graph, path, outer, at, decides, !outer.gives_up.silence, format!("{call}{several}"))
        .consequence(format!(
            "after {after}{silence} nobody waits for what {} still does, however long that is",
            graph.name(hop.from)
        ))
        .help(way_out(&after))
        .group(absent::in_file(decides, hop, call, several))
}

fn server_outlives_caller(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let Some(kill) = hop.to.and_then(|to| graph.serving(to, Kind::ServerKill)) else { continue };
        let Some(GivesUp { after: time, decides, .. }) = hop.limits.gives_up() else { continue };
        let Some(until) = kill.amount.after().filter(|until| *until > time) else { continue };
        let passed_on = hop.call.propagates == Propagates::Deadline || hop.call.streaming;
        let neither = !words::is_written(kill) && !words::is_written(decides);
        if passed_on || neither {
            continue;
        }
        // A default that no file shows cuts off as surely as a written limit; a little longer is no more than untidy.
        let loud = words::is_written(kill) && (words::is_written(decides) || decides.known.hidden);
        let little = until.saturating_sub(time) <= time / 10;
        let severity = if loud && !little { Severity::Warning } else { Severity::Note };
        let says = format!(
            "{} works on a request for up to {}, and {} gives up after {}",
            graph.callee(hop),
            shown(until),
            words::hop(graph, hop),
            shown(time),
        );
        let (first, second) = if words::is_written(kill) { (kill, decides) } else { (decides, kill) };
        let finding = Finding::new(&SERVER_OUTLIVES_CALLER, severity, &first.place, says)
            .label(words::setting(first))
            .related(&second.place, words::setting(second))
            .along(graph, &[hop])
            .consequence(format!("for up to {} a worker is busy for nobody", shown(until.saturating_sub(time))))
            .help(format!("let the server end it a little before {}", shown(time)));
        findings.push(finding);
    }
}

/// How long a caller waits that gives each try so long, and why.
fn waits(hop: &Hop<'_>, one: Duration) -> (Duration, String) {
    let tries = hop.limits.tries().map_or(u32::MAX, |tries| u32::try_from(tries).unwrap_or(u32::MAX));
    let all = one.saturating_mul(tries).saturating_add(hop.limits.backoff().saturating_mul(tries.saturating_sub(1)));
    let all = hop.limits.get(Kind::Total).and_then(|total| total.amount.after()).map_or(all, |total| total.min(all));
    if tries > 1 && tries < u32::MAX && all > one {
        return (all, format!("{} ({tries} tries of {})", shown(all), shown(one)));
    }
    (one, shown(one))
}

fn answer_too_late(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for path in graph.paths() {
        for (at, hop) in path.hops.iter().enumerate() {
            let Some(delay) = hop.limits.get(Kind::Fault) else { continue };
            let Some(least) = delay.amount.after() else { continue };
            for outer in path.hops.iter().take(at).rev() {
                // However often it is tried: no try is long enough.
                let Some(one) = outer.limits.gives_up().filter(|one| one.after < least) else { continue };
                let (all, waits) = waits(outer, one.after);
                let says = format!(
                    "{} takes at least {}, and {} waits {}: the call fails after {}",
                    words::hop(graph, hop),
                    shown(least),
                    words::hop(graph, outer),
                    waits,
                    shown(all),
                );
                let finding = Finding::new(&ANSWER_TOO_LATE, Severity::Warning, &delay.place, says)
                    .label(words::setting(delay))
                    .related(&one.decides.place, words::setting(one.decides))
                    .along(graph, path.hops.get(..=at).unwrap_or_default())
                    .consequence("every try fails, and each leaves its work behind")
                    .help(format!("wait longer than {}, or expect the failure", shown(least)));
                findings.push(finding);
                break;
            }
        }
    }
}
