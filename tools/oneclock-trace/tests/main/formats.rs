//! The three formats, told apart by content.

use oneclock_trace::{Certainty, Format, Own};

use crate::support::{line, ms, read, span, sums_hold};

const OTLP: &str = include_str!("../data/checkout.otlp.jsonl");
const JAEGER: &str = include_str!("../data/reports.jaeger.json");
const ZIPKIN: &str = include_str!("../data/cart.zipkin.json");

#[test]
fn otlp_lines_that_hold_one_trace_together() {
    let (traces, total) = read(OTLP);
    assert_eq!((traces.len(), total.formats[&Format::Otlp]), (1, 14));
    let trace = &traces[0];
    sums_hold(trace);
    assert_eq!(ms(trace.elapsed_ns), 800.0);
    assert_eq!(ms(trace.zombie_ns()), 205.0, "what the order service took more than its client waited");
    let findings = &trace.findings;
    assert_eq!((findings.retries.len(), findings.resets.len(), findings.unrecorded.len()), (1, 1, 1));
    let own: Vec<_> = trace.own_operations().map(|(_, row)| (row.name.as_str(), row.own)).collect();
    assert_eq!(own, [("audit log", Some(Own::Declared)), ("orders process", Some(Own::Message))]);
}

/// Ids are hexadecimal in either case, numbers are texts or numbers, enumerations are numbers or words.
#[test]
fn otlp_as_others_write_it() {
    let text = r#"{"batches":[{"scopeSpans":[{"spans":[
        {"traceId":"ABCDEF","spanId":"0A","name":"a","kind":"SPAN_KIND_SERVER","startTimeUnixNano":1000000000,
         "endTimeUnixNano":"1500000000","status":{"code":"STATUS_CODE_ERROR"}},
        {"traceId":"abcdef","spanId":"0b","parentSpanId":"0a","name":"b","kind":"3","startTimeUnixNano":"1100000000",
         "endTimeUnixNano":"1200000000"},
        {"trace_id":"abcdef","span_id":"0c","parent_span_id":"0A","name":"c","start_time_unix_nano":"1300000000",
         "end_time_unix_nano":"1400000000"}]}],
        "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"late"}}]}}]}"#;
    let (traces, total) = read(text);
    assert_eq!((total.problems.len(), traces.len()), (0, 1));
    let rows: Vec<_> =
        traces[0].spans.iter().map(|row| (&*row.service, &*row.name, ms(row.charged_ns), row.error)).collect();
    assert_eq!(rows, [("late", "a", 500.0, true), ("late", "b", 100.0, false), ("late", "c", 100.0, false)]);
}

#[test]
fn jaeger_with_its_processes_behind_the_spans() {
    let (traces, total) = read(JAEGER);
    assert_eq!((traces.len(), total.formats[&Format::Jaeger]), (1, 5));
    let trace = &traces[0];
    sums_hold(trace);
    assert_eq!((trace.roots, trace.oddities.missing_parents), (2, 1));
    let [zombie] = &trace.findings.zombies[..] else { panic!("{:?}", trace.findings) };
    assert_eq!((zombie.certainty, ms(zombie.after_ns)), (Certainty::Exact, 50.0));
    let own: Vec<_> = trace.own_operations().map(|(_, row)| (row.name.as_str(), row.own)).collect();
    assert_eq!(own, [("warm cache", Some(Own::Follows))]);
}

#[test]
fn a_single_jaeger_trace_whose_spans_do_not_repeat_its_id() {
    let text = r#"{"traceID":"t1","spans":[{"spanID":"a","operationName":"x","startTime":0,"duration":10,"processID":"p"}],
                   "processes":{"p":{"serviceName":"s"}}}"#;
    let (traces, _) = read(text);
    assert_eq!((traces[0].id.as_str(), traces[0].spans[0].service.as_str(), traces[0].elapsed_ns), ("t1", "s", 10_000));
}

