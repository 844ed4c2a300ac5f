//! Limits that are not there, that nobody chose, or that are another thing than they look like.

use std::collections::HashSet;
use std::time::Duration;

use super::{Finding, Group, Rule, Severity, words};
use crate::amount::shown;
use crate::catalogue::Kind;
use crate::graph::limits::Patience;
use crate::graph::{Graph, Hop};
use crate::inventory::{ComponentId, Role, Setting, Stated};

/// Nothing bounds a call.
pub(super) const NO_LIMIT: Rule = Rule {
    id: "no-limit",
    says: "nothing bounds a call: it may wait for ever",
    page: include_str!("../../rules/no-limit.md"),
    look: no_limit,
};

/// The only limit is one of silence.
pub(super) const IDLE_IS_NO_TOTAL: Rule = Rule {
    id: "idle-is-no-total",
    says: "the only limit counts silence, not time: an answer that trickles never ends",
    page: include_str!("../../rules/idle-is-no-total.md"),
    look: idle_is_no_total,
};

/// A default decides.
pub(super) const HIDDEN_DEFAULT: Rule = Rule {
    id: "hidden-default",
    says: "a default is in force that nobody chose and no file shows",
    page: include_str!("../../rules/hidden-default.md"),
    look: hidden_default,
};

/// Every hop has the same limit.
pub(super) const FLAT_TIMEOUTS: Rule = Rule {
    id: "flat-timeouts",
    says: "several layers have the same limit: which one fires is chance",
    page: include_str!("../../rules/flat-timeouts.md"),
    look: flat_timeouts,
};

/// Calls that no layer outside of them bounds, however many calls away. (Inside of a bounded one it is
/// `outer-before-inner` that tells what may wait for ever.)
fn unbounded_outside(graph: &Graph<'_>) -> HashSet<usize> {
    let bounding = graph.hops.iter().filter(|hop| !hop.call.streaming && hop.limits.attempt().at_most().is_some());
    let mut next: Vec<ComponentId> = bounding.filter_map(|hop| hop.to).collect();
    let mut bounded = HashSet::new();
    while let Some(id) = next.pop() {
        if bounded.insert(id) {
            next.extend(graph.calls_of(id).filter_map(|hop| hop.to));
        }
    }
    graph.hops.iter().filter(|hop| !bounded.contains(&hop.from)).map(|hop| hop.number).collect()
}

/// What stands between leaves the limit to the caller; a stream has none.
pub(super) fn is_asked(graph: &Graph<'_>, hop: &Hop<'_>) -> bool {
    let between = graph.component(hop.from).is_some_and(|component| component.role == Role::Between);
    !hop.call.streaming && !between
}

/// Whether the callee ends the work, or the call asks for statements that end.
pub(super) fn is_ended(graph: &Graph<'_>, hop: &Hop<'_>) -> bool {
    let serving = |kind| hop.to.and_then(|to| graph.serving(to, kind));
    let ends = [serving(Kind::ServerKill), serving(Kind::Statement), hop.limits.get(Kind::Statement)];
    ends.into_iter().flatten().any(|setting| setting.amount.after().is_some())
}

/// One for each file and setting: a gateway with twenty routes has one thing to write.
fn no_limit(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let unbounded = unbounded_outside(graph);
    for hop in graph.hops.iter().filter(|hop| is_asked(graph, hop) && unbounded.contains(&hop.number)) {
        if hop.limits.patience() != Patience::Forever || is_ended(graph, hop) {
            continue;
        }
        let Some(setting) = hop.limits.unbounds() else { continue };
        let (call, several) = (words::hop(graph, hop), " may wait for ever".to_owned());
        let says = format!("{call}{several}");
        let finding = Finding::new(&NO_LIMIT, Severity::Warning, &setting.place, says)
            .label(words::setting(setting))
            .along(graph, &[hop])
            .consequence("one callee that hangs takes a worker or a connection of every caller with it")
            .help("set a limit, or hand on a budget that has one")
            .group(in_file(setting, hop, call, several));
        findings.push(finding);
    }
}

/// One thing to write, in one file.
pub(super) fn in_file(setting: &Setting, hop: &Hop<'_>, subject: String, several: String) -> Group {
    Group { key: format!("{} {}", setting.place.file, setting.known.id), call: hop.edge, subject, several }
}

