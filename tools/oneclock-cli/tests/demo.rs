//! The demo as its users meet it: the binary, its output, its exit codes.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

use std::process::{Command, Output};

use serde_json::Value;

fn oneclock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oneclock")).args(arguments).output().expect("the binary runs")
}

/// The relations of the figures, not the milliseconds: the machine may be busy.
#[test]
fn one_budget_stops_what_independent_timeouts_leave_running() {
    let output = oneclock(&["demo", "--json", "--seed", "5"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress bar where there is no terminal");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["seed"], 5);
    let scenario = &report["scenarios"][0];
    assert_eq!((&scenario["name"], &scenario["scale"]), (&Value::from("slow-pricing"), &Value::from(20)));

    let figure = |side: &str, name: &str| {
        scenario[side][name].as_f64().unwrap_or_else(|| panic!("{side}.{name} is no number: {scenario}"))
    };
    assert_eq!(figure("independent", "taps"), figure("propagated", "taps"), "the same load");
    assert!(figure("independent", "executions_per_tap") > 1.1);
    assert!(figure("propagated", "executions_per_tap") <= 1.0);
    for left_over in ["finished_after_caller_left", "running_50ms_after_deadline"] {
        let (independent, propagated) = (figure("independent", left_over), figure("propagated", left_over));
        assert!(independent >= 5.0, "{left_over}: {independent}");
        assert!(propagated <= independent / 5.0, "{left_over}: {propagated} against {independent}");
    }
    assert!(figure("propagated", "waited_ms_p99") < figure("independent", "waited_ms_p99"));

    // gateway → order → pricing, and where it ended.
    let mut ledger = &scenario["propagated"]["ledger"];
    for service in ["gateway", "order", "pricing"] {
        assert_eq!(ledger["name"], service, "{scenario}");
        ledger = &ledger["parts"][0];
    }
}

#[test]
fn a_wrong_command_line_exits_with_2_and_says_why() {
    let output = oneclock(&["demo", "--sede", "5"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--seed"), "it names the nearest option");
}