/// One id on both sides of a call; a clock that is 260 ms behind; a span without times.
#[test]
fn zipkin_with_shared_ids_and_clocks_apart() {
    let (traces, total) = read(ZIPKIN);
    assert_eq!((traces.len(), total.formats[&Format::Zipkin]), (1, 5));
    let trace = &traces[0];
    sums_hold(trace);
    let rows: Vec<_> = trace.spans.iter().map(|row| (&*row.service, row.depth, ms(row.charged_ns))).collect();
    assert_eq!(rows, [("web", 0, 120.0), ("web", 1, 100.0), ("cart", 2, 90.0), ("cart", 3, 60.0)]);
    assert_eq!((trace.skews[0].at_least_ns, trace.skews[0].at_most_ns), (260_000_000, Some(270_000_000)));
    assert_eq!((trace.findings.zombies.len(), trace.oddities.without_time), (0, 1));
}

#[test]
fn zipkin_traces_in_an_array_each_are_complete_when_their_array_is() {
    let text = format!("[{},{}]", ZIPKIN.trim(), ZIPKIN.trim().replace("5f2c6a", "other"));
    let (traces, total) = read(&text);
    assert_eq!((traces.len(), total.peak.open_traces), (2, 1));
}

/// Zipkin tells one span in pieces.
#[test]
fn a_span_that_is_told_in_pieces_is_one_span() {
    let text = r#"[{"traceId":"1","id":"2","kind":"SERVER","localEndpoint":{"serviceName":"late"}},
                   {"traceId":"1","id":"2","kind":"SERVER","name":"get","timestamp":5,"duration":7}]"#;
    let (traces, _) = read(text);
    let rows: Vec<_> = traces[0].spans.iter().map(|row| (&*row.service, &*row.name, row.took_ns)).collect();
    assert_eq!(rows, [("late", "get", 7_000)]);
    assert_eq!((traces[0].oddities.duplicates, traces[0].oddities.without_time), (0, 0));
}

#[test]
fn different_formats_in_one_stream() {
    let (traces, total) = read(&[OTLP, JAEGER, ZIPKIN].concat());
    assert_eq!((traces.len(), total.formats.len(), total.problem_count), (3, 3, 0));
}

/// The names stand in oneclock-telemetry, which writes them and which this crate does not need for anything else.
#[test]
fn every_attribute_that_we_write_is_read() {
    let names = include_str!("../../../../crates/oneclock-telemetry/src/names.rs");
    let (_, attributes) = names.split_once("pub mod attributes").expect("the module of attributes");
    let written: Vec<&str> = attributes.split('"').filter(|text| text.starts_with("oneclock.")).collect();
    assert!(written.contains(&"oneclock.deadline.remaining_ms.start"), "{written:?}");
    let read = include_str!("../../src/span.rs");
    let for_people = ["oneclock.ledger"]; // a text; the spans below say it better
    for name in written.iter().filter(|name| !for_people.contains(name)) {
        assert!(read.contains(&format!("\"{name}\"")), "{name} is not read in span.rs");
    }
}

/// Log records and exemplars carry ids of spans.
#[test]
fn what_only_mentions_spans_is_none() {
    let logs = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1","traceId":"1","spanId":"2",
        "body":{"stringValue":"x"}}]}]}]}"#;
    let (traces, total) = read(logs);
    assert_eq!(traces, []);
    assert_eq!(
        total.problems[0].text,
        "no span in it: neither OTLP, Jaeger nor Zipkin; it has the fields resourceLogs"
    );
    for empty in [r#"{"resourceSpans":[]}"#, "[]", r#"{"data":[{"traceID":"1","spans":[],"processes":{}}]}"#] {
        assert_eq!(read(empty).1.problems, [], "{empty}");
    }
}

#[test]
fn the_two_halves_of_a_trace_may_be_far_apart() {
    let one = |id, parent| line(&[span(id, parent, "order", 1, 0.0, 10.0)]);
    let between: Vec<String> = (10..20).map(|n| line(&[span(1, 0, "order", 1, 0.0, 1.0).of(n)])).collect();
    let (traces, _) = read(&[one(1, 0), between.join("\n"), one(2, 1)].join("\n"));
    assert_eq!(traces.len(), 11);
    assert_eq!(traces.iter().map(|trace| trace.spans.len()).max(), Some(2));
}