/// One for each file and setting.
fn idle_is_no_total(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let unbounded = unbounded_outside(graph);
    for hop in graph.hops.iter().filter(|hop| is_asked(graph, hop) && unbounded.contains(&hop.number)) {
        // Of one try: they do not add up between two reads.
        let Patience::Silence(time) = hop.limits.attempt() else { continue };
        let decides = hop.limits.decides_attempt().filter(|setting| setting.known.kind == Kind::Idle);
        let Some(setting) = decides.filter(|setting| words::is_written(setting)) else { continue };
        let call = words::hop(graph, hop);
        let is_over = time.is_zero();
        let what =
            if is_over { "is over at once: zero is no \"for ever\" here" } else { "bounds silence, not the whole" };
        // Several may have different numbers.
        let several = format!(": {} {what}", setting.known.key);
        let says = format!("{call}: {} {what}", words::setting(setting));
        let (consequence, help) = if is_over {
            ("an answer that is not there yet is never waited for", "write down how long nothing may be heard")
        } else {
            let help = "bound the whole in the caller or in the server, or hand on a budget";
            ("an answer that comes byte by byte goes on for as long as it likes", help)
        };
        let label = if is_over {
            "no time at all".to_owned()
        } else {
            format!("at most {} between two reads or writes", shown(time))
        };
        let severity = if is_over { Severity::Warning } else { Severity::Note };
        let finding = Finding::new(&IDLE_IS_NO_TOTAL, severity, &setting.place, says)
            .label(label)
            .along(graph, &[hop])
            .consequence(consequence)
            .help(help)
            .group(in_file(setting, hop, call, several));
        findings.push(finding);
    }
}

/// One for each setting, with the first places: a repository with a hundred routes has one default.
fn hidden_default(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in graph.hops.iter().filter(|hop| !hop.call.streaming) {
        let hidden = |setting: &&&Setting| setting.stated == Stated::Default && setting.known.hidden;
        for setting in hop.limits.all().iter().filter(hidden) {
            let (known, amount) = (setting.known, &setting.amount);
            let call = words::hop(graph, hop);
            let several = format!(": {} {amount} is in force, and nobody wrote it", known.key);
            let finding = Finding::new(&HIDDEN_DEFAULT, Severity::Note, &setting.place, format!("{call}{several}"))
                .label(format!("no {} here: {} takes {amount} ({})", known.key, known.product, known.versions))
                .along(graph, &[hop])
                .consequence(known.fires.clone())
                .help(format!("write {} down, with the value that you mean", known.key))
                .group(Group { key: known.id.clone(), call: hop.edge, subject: call, several });
            findings.push(finding);
        }
    }
}

/// The limit of one attempt, if somebody wrote it.
fn written_limit<'a>(hop: &Hop<'a>) -> Option<(Duration, &'a Setting)> {
    let setting = hop.limits.decides_attempt().filter(|setting| words::is_written(setting))?;
    Some((setting.amount.after()?, setting))
}

fn flat_timeouts(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    const LAYERS: usize = 3;
    let mut told = HashSet::new();
    for path in graph.paths() {
        let times: Vec<Option<(Duration, &Setting)>> = path.hops.iter().map(|hop| written_limit(hop)).collect();
        for from in 0..times.len() {
            let Some(Some((time, first))) = times.get(from) else { continue };
            let same =
                times.iter().skip(from).take_while(|other| other.is_some_and(|(other, _)| other == *time)).count();
            let inside_longer =
                from > 0 && times.get(from - 1).is_some_and(|before| before.is_some_and(|(before, _)| before == *time));
            let (Some(first_hop), Some(last_hop)) = (path.hops.get(from), path.hops.get(from + same.saturating_sub(1)))
            else {
                continue;
            };
            if same < LAYERS || inside_longer || !told.insert((first_hop.number, last_hop.number)) {
                continue;
            }
            let hops = path.hops.get(from..from + same).unwrap_or_default();
            let says = format!("{same} layers in a row have {}", shown(*time));
            let mut finding = Finding::new(&FLAT_TIMEOUTS, Severity::Note, &first.place, says)
                .label(words::setting(first))
                .along(graph, hops)
                .consequence("whichever fires first is chance, and what the others would have said is lost")
                .help("give each layer less than the one outside of it, or hand on one budget");
            for (_, setting) in times.iter().skip(from + 1).take(same - 1).flatten() {
                finding = finding.related(&setting.place, words::setting(setting));
            }
            findings.push(finding);
        }
    }
}
