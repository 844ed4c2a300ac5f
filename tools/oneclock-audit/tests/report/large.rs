//! A gateway with two hundred routes, and a repository with thousands of findings.

use std::fmt::Write;

use oneclock_audit::report::{Detail, Report, sarif};

use super::{audited, folder, plain};

/// Two hundred routes of one gateway: two are slower than the client waits.
fn gateway(routes: usize) -> String {
    let mut text = String::from(
        "services:\n- name: client\n  calls:\n  - {to: gateway, timeout: 10s, propagates: none}\n- name: gateway\n  calls:\n",
    );
    for route in 0..routes {
        let timeout = if route % 100 == 7 { "30s" } else { "5s" };
        let _ = writeln!(text, "  - {{to: service-{route}, timeout: {timeout}}}");
    }
    for route in 0..routes {
        let _ = writeln!(text, "- name: service-{route}");
    }
    text
}

#[test]
fn two_hundred_ways_are_a_few() {
    let folder = folder(&[("oneclock.topology.yaml", &gateway(200))]);
    let audited = audited(folder.path());
    let text = plain(&audited, Detail::Usual);
    insta::assert_snapshot!(text);
    assert!(text.lines().count() < 100, "nobody reads {} lines", text.lines().count());
    let svg = Report::of(&audited).svg();
    assert!(svg.contains("service-0 and 197 more") && svg.contains("service-107"), "{svg}");
}

#[test]
fn what_readers_of_sarif_would_cut_off_is_told() {
    let mut text = gateway(1);
    for number in 0..sarif::MOST_RESULTS + 10 {
        let _ = writeln!(text, "# oneclock-audit: ignore[no-limit] {number}");
        let _ = writeln!(text, "- name: more-{number}");
    }
    let folder = folder(&[("oneclock.topology.yaml", &text)]);
    let audited = audited(folder.path());
    let told = Report::of(&audited).sarif();
    let run = &told["runs"][0];
    assert_eq!(run["results"].as_array().map(Vec::len), Some(sarif::MOST_RESULTS));
    let left = audited.findings.len() - sarif::MOST_RESULTS;
    let says = format!("{left} more findings are not in this file: it holds the 5000 loudest");
    assert_eq!(run["invocations"][0]["toolExecutionNotifications"][1]["message"]["text"], says.as_str());
    let markdown = Report::of(&audited).markdown();
    assert!(markdown.len() < 65_536 && markdown.contains(" more.\n"), "{}", markdown.len());
}
