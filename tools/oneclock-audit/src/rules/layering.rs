//! Does what is inside end before what is outside? A caller that gives up first leaves work behind that nobody waits for,
//! and never sees the better answer of the layer that gives up later.
//!
//! Compared are a limit and the nearest limit outside of it. Nothing is said where what is left goes along with the call:
//! then the inner one ends with the outer, whatever number it has.

use std::time::Duration;

use super::{Finding, Rule, Severity, words};
use crate::amount::shown;
use crate::catalogue::Kind;
use crate::graph::limits::Patience;
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

/// The attempts of a call do not fit into its total.
pub(super) const ATTEMPTS_EXCEED_TOTAL: Rule = Rule {
    id: "attempts-exceed-total",
    says: "the attempts of a call do not fit into the time of all of them",
    page: include_str!("../../rules/attempts-exceed-total.md"),
    look: attempts_exceed_total,
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
    time: Duration,
    decides: &'a Setting,
    silence: bool,
}

fn outer_before_inner(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for path in graph.paths() {
        let mut outer: Option<Outer<'_, '_>> = None;
        for (at, hop) in path.hops.iter().enumerate() {
            if let (Some(outer), Some(inner), Some(decides)) =
                (&outer, hop.limits.patience().time(), hop.limits.decides())
                && inner >= outer.time
                && !hop.call.streaming
                && !handed_on(&path, outer.at, at)
            {
                findings.push(told_outer_before_inner(graph, &path, outer, at, inner, decides));
            }
            if let (Some(time), Some(decides)) = (hop.limits.attempt().time(), hop.limits.decides_attempt())
                && !hop.call.streaming
            {
                let silence = matches!(hop.limits.attempt(), Patience::Silence(_));
                outer = Some(Outer { at, hop, time, decides, silence });
            }
        }
    }
}

/// Whether what is left of the outer call reaches the caller of the inner one.
fn handed_on(path: &Path<'_, '_>, outer: usize, inner: usize) -> bool {
    path.hops.get(outer..inner).is_some_and(|hops| hops.iter().all(|hop| hop.call.propagates == Propagates::Deadline))
}

/// Whether the callees along the way are known without doubt.
fn is_certain(path: &Path<'_, '_>, outer: usize, inner: usize) -> bool {
    path.hops.get(outer..inner).is_some_and(|hops| hops.iter().all(|hop| hop.others == 0))
}

fn told_outer_before_inner(
    graph: &Graph<'_>,
    path: &Path<'_, '_>,
    outer: &Outer<'_, '_>,
    at: usize,
    inner: Duration,
    decides: &Setting,
) -> Finding {
    let hops = path.hops.get(outer.at..=at).unwrap_or_default();
    let hop = path.hops.get(at).copied().unwrap_or(outer.hop);
    let written = words::is_written(decides) && words::is_written(outer.decides);
    let bounds = !outer.silence && hop.limits.patience().at_most().is_some();
    let declared = outer.hop.call.propagates == Propagates::None;
    let severity = match (written, bounds) {
        (true, true) if declared && is_certain(path, outer.at, at) => Severity::Error,
        (false, _) if !words::is_written(decides) && !words::is_written(outer.decides) => Severity::Note,
        _ => Severity::Warning,
    };
    let says = format!(
        "{} may take {}, and {} gives up after {}",
        words::hop(graph, hop),
        words::patience(hop),
        words::hop(graph, outer.hop),
        shown(outer.time),
    );
    let (first, second) = if words::is_written(decides) { (decides, outer.decides) } else { (outer.decides, decides) };
    let silence = if outer.silence { " without hearing anything" } else { "" };
    Finding::new(&OUTER_BEFORE_INNER, severity, &first.place, says)
        .label(words::setting(first))
        .related(&second.place, words::setting(second))
        .between(words::along(graph, hops))
        .consequence(format!(
            "after {}{silence} nobody waits for what {} still does, for up to {} more",
            shown(outer.time),
            graph.name(hop.from),
            shown(inner.saturating_sub(outer.time)),
        ))
        .help(format!(
            "let the inner one end first (well below {}, with room for the way home), or hand on what is left of the budget",
            shown(outer.time),
        ))
}

