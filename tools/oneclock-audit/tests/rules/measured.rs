//! Limits against what was measured, and against what a person waits for.

use crate::judged::{says, says_of};

#[test]
fn below_twice_the_p99_healthy_calls_are_cut() {
    let call = |timeout: &str| format!("- name: a\n  calls: [{{to: b, timeout: {timeout}, p99: 200ms}}]\n");
    says_of(
        "timeout-and-p99",
        &call("300ms"),
        &["warning at oneclock.topology.yaml:3: a → b: the limit of 300ms is 1.5 times the P99 of 200ms"],
    );
    says_of("timeout-and-p99", &call("800ms"), &[]);
    says_of(
        "timeout-and-p99",
        &call("10s"),
        &["note at oneclock.topology.yaml:3: a → b: the limit of 10s is 50.0 times the P99 of 200ms"],
    );
}

#[test]
fn the_p99_of_a_service_counts_for_whoever_calls_it() {
    let text = "- name: a\n  calls: [{to: b, timeout: 300ms}]\n- name: b\n  p99: 200ms\n";
    says_of(
        "timeout-and-p99",
        text,
        &["warning at oneclock.topology.yaml:3: a → b: the limit of 300ms is 1.5 times the P99 of 200ms"],
    );
}

/// Advice that nobody can follow is none: five times the P99 would be more than the whole page has.
#[test]
fn advice_stays_within_the_budget() {
    let help = |budget: &str| {
        let text = format!(
            "entries:\n- {{name: page, to: a, budget: {budget}, reserve: 50ms}}\nservices:\n- name: a\n  calls: [{{to: b, timeout: \
             300ms, p99: 200ms}}]\n- name: b\n"
        );
        let inventory = crate::written::inventory(&[(crate::judged::TOPOLOGY, &text)]);
        let found = oneclock_audit::rules::judge(&oneclock_audit::graph::Graph::of(&inventory));
        let found = found.into_iter().find(|finding| finding.rule == "timeout-and-p99").expect("it is found");
        found.help
    };
    assert_eq!(help("2s"), "between 600ms and 1s would be 3 to 5 times");
    assert_eq!(help("850ms"), "between 600ms and 800ms would be 3 to 5 times, within what page has");
    assert_eq!(
        help("550ms"),
        "3 to 5 times would be 600ms to 1s, and page has 500ms: make the callee faster, or wait longer out there"
    );
}

#[test]
fn a_route_of_minutes_should_be_a_job() {
    let route = |limit: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r}}\nspec:\n  parentRefs: [{{name: edge}}]\n  \
             rules:\n  - timeouts: {{request: {limit}}}\n    backendRefs: [{{name: reports}}]\n"
        )
    };
    says(
        "sync-too-long",
        &[("route.yaml", &route("2m"))],
        &["note at route.yaml:7: gateway edge → reports may keep somebody waiting for 2m"],
    );
    says("sync-too-long", &[("route.yaml", &route("30s"))], &[]);
}
