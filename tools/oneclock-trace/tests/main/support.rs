//! Spans in a few words, written as OTLP.

use oneclock_trace::{Limits, Told, Total, Trace, explain};
use serde_json::{Value, json};

/// When all traces begin: 2026, in nanoseconds.
pub(crate) const T0: u64 = 1_780_000_000_000_000_000;

/// One span of one service on one machine; times in milliseconds.
#[derive(Clone)]
pub(crate) struct S {
    pub(crate) value: Value,
    pub(crate) service: String,
    pub(crate) host: String,
}

/// `kind` is OTLP's number: 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
pub(crate) fn span(id: u64, parent: u64, service: &str, kind: u64, began: f64, ended: f64) -> S {
    let at = |ms: f64| (T0 + (ms * 1e6) as u64).to_string();
    let value = json!({
        "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": format!("{id:016x}"), "name": format!("op-{id}"),
        "parentSpanId": if parent == 0 { String::new() } else { format!("{parent:016x}") }, "kind": kind,
        "startTimeUnixNano": at(began), "endTimeUnixNano": at(ended), "attributes": [], "status": {},
    });
    S { value, service: service.to_owned(), host: service.to_owned() }
}

impl S {
    pub(crate) fn name(mut self, name: &str) -> Self {
        self.value["name"] = name.into();
        self
    }

    pub(crate) fn failed(mut self) -> Self {
        self.value["status"] = json!({ "code": 2 });
        self
    }

    pub(crate) fn on(mut self, host: &str) -> Self {
        self.host = host.to_owned();
        self
    }

    pub(crate) fn of(mut self, trace: u64) -> Self {
        self.value["traceId"] = format!("{trace:032x}").into();
        self
    }

    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        let typed = match &value {
            Value::String(_) => json!({ "stringValue": value }),
            Value::Bool(_) => json!({ "boolValue": value }),
            Value::Number(number) if number.is_f64() => json!({ "doubleValue": value }),
            other => json!({ "intValue": other.to_string() }),
        };
        self.value["attributes"].as_array_mut().unwrap().push(json!({ "key": key, "value": typed }));
        self
    }
}

/// One line of the collector's file exporter.
pub(crate) fn line(spans: &[S]) -> String {
    let resources: Vec<Value> = spans
        .iter()
        .map(|span| {
            let attribute = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
            json!({
                "resource": { "attributes": [attribute("service.name", &span.service), attribute("host.name", &span.host)] },
                "scopeSpans": [{ "scope": { "name": "test" }, "spans": [span.value] }],
            })
        })
        .collect();
    json!({ "resourceSpans": resources }).to_string()
}

/// All traces of a text, in the order in which they were complete.
pub(crate) fn read(text: &str) -> (Vec<Trace>, Total) {
    read_within(text, Limits::default())
}

pub(crate) fn read_within(text: &str, limits: Limits) -> (Vec<Trace>, Total) {
    let mut traces = Vec::new();
    let total = explain(text.as_bytes(), limits, |told| {
        if let Told::Trace(trace) = told {
            traces.push(*trace);
        }
    })
    .unwrap();
    (traces, total)
}

/// The one trace of these spans.
pub(crate) fn trace(spans: &[S]) -> Trace {
    let (mut traces, total) = read(&line(spans));
    assert_eq!(total.problems, []);
    assert_eq!(traces.len(), 1);
    sums_hold(&traces[0]);
    traces.remove(0)
}

/// Milliseconds of nanoseconds.
pub(crate) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The ledger's invariants, from what is told alone: every operation's entries sum to its elapsed time, entries beside each
/// other share no moment and lie within the one above.
#[track_caller]
pub(crate) fn sums_hold(trace: &Trace) {
    assert_eq!(trace.wrong, Vec::<String>::new(), "the crate's own check");
    let own = |top: Option<usize>| trace.spans.iter().filter(move |row| row.operation == top);
    let sum = own(None).map(|row| row.unaccounted_ns).sum::<u64>() + trace.between_roots_ns;
    assert_eq!(sum, trace.elapsed_ns, "the trace's own operation");
    for (top, row) in trace.own_operations() {
        assert_eq!(own(Some(top)).map(|row| row.unaccounted_ns).sum::<u64>(), row.took_ns, "{}", row.name);
    }
    for (index, row) in trace.spans.iter().enumerate() {
        assert!(row.charged_ns <= row.took_ns && row.parent.is_none_or(|parent| parent < index));
        let below = trace.spans.iter().filter(|child| child.parent == Some(index) && child.own.is_none());
        let mut charges: Vec<(u64, u64)> = below
            .filter(|child| child.charged_ns > 0)
            .map(|child| (child.charged_from_ns, child.charged_from_ns + child.charged_ns))
            .collect();
        charges.sort_unstable();
        assert!(charges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "entries beside each other share a moment");
        let sum: u64 = charges.iter().map(|(from, to)| to - from).sum();
        assert_eq!(sum + row.unaccounted_ns, row.charged_ns, "{}", row.name);
        for (from, to) in charges {
            assert!(row.charged_from_ns <= from && to <= row.charged_from_ns + row.charged_ns);
        }
    }
}
