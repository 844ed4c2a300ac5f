//! What is inside ends before what is outside.

use crate::judged::{TOPOLOGY, is_silent, says, says_of};

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
        &["warning at oneclock.topology.yaml:3: page → api: 1 attempt of 5s need 5s, and all of them together have 3s"],
    );
    says_of("attempts-exceed-total", &call("900ms", "3"), &[]);
}

#[test]
fn nothing_is_said_of_files_without_calls() {
    is_silent("outer-before-inner", &[("a.yaml", "a: 1\n")]);
}
