//! Limits that are not there, that nobody chose, or that are another thing than they look like.

use crate::judged::{says, says_of};

#[test]
fn silence_is_not_a_total() {
    let call = |more: &str| format!("- name: a\n  calls: [{{to: b{more}}}]\n");
    says_of(
        "idle-is-no-total",
        &call(", idle: 60s"),
        &["note at oneclock.topology.yaml:3: a → b: idle 1m bounds silence, not the whole"],
    );
    says_of("idle-is-no-total", &call(", idle: 60s, timeout: 5s"), &[]);
    says_of("idle-is-no-total", &call(""), &[]);
}

#[test]
fn a_read_timeout_of_zero_is_over_at_once() {
    let conf = "http { server { listen 80; location / {\n grpc_read_timeout 0s;\n grpc_pass grpc://cart;\n} } }\n";
    says(
        "idle-is-no-total",
        &[("nginx.conf", conf)],
        &[
            "warning at nginx.conf:2: nginx :80 → cart: grpc_read_timeout 0s is over at once: zero is no \"for ever\" here",
        ],
    );
}

#[test]
fn silence_is_enough_where_somebody_outside_counts() {
    let text = "\
- name: page
  calls: [{to: a, timeout: 3s}]
- name: a
  calls: [{to: b, idle: 60s}]
";
    says_of("idle-is-no-total", text, &[]);
}

#[test]
fn a_call_without_any_limit() {
    let call = |more: &str| format!("- name: a\n  calls: [{{to: b, {more}}}]\n");
    says_of("no-limit", &call("timeout: none"), &["warning at oneclock.topology.yaml:3: a → b may wait for ever"]);
    says_of("no-limit", &call("timeout: none, streaming: true"), &[]);
    says_of("no-limit", &call("timeout: 5s"), &[]);
    says_of("no-limit", &call("methods: [GET]"), &[]);
}

#[test]
fn the_same_number_on_every_layer() {
    let text = "\
- name: a
  calls: [{to: b, timeout: 30s}]
- name: b
  calls: [{to: c, timeout: 30s}]
- name: c
  calls: [{to: d, timeout: LAST}]
";
    says_of(
        "flat-timeouts",
        &text.replace("LAST", "30s"),
        &["note at oneclock.topology.yaml:3: 3 layers in a row have 30s"],
    );
    says_of("flat-timeouts", &text.replace("LAST", "3s"), &[]);
}
