//! Databases: a statement, the wait for a connection, and the wait for a lock, against each other and against whoever
//! waits for all of them.

use std::collections::HashSet;
use std::time::Duration;

use super::{Finding, Rule, Severity, words};
use crate::amount::shown;
use crate::catalogue::Kind;
use crate::graph::{Graph, Hop};
use crate::inventory::{ComponentId, Propagates, Setting};

/// A statement, or the wait for a connection, takes all that the caller has.
pub(super) const STORE_OUTLASTS_CALLER: Rule = Rule {
    id: "store-outlasts-caller",
    says: "a statement, or the wait for a connection, lasts longer than anybody waits",
    page: include_str!("../../rules/store-outlasts-caller.md"),
    look: store_outlasts_caller,
};

/// A limit for locks that never fires.
pub(super) const LOCK_LIMIT_WITHOUT_EFFECT: Rule = Rule {
    id: "lock-limit-without-effect",
    says: "a limit for waiting on locks is no shorter than the one of the whole statement: it never fires",
    page: include_str!("../../rules/lock-limit-without-effect.md"),
    look: lock_limit_without_effect,
};

/// Of a wait and a statement together, and not of a setting.
const TOGETHER: &str = "together";

/// The least time that a caller of this component waits, and what decides it.
fn shortest_caller<'g, 'a>(graph: &'g Graph<'a>, id: ComponentId) -> Option<(Duration, &'a Setting, &'g Hop<'a>)> {
    let callers = graph.calls_to(id).filter(|hop| !hop.call.streaming && hop.call.propagates != Propagates::Deadline);
    let limited = callers.filter_map(|hop| hop.limits.gives_up().map(|one| (one.after, one.decides, hop)));
    limited.min_by_key(|(time, ..)| *time)
}

fn store_outlasts_caller(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let mut told = HashSet::new();
    for hop in &graph.hops {
        let Some((waits, decides, outer)) = shortest_caller(graph, hop.from) else { continue };
        let statement =
            hop.to.and_then(|to| graph.serving(to, Kind::Statement)).or_else(|| hop.limits.get(Kind::Statement));
        let pool = hop.limits.get(Kind::PoolWait);
        if let Some(one) = statement.zip(pool).and_then(|both| together(graph, both, (waits, decides, outer), hop))
            && told.insert((hop.from, one.place.clone(), TOGETHER))
        {
            findings.push(one);
        }
        for (setting, what) in [(statement, "a statement may run for"), (pool, "waiting for a connection may take")] {
            let Some(setting) = setting else { continue };
            let Some(time) = setting.amount.after().filter(|time| *time >= waits) else { continue };
            let neither = !words::is_written(setting) && !words::is_written(decides);
            if neither || !told.insert((hop.from, setting.place.clone(), setting.known.id.as_str())) {
                continue;
            }
            let both = words::is_written(setting) && words::is_written(decides);
            let severity = if both || setting.known.hidden { Severity::Warning } else { Severity::Note };
            let says = format!(
                "{}: {what} {}, and {} gives up after {}",
                words::hop(graph, hop),
                shown(time),
                graph.name(outer.from),
                shown(waits),
            );
            let (first, second) = if words::is_written(setting) { (setting, decides) } else { (decides, setting) };
            let mut finding = Finding::new(&STORE_OUTLASTS_CALLER, severity, &first.place, says)
                .label(words::setting(first))
                .related(&second.place, words::setting(second))
                .along(graph, &[outer, hop])
                .consequence("under load every connection is busy for somebody who has gone")
                .help(format!("end it well before {}", shown(waits)));
            // Alone a short wait before long statements is how a pool refuses early.
            if let Some((short, pool)) = pool.and_then(|pool| Some((pool.amount.after()?, pool)))
                && setting.known.kind == Kind::Statement
                && short < time
                && words::is_written(pool)
            {
                finding = finding.related(&pool.place, words::setting(pool)).consequence(format!(
                    "under load every connection is busy for somebody who has gone, and whoever waits for one gives up after {}",
                    shown(short)
                ));
            }
            findings.push(finding);
        }
    }
}

/// The wait for a connection and a statement, each shorter than anybody waits, and not so together.
fn together<'a>(
    graph: &Graph<'a>,
    (statement, pool): (&'a Setting, &'a Setting),
    (waits, decides, outer): (Duration, &'a Setting, &Hop<'a>),
    hop: &Hop<'a>,
) -> Option<Finding> {
    let (runs, queues) = (statement.amount.after()?, pool.amount.after()?);
    let all = runs.saturating_add(queues);
    if runs.max(queues) >= waits || all < waits {
        return None;
    }
    let written = [statement, pool, decides].map(words::is_written);
    let severity = if written == [true; 3] { Severity::Warning } else { Severity::Note };
    if !written.contains(&true) {
        return None;
    }
    let says = format!(
        "{}: waiting for a connection may take {}, and a statement {}: {} together, and {} gives up after {}",
        words::hop(graph, hop),
        shown(queues),
        shown(runs),
        shown(all),
        graph.name(outer.from),
        shown(waits),
    );
    let (first, second) = if words::is_written(pool) { (pool, statement) } else { (statement, pool) };
    Some(
        Finding::new(&STORE_OUTLASTS_CALLER, severity, &first.place, says)
            .label(words::setting(first))
            .related(&second.place, words::setting(second))
            .related(&decides.place, words::setting(decides))
            .along(graph, &[outer, hop])
            .consequence("whoever had to wait for a connection runs a statement for somebody who has gone")
            .help(format!("let both together end well before {}", shown(waits))),
    )
}

fn lock_limit_without_effect(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for number in 0..graph.inventory.components.len() {
        let id = ComponentId(number);
        let (Some(lock), Some(statement)) = (graph.serving(id, Kind::LockWait), graph.serving(id, Kind::Statement))
        else {
            continue;
        };
        let (Some(waits), Some(runs)) = (lock.amount.after(), statement.amount.after()) else { continue };
        if waits < runs || !words::is_written(lock) || !words::is_written(statement) {
            continue;
        }
        let says =
            format!("{}: {} is no shorter than {}", graph.name(id), words::setting(lock), words::setting(statement));
        let finding = Finding::new(&LOCK_LIMIT_WITHOUT_EFFECT, Severity::Warning, &lock.place, says)
            .label(words::setting(lock))
            .related(&statement.place, words::setting(statement))
            .consequence("the whole statement is ended first, and nobody learns that it waited for a lock")
            .help(format!("wait for locks for less than {}", shown(runs)));
        findings.push(finding);
    }
}
