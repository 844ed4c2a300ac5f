//! Baselines.

use oneclock_audit::baseline::Baseline;
use oneclock_audit::rules::Severity;

use super::{audited, folder};

const SHOP: &str = "services:\n- name: shop\n  calls:\n  - {to: stock, timeout: 2s, propagates: none}\n\
- name: stock\n  calls:\n  - {to: db, timeout: 5s}\n- name: db\n";

fn baseline() -> Baseline {
    let folder = folder(&[("oneclock.topology.yaml", SHOP)]);
    let written = Baseline::of(&audited(folder.path()).findings);
    assert_eq!(written.len(), 1);
    let read = Baseline::read(&written.to_json()).expect("what is written is read");
    assert_eq!(read, written);
    read
}

/// Known, new, stale.
#[track_caller]
fn compares(text: &str, want: (usize, usize, usize)) {
    let folder = folder(&[("oneclock.topology.yaml", text)]);
    let mut audited = audited(folder.path());
    audited.compare(&baseline());
    let known = audited.findings.iter().filter(|found| found.known).count();
    assert_eq!((known, audited.new_findings().count(), audited.stale.len()), want, "{text}");
    assert_eq!(audited.fails(Severity::Note), want.1 > 0, "what is known fails nobody");
}

#[test]
fn what_is_known_stays_so_when_lines_move() {
    compares(SHOP, (1, 0, 0));
    compares(&SHOP.replace("services:", "# a new line\n\nservices:"), (1, 0, 0));
    compares(&SHOP.replace("  - {to: stock, timeout", "  -  {to: stock,  timeout"), (1, 0, 0));
}

/// The caller waits for less, so more is done for nobody: that is not what somebody took for known.
#[test]
fn a_change_on_the_other_side_is_another_finding() {
    compares(&SHOP.replace("timeout: 2s", "timeout: 3s"), (0, 1, 1));
    compares(&SHOP.replace("timeout: 2s", "timeout: 100ms"), (0, 1, 1));
}

/// Of calls that are told together, each is known by itself.
#[test]
fn of_several_places_one_more_is_new_and_one_less_is_not() {
    let calls = |names: &[&str]| {
        let calls: Vec<String> = names.iter().map(|name| format!("  - {{to: {name}, timeout: none}}\n")).collect();
        format!("services:\n- name: shop\n  calls:\n{}- name: a\n- name: b\n- name: c\n", calls.concat())
    };
    let audit = |names: &[&str]| audited(folder(&[("oneclock.topology.yaml", &calls(names))]).path());
    let two = audit(&["a", "b"]);
    assert_eq!(two.findings.len(), 1, "they are one thing to mend");
    let known = Baseline::of(&two.findings);
    for (names, new, stale) in [(&["a", "b"][..], 0, 0), (&["b"], 0, 1), (&["a", "b", "c"], 1, 0)] {
        let mut now = audit(names);
        now.compare(&known);
        assert_eq!((now.new_findings().count(), now.stale.len()), (new, stale), "{names:?}");
    }
}

#[test]
fn another_line_is_another_finding_and_leaves_a_stale_entry() {
    compares(&SHOP.replace("timeout: 5s", "timeout: 6s"), (0, 1, 1));
    compares(&SHOP.replace("timeout: 5s", "timeout: 1s"), (0, 0, 1));
}

#[test]
fn what_is_no_baseline_is_refused_with_its_place() {
    let refused = |text: &str| Baseline::read(text).expect_err("no baseline").to_string();
    assert!(refused("{}").starts_with("1:2: missing field"), "{}", refused("{}"));
    assert!(refused("[").starts_with("1:1: "), "{}", refused("["));
    assert_eq!(
        refused("{\"version\": 2, \"findings\": []}"),
        "1:1: version 2 is not known, 1 is; write it again with --write-baseline"
    );
}
