//! What is tried again: may it be, and what does it come to when every layer tries again?

use std::collections::HashMap;

use super::{Finding, Group, Rule, Severity, words};
use crate::catalogue::Kind;
use crate::graph::rpc::Undeclared;
use crate::graph::{Graph, Hop};
use crate::inventory::{Effects, Stated, is_repeatable};
use crate::source::Place;

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

/// The way out.
const REPEAT: &str =
    "try again only what may be repeated, or give the call an idempotency key that the callee enforces";
/// The same for gRPC, where a policy names methods.
const REPEAT_RPC: &str = "name in the policy only methods that may be repeated, and say so where they are described: option idempotency_level";

/// One for each retry policy: the calls that it holds for are told together.
fn unsafe_retry(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for hop in &graph.hops {
        let Some(attempts) = hop.limits.get(Kind::Attempts) else { continue };
        if hop.limits.tries() == Some(1) || matches!(attempts.amount, crate::amount::Amount::Unknown(_)) {
            continue;
        }
        let call = hop.call;
        let written = attempts.stated != Stated::Default;
        let is_grpc = attempts.known.product == "gRPC";
        let undeclared = hop.undeclared.as_ref().filter(|_| is_grpc);
        let severity = match hop.effects {
            Effects::ReadOnly | Effects::Idempotent | Effects::Keyed => continue,
            _ if call.spares_unsafe == Some(true) => continue,
            Effects::Once if written => Severity::Error,
            Effects::Once => Severity::Warning,
            Effects::Unknown => {
                match (call.methods.is_empty(), call.methods.iter().all(|method| is_repeatable(method))) {
                    (false, true) => continue,
                    (false, false) if written => Severity::Warning,
                    // Whoever writes a retry policy for a service of gRPC is taken to know its methods, unless its author
                    // says of others that they may be repeated.
                    (true, _) if undeclared.is_some_and(|one| one.others_are) => Severity::Warning,
                    (true, _) if is_grpc => Severity::Note,
                    (true, _) if written && call.spares_unsafe == Some(false) => Severity::Warning,
                    (true, _) if call.spares_unsafe.is_none() => continue,
                    _ => Severity::Note,
                }
            }
        };
        let which = match (hop.effects, call.methods.is_empty()) {
            (Effects::Once, _) => "what it does would happen twice".to_owned(),
            (_, true) if is_grpc => match undeclared {
                None => "no file says that its methods may be repeated".to_owned(),
                Some(Undeclared { service, method, others_are: true }) => {
                    format!("{service} declares that other methods may be repeated, and not {}", method.name)
                }
                Some(Undeclared { service, method, .. }) => {
                    format!("nothing declares that {service}/{} may be repeated", method.name)
                }
            },
            (_, true) => "what must not be repeated (POST, PATCH) is not left out".to_owned(),
            (_, false) => format!("it is for {}", call.methods.join(", ")),
        };
        let of_all = match undeclared {
            Some(_) => "nothing declares that all of their methods may be repeated",
            None => &which,
        };
        let several = format!(" are tried {}, and {of_all}", times(hop.limits.tries()));
        let subject = words::hop(graph, hop);
        let key = format!("{} {of_all}", attempts.place);
        let says = format!("{subject} is tried {}, and {which}", times(hop.limits.tries()));
        let mut finding = Finding::new(&UNSAFE_RETRY, severity, &attempts.place, says)
            .label(words::setting(attempts))
            .related(&call.place, format!("the call: {}", call.label))
            .along(graph, &[hop])
            .consequence("a try that was cut off may have been carried out: the next one does it again")
            .help(if is_grpc { REPEAT_RPC } else { REPEAT })
            .group(Group { key, call: hop.edge, subject, several });
        if let Some(Undeclared { method, .. }) = undeclared {
            finding = finding.related(&method.place, "the method: no `idempotency_level`");
        }
        findings.push(finding);
    }
}

fn times(tries: Option<u64>) -> String {
    tries.map_or_else(|| "without end".to_owned(), |tries| format!("up to {tries} times"))
}

fn is_written(hop: &Hop<'_>) -> bool {
    hop.limits.get(Kind::Attempts).is_some_and(words::is_written)
}

/// Whether a layer makes more of what is slow. By default some products repeat only what failed to connect, and the like:
/// then a default counts where a limit that fires makes them try again.
fn repeats_slow_calls(hop: &Hop<'_>) -> bool {
    let again = || hop.limits.all().iter().any(|limit| limit.known.retries && limit.amount.after().is_some());
    hop.limits.tries() != Some(1) && (is_written(hop) || again())
}

/// What a layer's retries stand for, however many calls have them.
fn places<'a>(hop: &Hop<'a>) -> Option<&'a Place> {
    hop.limits.get(Kind::Attempts).map(|attempts| &attempts.place)
}

fn amplification(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    // Of the ways between two layers the one that makes the most of a request is told.
    let mut told: HashMap<_, (u64, usize)> = HashMap::new();
    for path in graph.paths() {
        let layers: Vec<&Hop<'_>> = path.hops.iter().copied().filter(|hop| repeats_slow_calls(hop)).collect();
        let (Some(first), Some(last)) = (layers.first(), layers.last()) else { continue };
        let product = layers.iter().try_fold(1_u64, |product, hop| product.checked_mul(hop.limits.tries()?));
        let loud = product.is_none_or(|product| product >= LOUD);
        if layers.len() < 2 || product.is_some_and(|product| product < KNOWN) {
            continue;
        }
        let most = product.unwrap_or(u64::MAX);
        let before = told.get(&(places(first), places(last))).copied();
        if before.is_some_and(|(before, _)| before >= most) {
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
        let severity =
            if loud && layers.iter().any(|hop| is_written(hop)) { Severity::Warning } else { Severity::Note };
        let mut finding = Finding::new(&AMPLIFICATION, severity, place, says)
            .label(last.limits.get(Kind::Attempts).map(words::setting).unwrap_or_default())
            .along(graph, &path.hops)
            .consequence(format!("when the innermost one is slow, it gets the most: {}", factors.join(" × ")))
            .help("try again in one layer only, the one that knows whether repeating is allowed, and within a retry budget");
        for hop in &layers[..layers.len().saturating_sub(1)] {
            if let Some(attempts) = hop.limits.get(Kind::Attempts) {
                finding = finding.related(&attempts.place, words::setting(attempts));
            }
        }
        let at = before.map_or(findings.len(), |(_, at)| at);
        told.insert((places(first), places(last)), (most, at));
        match findings.get_mut(at) {
            Some(lesser) => *lesser = finding,
            None => findings.push(finding),
        }
    }
}
