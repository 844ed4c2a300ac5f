//! Rules that run the other way: here the inner one has to last longer.

use std::collections::HashSet;
use std::time::Duration;

use super::{Finding, Rule, Severity, words};
use crate::amount::{Amount, shown};
use crate::catalogue::Kind;
use crate::estimate::short;
use crate::graph::{Graph, Hop};
use crate::inventory::{ComponentId, Setting};

/// A server closes idle connections sooner than the proxy before it.
pub(super) const KEEP_ALIVE_ORDER: Rule = Rule {
    id: "keep-alive-order",
    says: "a server closes idle connections before the proxy in front of it stops using them",
    page: include_str!("../../rules/keep-alive-order.md"),
    look: keep_alive_order,
};

/// A message is given to somebody else while the first still works on it.
pub(super) const REDELIVERED_WHILE_RUNNING: Rule = Rule {
    id: "redelivered-while-running",
    says: "a message is given out again before its handler has to be done",
    page: include_str!("../../rules/redelivered-while-running.md"),
    look: redelivered_while_running,
};

/// Requests are cut when a process is told to stop.
pub(super) const GRACE_TOO_SHORT: Rule = Rule {
    id: "grace-too-short",
    says: "a process is killed before its longest request has to be done",
    page: include_str!("../../rules/grace-too-short.md"),
    look: grace_too_short,
};

/// A key is forgotten while its request may still be repeated.
pub(super) const FORGOTTEN_TOO_SOON: Rule = Rule {
    id: "forgotten-too-soon",
    says: "an idempotency key is forgotten before the last repetition can come",
    page: include_str!("../../rules/forgotten-too-soon.md"),
    look: forgotten_too_soon,
};

/// What works off a queue of SQS and is called by a poller, which waits and tries again by itself.
const LAMBDA: &str = "AWS Lambda";
/// How many times the limit of a Lambda function AWS advises for the visibility of its queue.
const ADVISED: u32 = 6;

/// How a finding of two written settings, or of one and a default, is told.
fn severity(a: &Setting, b: &Setting) -> Severity {
    match (words::is_written(a), words::is_written(b)) {
        (false, false) => Severity::Note,
        _ => Severity::Warning,
    }
}

/// The written one first: that is the one to change.
fn written_first<'a>(a: &'a Setting, b: &'a Setting) -> (&'a Setting, &'a Setting) {
    if words::is_written(a) || !words::is_written(b) { (a, b) } else { (b, a) }
}

fn keep_alive_order(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let mut told = HashSet::new();
    for hop in &graph.hops {
        let Some(pool) = hop.limits.get(Kind::KeepAlive) else { continue };
        let Some(server) = hop.to.and_then(|to| graph.serving(to, Kind::KeepAlive)) else { continue };
        let (Some(pooled), Some(kept)) = (pool.amount.after(), server.amount.after()) else { continue };
        if kept > pooled {
            continue;
        }
        let says = format!(
            "{} closes idle connections after {}, and {} still uses them until {}",
            graph.callee(hop),
            shown(kept),
            graph.name(hop.from),
            shown(pooled),
        );
        // A default stands nowhere: each call has it, and there is one thing to say of all of them.
        let pooled_at = words::is_written(pool).then_some(&pool.place);
        if !told.insert((&server.place, pooled_at, says.clone())) {
            continue;
        }
        let (first, second) = written_first(server, pool);
        let finding = Finding::new(&KEEP_ALIVE_ORDER, severity(server, pool), &first.place, says)
            .label(words::setting(first))
            .related(&second.place, words::setting(second))
            .along(graph, &[hop])
            .consequence(
                "a request that is sent on a connection just closed fails: single 502s without a cause in any log",
            )
            .help(format!("let the server keep idle connections for longer than {}", shown(pooled)));
        findings.push(finding);
    }
}

/// What ends the work of a component on one request or message.
fn ends_work<'a>(graph: &Graph<'a>, id: ComponentId) -> Option<&'a Setting> {
    graph.serving(id, Kind::ServerKill).filter(|kill| kill.amount.after().is_some())
}

fn redelivered_while_running(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let of_queue = || graph.serving(hop.from, Kind::Redelivery);
        let Some(again) = hop.limits.get(Kind::Redelivery).or_else(of_queue) else { continue };
        let Some(kill) = hop.to.and_then(|to| ends_work(graph, to)) else { continue };
        let (Some(visible), Some(works)) = (again.amount.after(), kill.amount.after()) else { continue };
        let neither = !words::is_written(again) && !words::is_written(kill);
        let lambda = kill.known.product == LAMBDA;
        if neither || visible >= works.saturating_mul(if lambda { ADVISED } else { 1 }) {
            continue;
        }
        // Long enough for the work, and shorter than AWS advises: no more than worth knowing.
        let near = visible >= works;
        let severity = if near { Severity::Note } else { severity(again, kill) };
        let begin = format!("a message of {} is given out again after {}", graph.name(hop.from), shown(visible));
        let callee = graph.callee(hop);
        let says = if near {
            let times = short(visible.as_secs_f64() / works.as_secs_f64().max(f64::MIN_POSITIVE));
            let times = if times == "1" { "just".to_owned() } else { format!("{times} times") };
            format!("{begin}, {times} the limit of {callee} ({}); AWS advises {ADVISED} times", shown(works))
        } else {
            format!("{begin}, and {callee} may work on it for {}", shown(works))
        };
        let wanted = shown(works.saturating_mul(if lambda { ADVISED } else { 1 }));
        let why = if lambda { ", six times the function's limit" } else { "" };
        let (first, second) = written_first(again, kill);
        let finding = Finding::new(&REDELIVERED_WHILE_RUNNING, severity, &first.place, says)
            .label(words::setting(first))
            .related(&second.place, words::setting(second))
            .along(graph, &[hop])
            .consequence(if near {
                "messages that are throttled, or tried again by the poller, come back while a batch is still worked on"
            } else {
                "two workers do the same work at the same time, and both effects happen"
            })
            .help(format!("let it be given out again after {wanted} or later{why}"));
        findings.push(finding);
    }
}

