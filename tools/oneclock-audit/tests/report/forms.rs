//! For programs, for code scanning, for pull requests, and the picture.

use oneclock_audit::report::Report;
use serde_json::Value;

use super::{audited, shop};

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

#[test]
fn markdown() {
    insta::assert_snapshot!(Report::of(&audited(&shop())).markdown());
}

#[test]
fn svg() {
    insta::assert_snapshot!(Report::of(&audited(&shop())).svg());
}
