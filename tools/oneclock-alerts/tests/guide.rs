//! The guide says what the code does.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "the helpers of a test are a test")]

use oneclock_alerts::{Alert, Policy};

const GUIDE: &str = include_str!("../../../docs/guide/alerts.md");

#[test]
fn the_policy_in_the_guide_is_the_default_one() {
    let (_, rest) = GUIDE.split_once("```yaml\n").expect("a policy");
    let (policy, _) = rest.split_once("```").expect("and its end");
    assert_eq!(Policy::parse(policy).unwrap(), Policy::default());
}

#[test]
fn every_alert_is_in_the_guide_with_its_entry_of_the_playbook() {
    for alert in Alert::ALL {
        let line = GUIDE.lines().find(|line| line.starts_with(&format!("| `{}` |", alert.name())));
        let line = line.unwrap_or_else(|| panic!("{} is not in docs/guide/alerts.md", alert.name()));
        assert!(line.ends_with(&format!("| `{}` |", alert.playbook().name())), "{line}");
    }
}

#[test]
fn the_mistake_in_the_guide_is_told_like_that() {
    let refused = Policy::parse("timeouts:\n  wran: 2%\n").unwrap_err();
    assert!(GUIDE.contains(&format!("oneclock: alerts.yml:{refused}\n")), "{refused}");
}
