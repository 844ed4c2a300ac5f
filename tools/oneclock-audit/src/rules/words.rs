//! What several rules say in the same words.

use crate::graph::limits::Patience;
use crate::graph::{Graph, Hop};
use crate::inventory::{Setting, Stated};

/// `proxy_read_timeout 60s`, `route.timeout 15s (nobody wrote it: the default of Envoy)`.
pub(super) fn setting(setting: &Setting) -> String {
    let known = setting.known;
    match setting.stated {
        Stated::Default => {
            format!("{} {} (nobody wrote it: the default of {})", known.key, setting.amount, known.product)
        }
        Stated::Explicit | Stated::Topology => format!("{} {}", known.key, setting.amount),
    }
}

/// `storefront → reviews`.
pub(super) fn hop(graph: &Graph<'_>, hop: &Hop<'_>) -> String {
    format!("{} → {}", graph.name(hop.from), graph.callee(hop))
}

/// The names along several hops, from the outside in.
pub(super) fn along(graph: &Graph<'_>, hops: &[&Hop<'_>]) -> Vec<String> {
    let mut names: Vec<String> = hops.first().map(|first| graph.name(first.from).to_owned()).into_iter().collect();
    names.extend(hops.iter().map(|hop| graph.callee(hop)));
    names
}

/// ` and 3 more calls`: of so many that a finding is about, those that it does not name.
pub(super) fn and_more(calls: usize) -> String {
    match calls {
        0 | 1 => String::new(),
        2 => " and one more call".to_owned(),
        calls => format!(" and {} more calls", calls - 1),
    }
}

/// How long a call may take, and why: `6s (2 tries of 3s)`, `15s`.
pub(super) fn patience(hop: &Hop<'_>) -> String {
    let limits = &hop.limits;
    let time = |patience: &Patience| patience.time().map_or_else(|| "for ever".to_owned(), crate::amount::shown);
    let all = limits.patience();
    match (limits.tries(), limits.attempt()) {
        (Some(tries), one) if tries > 1 && one.time().is_some() && all.time() > one.time() => {
            format!("{} ({tries} tries of {})", time(&all), time(&one))
        }
        _ => time(&all),
    }
}

/// Whether somebody wrote it.
pub(super) fn is_written(setting: &Setting) -> bool {
    setting.stated != Stated::Default
}
