//! What several rules say in the same words.

use std::time::Duration;

use crate::amount::shown;
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

/// How long a call may take, and why: `6s (2 tries of 3s)`, `2m (2 tries that hear nothing for 1m)`, `15s`.
pub(super) fn patience(hop: &Hop<'_>) -> String {
    let limits = &hop.limits;
    let time = |patience: &Patience| patience.time().map_or_else(|| "for ever".to_owned(), shown);
    let all = limits.patience();
    match (limits.tries(), limits.attempt()) {
        (Some(tries), one) if tries > 1 && one.time().is_some() && all.time() > one.time() => {
            let of = if matches!(one, Patience::Silence(_)) { "that hear nothing for" } else { "of" };
            format!("{} ({tries} tries {of} {})", time(&all), time(&one))
        }
        _ => time(&all),
    }
}

/// A time to advise, in two digits that say something, rounded down: `3.3s`, and not `3.333s`.
pub(super) fn about(time: Duration) -> String {
    let micros = time.as_micros();
    let digit = 10_u128.pow(micros.checked_ilog10().unwrap_or(0).saturating_sub(1));
    // Whole seconds stay: `1m30s` is as short as it gets.
    let whole = time.subsec_nanos() == 0 && time.as_secs() < 600;
    let rounded = if whole { micros } else { micros / digit * digit };
    shown(Duration::from_micros(u64::try_from(rounded).unwrap_or(u64::MAX)))
}

/// Whether somebody wrote it.
pub(super) fn is_written(setting: &Setting) -> bool {
    setting.stated != Stated::Default
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_has_two_digits() {
        for (millis, want) in [(3_333, "3.3s"), (119_500, "1m50s"), (90_000, "1m30s"), (1_234, "1.2s"), (37, "37ms")] {
            assert_eq!(about(Duration::from_millis(millis)), want);
        }
        assert_eq!(about(Duration::ZERO), "0s");
    }
}
