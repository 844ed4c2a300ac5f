//! What is tried again.

use crate::judged::says_of;

fn call(more: &str) -> String {
    format!("- name: shop\n  calls: [{{to: bank, timeout: 1s, {more}}}]\n")
}

#[test]
fn what_happens_once_is_not_repeated() {
    says_of(
        "unsafe-retry",
        &call("attempts: 3, effects: once"),
        &["error at oneclock.topology.yaml:3: shop → bank is tried up to 3 times, and what it does would happen twice"],
    );
    says_of("unsafe-retry", &call("attempts: 3, effects: keyed"), &[]);
    says_of("unsafe-retry", &call("attempts: 1, effects: once"), &[]);
}

#[test]
fn methods_decide_where_nothing_says_what_repeating_does() {
    says_of(
        "unsafe-retry",
        &call("attempts: 3, methods: [GET, POST]"),
        &["warning at oneclock.topology.yaml:3: shop → bank is tried up to 3 times, and it is for GET, POST"],
    );
    says_of("unsafe-retry", &call("attempts: 3, methods: [GET, PUT]"), &[]);
    says_of("unsafe-retry", &call("attempts: 3, methods: [POST], spares_unsafe: true"), &[]);
    says_of("unsafe-retry", &call("attempts: 3"), &[]);
}

#[test]
fn retries_of_three_layers_multiply() {
    let text = "\
- name: a
  calls: [{to: b, timeout: 9s, attempts: 4}]
- name: b
  calls: [{to: c, timeout: 2s, attempts: 4}]
- name: c
  calls: [{to: d, timeout: 400ms, attempts: 4}]
";
    says_of(
        "retry-amplification",
        text,
        &["warning at oneclock.topology.yaml:7: one request of a can become 64 requests to d"],
    );
}

#[test]
fn one_layer_that_tries_again_multiplies_nothing() {
    let text = "\
- name: a
  calls: [{to: b, timeout: 9s}]
- name: b
  calls: [{to: c, timeout: 2s, attempts: 4}]
";
    says_of("retry-amplification", text, &[]);
}

#[test]
fn a_few_are_worth_a_note() {
    let text = "\
- name: a
  calls: [{to: b, timeout: 9s, attempts: 2}]
- name: b
  calls: [{to: c, timeout: 2s, attempts: 2}]
";
    says_of(
        "retry-amplification",
        text,
        &["note at oneclock.topology.yaml:5: one request of a can become 4 requests to c"],
    );
}

#[test]
fn of_several_ways_between_two_layers_the_worst_is_told() {
    let text = "\
- name: a
  calls:
  - {to: b, timeout: 9s, attempts: 2}
- name: b
  calls:
  - {to: d, timeout: 2s}
  - {to: c, timeout: 2s, attempts: 5}
- name: c
  calls: [{to: d, timeout: 400ms}]
- name: d
  calls: [{to: e, timeout: 90ms, attempts: 4}]
";
    says_of(
        "retry-amplification",
        text,
        &["warning at oneclock.topology.yaml:12: one request of a can become 40 requests to e"],
    );
}
