//! What several forms of a report say in the same words.

use std::collections::HashMap;

use crate::amount::shown;
use crate::audited::{Audited, Found};
use crate::catalogue::{Kind, Known};
use crate::graph::limits::{Limits, Patience};
use crate::graph::{Graph, Hop};
use crate::inventory::{Setting, Stated};
use crate::rules::Severity;

/// A kind, in the words of whoever waits.
pub(super) const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Connect => "connect",
        Kind::Header => "the request itself",
        Kind::FirstByte => "first byte",
        Kind::Idle => "silence",
        Kind::Attempt => "one attempt",
        Kind::Total => "total",
        Kind::PoolWait => "wait for a place",
        Kind::LockWait => "wait for a lock",
        Kind::ServerKill => "server ends it",
        Kind::Statement => "statement",
        Kind::Redelivery => "redelivery",
        Kind::KeepAlive => "keep-alive",
        Kind::Lifetime => "connection kept",
        Kind::IdleInTransaction => "open without work",
        Kind::Probe => "probe",
        Kind::Grace => "grace",
        Kind::Backoff => "wait between",
        Kind::Retrying => "tries begin",
        Kind::Attempts => "tries",
        Kind::Retention => "remembered",
        Kind::Breaker => "breaker",
        Kind::Fault => "delay on purpose",
        Kind::HeaderUnit => "header",
    }
}

/// Where a value comes from: `written`, `default of Envoy (1.2 and later)`.
pub(super) fn stated(stated: Stated, known: &Known) -> String {
    match stated {
        Stated::Explicit => "written".to_owned(),
        Stated::Topology => "topology file".to_owned(),
        Stated::Default if known.versions == "all" => format!("default of {}", known.product),
        Stated::Default => format!("default of {} ({})", known.product, known.versions),
    }
}

/// What a setting amounts to; a count with the first try in it, whatever the product counts.
pub(super) fn amount(setting: &Setting) -> String {
    match (setting.known.kind, setting.amount.times()) {
        (Kind::Attempts, Some(times)) if !setting.known.first => format!("1 + {times}"),
        _ => setting.amount.to_string(),
    }
}

/// How long a caller waits, on an arrow: `6s (2 × 3s)`, `60s of silence`, `2 × 60s of silence`, `no limit`, `limit unknown`.
pub(crate) fn arrow(hop: &Hop<'_>) -> String {
    if hop.call.streaming {
        return "stream".to_owned();
    }
    patience(&hop.limits)
}

/// The same, of the limits alone.
pub(super) fn patience(limits: &Limits<'_>) -> String {
    let all = limits.patience();
    let tries = match (limits.tries(), limits.attempt().time()) {
        (Some(tries), Some(one)) if tries > 1 && all.time() > Some(one) => format!(" ({tries} × {})", shown(one)),
        _ => String::new(),
    };
    match all {
        Patience::AtMost(time) => format!("{}{tries}", shown(time)),
        // Between two reads tries do not add up.
        Patience::Silence(all) => match (limits.tries(), limits.attempt().time()) {
            (Some(tries), Some(one)) if tries > 1 && all > one => format!("{tries} × {} of silence", shown(one)),
            _ => format!("{} of silence", shown(all)),
        },
        Patience::Forever => "no limit".to_owned(),
        Patience::Unknown => "limit unknown".to_owned(),
    }
}

/// ` (location /cart)`, where its caller has several calls to the same one.
pub(super) fn route(graph: &Graph<'_>, hop: &Hop<'_>) -> String {
    let others = graph.calls_of(hop.from).filter(|other| other.to == hop.to && other.to.is_some()).count();
    if others > 1 && !hop.call.label.is_empty() { format!(" ({})", hop.call.label) } else { String::new() }
}

/// A severity, as it is written before a finding.
pub(super) const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// A count with its noun: `1 file`, `2 files`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// What was found, in numbers: `1 error, 2 warnings, no notes; 3 more in the baseline, 1 ignored`.
pub(super) fn sum(audited: &Audited<'_>) -> String {
    let number = |severity: Severity| match audited.count(severity) {
        0 => format!("no {}s", self::severity(severity)),
        count => counted(count, self::severity(severity)),
    };
    let mut sum = [Severity::Error, Severity::Warning, Severity::Note].map(number).join(", ");
    let known = audited.findings.iter().filter(|found| found.known).count();
    let others = [
        (known, "in the baseline"),
        (audited.ignored.len(), "ignored"),
        (audited.stale.len(), "stale in the baseline"),
    ];
    for (at, (count, how)) in others.into_iter().filter(|(count, _)| *count > 0).enumerate() {
        sum.push_str(&format!("{} {count} {how}", if at == 0 { ";" } else { "," }));
    }
    sum
}

/// A name that fits; names come from anybody's files, and a terminal obeys control characters.
pub(super) fn fit(text: &str, most: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= most {
        return text;
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Without anything that a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_turning(c) { '\u{fffd}' } else { c }).collect()
}

/// What makes text run the other way.
pub(super) const fn is_turning(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// What is wrong with a hop, the loudest first: findings about it, by the number of the hop. Of a finding between several,
/// the innermost call is the one that does not fit. One that does not say which of the calls between two components it is
/// about is about all of them. Notes break nothing.
pub(super) fn broken<'a>(audited: &'a Audited<'_>, graph: &Graph<'_>) -> HashMap<usize, Vec<&'a Found>> {
    let mut by_pair: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    let mut by_hop: HashMap<usize, Vec<usize>> = HashMap::new();
    for (rank, found) in audited.findings.iter().enumerate() {
        let finding = &found.finding;
        match (finding.hops.last(), &*finding.between) {
            _ if finding.severity >= Severity::Note => {}
            (Some(_), _) => {
                let mut hops: Vec<usize> = found.hops.iter().filter_map(|hops| hops.last().copied()).collect();
                hops.dedup();
                hops.into_iter().for_each(|hop| by_hop.entry(hop).or_default().push(rank));
            }
            (None, [.., from, to]) => by_pair.entry((from, to)).or_default().push(rank),
            (None, _) => {}
        }
    }
    let mut broken = HashMap::new();
    for hop in &graph.hops {
        let mut ranks = by_hop.remove(&hop.number).unwrap_or_default();
        ranks.extend(by_pair.get(&(graph.name(hop.from), graph.callee(hop).as_str())).into_iter().flatten());
        ranks.sort_unstable();
        ranks.dedup();
        let found: Vec<&Found> = ranks.into_iter().filter_map(|rank| audited.findings.get(rank)).collect();
        if !found.is_empty() {
            broken.insert(hop.number, found);
        }
    }
    broken
}

/// The ids of the rules, each once.
pub(super) fn rules(found: &[&Found]) -> Vec<&'static str> {
    let mut ids: Vec<&'static str> = Vec::new();
    for one in found {
        if !ids.contains(&one.finding.rule) {
            ids.push(one.finding.rule);
        }
    }
    ids
}

/// Where this is developed; empty as long as it is nowhere.
pub(super) const HOME: &str = env!("CARGO_PKG_REPOSITORY");
