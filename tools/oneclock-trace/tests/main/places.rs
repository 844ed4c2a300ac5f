//! Input that is broken: the error says where, and nothing else is lost.

use crate::support::{line, read, span};

fn good(trace: u64) -> String {
    line(&[span(1, 0, "order", 2, 0.0, 10.0).of(trace)])
}

/// The traces that were read, and what was said of the rest.
#[track_caller]
fn told(text: &str, traces: usize, problems: &[&str]) {
    let (read, total) = read(text);
    let said: Vec<String> =
        total.problems.iter().map(|problem| format!("{}: {}", problem.place, problem.text)).collect();
    assert_eq!(said, problems);
    assert_eq!(read.len(), traces);
}

#[test]
fn a_broken_line_costs_itself() {
    let text = format!("{}\n{{\"resourceSpans\": oops}}\n{}\n", good(1), good(2));
    let byte = good(1).len() + 1 + 18;
    told(&text, 2, &[&format!("line 2, column 19 (byte {byte}): expected value, in what began at line 2")]);
}

/// The collector was killed while it wrote, and went on in a new line. What the broken line held before is kept.
#[test]
fn a_line_that_was_cut_off_does_not_take_the_next_one_with_it() {
    let whole = line(&[span(1, 0, "order", 2, 0.0, 10.0).of(1), span(2, 1, "order", 1, 0.0, 5.0).of(1)]);
    let halves = (whole.len() * 6 / 10, whole.len());
    for cut in (1..halves.0).step_by(7).chain([halves.1 - 1]) {
        let text = format!("{}\n{}\n{}\n{}\n", good(7), &whole[..cut], good(8), good(9));
        let (read, total) = read(&text);
        let ids: Vec<&str> = read.iter().map(|trace| trace.id.trim_start_matches('0')).collect();
        for kept in ["7", "9"] {
            assert!(ids.contains(&kept), "cut after {cut}: {ids:?}");
        }
        assert_eq!(total.problem_count, 1, "cut after {cut}: {:?}", total.problems);
        assert!([2, 3, 4].contains(&total.problems[0].place.line), "cut after {cut}: {:?}", total.problems);
    }
}

#[test]
fn an_array_of_a_span_a_line_goes_on_behind_a_broken_line() {
    let zipkin = |id: u32| format!(r#"{{"traceId":"1","id":"{id}","name":"x","timestamp":5,"duration":7}}"#);
    let text = format!("[\n{},\n{{\"traceId\":\"1\",,}},\n{},\n{}\n]\n", zipkin(1), zipkin(3), zipkin(4));
    let (traces, total) = read(&text);
    assert_eq!((traces[0].spans.len(), total.problem_count, total.problems[0].place.line), (3, 1, 3));
}

#[test]
fn a_span_with_a_time_that_is_none_costs_itself() {
    let text = r#"[{"traceId":"1","id":"1","name":"x","timestamp":"noon","duration":7},
 {"traceId":"1","id":"2","name":"x","timestamp":5,"duration":7}]"#;
    told(text, 1, &["line 1, column 68 (byte 67): a span is left out: timestamp is \"noon\", not a time"]);
}

#[test]
fn other_kinds_of_files_are_named() {
    let start = "line 1, column 1 (byte 0)";
    told("", 0, &[]);
    told("\u{feff}[]", 0, &[]);
    told(
        r#"{"name":"oneclock","version":1}"#,
        0,
        &[&format!("{start}: no span in it: neither OTLP, Jaeger nor Zipkin; it has the fields name, version")],
    );
    told("hello", 0, &[&format!("{start}: expected value, in what began at line 1")]);
    told(
        "{\"resourceSpans\":[",
        0,
        &["line 1, column 19 (byte 18): EOF while parsing a list, in what began at line 1"],
    );
    let bytes = |bytes: &[u8]| {
        let total = oneclock_trace::explain(bytes, oneclock_trace::Limits::default(), |_| {}).unwrap();
        total.problems[0].text.clone()
    };
    assert_eq!(bytes(&[0x1f, 0x8b, 8, 0]), "this is compressed: try `gunzip -c FILE | oneclock explain -`");
    assert_eq!(bytes(&[0x0a, 0x7f, 0x12, 0x03]), "this looks like OTLP in protobuf; only its JSON form is read");
}

#[test]
fn the_first_byte_of_a_broken_value_is_not_read_again() {
    for text in ["[", "{", "\n[", "[]\n{", "{\n[\n{"] {
        let (traces, total) = read(text);
        assert!(traces.is_empty() && (1..=3).contains(&total.problem_count), "{text:?}: {:?}", total.problems);
    }
}

#[test]
fn what_is_told_cannot_command_the_terminal() {
    let says = "no span in it: neither OTLP, Jaeger nor Zipkin; it has the fields \u{fffd}[2J";
    told("{\"\\u001b[2J\":1}", 0, &[&format!("line 1, column 1 (byte 0): {says}")]);
}

#[test]
fn no_text_that_is_kept_is_long() {
    let long = "x".repeat(100_000);
    let text = format!(
        r#"[{{"traceId":"{long}","id":"{long}","name":"{long}","timestamp":1,"duration":5,"localEndpoint":
        {{"serviceName":"{long}","ipv4":"{long}"}},"remoteEndpoint":{{"serviceName":"{long}"}},"tags":{{"oneclock.bound":"{long}"}}}}]"#
    );
    let (traces, _) = read(&text);
    let (trace, row) = (&traces[0], &traces[0].spans[0]);
    for kept in [&trace.id, &row.id, &row.name, &row.service, row.bound.as_ref().unwrap()] {
        assert!(kept.len() <= 203, "{}", kept.len());
    }
}

#[test]
fn too_deep_is_an_error_and_not_the_end_of_the_stack() {
    let text = format!("{}\n{}", "[".repeat(100_000), good(1));
    let (traces, total) = read(&text);
    assert_eq!((traces.len(), total.problem_count), (1, 1));
    assert!(total.problems[0].text.starts_with("recursion limit exceeded"), "{:?}", total.problems);
}

#[test]
fn an_endless_element_is_an_error_and_not_the_end_of_memory() {
    let text = format!("{{\"resourceSpans\":\"{}\"}}\n{}", "x".repeat(17 << 20), good(1));
    let (traces, total) = read(&text);
    assert_eq!((traces.len(), total.problem_count), (1, 1));
    assert_eq!(total.problems[0].text, "one element is longer than 16 MiB, in what began at line 1");
}

#[test]
fn problems_are_bounded_and_counted() {
    let (traces, total) = read(&format!("{}{}", "nonsense\n{\"a\":1}\n".repeat(500), good(1)));
    assert_eq!((traces.len(), total.problems.len(), total.problem_count), (1, 20, 1_000));
}
