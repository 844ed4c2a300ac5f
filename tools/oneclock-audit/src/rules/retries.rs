//! What is tried again: may it be, and what does it come to when every layer tries again?

use std::collections::{HashMap, HashSet};

use super::{Finding, Rule, Severity, words};
use crate::catalogue::Kind;
use crate::graph::{Graph, Hop};
use crate::inventory::{EdgeId, Effects, Stated};

/// A call is repeated although repeating it does something again.
pub(super) const UNSAFE_RETRY: Rule = Rule {
    id: "unsafe-retry",
    says: "a call that must not be repeated is repeated",
    page: include_str!("../../rules/unsafe-retry.md"),
    look: unsafe_retry,
};

/// Retries of several layers multiply.
pub(super) const AMPLIFICATION: Rule = Rule {
    id: "retry-amplification",
    says: "retries of several layers multiply",
    page: include_str!("../../rules/retry-amplification.md"),
    look: amplification,
};

/// As many requests for one, and more, are loud.
const LOUD: u64 = 8;
/// As many are worth knowing.
const KNOWN: u64 = 4;

/// Methods that may be repeated (RFC 9110, 9.2.2).
const REPEATABLE: &[&str] = &["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];

/// One for each retry policy: the calls that it holds for are told together.
fn unsafe_retry(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let mut told: HashMap<_, (Finding, HashSet<EdgeId>)> = HashMap::new();
    for hop in &graph.hops {
        let Some(attempts) = hop.limits.get(Kind::Attempts) else { continue };
        if hop.limits.tries() == Some(1) || matches!(attempts.amount, crate::amount::Amount::Unknown(_)) {
            continue;
        }
        let call = hop.call;
        let written = attempts.stated != Stated::Default;
        let severity = match call.effects {
            Effects::ReadOnly | Effects::Idempotent | Effects::Keyed => continue,
            _ if call.spares_unsafe == Some(true) => continue,
            Effects::Once if written => Severity::Error,
            Effects::Once => Severity::Warning,
            Effects::Unknown => {
                let repeatable = |method: &String| REPEATABLE.contains(&method.to_ascii_uppercase().as_str());
                match (call.methods.is_empty(), call.methods.iter().all(repeatable)) {
                    (false, true) => continue,
                    (false, false) if written => Severity::Warning,
                    // Whoever writes a retry policy for a service of gRPC is taken to know its methods.
                    (true, _) if attempts.known.product == "gRPC" => Severity::Note,
                    (true, _) if written && call.spares_unsafe == Some(false) => Severity::Warning,
                    (true, _) if call.spares_unsafe.is_none() => continue,
                    _ => Severity::Note,
                }
            }
        };
        let which = match (call.effects, call.methods.is_empty()) {
            (Effects::Once, _) => "what it does would happen twice".to_owned(),
            (_, true) if attempts.known.product == "gRPC" => "no file says that its methods may be repeated".to_owned(),
            (_, true) => "what must not be repeated (POST, PATCH) is not left out".to_owned(),
            (_, false) => format!("it is for {}", call.methods.join(", ")),
        };
        let one = (&attempts.place, severity, which.clone());
        if let Some((_, edges)) = told.get_mut(&one) {
            edges.insert(hop.edge);
            continue;
        }
        let says = format!("is tried {}, and {which}", times(hop.limits.tries()));
        let finding = Finding::new(&UNSAFE_RETRY, severity, &attempts.place, says)
            .label(words::setting(attempts))
            .related(&call.place, format!("the call: {}", call.label))
            .between(words::along(graph, &[hop]))
            .consequence("a try that was cut off may have been carried out: the next one does it again")
            .help("try again only what may be repeated, or give the call an idempotency key that the callee enforces");
        told.insert(one, (finding, HashSet::from([hop.edge])));
    }
    for (mut finding, edges) in told.into_values() {
        let are = if edges.len() > 1 { finding.says.replacen("is tried", "are tried", 1) } else { finding.says };
        finding.says = format!("{}{} {are}", finding.between.join(" → "), words::and_more(edges.len()));
        findings.push(finding);
    }
}

fn times(tries: Option<u64>) -> String {
    tries.map_or_else(|| "without end".to_owned(), |tries| format!("up to {tries} times"))
}

fn amplification(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let mut told = HashSet::new();
    for path in graph.paths() {
        let layers: Vec<&Hop<'_>> = path.hops.iter().copied().filter(|hop| hop.limits.tries() != Some(1)).collect();
        let (Some(first), Some(last)) = (layers.first(), layers.last()) else { continue };
        let product = layers.iter().try_fold(1_u64, |product, hop| product.checked_mul(hop.limits.tries()?));
        let loud = product.is_none_or(|product| product >= LOUD);
        if layers.len() < 2
            || product.is_some_and(|product| product < KNOWN)
            || !told.insert((first.number, last.number))
        {
            continue;
        }
        let factors: Vec<String> = layers
            .iter()
            .map(|hop| {
                format!(
                    "{} {}",
                    words::hop(graph, hop),
                    hop.limits.tries().map_or("∞".to_owned(), |tries| tries.to_string())
                )
            })
            .collect();
        let Some(place) = last.limits.get(Kind::Attempts).map(|attempts| &attempts.place) else { continue };
        let requests = product.map_or_else(|| "without end".to_owned(), |product| format!("{product} requests"));
        let says = format!("one request of {} can become {requests} to {}", graph.name(first.from), graph.callee(last));
        // Defaults of a product that multiply are its own doing, and worth knowing.
        let written = |hop: &&Hop<'_>| hop.limits.get(Kind::Attempts).is_some_and(words::is_written);
        let severity = if loud && layers.iter().any(written) { Severity::Warning } else { Severity::Note };
        let mut finding = Finding::new(&AMPLIFICATION, severity, place, says)
            .label(last.limits.get(Kind::Attempts).map(words::setting).unwrap_or_default())
            .between(words::along(graph, &path.hops))
            .consequence(format!("when the innermost one is slow, it gets the most: {}", factors.join(" × ")))
            .help("try again in one layer only, the one that knows whether repeating is allowed, and within a retry budget");
        for hop in &layers[..layers.len().saturating_sub(1)] {
            if let Some(attempts) = hop.limits.get(Kind::Attempts) {
                finding = finding.related(&attempts.place, words::setting(attempts));
            }
        }
        findings.push(finding);
    }
}
