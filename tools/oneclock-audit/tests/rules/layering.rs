//! What is inside ends before what is outside.

use std::collections::HashSet;
use std::fmt::Write as _;

use oneclock_audit::graph::Graph;

use crate::judged::{TOPOLOGY, is_silent, says, says_of, services};
use crate::written::inventory;

/// A page calls reviews in two tries of 3 s, and reviews waits 10 s for ratings.
const BOOKS: &str = "\
- name: page
  calls: [{to: reviews, attempt: 3s, attempts: 2, propagates: none}]
- name: reviews
  calls: [{to: ratings, timeout: 10s}]
";

#[test]
fn ten_seconds_inside_of_two_tries_of_three() {
    says_of(
        "outer-before-inner",
        BOOKS,
        &["error at oneclock.topology.yaml:5: reviews → ratings may take 10s, and page → reviews gives up after 3s"],
    );
}

#[test]
fn a_callee_that_gets_what_is_left_ends_with_its_caller() {
    says_of("outer-before-inner", &BOOKS.replace("none", "deadline"), &[]);
}

#[test]
fn where_nothing_says_what_is_handed_on_it_is_a_warning() {
    says_of(
        "outer-before-inner",
        &BOOKS.replace(", propagates: none", ""),
        &["warning at oneclock.topology.yaml:5: reviews → ratings may take 10s, and page → reviews gives up after 3s"],
    );
}

#[test]
fn an_inner_call_that_ends_first_is_left_alone_and_an_equal_one_is_not() {
    says_of("outer-before-inner", &BOOKS.replace("10s", "2s"), &[]);
    says_of(
        "outer-before-inner",
        &BOOKS.replace("10s", "3s"),
        &["error at oneclock.topology.yaml:5: reviews → ratings may take 3s, and page → reviews gives up after 3s"],
    );
}

#[test]
fn a_layer_without_a_limit_is_looked_through() {
    let text = "\
- name: page
  calls: [{to: api, timeout: 3s}]
- name: api
  calls: [{to: reviews}]
- name: reviews
  calls: [{to: ratings, timeout: 10s}]
";
    says_of(
        "outer-before-inner",
        text,
        &["warning at oneclock.topology.yaml:7: reviews → ratings may take 10s, and page → api gives up after 3s"],
    );
}

#[test]
fn a_stream_has_no_total() {
    says_of("outer-before-inner", &BOOKS.replace("timeout: 10s", "timeout: 10s, streaming: true"), &[]);
}

#[test]
fn a_route_of_a_gateway_in_front_of_a_service() {
    let route = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - timeouts: {request: 2s}
    backendRefs: [{name: cart}]
";
    let topology = "services:\n- name: cart\n  calls: [{to: stock, timeout: 5s}]\n";
    says(
        "outer-before-inner",
        &[("route.yaml", route), (TOPOLOGY, topology)],
        &["warning at oneclock.topology.yaml:3: cart → stock may take 5s, and gateway edge → cart gives up after 2s"],
    );
}

#[test]
fn a_server_that_goes_on_after_its_caller() {
    let text = "- name: page\n  calls: [{to: api, timeout: 3s}]\n- name: api\n  limit: LIMIT\n";
    says_of(
        "server-outlives-caller",
        &text.replace("LIMIT", "30s"),
        &[
            "warning at oneclock.topology.yaml:5: api works on a request for up to 30s, and page → api gives up after 3s",
        ],
    );
    says_of("server-outlives-caller", &text.replace("LIMIT", "2s"), &[]);
}

#[test]
fn attempts_that_do_not_fit_into_their_total() {
    let call = |attempt: &str, attempts: &str| {
        format!(
            "- name: page\n  calls: [{{to: api, timeout: 3s, attempt: {attempt}, attempts: {attempts}, backoff: 100ms}}]\n"
        )
    };
    says_of(
        "attempts-exceed-total",
        &call("2s", "3"),
        &[
            "warning at oneclock.topology.yaml:3: page → api: 3 attempts of 2s need 6.2s, and all of them together have 3s",
        ],
    );
    says_of(
        "attempts-exceed-total",
        &call("1s", "3"),
        &["note at oneclock.topology.yaml:3: page → api: 3 attempts of 1s need 3.2s, and all of them together have 3s"],
    );
    says_of(
        "attempts-exceed-total",
        &call("5s", "1"),
        &[
            "warning at oneclock.topology.yaml:3: page → api: 1 attempt of 5s needs 5s, and all of them together have 3s",
        ],
    );
    says_of("attempts-exceed-total", &call("900ms", "3"), &[]);
}

