//! `oneclock alerts`, `playbook` and `dashboard` as their users meet them: the output, the exit codes, and that what they say
//! of each other is so.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::process::{Command, Output};

use serde_json::Value;

fn oneclock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oneclock")).args(arguments).output().expect("the binary runs")
}

/// What it prints, when it could.
#[track_caller]
fn prints(arguments: &[&str]) -> String {
    let output = oneclock(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

/// Its exit code, and what it says of it.
#[track_caller]
fn fails(arguments: &[&str], code: i32, says: &str) {
    let output = oneclock(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(says), "{error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn promtool_passes_what_alerts_writes() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("alerts.yml"), "timeouts: { warn: 2% }\nruns: 1\n").unwrap();
    fails(
        &["alerts", "--policy", &file("alerts.yml")],
        1,
        &format!("oneclock: {}:2:1: there is no key `runs` here", file("alerts.yml")),
    );
    std::fs::write(
        file("alerts.yml"),
        "timeouts: { warn: 2% }\nrunbook_url: https://wiki.example/playbook\npropagation: { window: 5m }\ncalibration: { for: 5m }\ndeadline_missing: { edges: [{ job: web }] }\n",
    )
    .unwrap();
    let policy = ["--policy", &file("alerts.yml")];
    let written = prints(&[&["alerts", "--out", &file("shop.rules.yml")], &policy[..]].concat());
    assert_eq!(written, "", "it is in the file");
    let tests = ["alerts", "--tests", "--rules", "shop.rules.yml", "--out", &file("shop.tests.yml")];
    prints(&[&tests, &policy[..]].concat());

    let rules = std::fs::read_to_string(file("shop.rules.yml")).unwrap();
    assert!(rules.contains("> 0.02\n") && rules.contains("https://wiki.example/playbook#timeouts"), "{rules}");
    let promtool =
        Command::new("promtool").current_dir(folder.path()).args(["test", "rules", "shop.tests.yml"]).output();
    let promtool = promtool.unwrap_or_else(|error| {
        panic!("promtool does not run ({error}): it is in Debian's package `prometheus`; install that")
    });
    assert!(promtool.status.success(), "{}", String::from_utf8_lossy(&promtool.stdout));
}

#[test]
fn an_empty_policy_is_none_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.yml");
    std::fs::write(&empty, "").unwrap();
    assert_eq!(prints(&["alerts", "--policy", empty.to_str().unwrap()]), prints(&["alerts"]));
    fails(&["alerts", "--policy", "nowhere.yml"], 1, "oneclock: nowhere.yml: No such file");
    fails(&["alerts", "--out", "/nowhere/rules.yml"], 1, "oneclock: /nowhere/rules.yml: No such file");
    fails(&["alerts", "--rules", "x.yml"], 2, "--tests");
}

/// Every command that the playbook names is there, and so is every entry that a rule leads to.
#[test]
fn what_is_named_exists() {
    let mut named = 0;
    let rules = prints(&["alerts"]);
    let texts = [rules, prints(&["playbook", "--markdown"]), prints(&["playbook"])].join("\n");
    for (at, word) in texts.match_indices("oneclock playbook ") {
        let name: String =
            texts[at + word.len()..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        if !name.is_empty() && !name.starts_with('-') {
            assert!(prints(&["playbook", &name]).contains("1. "), "{name}");
            named += 1;
        }
    }
    assert!(named > 10, "{named}");
    let help = prints(&["--help"]);
    for (at, word) in texts.match_indices("`oneclock ") {
        let command: String = texts[at + word.len()..].chars().take_while(char::is_ascii_lowercase).collect();
        assert!(help.contains(&format!("\n  {command} ")), "there is no {command}: {help}");
    }
}

#[test]
fn the_playbook_is_text_or_json_or_markdown() {
    let text = prints(&["playbook", "timeouts"]);
    assert!(text.starts_with("Deadline errors rose: which of the five causes?\n"), "{text}");
    for letter in ["\na. ", "\nb. ", "\nc. ", "\nd. ", "\ne. "] {
        assert!(text.contains(letter), "{text}");
    }
    assert!(text.lines().all(|line| line.starts_with("     ") || line.chars().count() <= 100), "{text}");
    let json: Value = serde_json::from_str(&prints(&["playbook", "timeouts", "--json"])).unwrap();
    assert_eq!(json["causes"].as_array().map(Vec::len), Some(5));
    assert!(json["causes"].as_array().unwrap().iter().all(|cause| cause["rollback"].is_string()));
    assert!(json["alerts"].as_array().unwrap().contains(&"OneclockTimeoutsHigh".into()));
    let all: Value = serde_json::from_str(&prints(&["playbook", "--json"])).unwrap();
    assert_eq!(all.as_array().map(Vec::len), Some(9));
    assert!(prints(&["playbook", "--markdown"]).contains("<a id=\"retries-off\"></a>"));
    fails(&["playbook", "restart"], 2, "retries-off");
}

#[test]
fn the_dashboard_is_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dashboard.json");
    prints(&["dashboard", "--out", file.to_str().unwrap()]);
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written, serde_json::from_str::<Value>(&prints(&["dashboard"])).unwrap());
    assert_eq!(written["uid"], "oneclock");
}