fn server_outlives_caller(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let Some(kill) = hop.to.and_then(|to| graph.serving(to, Kind::ServerKill)) else { continue };
        let (Some(time), Some(decides)) = (hop.limits.attempt().time(), hop.limits.decides_attempt()) else { continue };
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
            .between(words::along(graph, &[hop]))
            .consequence(format!("for up to {} a worker is busy for nobody", shown(until.saturating_sub(time))))
            .help(format!("let the server end it a little before {}", shown(time)));
        findings.push(finding);
    }
}

fn attempts_exceed_total(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let limits = &hop.limits;
        let (Some(total), Some(attempt)) = (limits.get(Kind::Total), limits.get(Kind::Attempt)) else { continue };
        let (Some(all), Some(one)) = (total.amount.after(), attempt.amount.after()) else { continue };
        let Some(tries) = limits.tries() else { continue };
        let times = u32::try_from(tries).unwrap_or(u32::MAX);
        let waits = limits.backoff().saturating_mul(times.saturating_sub(1));
        let needed = one.saturating_mul(times).saturating_add(waits);
        let both_written = words::is_written(attempt) && words::is_written(total);
        if needed <= all || (tries == 1 && !both_written) {
            continue;
        }
        let severity = if one.saturating_mul(2) > all { Severity::Warning } else { Severity::Note };
        let says = format!(
            "{}: {tries} {} of {} need {}, and all of them together have {}",
            words::hop(graph, hop),
            if tries == 1 { "attempt" } else { "attempts" },
            shown(one),
            shown(needed),
            shown(all),
        );
        let (first, second) = if words::is_written(attempt) { (attempt, total) } else { (total, attempt) };
        let consequence = if one >= all {
            "an attempt that is slow uses up all there is: it is never tried again".to_owned()
        } else {
            format!(
                "when attempts are slow, {} of them begin, and the last one is cut short",
                all.as_nanos().div_ceil(one.as_nanos().max(1))
            )
        };
        let finding = Finding::new(&ATTEMPTS_EXCEED_TOTAL, severity, &first.place, says)
            .label(words::setting(first))
            .related(&second.place, words::setting(second))
            .between(words::along(graph, &[hop]))
            .consequence(consequence)
            .help(format!("shorten the attempt to {} or less, or try less often", shown(share(all, tries))));
        findings.push(finding);
    }
}

/// An even share of the whole, in whole milliseconds.
fn share(all: Duration, tries: u64) -> Duration {
    Duration::from_millis(u64::try_from(all.as_millis()).unwrap_or(u64::MAX) / tries.max(1))
}

fn answer_too_late(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for path in graph.paths() {
        for (at, hop) in path.hops.iter().enumerate() {
            let Some(delay) = hop.limits.get(Kind::Fault) else { continue };
            let Some(least) = delay.amount.after() else { continue };
            for outer in path.hops.iter().take(at).rev() {
                let (Some(all), Some(decides)) = (outer.limits.patience().time(), outer.limits.decides()) else {
                    continue;
                };
                if all >= least {
                    continue;
                }
                let says = format!(
                    "{} takes at least {}, and {} waits {}: the call fails after {}",
                    words::hop(graph, hop),
                    shown(least),
                    words::hop(graph, outer),
                    words::patience(outer),
                    shown(all),
                );
                let finding = Finding::new(&ANSWER_TOO_LATE, Severity::Warning, &delay.place, says)
                    .label(words::setting(delay))
                    .related(&decides.place, words::setting(decides))
                    .between(words::along(graph, path.hops.get(..=at).unwrap_or_default()))
                    .consequence("every try fails, and each leaves its work behind")
                    .help(format!("wait longer than {}, or expect the failure", shown(least)));
                findings.push(finding);
                break;
            }
        }
    }
}