/// A gateway waits 2 s for `a`; the rest is said by the case.
fn behind_two_seconds(of_a: &str) -> String {
    format!(
        "- name: gw\n  calls: [{{to: a, timeout: 2s, propagates: none}}]\n- name: a\n  calls: [{{to: b, {of_a}}}]\n"
    )
}

#[test]
fn a_call_without_a_limit_inside_of_one_that_has_one() {
    says_of(
        "outer-before-inner",
        &behind_two_seconds("timeout: none"),
        &["error at oneclock.topology.yaml:5: a → b may wait for ever, and gw → a gives up after 2s"],
    );
    // It is bounded outside, so that it is told once.
    says_of("no-limit", &behind_two_seconds("timeout: none"), &[]);
    says_of("outer-before-inner", &behind_two_seconds("timeout: none, streaming: true"), &[]);
    says_of(
        "outer-before-inner",
        &behind_two_seconds("timeout: none").replace("propagates: none", "propagates: deadline"),
        &[],
    );
    // What only counts silence bounds nothing inside of it.
    let silent = behind_two_seconds("timeout: none").replace("timeout: 2s", "idle: 2s");
    says_of("outer-before-inner", &silent, &[]);
    says_of("no-limit", &silent, &["warning at oneclock.topology.yaml:5: a → b may wait for ever"]);
}

#[test]
fn twenty_calls_without_a_limit_are_one_thing_to_write() {
    let many = "timeout: none}, {to: c, timeout: none}, {to: d, timeout: none";
    says_of(
        "outer-before-inner",
        &behind_two_seconds(many),
        &["error at oneclock.topology.yaml:5: a → b and 2 more calls may wait for ever, and gw → a gives up after 2s"],
    );
}

#[test]
fn a_shorter_limit_that_is_handed_on_is_not_forgotten_for_a_longer_one_inside() {
    let text = "\
- name: gw
  calls: [{to: a, timeout: 2s, propagates: FIRST}]
- name: a
  calls: [{to: b, timeout: 10s, propagates: none}]
- name: b
  calls: [{to: c, timeout: 5s}]
";
    says_of(
        "outer-before-inner",
        &text.replace("FIRST", "deadline"),
        &["error at oneclock.topology.yaml:7: b → c may take 5s, and gw → a gives up after 2s"],
    );
    says_of(
        "outer-before-inner",
        &text.replace("FIRST", "none"),
        &["error at oneclock.topology.yaml:5: a → b may take 10s, and gw → a gives up after 2s"],
    );
}

#[test]
fn a_caller_that_hears_nothing_has_gone_before_its_total() {
    let both = behind_two_seconds("timeout: 30s").replace("timeout: 2s", "idle: 2s, timeout: 60s");
    says_of(
        "outer-before-inner",
        &both,
        &["warning at oneclock.topology.yaml:5: a → b may take 30s, and gw → a gives up after 2s"],
    );
    // Inside it is the whole that counts.
    says_of(
        "outer-before-inner",
        &behind_two_seconds("idle: 1s, timeout: 60s"),
        &["error at oneclock.topology.yaml:5: a → b may take 1m, and gw → a gives up after 2s"],
    );
    says_of(
        "server-outlives-caller",
        "- name: page\n  calls: [{to: api, idle: 3s, timeout: 60s}]\n- name: api\n  limit: 30s\n",
        &[
            "warning at oneclock.topology.yaml:5: api works on a request for up to 30s, and page → api gives up after 3s",
        ],
    );
}

