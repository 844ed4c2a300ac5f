//! The page of each rule: its examples are found, and left alone, as they say.

use oneclock_audit::rules::{RULES, judge};

use crate::judged::TOPOLOGY;
use crate::written::inventory;

/// The first block of YAML behind a word.
fn example<'a>(page: &'a str, word: &str) -> &'a str {
    let behind = page.split_once(&format!("\n{word}:\n\n```yaml\n")).map_or("", |(_, behind)| behind);
    behind.split("\n```").next().unwrap_or_default()
}

/// Whether a rule says something of a topology; `None` of another file.
fn found(rule: &str, example: &str) -> Option<bool> {
    let is_topology = example.starts_with("services:") || example.starts_with("entries:");
    is_topology.then(|| {
        let inventory = inventory(&[(TOPOLOGY, example)]);
        assert!(inventory.left_out.is_empty(), "{rule}: {:?}", inventory.left_out);
        judge(&oneclock_audit::graph::Graph::of(&inventory)).iter().any(|finding| finding.rule == rule)
    })
}

#[test]
fn every_rule_has_a_page_whose_examples_hold() {
    let mut run = 0;
    for rule in RULES {
        assert!(rule.page.starts_with(&format!("# {}\n", rule.id)), "{}: another page", rule.id);
        for section in ["\nFound:\n", "\nLeft alone:\n", "\n## How loud\n", "\n## The way out\n"] {
            assert!(rule.page.contains(section), "{}: no {section:?}", rule.id);
        }
        for (word, want) in [("Found", true), ("Left alone", false)] {
            let found = found(rule.id, example(rule.page, word));
            assert!(found.is_none_or(|found| found == want), "{}: the example under {word:?}", rule.id);
            run += usize::from(found.is_some());
        }
    }
    assert!(run > 20, "only {run} examples ran");
}