/// Those that kill a process; all others ask it to stop, or are its own.
const KILLS: &[&str] = &["kubernetes.grace", "kubernetes.grace_after_pre_stop", "compose.stop_grace_period"];

/// What a component itself takes the time for that it is given: to stop, or for one request.
fn own_needs<'a>(graph: &Graph<'a>, id: ComponentId, grace: &Setting) -> Option<(Duration, &'a Setting)> {
    let own = graph.serves(id).filter(|own| match own.known.kind {
        Kind::Grace => !KILLS.contains(&own.known.id.as_str()),
        Kind::ServerKill => true,
        _ => false,
    });
    let longer = |(time, own): &(Duration, &Setting)| Some(*time) > grace.amount.after() && words::is_written(own);
    own.filter_map(|own| Some((own.amount.after()?, own))).filter(longer).max_by_key(|(time, _)| *time)
}

/// The process takes more time to stop than it is given, whoever calls it.
fn own_grace_too_short(graph: &Graph<'_>, id: ComponentId, findings: &mut Vec<Finding>) {
    let killing = graph.serves(id).filter(|setting| KILLS.contains(&setting.known.id.as_str()));
    let Some(grace) = crate::graph::limits::chosen(killing).filter(|grace| words::is_written(grace)) else { return };
    let (Some(given), Some((needs, own))) = (grace.amount.after(), own_needs(graph, id, grace)) else { return };
    let what = if own.known.kind == Kind::Grace { "what it began" } else { "one request" };
    let says = format!(
        "{} is killed {} after it was told to stop, and it takes up to {} for {what}",
        graph.name(id),
        shown(given),
        shown(needs),
    );
    let finding = Finding::new(&GRACE_TOO_SHORT, Severity::Warning, &grace.place, says)
        .label(words::setting(grace))
        .related(&own.place, words::setting(own))
        .consequence("every deployment cuts the longest requests off in the middle")
        .help(format!("give it more than {}, or let it stop sooner", shown(needs)));
    findings.push(finding);
}

fn grace_too_short(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for number in 0..graph.inventory.components.len() {
        let id = ComponentId(number);
        own_grace_too_short(graph, id, findings);
        let Some(grace) = graph.serving(id, Kind::Grace) else { continue };
        let Some(grace_time) = grace.amount.after() else { continue };
        let longest = graph.calls_to(id).filter(|hop| !hop.call.streaming).filter_map(|hop| {
            let decides = hop.limits.decides_attempt().filter(|setting| words::is_written(setting))?;
            Some((hop.limits.attempt().at_most()?, decides, hop))
        });
        let Some((time, decides, hop)) = longest.max_by_key(|(time, ..)| *time) else { continue };
        if time <= grace_time {
            continue;
        }
        let says = format!(
            "{} is killed {} after it was told to stop, and a request of {} may take {}",
            graph.name(id),
            shown(grace_time),
            graph.name(hop.from),
            shown(time),
        );
        let (first, second) = written_first(grace, decides);
        let severity = if words::is_written(grace) { Severity::Warning } else { Severity::Note };
        let finding = Finding::new(&GRACE_TOO_SHORT, severity, &first.place, says)
            .label(words::setting(first))
            .related(&second.place, words::setting(second))
            .along(graph, &[hop])
            .consequence("every deployment cuts the longest requests off in the middle")
            .help(format!("give it more than {}, or the requests less", shown(time)));
        findings.push(finding);
    }
}

fn forgotten_too_soon(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let Some(retention) = hop.to.and_then(|to| graph.serving(to, Kind::Retention)) else { continue };
        let Some(kept) = retention.amount.after() else { continue };
        let (horizon, decides) = match horizon(graph, hop) {
            Some(found) => found,
            None => continue,
        };
        if kept >= horizon {
            continue;
        }
        let says = format!(
            "{} forgets a key after {}, and {} may repeat it for {}",
            graph.callee(hop),
            shown(kept),
            graph.name(hop.from),
            shown(horizon),
        );
        let (first, second) = written_first(retention, decides);
        let finding = Finding::new(&FORGOTTEN_TOO_SOON, severity(retention, decides), &first.place, says)
            .label(words::setting(first))
            .related(&second.place, words::setting(second))
            .along(graph, &[hop])
            .consequence("a late repetition counts as new: what it does happens twice")
            .help(format!("remember keys for longer than {}", shown(horizon)));
        findings.push(finding);
    }
}

/// How long a call, or a message of a queue, may be repeated.
fn horizon<'a>(graph: &Graph<'a>, hop: &Hop<'a>) -> Option<(Duration, &'a Setting)> {
    // What a queue keeps, it may give out until then.
    let queue = graph
        .serving(hop.from, Kind::Retention)
        .filter(|_| hop.limits.get(Kind::Redelivery).is_some() || of_queue(graph, hop));
    if let Some(kept) = queue
        && let Amount::After(time) = kept.amount
    {
        return Some((time, kept));
    }
    let tries = hop.limits.tries().filter(|tries| *tries > 1)?;
    let attempts = hop.limits.get(Kind::Attempts)?;
    debug_assert!(tries > 1);
    Some((hop.limits.patience().at_most()?, attempts))
}

fn of_queue(graph: &Graph<'_>, hop: &Hop<'_>) -> bool {
    graph.serving(hop.from, Kind::Redelivery).is_some()
}
