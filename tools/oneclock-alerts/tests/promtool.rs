//! The rules, before the eyes of `promtool`: they are rules, and each alert fires where it should and nowhere else. Every
//! guard in them is taken out once, to see that the tests notice.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::path::Path;
use std::process::{Command, Output};

use oneclock_alerts::{Policy, Rules, UnitTests};

const RULES: &str = "oneclock.rules.yml";
const TESTS: &str = "oneclock.tests.yml";

#[track_caller]
fn promtool(folder: &Path, arguments: &[&str]) -> Output {
    Command::new("promtool").current_dir(folder).args(arguments).output().unwrap_or_else(|error| {
        panic!("promtool does not run ({error}): it is in Debian's package `prometheus`; install that")
    })
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs the tests of a policy, or one of them, against its rules, as `change` leaves them.
#[track_caller]
fn run(policy: &str, only: Option<&str>, change: impl FnOnce(String) -> String) -> Output {
    let policy = Policy::parse(policy).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let rules = change(Rules::of(&policy).to_yaml().unwrap());
    std::fs::write(folder.path().join(RULES), rules).unwrap();
    let tests = UnitTests::of(&policy, RULES);
    let tests = match only {
        Some(name) => {
            assert!(tests.names().any(|known| known == name), "there is no case {name}");
            tests.only(name)
        }
        None => tests,
    };
    std::fs::write(folder.path().join(TESTS), tests.to_yaml().unwrap()).unwrap();
    let checked = promtool(folder.path(), &["check", "rules", RULES]);
    assert!(checked.status.success(), "{}", said(&checked));
    promtool(folder.path(), &["test", "rules", TESTS])
}

#[track_caller]
fn passes(policy: &str) {
    let ran = run(policy, None, |rules| rules);
    assert!(ran.status.success(), "{policy}\n{}", said(&ran));
}

#[test]
fn every_alert_fires_where_it_should_and_nowhere_else() {
    passes("");
}

/// Waits that are short, so that there is less to simulate.
const SHORT: &str = "propagation: { window: 5m }\ncalibration: { for: 5m }\n";
const EDGES: &str = "deadline_missing: { edges: [{ job: web }, { job: shop, operation: webhook }] }\n";

#[test]
fn other_policies_hold_as_well() {
    let with = |policy: &str| passes(&format!("{SHORT}{policy}"));
    with("timeouts: { warn: 0.2%, page: 30%, for: 30s }\nminimum: 10\n");
    let all_of_it = "deadline_missing: { warn: 20%, edges: [{ job: shop }] }\n";
    let selects = "match: { cluster: \"a \\\"b\\\" \\\\ c\", env: live }\nlabels: { team: shop }\n";
    with(&format!("by: [cluster, job]\n{selects}{all_of_it}"));
    with(&format!("by: []\n{EDGES}"));
    with("objective: { in_time: 99.9%, page: [{ times: 10, short: 5m, long: 2h }], ticket: [] }\n");
    passes(
        "propagation: { unmetered: false, window: 5m }\ncalibration: { for: 5m }\ndeadline_missing: { watched: false }\n\
         overflow: { watched: false }\n",
    );
    with("zombies: { page: 50%, pools: { must_finish: 4 }, minimum: 1 }\nretries: { amplification: 2 }\n");
}

/// Two policies in one Prometheus record series of the same names: what one matches, the other must not find.
#[test]
fn what_a_policy_records_is_its_own() {
    let policy = Policy::parse("match: { env: live }").unwrap();
    let rules = Rules::of(&policy).to_yaml().unwrap();
    let mut asked = 0;
    for line in rules.lines().filter(|line| !line.contains("record: ")) {
        for (at, word) in line.match_indices("oneclock:") {
            let rest =
                line[at + word.len()..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            assert!(rest.starts_with("{env=\"live\"}"), "{line}");
            asked += 1;
        }
    }
    assert!(asked > 20 && !rules.contains("by (job, operation"), "{rules}");
}

/// Windows of seconds, for whoever wants to see alerts fire without waiting for an hour.
#[test]
fn windows_may_be_seconds() {
    passes(
        "minimum: 20\n\
         usual: { over: 60s }\n\
         timeouts: { window: 2s, for: 1s }\n\
         zombies: { for: 1s }\n\
         retries: { window: 2s, for: 1s }\n\
         propagation: { window: 4s, for: 1s, minimum: 5 }\n\
         deadline_missing: { window: 4s, for: 1s }\n\
         overflow: { window: 4s, for: 1s }\n\
         shedding: { window: 2s, for: 1s }\n\
         calibration: { window: 30s, for: 2s, minimum: 100 }\n\
         objective:\n\
         \x20 page: [{ times: 14.4, short: 2s, long: 6s }, { times: 6, short: 4s, long: 12s }]\n\
         \x20 ticket: [{ times: 3, short: 5s, long: 20s }, { times: 1, short: 8s, long: 30s }]\n",
    );
}

/// Each of these is a mistake in the rules, and the case that must find it. What finds nothing tests nothing.
#[test]
fn a_mistake_in_the_rules_is_found() {
    let forgiven = "oneclock:ran_out:rate5m - oneclock:ran_out_below_usual:rate5m";
    let of_callers = "oneclock:ran_out:rate5m\n      - sum by (job, operation, route) \
                      (rate(oneclock_deadline_exceeded_total{bound=\"caller\"}[5m]))";
    let usual = "an incident does not become the usual, and forgives nothing";
    let sparse = "everything runs out of time, and next to nothing comes";
    let short = "half of the callers give less than it usually takes";
    let body = "nearly all ends come in the body, when nobody below has anything left to do";
    let no_budget = "no request has a deadline, and next to nothing comes";
    let edge = "an edge whose callers never send a deadline";
    let beside = "most of what comes beside an edge has no deadline";
    let webhook = "\n        unless rate(oneclock_deadline_missing_total{job=\"shop\",operation=\"webhook\"}[15m])";
    let arrivals_there =
        "\n        unless rate(oneclock_budget_at_arrival_seconds_count{job=\"shop\",operation=\"webhook\"}[15m])";
    let or_none = " or 0 * sum by (job, operation) (rate(oneclock_budget_at_arrival_seconds_count[5m]))";
    let mistakes: &[(&str, &str, &str)] = &[
        (short, forgiven, "oneclock:ran_out:rate5m"),
        ("timeouts above page", forgiven, of_callers),
        (usual, "[1d])", "[5m])"),
        ("a limit of our own is less than it usually takes", "_bucket{bound=\"caller\"}[5m]", "_bucket[5m]"),
        ("handlers whose calls ran out say so, and end in time", "oneclock_answered_total{", "oneclock_answered{"),
        ("streams end at their own limits", "{bound!=\"cap\"}", ""),
        ("as many are refused when they arrive as are not", "{reason=~\"deadline|cap\"}", ""),
        (sparse, ">= 100 / 300", ">= 0"),
        (sparse, ">= 100\n", ">= 0\n"),
        (sparse, ">= 299", ">= 0"),
        ("an incident that is over pages nobody", "[30m])", "[6h])"),
        ("healthy", "> 0.01\n", "> 0\n"),
        ("timeouts above warn", "> 0.01\n", "> 0.05\n"),
        ("calibration is due", "> 0.005\n", "> 0.01\n"),
        ("as many zombies as are allowed", " / 10 > 0.2", " / 10 >= 0.2"),
        ("steps that must finish go on", "{layer=\"statement\"}", ""),
        ("healthy", "> 1.2", ">= 1"),
        ("retries amplify", "- sum by (job, dependency) (rate(oneclock_retries_total[5m]))", "- 0"),
        ("retries amplify, and next to nothing is called", ">= 100 / 300", ">= 0"),
        ("hardly any end, and a database that is not told", ">= 20 / 300", ">= 0"),
        ("a database that is hardly asked sees hardly any end", "clamp_max(", "clamp_min("),
        ("a hop calls around its adapters", "\n      < 0.01\n", "\n      < 0\n"),
        ("a service that calls nothing has nobody to tell", "_calls_total[5m])) > 0\n", "_calls_total[5m])) >= 0\n"),
        (
            "a database is not told of any end, and another service is",
            "or 0 * sum by (job, layer)",
            "and 0 * sum by (job, layer)",
        ),
        (body, "oneclock_deadline_exceeded_total{stage=\"body\"}", "oneclock_deadline_exceeded_total{stage=\"tls\"}"),
        (body, "{cause=~\"caller_gone|shutdown\",stage=\"body\"}", "{cause=\"shutdown\",stage=\"body\"}"),
        ("nearly all ends find a step that must finish", "{layer=\"must_finish\"}", "{layer=\"statement\"}"),
        ("two steps that must finish in each request, and no end is left", "\n      >= 20 / 300\n", "\n"),
        (
            "a database is not told of any end, and another service is",
            " or 0 * sum by (job) (rate(oneclock_cancellations_seen_total{layer=\"handler\"}[5m]))",
            "",
        ),
        ("some ends come in the body, and of the others a database is not told", "\n      - (", "\n      - 9 * ("),
        ("healthy", "\n      > 0.5\n", "\n      > 0.2\n"),
        ("most requests come without a deadline", "\n      > 0.5\n", "\n      > 0.9\n"),
        (no_budget, ">= 100 / 900", "> 0"),
        (edge, webhook, ""),
        (beside, arrivals_there, ""),
        ("what happens is counted without its name", "{operation=\"overflow\"}", "{operation=\"other\"}"),
        ("some was counted without its name, and no more is", "\n      ) > 0\n", "\n      ) >= 0\n"),
        ("more than some requests are refused as they arrive", "\n      > 0.05\n", "\n      > 0.5\n"),
        ("more than some requests are dropped from the queue", "{why=~\"doomed|full\"}", "{why=\"full\"}"),
        ("more than some requests are dropped from the queue", or_none, ""),
        ("some are refused as they arrive, and hardly any that is needed", "{why=~\"doomed|full\"}", ""),
        (
            "many are refused as they arrive, and no more of them than is allowed",
            "+ (sum by (job, operation) (rate(oneclock_not_admitted_total",
            "+ 0 * (sum by (job, operation) (rate(oneclock_not_admitted_total",
        ),
        (
            "everything that comes is refused, and next to nothing comes",
            "\n        >= 100 / 300\n      )\n      > 0.05",
            "\n        >= 0\n      )\n      > 0.05",
        ),
    ];
    for (case, right, wrong) in mistakes {
        let policy = format!("{SHORT}{}", if [edge, beside].contains(case) { EDGES } else { "" });
        let right_one = run(&policy, Some(case), |rules| rules);
        assert!(right_one.status.success(), "{case}: {}", said(&right_one));
        let ran = run(&policy, Some(case), |rules| {
            assert!(rules.contains(right), "{case}: there is no {right:?} in\n{rules}");
            rules.replace(right, wrong)
        });
        assert!(!ran.status.success(), "{case}: {wrong} in place of {right} is not found");
    }
}

#[test]
fn the_default_rules_are_these() {
    insta::assert_snapshot!("default_rules", Rules::of(&Policy::default()).to_yaml().unwrap());
}
