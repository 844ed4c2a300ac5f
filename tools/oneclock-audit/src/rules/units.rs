//! A number without a unit that looks as if it were written in another one: `timeout client 30` is 30 ms to `HAProxy`,
//! `proxy_read_timeout 5000` an hour and a half to nginx.
//!
//! What a product counts in stands in the catalogue. Asked is only what somebody wrote, without a unit beside it, and only
//! numbers that people say in the other unit: a few, quarters of a minute, or the product's own default where it counts
//! milliseconds; thousands that are no whole minutes, hours or days where it counts seconds.

use std::collections::HashMap;
use std::time::Duration;

use super::{Finding, Rule, Severity, words};
use crate::amount::{Amount, Unit, shown};
use crate::catalogue::{Kind, Known};
use crate::graph::{Graph, Hop};
use crate::inventory::{EdgeId, On, Setting};

/// A number looks as if it were meant in another unit.
pub(super) const SUSPICIOUS_UNIT: Rule = Rule {
    id: "suspicious-unit",
    says: "a number without a unit looks as if another unit were meant",
    page: include_str!("../../rules/suspicious-unit.md"),
    look: suspicious_unit,
};

/// What a number would be in the other unit.
struct Doubt {
    severity: Severity,
    /// In the other unit.
    meant: Duration,
    /// The number that says so here, if a whole one does.
    write: Option<f64>,
}

fn suspicious_unit(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let mut by_edge: HashMap<EdgeId, Vec<&Hop<'_>>> = HashMap::new();
    graph.hops.iter().for_each(|hop| by_edge.entry(hop.edge).or_default().push(hop));
    for setting in &graph.inventory.settings {
        let (Some(number), Some(is), Some(doubt)) = (setting.bare, setting.amount.after(), doubt(setting)) else {
            continue;
        };
        let calls = match &setting.on {
            On::Edge(edge) => by_edge.get(edge).map(Vec::as_slice).unwrap_or_default(),
            On::Component(_) | On::CallsTo(_) => &[],
        };
        let known = setting.known;
        let long = known.unit == Unit::Seconds;
        // Where nothing may be said for long, somebody meant hours.
        if long && calls.iter().any(|hop| hop.call.streaming) {
            continue;
        }
        let counts = if long { "seconds" } else { "milliseconds" };
        let says = format!("{} {number} is {}: {} counts {counts}", known.key, shown(is), known.product);
        let consequence = if long {
            format!("what hangs is waited for up to {}", shown(is))
        } else {
            format!("what takes longer than {} fails, however healthy it is", shown(is))
        };
        let help = match doubt.write {
            Some(write) => format!("if {} is meant, write {write}", shown(doubt.meant)),
            None => format!("if {} is meant, write it in {counts}", shown(doubt.meant)),
        };
        let finding = Finding::new(&SUSPICIOUS_UNIT, doubt.severity, &setting.place, says)
            .label(words::setting(setting))
            .consequence(consequence)
            .help(help);
        match calls.first() {
            None => findings.push(finding),
            Some(_) => findings.extend(calls.iter().map(|hop| finding.clone().along(graph, &[hop]))),
        }
    }
}

fn doubt(setting: &Setting) -> Option<Doubt> {
    let (known, number) = (setting.known, setting.bare?);
    match known.unit {
        Unit::Millis => {
            let meant = Duration::try_from_secs_f64(number).ok()?;
            Some(Doubt { severity: too_short(known, number, meant)?, meant, write: Some(number * 1e3) })
        }
        Unit::Seconds if !known.long => {
            let meant = Duration::try_from_secs_f64(number / 1e3).ok()?;
            let write = (number % 1e3 == 0.0).then_some(number / 1e3);
            Some(Doubt { severity: too_long(known, number, meant)?, meant, write })
        }
        _ => None,
    }
}

/// Whether it would be exactly what holds without it: nobody writes that by chance.
fn is_default(known: &Known, meant: Duration) -> bool {
    known.default() == Some(Amount::After(meant))
}

/// A number of milliseconds that people say in seconds; `meant` is what it would be then.
fn too_short(known: &Known, number: f64, meant: Duration) -> Option<Severity> {
    let as_seconds = number < 10.0 || number % 15.0 == 0.0;
    match known.kind {
        _ if number <= 0.0 => None,
        Kind::Backoff | Kind::Retrying | Kind::Fault | Kind::Breaker | Kind::HeaderUnit | Kind::Attempts => None,
        // No connection is opened for two seconds, and no message handled in less.
        Kind::Lifetime | Kind::Redelivery | Kind::Retention | Kind::IdleInTransaction => {
            (number < 2e3).then_some(if number < 1e2 { Severity::Warning } else { Severity::Note })
        }
        _ if number >= 1e2 => None,
        _ if is_default(known, meant) => Some(Severity::Warning),
        Kind::Connect | Kind::Header | Kind::Idle | Kind::ServerKill | Kind::Statement | Kind::Grace => {
            Some(if as_seconds { Severity::Warning } else { Severity::Note })
        }
        // A cache may have to answer within twenty milliseconds.
        Kind::FirstByte
        | Kind::Attempt
        | Kind::Total
        | Kind::PoolWait
        | Kind::LockWait
        | Kind::KeepAlive
        | Kind::Probe => as_seconds.then_some(Severity::Note),
    }
}

/// A number of seconds that people say in milliseconds; `meant` is what it would be then.
fn too_long(known: &Known, number: f64, meant: Duration) -> Option<Severity> {
    const TWO_HOURS: f64 = 7_200.0;
    let whole = |of: f64| number % of == 0.0;
    let said_so = (number <= 3_600.0 && whole(60.0)) || (number <= 86_400.0 && whole(3_600.0)) || whole(86_400.0);
    if number < 1e3 || !whole(500.0) || said_so {
        return None;
    }
    match known.kind {
        Kind::KeepAlive
        | Kind::Lifetime
        | Kind::IdleInTransaction
        | Kind::Retention
        | Kind::Backoff
        | Kind::Fault
        | Kind::Breaker
        | Kind::HeaderUnit
        | Kind::Attempts => None,
        _ if is_default(known, meant) => Some(Severity::Warning),
        Kind::Connect => Some(Severity::Warning),
        // Silence of hours is what some streams have, and no file says that it is one.
        Kind::Idle | Kind::Header | Kind::LockWait | Kind::Redelivery => Some(Severity::Note),
        _ if number >= TWO_HOURS => Some(Severity::Warning),
        _ => Some(Severity::Note),
    }
}
