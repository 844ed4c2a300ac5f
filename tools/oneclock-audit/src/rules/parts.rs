//! Does what is part of a call fit into the whole of it: its attempts, and making a connection? All of this stands at one call;
//! what is inside of another is `layering`.

use std::time::Duration;

use super::{Finding, Rule, Severity, words};
use crate::amount::shown;
use crate::catalogue::Kind;
use crate::graph::Graph;
use crate::inventory::{Setting, Stated};

/// The attempts of a call do not fit into its total.
pub(super) const ATTEMPTS_EXCEED_TOTAL: Rule = Rule {
    id: "attempts-exceed-total",
    says: "the attempts of a call do not fit into the time of all of them",
    page: include_str!("../../rules/attempts-exceed-total.md"),
    look: attempts_exceed_total,
};

/// A format calls two of its limits invalid together.
pub(super) const INVALID_TOGETHER: Rule = Rule {
    id: "invalid-together",
    says: "two limits that their own specification calls invalid together",
    page: include_str!("../../rules/invalid-together.md"),
    look: invalid_together,
};

/// The whole call is over before connecting has failed.
pub(super) const CONNECT_LIMIT_WITHOUT_EFFECT: Rule = Rule {
    id: "connect-limit-without-effect",
    says: "a limit for connecting is no shorter than the one of the whole call: it never fires",
    page: include_str!("../../rules/connect-limit-without-effect.md"),
    look: connect_limit_without_effect,
};

/// A part that may not be longer than the whole, the whole, and whose specification says so.
const INVALID: &[(&str, &str, &str)] = &[("gateway_api.backend_request", "gateway_api.request", "the Gateway API")];

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
        if needed <= all || (tries == 1 && !both_written) || forbidden(attempt, total).is_some() {
            continue;
        }
        let severity = if one.saturating_mul(2) > all { Severity::Warning } else { Severity::Note };
        let says = format!(
            "{}: {tries} {} of {} {} {}, and all of them together have {}",
            words::hop(graph, hop),
            if tries == 1 { "attempt" } else { "attempts" },
            shown(one),
            if tries == 1 { "needs" } else { "need" },
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
            .along(graph, &[hop])
            .consequence(consequence)
            .help(format!("shorten the attempt to {} or less, or try less often", words::about(share(all, tries))));
        findings.push(finding);
    }
}

/// An even share of the whole, in whole milliseconds.
fn share(all: Duration, tries: u64) -> Duration {
    Duration::from_millis(u64::try_from(all.as_millis()).unwrap_or(u64::MAX) / tries.max(1))
}

/// Whose specification forbids a part that is longer than the whole; both are written in one rule of a route.
fn forbidden(part: &Setting, whole: &Setting) -> Option<&'static str> {
    let of = |(inner, outer, _): &&(&str, &str, &str)| part.known.id == *inner && whole.known.id == *outer;
    let (.., whose) = INVALID.iter().find(of)?;
    let written = [part, whole].iter().all(|one| one.stated == Stated::Explicit);
    (written && part.amount.after()? > whole.amount.after()?).then_some(whose)
}

fn invalid_together(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let (Some(part), Some(whole)) = (hop.limits.get(Kind::Attempt), hop.limits.get(Kind::Total)) else { continue };
        let Some(whose) = forbidden(part, whole) else { continue };
        let says = format!(
            "{}: {} is longer than {}, which {whose} calls invalid",
            words::hop(graph, hop),
            words::setting(part),
            words::setting(whole),
        );
        let finding = Finding::new(&INVALID_TOGETHER, Severity::Error, &part.place, says)
            .label(words::setting(part))
            .related(&whole.place, words::setting(whole))
            .along(graph, &[hop])
            .consequence("the whole object is refused when it is applied, and what was there before stays in force")
            .help(format!("write {} or less as {}", whole.amount, part.known.key));
        findings.push(finding);
    }
}

fn connect_limit_without_effect(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in graph.hops.iter().filter(|hop| !hop.call.streaming) {
        let limits = &hop.limits;
        let Some(connect) = limits.get(Kind::Connect).filter(|connect| words::is_written(connect)) else { continue };
        let (Some(all), Some(whole)) = (limits.attempt().at_most(), limits.decides_attempt()) else { continue };
        let Some(time) = connect.amount.after().filter(|time| *time >= all && !whole.known.connected) else { continue };
        let severity = if words::is_written(whole) { Severity::Warning } else { Severity::Note };
        let says = format!(
            "{}: connecting may take {}, and the whole call has {}",
            words::hop(graph, hop),
            shown(time),
            shown(all),
        );
        let finding = Finding::new(&CONNECT_LIMIT_WITHOUT_EFFECT, severity, &connect.place, says)
            .label(words::setting(connect))
            .related(&whole.place, words::setting(whole))
            .along(graph, &[hop])
            .consequence("a host that is not there looks like one that is slow, and no other one is tried in its place")
            .help(format!("let connecting fail well before {}", shown(all)));
        findings.push(finding);
    }
}
