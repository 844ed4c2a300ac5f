//! For programs, for code scanning, for pull requests, and the picture.

use oneclock_audit::report::Report;
use serde_json::Value;

use super::{audited, folder, shop};

#[test]
fn json() {
    let audited = audited(&shop());
    let mut told = Report::of(&audited).json();
    told["catalogue"] = "DATE".into();
    insta::assert_snapshot!(serde_json::to_string_pretty(&told).expect("JSON"));
}

#[test]
fn sarif() {
    let audited = audited(&shop());
    let mut told = Report::of(&audited).sarif();
    // The rules and their pages are their authors' business; one is enough to see the shape.
    let rules = told["runs"][0]["tool"]["driver"]["rules"].as_array().cloned().expect("rules");
    for result in told["runs"][0]["results"].as_array_mut().expect("results") {
        let index = result["ruleIndex"].as_u64().and_then(|at| usize::try_from(at).ok()).expect("an index");
        assert_eq!(rules[index]["id"], result["ruleId"], "the index leads to the rule");
        result["ruleIndex"] = Value::Null;
    }
    for rule in &rules {
        assert!(rule["shortDescription"]["text"].as_str().is_some_and(|text| !text.is_empty()), "{rule}");
    }
    told["runs"][0]["tool"]["driver"]["rules"] = Value::Null;
    insta::assert_snapshot!(serde_json::to_string_pretty(&told).expect("JSON"));
}

/// What is known, and what is ignored, is there, and says so.
#[test]
fn sarif_says_what_is_known_and_what_is_ignored() {
    let text = "services:\n- name: shop\n  calls:\n  - {to: a, timeout: none}\n  - {to: b, timeout: 2s, attempts: 3, effects: once} \
                # oneclock-audit: ignore[unsafe-retry] b knows\n- name: a\n- name: b\n";
    let folder = folder(&[("oneclock.topology.yaml", text)]);
    let mut audited = audited(folder.path());
    let results = |audited: &oneclock_audit::Audited<'_>| {
        let told = Report::of(audited).sarif();
        let results = told["runs"][0]["results"].as_array().cloned().expect("results");
        results
            .iter()
            .map(|one| {
                format!("{} {} {}", one["ruleId"], one["baselineState"], one["suppressions"][0]["justification"])
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(results(&audited), ["\"no-limit\" null null", "\"unsafe-retry\" null \"b knows\""]);
    audited.compare(&oneclock_audit::baseline::Baseline::of(&audited.findings.clone()));
    assert_eq!(results(&audited), ["\"no-limit\" \"unchanged\" null", "\"unsafe-retry\" null \"b knows\""]);
}

/// Two calls between the same two: only one of them does not fit, and it is the price of that one that is told.
#[test]
fn of_two_calls_between_the_same_the_one_that_is_meant_is_marked() {
    let text = "entries:\n- {name: home, to: page, budget: 9s, rate: 100/s}\nservices:\n- name: page\n  calls: [{to: shop, timeout: 2s, propagates: none}]\n\
                - name: shop\n  calls:\n  - {to: stock, timeout: 1s, path: /fast}\n  - {to: stock, timeout: 5s, path: /slow}\n- name: stock\n";
    let folder = folder(&[("oneclock.topology.yaml", text)]);
    let audited = audited(folder.path());
    let report = Report::of(&audited);
    let json = report.json();
    let ways = json["ways"].as_array().expect("ways");
    let marked = |way: &&Value| way["rules"].to_string().contains("outer-before-inner");
    assert_eq!((ways.len(), ways.iter().filter(marked).count()), (2, 1), "{ways:?}");
    let tree = super::plain(&audited, oneclock_audit::report::Detail::Usual);
    let tree = tree.split("the layers").next().expect("the tree");
    assert_eq!(tree.matches("outer-before-inner").count(), 1, "{tree}");
    let found = audited.findings.iter().find(|found| found.finding.rule == "outer-before-inner").expect("it is found");
    assert!(found.finding.consequence.contains("keeps 3 at work"), "{}", found.finding.consequence);
}

#[test]
fn markdown() {
    insta::assert_snapshot!(Report::of(&audited(&shop())).markdown());
}

#[test]
fn svg() {
    insta::assert_snapshot!(Report::of(&audited(&shop())).svg());
}
