//! What holds for any tree, however odd, and for any bytes.

use oneclock_trace::{Limits, Told, explain, page};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{read, sums_hold};

/// A span of an arbitrary tree: its id, whose child it says it is, where, what, when, and for how long, which may be negative.
type Odd = (u8, Option<u8>, u8, u8, u16, i16, u8);

fn odd() -> impl Strategy<Value = Vec<Odd>> {
    let id = 0u8..24;
    let span = (id.clone(), prop::option::weighted(0.85, 0u8..30), 0u8..4, 0u8..6, 0u16..400, -40i16..300, any::<u8>());
    prop::collection::vec(span, 0..60)
}

/// Duplicate ids, circles, parents that are missing, several roots, children outside of their parents, no length and negative
/// ones all come of it.
fn otlp(spans: &[Odd]) -> String {
    let spans = spans.iter().map(|(id, parent, service, kind, began, took, extra)| {
        let began = 1_000_000 + i64::from(*began) * 1_000;
        let attributes = match extra % 8 {
            0 => json!([{ "key": "oneclock.detached", "value": { "boolValue": true } }]),
            1 => json!([{ "key": "oneclock.queue_wait_ms", "value": { "doubleValue": 0.02 } }]),
            2 => json!([{ "key": "oneclock.deadline.remaining_ms.start", "value": { "intValue": extra } }]),
            _ => json!([]),
        };
        json!({
            "resource": { "attributes": [
                { "key": "service.name", "value": { "stringValue": format!("s{service}") } },
                { "key": "host.name", "value": { "stringValue": format!("h{}", service % 3) } } ] },
            "scopeSpans": [{ "spans": [{
                "traceId": "1", "spanId": format!("{:04x}", u16::from(*id) + 1), "name": format!("n{}", id % 7), "kind": kind,
                "parentSpanId": parent.map(|parent| format!("{:04x}", u16::from(parent) + 1)),
                "startTimeUnixNano": began.to_string(),
                "endTimeUnixNano": if extra % 11 == 0 { "0".to_owned() } else { (began + i64::from(*took) * 1_000).to_string() },
                "attributes": attributes, "status": { "code": extra % 3 } }] }],
        })
    });
    json!({ "resourceSpans": spans.collect::<Vec<_>>() }).to_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn i13_the_sums_hold_for_any_tree(spans in odd()) {
        let (traces, total) = read(&otlp(&spans));
        prop_assert_eq!(&total.wrong, &Vec::<String>::new());
        for trace in &traces {
            sums_hold(trace);
            prop_assert!(trace.spans.len() <= spans.len() * 2);
            for zombie in &trace.findings.zombies {
                prop_assert!(zombie.after_ns > 0 && zombie.at_most_ns.is_none_or(|most| most >= zombie.after_ns));
            }
        }
        let sum: u64 = total.names.iter().map(|name| name.own_ns).sum();
        prop_assert_eq!(sum + total.between_roots_ns, total.elapsed_ns);
        prop_assert!(page::render(&traces, &total).is_ok());
    }

    /// The order in which spans come says nothing about them, but which of two with one id counts.
    #[test]
    fn the_order_of_spans_changes_no_sum(spans in odd()) {
        let mut seen = std::collections::BTreeSet::new();
        let spans: Vec<Odd> = spans.into_iter().filter(|span| seen.insert(span.0)).collect();
        let turned: Vec<Odd> = spans.iter().rev().copied().collect();
        let (one, other) = (read(&otlp(&spans)).1, read(&otlp(&turned)).1);
        if one.oddities.circles == 0 {
            prop_assert_eq!(one.elapsed_ns, other.elapsed_ns);
        }
        prop_assert_eq!(one.spans, other.spans);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let total = explain(&bytes[..], Limits::default(), |_| ());
        prop_assert!(total.is_ok());
    }

    /// The letters of JSON in any order, in several lines: reading always ends.
    #[test]
    fn any_text_of_brackets_and_lines_is_read_to_its_end(
        text in prop::collection::vec(prop::sample::select(b"{}[]\",:\n 1e\\".to_vec()), 0..60),
    ) {
        let total = explain(&text[..], Limits::default(), |_| ());
        prop_assert!(total.is_ok_and(|total| total.problem_count <= text.len() as u64));
    }

    /// Nearer to what is read: a good document with something cut out, put in or changed.
    #[test]
    fn damaged_documents_are_read_without_a_panic(
        which in 0usize..3,
        at in any::<prop::sample::Index>(),
        cut in 0usize..60,
        put in prop::collection::vec(prop::sample::select(br#"{}[]",:0-9e.tn\ "#.to_vec()), 0..6),
    ) {
        let good: &str = [
            include_str!("../data/checkout.otlp.jsonl"),
            include_str!("../data/reports.jaeger.json"),
            include_str!("../data/cart.zipkin.json"),
        ][which];
        let mut bytes = good.as_bytes().to_vec();
        let at = at.index(bytes.len());
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, put);
        let mut traces = Vec::new();
        let total = explain(&bytes[..], Limits::default(), |told| if let Told::Trace(trace) = told { traces.push(*trace) });
        traces.iter().for_each(sums_hold);
        prop_assert!(page::render(&traces, &total.unwrap()).is_ok());
    }
}

/// A chain as deep as the bound allows is no matter of the stack.
#[test]
fn a_deep_chain_is_explained() {
    let spans: Vec<String> = (1..=10_000u32)
        .map(|n| {
            let (began, took) = (n, 30_000 - n);
            format!(
                r#"{{"traceId":"1","id":"{n:x}","parentId":"{:x}","name":"n","timestamp":{began},"duration":{took}}}"#,
                n - 1
            )
        })
        .collect();
    let (traces, total) = read(&format!("[{}]", spans.join(",")));
    assert_eq!((traces[0].spans.len(), total.dropped.spans_beyond_trace), (10_000, 0));
    let sum: u64 = traces[0].spans.iter().map(|row| row.unaccounted_ns).sum();
    assert_eq!(sum, traces[0].elapsed_ns);
}
