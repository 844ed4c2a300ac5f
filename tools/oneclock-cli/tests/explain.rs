//! `oneclock explain` as its users meet it: what it prints, its page, its exit codes, from a file and from a pipe.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const OTLP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../oneclock-trace/tests/data/checkout.otlp.jsonl");
const JAEGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../oneclock-trace/tests/data/reports.jaeger.json");
const ZIPKIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../oneclock-trace/tests/data/cart.zipkin.json");

fn oneclock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oneclock")).arg("explain").args(arguments).output().expect("the binary runs")
}

/// The same, with this on standard input.
fn piped(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oneclock"));
    command.arg("explain").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[track_caller]
fn ran(output: &Output) -> String {
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(0), String::new()),
        "no progress bar without a terminal"
    );
    text(&output.stdout)
}

fn all_three() -> String {
    [OTLP, JAEGER, ZIPKIN].map(|path| std::fs::read_to_string(path).unwrap()).concat()
}

#[test]
fn a_trace_of_ours() {
    insta::assert_snapshot!(ran(&oneclock(&[OTLP])));
}

#[test]
fn the_guide_shows_what_is_printed() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/explain.md")).unwrap();
    assert!(guide.contains(ran(&oneclock(&[OTLP])).trim()), "docs/guide/explain.md has another output");
}

#[test]
fn a_trace_of_jaeger() {
    insta::assert_snapshot!(ran(&oneclock(&[JAEGER])));
}

#[test]
fn a_trace_of_zipkin_with_clocks_apart() {
    insta::assert_snapshot!(ran(&oneclock(&[ZIPKIN])));
}

#[test]
fn several_traces_from_a_pipe() {
    insta::assert_snapshot!(ran(&piped(&["-", "--traces", "1"], &all_three())));
}

#[test]
fn json_beside_the_tables() {
    for arguments in [&["-", "--json"][..], &["-", "--json", "--all"]] {
        let told: Value = serde_json::from_str(&ran(&piped(arguments, &all_three()))).expect("one JSON object");
        assert_eq!(told["traces"].as_array().map(Vec::len), Some(3), "{arguments:?}");
        assert_eq!((&told["total"]["traces"], &told["total"]["zombies"]["count"]), (&3.into(), &2.into()));
    }
    let told: Value = serde_json::from_str(&ran(&piped(&["-", "--json", "--trace", "B7AD"], &all_three()))).unwrap();
    assert_eq!(told["traces"].as_array().map(Vec::len), Some(1));
    assert_eq!(told["traces"][0]["id"], "b7ad6b7169203331");
    assert_eq!(told["traces"][0]["zombies"][0]["after_ns"], 50_000_000);
}

#[test]
fn the_page_is_complete_in_itself_and_escapes_what_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let path = page.to_str().unwrap();
    let named = all_three().replace("load cart", "</title><script>alert(1)</script>");
    ran(&piped(&["-", "--html", path], &named));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("&lt;script&gt;") && !html.contains("<script"), "names are escaped");
    for outside in ["http:", "https:", "url(", "<link", "<img", "@import", "src="] {
        assert!(!html.contains(outside), "{outside}");
    }
    for said in ["prefers-color-scheme: dark", "Ledger: 800ms", "ran on for at least 205ms", "class=\"ran\""] {
        assert!(html.contains(said), "{said}");
    }
    let nowhere = oneclock(&[OTLP, "--html", "/nowhere/page.html"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).starts_with("oneclock: /nowhere/page.html: "), "{}", text(&nowhere.stderr));
}

#[test]
fn names_cannot_command_the_terminal() {
    let told = ran(&piped(&["-"], &std::fs::read_to_string(OTLP).unwrap().replace("load cart", "\\u001b[2Jgone")));
    assert!(!told.contains('\u{1b}') && told.contains("gone"), "{told}");
}

#[test]
fn what_is_broken_is_told_with_its_place_and_the_rest_is_shown() {
    let output = piped(&["-"], &format!("{{\"resourceSpans\": oops}}\n{}", all_three()));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "oneclock: standard input: line 1, column 19 (byte 18): expected value, in what began at line 1\n"
    );
    assert!(text(&output.stdout).contains("\n3 traces, 23 spans"), "{}", text(&output.stdout));
}

#[test]
fn exit_codes() {
    #[track_caller]
    fn ends(output: &Output, code: i32, says: &str) {
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(says), "{error}");
    }
    ends(&oneclock(&["/nowhere.json"]), 1, "oneclock: /nowhere.json: No such file");
    ends(&oneclock(&["/"]), 1, "oneclock: / is a folder");
    ends(&piped(&["-"], ""), 1, "standard input: there is no trace in it");
    ends(&piped(&["-"], "{\"a\":1}"), 1, "line 1, column 1 (byte 0): no span in it");
    ends(&oneclock(&[OTLP, "--trace", "feed"]), 1, "there is no trace feed");
    ends(&oneclock(&[OTLP, "--open-traces", "0"]), 2, "write a whole number from 1 on");
    ends(&oneclock(&[OTLP, "--all", "--trace", "0af"]), 2, "cannot be used with");
    ends(&oneclock(&[]), 2, "<FILE>");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oneclock"));
    command.args(["explain", OTLP, "--all"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}
