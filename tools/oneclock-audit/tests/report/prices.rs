//! What a finding costs, where the topology says how often requests come.

use super::{audited, folder};

fn shop(rate: &str) -> String {
    format!(
        "entries:\n- {{name: page, to: shop, budget: 60s{rate}}}\nservices:\n- name: shop\n  calls:\n  \
         - {{to: stock, timeout: 2s, attempts: 3, propagates: none}}\n- name: stock\n  calls:\n  \
         - {{to: db, timeout: 62s, attempts: 4}}\n- name: db\n"
    )
}

/// What a rule's finding says that follows.
fn follows(rate: &str, rule: &str) -> String {
    let folder = folder(&[("oneclock.topology.yaml", &shop(rate))]);
    let audited = audited(folder.path());
    let found = audited.findings.iter().find(|found| found.finding.rule == rule).expect("it is found");
    found.finding.consequence.clone()
}

/// 70 a minute, of which one percent goes on for 60 s longer: 0.7, and not 42, which is what 70 a second would come to.
#[test]
fn a_rate_per_minute_is_one() {
    let minute = follows(", rate: 70/min", "outer-before-inner");
    assert!(
        minute.ends_with(
            "; of 1.17/s of page, each percent that runs into it keeps 0.7 at work for nobody at any moment"
        ),
        "{minute}"
    );
    let second = follows(", rate: 70/s", "outer-before-inner");
    assert!(
        second.ends_with("; of 70/s of page, each percent that runs into it keeps 42 at work for nobody at any moment"),
        "{second}"
    );
}

#[test]
fn repeating_multiplies_the_rate() {
    let text = follows(", rate: 10/s", "retry-amplification");
    assert!(text.ends_with("; of 10/s of page up to 120/s arrive at db"), "{text}");
}

#[test]
fn without_a_rate_nothing_is_made_up() {
    for rule in ["outer-before-inner", "retry-amplification"] {
        assert!(!follows("", rule).contains("/s of"), "{rule}");
    }
}

#[test]
fn a_rate_without_a_unit_is_none_and_is_listed() {
    let folder = folder(&[("oneclock.topology.yaml", &shop(", rate: 70"))]);
    let audited = audited(folder.path());
    let left = audited.left_out.iter().map(|left| format!("{} {}", left.place, left.says));
    assert_eq!(left.collect::<Vec<_>>(), ["oneclock.topology.yaml:2:45 a rate has a unit: 70/s, 4200/min"]);
    assert!(!follows(", rate: 70", "outer-before-inner").contains("/s of"));
}