#[test]
fn how_often_it_is_tried_only_a_running_system_knows() {
    let tries = |attempt: &str| behind_two_seconds(&format!("attempt: {attempt}, attempts: \"${{TRIES}}\""));
    says_of("outer-before-inner", &tries("1s"), &[]);
    // One at least.
    says_of(
        "outer-before-inner",
        &tries("3s"),
        &["warning at oneclock.topology.yaml:5: a → b may take 3s and more (nobody knows how many tries there are), \
           and gw → a gives up after 2s"],
    );
    says_of(
        "outer-before-inner",
        &tries("1s, timeout: 8s"),
        &["warning at oneclock.topology.yaml:5: a → b may take 8s, and gw → a gives up after 2s"],
    );
}

#[test]
fn writing_is_not_waiting() {
    let front = "http { server { listen 80; server_name shop; location / {\n\
                 proxy_send_timeout 5s;\n  proxy_read_timeout 60s;\n  proxy_pass http://cart;\n} } }\n";
    let topology = "services:\n- name: cart\n  calls: [{to: stock, timeout: 30s}]\n";
    is_silent("outer-before-inner", &[("nginx.conf", front), (TOPOLOGY, topology)]);
}

#[test]
fn equal_limits_are_told_without_a_rest_of_nothing() {
    let files = services(&behind_two_seconds("timeout: 2s"));
    let inventory = inventory(&[(files[0].0, &files[0].1)]);
    let findings = oneclock_audit::rules::judge(&Graph::of(&inventory));
    let found: Vec<_> = findings.iter().filter(|one| one.rule == "outer-before-inner").collect();
    assert_eq!(found.len(), 1);
    assert!(found.iter().all(|one| one.consequence.contains("is chance") && !one.consequence.contains("0s more")));
}

#[test]
fn a_circle_that_nobody_outside_calls_is_looked_at() {
    let text = "\
- name: a
  calls: [{to: b, timeout: 2s, propagates: none}]
- name: b
  calls: [{to: c, timeout: 5s}]
- name: c
  calls: [{to: a, timeout: 1s}]
";
    says_of(
        "outer-before-inner",
        text,
        &["error at oneclock.topology.yaml:5: b → c may take 5s, and a → b gives up after 2s"],
    );
}

/// Layers of which everybody calls everybody in the next one: more ways than are followed.
fn too_many_ways() -> String {
    let mut text =
        String::from("- name: front\n  calls: [{to: l0n0}, {to: l0n1}, {to: l0n2}, {to: l0n3}, {to: l0n4}]\n");
    for layer in 0..6 {
        for one in 0..5 {
            write!(text, "- name: l{layer}n{one}\n  calls: [").expect("a string");
            for next in 0..5 {
                write!(text, "{{to: l{}n{next}}}, ", layer + 1).expect("a string");
            }
            text.push_str("]\n");
        }
    }
    text
}

#[test]
fn nobody_is_left_out_for_too_many_ways_of_somebody_else() {
    let last =
        "- name: late\n  calls: [{to: x, timeout: 2s, propagates: none}]\n- name: x\n  calls: [{to: y, timeout: 5s}]\n";
    let text = format!("{}{last}", too_many_ways());
    let files = services(&text);
    let inventory = inventory(&[(files[0].0, &files[0].1)]);
    let graph = Graph::of(&inventory);
    let ways = graph.ways();
    assert!(ways.cut.is_some() && ways.paths.len() > 5_000 && ways.paths.len() <= 20_000, "{}", ways.paths.len());
    let reached: HashSet<usize> = ways.paths.iter().flat_map(|path| &path.hops).map(|hop| hop.number).collect();
    assert_eq!(reached.len(), graph.hops.len());
    let found = oneclock_audit::rules::judge(&graph);
    assert!(found.iter().any(|one| one.rule == "outer-before-inner" && one.between == ["late", "x", "y"]));
    assert!(Graph::of(&inventory).ways().paths.len() == ways.paths.len());
}

#[test]
fn nothing_is_said_of_files_without_calls() {
    is_silent("outer-before-inner", &[("a.yaml", "a: 1\n")]);
}
