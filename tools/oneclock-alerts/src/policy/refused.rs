//! A policy that is refused: where, and what to write instead.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_saphyr::{Error, Location};

/// What is wrong with a policy: the place, the fact, the way out. Printed, the place comes first, so that a file's name goes
/// in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct PolicyRefused {
    /// The line, counted from one; `None` where it is about several.
    pub line: Option<u64>,
    /// The column, counted from one.
    pub column: Option<u64>,
    /// What is wrong.
    pub why: String,
}

pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, PolicyRefused> {
    let options = serde_saphyr::options! { with_snippet: false }; // the line and the column are enough
    serde_saphyr::from_str_with_options(text, options).map_err(|error| PolicyRefused::of(&error))
}

impl PolicyRefused {
    pub(super) fn nowhere(why: String) -> Self {
        Self { line: None, column: None, why }
    }

    fn of(error: &Error) -> Self {
        let place = error.location().filter(|place| *place != Location::UNKNOWN);
        let (line, column) = (place.map(|place| place.line()), place.map(|place| place.column()));
        Self { line, column, why: sentence(error) }
    }
}

fn sentence(error: &Error) -> String {
    match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => {
            let nearest = nearest(field, expected).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let stop = if nearest.is_empty() { "." } else { "" };
            format!("there is no key `{field}` here{nearest}{stop} Known: {}", expected.join(", "))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            let nearest =
                nearest(variant, expected).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let stop = if nearest.is_empty() { "." } else { "" };
            format!("`{variant}` is none of those that are known here{nearest}{stop} Known: {}", expected.join(", "))
        }
        Error::Message { msg, .. } => msg.clone(),
        other => {
            let text = other.to_string();
            // The place comes first already.
            text.split_once(": ")
                .filter(|(place, _)| place.contains("line "))
                .map_or(&*text, |(_, fact)| fact)
                .to_owned()
        }
    }
}

/// As far from what was written as a slip of the fingers.
fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|known| (strsim::jaro_winkler(written, known), *known));
    near.filter(|(likeness, _)| *likeness > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

impl fmt::Display for PolicyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "{line}:{column}: ")?;
        }
        f.write_str(&self.why)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::Policy;

    #[track_caller]
    fn refused(text: &str, says: &str) {
        assert_eq!(Policy::parse(text).unwrap_err().to_string(), says, "{text}");
    }

    #[test]
    fn an_unknown_key_is_told_with_its_place_and_the_nearest_known_one() {
        refused(
            "timeouts:\n  wran: 2%\n",
            "2:3: there is no key `wran` here; did you mean `warn`? Known: warn, page, window, for",
        );
        refused(
            "timeout: {}",
            "1:1: there is no key `timeout` here; did you mean `timeouts`? Known: by, match, labels, \
            runbook_url, minimum, usual, timeouts, zombies, retries, propagation, deadline_missing, overflow, shedding, \
             calibration, objective",
        );
        refused("usual: { zzz: 1d }", "1:10: there is no key `zzz` here. Known: over");
        refused(
            "objective:\n  page:\n  - times: 2\n    short: 5m\n    lnog: 1h\n",
            "5:5: there is no key `lnog` here; did you mean `long`? Known: times, short, long",
        );
        refused(
            "zombies: { pools: { statements: 4 } }",
            "1:21: `statements` is none of those that are known here; did you mean `statement`? Known: must_finish, \
             blocking, statement",
        );
    }

    #[test]
    fn a_value_that_is_none_is_told_with_what_one_looks_like() {
        let share = "is not a share with its sign, more than 0% and less than 100%, such as 0.5%";
        refused("timeouts:\n  warn: 0.01\n", &format!("2:9: `0.01` {share}"));
        refused("timeouts:\n  warn: 0%\n", &format!("2:9: `0%` {share}"));
        refused(
            "timeouts: { window: 5 }",
            "1:21: `5` is not a whole number and its unit, one of ms, s, m, h and d, such as 5m",
        );
        refused("by: [k8s-pod]", "1:6: `k8s-pod` is not the name of a label, such as job");
    }

    #[test]
    fn what_contradicts_itself_is_told_with_both_values() {
        refused(
            "timeouts: { warn: 5%, page: 2% }",
            "timeouts.warn is 5%, and timeouts.page is 2%: it must warn before it pages",
        );
        refused(
            "retries: { amplification: 1 }",
            "retries.amplification is 1: without any retry it is 1 already, so write more than 1",
        );
        refused(
            "objective: { page: [{ times: 2, short: 2h, long: 1h }] }",
            "objective.page, window 1: short is 2h, and long is 1h: write a short window that is shorter",
        );
        refused(
            "objective: { in_time: 90% }",
            "objective.page, window 1: 14.4 times the error budget of in_time 90% is more than all requests, so it would \
             never fire: write fewer times",
        );
        refused(
            "timeouts: { window: 10m }",
            "timeouts.window is 10m, and a window of 5m is shorter: longer windows are made of those of timeouts.window, \
             so make that the shortest",
        );
        let edge = "deadline_missing.edges, edge";
        refused(
            "deadline_missing: { edges: [{ job: web }, {}] }",
            &format!("{edge} 2: it has no labels, so it would be everything: write `watched: false` for that"),
        );
        refused(
            "deadline_missing: { edges: [{ job: '' }] }",
            &format!("{edge} 1: job is empty, which is a service without that label: write its value"),
        );
        refused(
            "deadline_missing: { edges: [{ job: web, bound: absent }] }",
            &format!(
                "{edge} 1: {} is not split by bound: write labels of services, or one of operation, route",
                oneclock_telemetry::names::MISSING.name
            ),
        );
        refused(
            "by: [route]",
            "route is a label that the rules use themselves: take it out of `by`, `match` and `labels`",
        );
    }

    #[test]
    fn an_empty_policy_is_the_default_one() {
        for empty in ["", "\n\n", "# nothing\n", "{}"] {
            assert_eq!(Policy::parse(empty).unwrap(), Policy::default(), "{empty:?}");
        }
    }

    #[test]
    fn the_same_key_twice_and_what_is_no_mapping_are_refused() {
        for wrong in ["minimum: 1\nminimum: 2\n", "- a\n", "minimum: -1\n", "minimum: [", "timeouts: ~x\n"] {
            let refused = Policy::parse(wrong).unwrap_err();
            assert!(refused.line.is_some(), "{wrong:?}: {refused}");
        }
    }
}
