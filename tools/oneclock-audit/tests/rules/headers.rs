//! One header, two units.

use crate::judged::says_of;

#[test]
fn written_in_milliseconds_and_read_in_seconds() {
    let text = "\
- name: a
  writes: {x-request-timeout: ms}
  calls: [{to: b, timeout: 1s}]
- name: b
  reads: {X-Request-Timeout: UNIT}
";
    says_of(
        "header-units",
        &text.replace("UNIT", "s"),
        &["error at oneclock.topology.yaml:3: a → b: x-request-timeout is written in milliseconds and read in seconds"],
    );
    says_of("header-units", &text.replace("UNIT", "ms"), &[]);
}

#[test]
fn two_that_never_meet_are_a_warning() {
    let text = "- name: a\n  writes: {x-timeout: ms}\n- name: b\n  reads: {x-timeout: s}\n";
    says_of(
        "header-units",
        text,
        &["warning at oneclock.topology.yaml:3: x-timeout is in milliseconds here and in seconds elsewhere"],
    );
}

#[test]
fn whom_nobody_knows_for_sure_is_no_error() {
    let text = "\
- name: a
  writes: {x-request-timeout: ms}
  calls: [{to: b, timeout: 1s}]
- name: b
  reads: {x-request-timeout: s}
- name: other
  answers_to: [b]
";
    says_of(
        "header-units",
        text,
        &[
            "warning at oneclock.topology.yaml:3: a → b: x-request-timeout is written in milliseconds and read in seconds",
        ],
    );
}
