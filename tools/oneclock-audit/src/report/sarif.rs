//! SARIF 2.1.0, for code scanning: every finding with its place, and the other layer as a related location, so that one
//! pull request shows both. What the baseline has says so (`baselineState`), and what is ignored says where and why
//! (`suppressions`): whoever shows results knows what to leave out, and whoever counts them loses none.
//!
//! Bounds of the best-known reader are kept: it takes 5000 results of a run, and 1000 locations of a result. What is left
//! out is told in a notification of the run, as is every file that was not read.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Report, coverage, words};
use crate::audited::Found;
use crate::rules::{Finding, Rule, Severity};
use crate::source::Place;

/// The most results that are written, the loudest.
pub const MOST_RESULTS: usize = 5_000;
/// The most locations of one result.
const MOST_LOCATIONS: usize = 1_000;
/// The most notifications: each is a file that was not read.
const MOST_NOTIFICATIONS: usize = 100;

impl Report<'_> {
    /// One log with one run. Paths are relative to where the audit began, which is to be the root of the repository.
    #[must_use]
    pub fn sarif(&self) -> Value {
        let rules: Vec<&Rule> = crate::every_rule().collect();
        let (known, new): (Vec<&Found>, Vec<&Found>) = self.audited.findings.iter().partition(|found| found.known);
        let found = new.into_iter().chain(known).map(|found| {
            let mut result = result(&found.finding, &rules);
            result["partialFingerprints"] = json!({"primaryLocationLineHash": found.fingerprint});
            if self.audited.compared {
                result["baselineState"] = if found.known { "unchanged" } else { "new" }.into();
            }
            result
        });
        let ignored = self.audited.ignored.iter().map(|ignored| {
            let mut result = result(&ignored.finding, &rules);
            result["suppressions"] = json!([{
                "kind": "inSource",
                "justification": ignored.reason,
                "location": {"physicalLocation": physical(&ignored.place)},
            }]);
            result
        });
        let all = self.audited.findings.len() + self.audited.ignored.len();
        let results = found.chain(ignored).take(MOST_RESULTS);
        let mut driver = json!({
            "name": "oneclock audit",
            "semanticVersion": env!("CARGO_PKG_VERSION"),
            "rules": rules.iter().map(|rule| described(rule, words::HOME)).collect::<Vec<_>>(),
        });
        if !words::HOME.is_empty() {
            driver["informationUri"] = words::HOME.into();
        }
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": {"driver": driver},
                "automationDetails": {"id": "oneclock-audit/"},
                "columnKind": "unicodeCodePoints",
                "invocations": [{
                    "executionSuccessful": true,
                    "toolExecutionNotifications": self.notifications(all),
                }],
                "results": results.collect::<Vec<_>>(),
            }],
        })
    }

    fn notifications(&self, findings: usize) -> Vec<Value> {
        let mut told = vec![json!({"level": "note", "message": message(&coverage::line(self.audited))})];
        if findings > MOST_RESULTS {
            let text = format!(
                "{} more findings are not in this file: it holds the {MOST_RESULTS} loudest",
                findings - MOST_RESULTS
            );
            told.push(json!({"level": "warning", "message": message(&text)}));
        }
        told.extend(self.audited.left_out.iter().take(MOST_NOTIFICATIONS).map(|left| {
            let text = format!("{}: {}", coverage::word(left.why), left.says);
            json!({"level": "note", "message": message(&text), "locations": [{"physicalLocation": physical(&left.place)}]})
        }));
        told
    }
}

/// `home` is where the pages are published; the text of the page goes along in any case.
fn described(rule: &Rule, home: &str) -> Value {
    let mut value = json!({
        "id": rule.id,
        "shortDescription": {"text": rule.says},
        "help": {"text": rule.page, "markdown": rule.page},
        "properties": {"tags": ["timeouts", "reliability"]},
    });
    if !home.is_empty() {
        value["helpUri"] = format!("{home}/blob/main/tools/oneclock-audit/rules/{}.md", rule.id).into();
    }
    value
}

fn result(finding: &Finding, rules: &[&Rule]) -> Value {
    let mut text = finding.says.clone();
    for (says, title) in [(&finding.consequence, "Consequence"), (&finding.help, "Way out")] {
        if !says.is_empty() {
            text.push_str(&format!("\n{title}: {says}"));
        }
    }
    let related = finding.related.iter().take(MOST_LOCATIONS - 1).enumerate().map(|(id, related)| {
        json!({"id": id + 1, "physicalLocation": physical(&related.place), "message": message(&related.says)})
    });
    json!({
        "ruleId": finding.rule,
        "ruleIndex": rules.iter().position(|rule| rule.id == finding.rule),
        "level": level(finding.severity),
        "message": message(&text),
        "locations": [{"physicalLocation": physical(&finding.place)}],
        "relatedLocations": related.collect::<Vec<_>>(),
    })
}

const fn level(severity: Severity) -> &'static str {
    words::severity(severity)
}

fn physical(place: &Place) -> Value {
    json!({
        "artifactLocation": {"uri": uri(&place.file), "uriBaseId": "%SRCROOT%"},
        "region": {
            "startLine": place.line,
            "startColumn": place.column,
            "endColumn": place.column.saturating_add(place.width),
        },
    })
}

/// A text. `[words](target)` would be a link in it, wherever that leads.
fn message(text: &str) -> Value {
    json!({"text": text.replace("](", "] (")})
}

/// A path as a relative reference: what is not plain is escaped, byte by byte.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignores::UNUSED;

    #[test]
    fn a_rule_leads_to_its_page() {
        let rule = described(&UNUSED, "https://code.example/oneclock");
        assert_eq!(
            rule["helpUri"],
            "https://code.example/oneclock/blob/main/tools/oneclock-audit/rules/ignore-unused.md"
        );
        assert!(rule["help"]["markdown"].as_str().is_some_and(|page| page.starts_with("# ignore-unused")));
        assert_eq!(described(&UNUSED, "")["helpUri"], Value::Null, "no address is better than one of nobody");
    }

    #[test]
    fn a_text_has_no_links() {
        assert_eq!(message("`a[0]` [here](https://x.example)")["text"], "`a[0]` [here] (https://x.example)");
    }

    #[test]
    fn a_path_is_a_relative_reference() {
        assert_eq!(uri("deploy/a b/ü:1#.yaml"), "deploy/a%20b/%C3%BC%3A1%23.yaml");
    }
}
