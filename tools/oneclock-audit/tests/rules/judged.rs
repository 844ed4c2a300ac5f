//! Findings in lines, so that a case is a few files and what is said of them.

use oneclock_audit::graph::Graph;
use oneclock_audit::rules::{Severity, judge};

use crate::written::inventory;

/// The name of the topology file.
pub(crate) const TOPOLOGY: &str = "oneclock.topology.yaml";

/// Of one rule exactly these lines are said: `error at file:line: sentence`. All else that is said does not count.
#[track_caller]
pub(crate) fn says(rule: &str, files: &[(&str, &str)], want: &[&str]) {
    assert!(oneclock_audit::rules::rule(rule).is_some(), "there is no rule {rule}");
    let inventory = inventory(files);
    let left: Vec<_> = inventory.left_out.iter().map(|left| format!("{}: {}", left.place, left.says)).collect();
    assert!(left.is_empty(), "not read: {left:#?}");
    let found: Vec<String> = judge(&Graph::of(&inventory))
        .into_iter()
        .filter(|finding| finding.rule == rule)
        .map(|finding| {
            let severity = match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            format!("{severity} at {}:{}: {}", finding.place.file, finding.place.line, finding.says)
        })
        .collect();
    assert!(found == want, "said:\n{}\n\nwanted:\n{}\n", found.join("\n"), want.join("\n"));
}

/// Of these files the rule says nothing.
#[track_caller]
pub(crate) fn is_silent(rule: &str, files: &[(&str, &str)]) {
    says(rule, files, &[]);
}

/// The services of a topology file.
pub(crate) fn services(text: &str) -> Vec<(&'static str, String)> {
    vec![(TOPOLOGY, format!("services:\n{text}"))]
}

/// The same of a topology file alone.
#[track_caller]
pub(crate) fn says_of(rule: &str, text: &str, want: &[&str]) {
    let files = services(text);
    says(rule, &[(files[0].0, &files[0].1)], want);
}
