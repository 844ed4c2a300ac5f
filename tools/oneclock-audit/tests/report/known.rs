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
    compares(&SHOP.replace("timeout: 2s", "timeout: 3s"), (1, 0, 0));
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
