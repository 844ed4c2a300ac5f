//! Documents as people write them, and documents that want to do harm.

#![allow(clippy::panic)] // helpers of tests: to panic is how a test fails

use oneclock_yaml::{DEEPEST, Node, Value, documents};

#[track_caller]
fn one(text: &str) -> Node {
    let mut all = documents(text, DEEPEST).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

#[track_caller]
fn refused(text: &str) {
    assert!(documents(text, DEEPEST).is_err(), "was taken: {}", &text[..text.len().min(200)]);
}

#[test]
fn tags_of_cloudformation_keep_their_value_and_its_place() {
    let document =
        one("Timeout: !Ref T\nUrl: !Sub \"http://${H}\"\nPair: !GetAtt [A, B]\nIf: !If\n  - X\n  - 3\n  - 5\n");
    assert_eq!(document.text_at(&["Timeout"]), Some("T"));
    assert_eq!(document.text_at(&["Url"]), Some("http://${H}"));
    assert_eq!(document.at(&["Pair"]).map(|pair| pair.items().len()), Some(2));
    assert_eq!(document.at(&["If"]).map(|pair| pair.items().len()), Some(3));
}

#[test]
fn json_is_yaml() {
    let document = one("{\n\t\"timeout\": \"1s\",\n\t\"list\": [1, 2.5, true, null]\n}\n");
    assert_eq!(document.text_at(&["timeout"]), Some("1s"));
    assert_eq!(document.at(&["list"]).map(|list| list.items().len()), Some(4));
    let place = document.at(&["timeout"]).map(|node| (node.place.line, node.place.column));
    assert_eq!(place, Some((2, 13)));
}

#[test]
fn merge_keys_and_aliases_point_at_what_was_written() {
    let document = one("base: &base\n  timeout: 5s\nroute:\n  <<: *base\n  retries: 2\n");
    let timeout = document.at(&["route", "timeout"]).map(|node| (node.text().map(str::to_owned), node.place.line));
    assert_eq!(timeout, Some((Some("5s".to_owned()), 2)));
}

#[test]
fn one_fragment_may_be_repeated_often() {
    let services: String = (0..200).map(|number| format!("  s{number}:\n    <<: *base\n")).collect();
    let document = one(&format!("base: &base\n  timeout: 5s\nservices:\n{services}"));
    assert_eq!(document.text_at(&["services", "s199", "timeout"]), Some("5s"));
}

#[test]
fn numbers_and_booleans_are_their_text() {
    let document = one("a: 30\nb: 0.250\nc: on\nd: true\ne: 0x10\nf: 1_000\ng: '030'\nh: 2026-11-30\ni: 1h30m\n");
    let text = |key: &str| document.text_at(&[key]).unwrap_or_default().to_owned();
    assert_eq!(["a", "b", "c", "d", "h", "i"].map(text), ["30", "0.25", "on", "true", "2026-11-30", "1h30m"]);
}

#[test]
fn several_documents_and_carriage_returns() {
    let all = documents("a: 1\r\n---\r\n---\r\nb: 2\r\n", DEEPEST).unwrap_or_default();
    assert_eq!(all.iter().filter(|node| !matches!(node.value, Value::Null)).count(), 2);
}

#[test]
fn what_a_chart_becomes_has_many_documents() {
    let all = documents(&"---\nkind: Service\n".repeat(5_000), DEEPEST).unwrap_or_default();
    assert_eq!(all.len(), 5_000);
}

#[test]
fn documents_without_end_are_refused() {
    refused(&"--- a\n".repeat(300_000));
}

#[test]
fn aliases_that_explode_are_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![before; 10].join(", ")));
    }
    refused(&text);
}

#[test]
fn a_billion_levels_are_refused() {
    refused(&"[".repeat(1_000_000));
    refused(&"{a: ".repeat(100_000));
    for opens in ["- ", "-\t", "? ", ": ", "- ? ", "a:\n - - "] {
        refused(&opens.repeat(100_000));
    }
    let deep: String = (0..10_000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    refused(&deep);
}

#[test]
fn what_is_no_yaml_is_refused() {
    refused("a: {{ .Values.x }}\n");
    refused("a: b: c\n");
    refused("a: 1\na: 2\n");
    refused("\tkey: tabs\n\t\tmore: tabs\n- x");
}
