//! Ignores, in files that are audited.

use super::{audited, folder, found};

const CALLEE: &str = "- name: stock\n  calls:\n  - {to: db, timeout: 5s}\n- name: db\n";

fn shop(call: &str) -> String {
    format!("services:\n- name: shop\n  calls:\n{call}\n{CALLEE}")
}

#[track_caller]
fn finds(text: &str, want: &[&str], ignored: usize) {
    let folder = folder(&[("oneclock.topology.yaml", text)]);
    let audited = audited(folder.path());
    assert_eq!(found(&audited), want, "{text}");
    assert_eq!(audited.ignored.len(), ignored);
}

#[test]
fn with_a_reason_on_the_line_or_above() {
    let found = "oneclock.topology.yaml:7:23 outer-before-inner";
    finds(&shop("  - {to: stock, timeout: 2s, propagates: none}"), &[found], 0);
    let below = shop("  - {to: stock, timeout: 2s, propagates: none}");
    let on = below.replace("timeout: 5s}", "timeout: 5s} # oneclock-audit: ignore[outer-before-inner] db ends itself");
    finds(&on, &[], 1);
    let above =
        below.replace("  - {to: db", "  # oneclock-audit: ignore[outer-before-inner] db ends itself\n  - {to: db");
    finds(&above, &[], 1);
}

/// What only looks like an ignore would hide nothing and look as if it did.
#[test]
fn what_does_not_count_is_told_and_the_finding_stays() {
    let below = shop("  - {to: stock, timeout: 2s, propagates: none}");
    let ignore = |words: &str| below.replace("timeout: 5s}", &format!("timeout: 5s}} # oneclock-audit: {words}"));
    let found = "oneclock.topology.yaml:7:23 outer-before-inner";
    let malformed = "oneclock.topology.yaml:7:29 ignore-malformed";
    finds(&ignore("ignore[outer-before-inner]"), &[found, malformed], 0);
    finds(&ignore("ignore[outer-before-iner] so"), &[found, malformed], 0);
    finds(&ignore("ignore outer-before-inner so"), &[found, malformed], 0);
    finds(&ignore("ignore[flat-timeouts] so"), &[found, "oneclock.topology.yaml:7:29 ignore-unused"], 0);
}

/// The other side is shown with the finding: a comment there is as good.
#[test]
fn on_the_line_of_the_other_side() {
    let call = "  - {to: stock, timeout: 2s, propagates: none} # oneclock-audit: ignore[outer-before-inner] soon gone";
    finds(&shop(call), &[], 1);
}

/// What is told together is ignored one by one: a comment on the first line says nothing of the second.
#[test]
fn one_ignore_is_for_one_line() {
    let text = "services:\n- name: shop\n  calls:\n  - {to: a, timeout: none}\n  - {to: b, timeout: none}\n- name: a\n- name: b\n";
    finds(text, &["oneclock.topology.yaml:4:22 no-limit"], 0);
    let ignored = |line: &str| text.replace(line, &format!("{line} # oneclock-audit: ignore[no-limit] a job"));
    finds(&ignored("  - {to: a, timeout: none}"), &["oneclock.topology.yaml:5:22 no-limit"], 1);
    finds(&ignored("  - {to: b, timeout: none}"), &["oneclock.topology.yaml:4:22 no-limit"], 1);
}

#[test]
fn one_on_another_line_says_which_would_count() {
    let text = "services:\n- name: shop # oneclock-audit: ignore[no-limit] so\n  calls:\n  - {to: a, timeout: none}\n- name: a\n";
    let folder = folder(&[("oneclock.topology.yaml", text)]);
    let audited = audited(folder.path());
    let unused = audited.findings.iter().find(|found| found.finding.rule == "ignore-unused").expect("it is told");
    assert!(unused.finding.help.contains("move it to line 4:"), "{}", unused.finding.help);
}

#[test]
fn one_that_is_left_behind_is_told() {
    let text = "services:\n# oneclock-audit: ignore[no-limit] once it had none\n- name: shop\n";
    finds(text, &["oneclock.topology.yaml:2:3 ignore-unused"], 0);
}
