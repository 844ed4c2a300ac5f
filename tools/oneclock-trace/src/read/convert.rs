//! One object into one span: what the fields of the three formats mean.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Format;
use crate::span::{Kind, Process, Span, cut};

/// The fields that a span is made of. The rest of it is searched, and dropped.
pub(super) const FIELDS: &[&str] = &[
    "traceId",
    "traceID",
    "trace_id",
    "spanId",
    "spanID",
    "span_id",
    "id",
    "parentId",
    "parentSpanId",
    "parentSpanID",
    "parent_span_id",
    "name",
    "operationName",
    "kind",
    "startTimeUnixNano",
    "start_time_unix_nano",
    "endTimeUnixNano",
    "end_time_unix_nano",
    "timestamp",
    "duration",
    "startTime",
    "attributes",
    "tags",
    "references",
    "status",
    "localEndpoint",
    "remoteEndpoint",
    "shared",
    "processID",
    "process",
];

/// What an object turned out to be.
pub(super) enum Found {
    Span {
        trace: String,
        span: Box<Span>,
        format: Format,
        process: Option<String>,
    },
    Nothing,
    /// It has the ids of a span, but its times are none.
    Broken(String),
}

type Fields = Map<String, Value>;

/// A span of whichever format has these fields.
pub(super) fn span(fields: &Fields) -> Found {
    let has = |names: &[&str]| names.iter().any(|name| fields.contains_key(*name));
    let read = if has(&["traceID"]) && has(&["spanID"]) && has(&["startTime", "operationName", "duration"]) {
        jaeger(fields)
    } else if has(&["traceId", "trace_id"]) && has(&["spanId", "span_id"]) {
        // Log records and exemplars carry the two ids as well.
        if !has(&["name", "startTimeUnixNano", "start_time_unix_nano"]) {
            return Found::Nothing;
        }
        otlp(fields)
    } else if has(&["traceId"]) && has(&["id"]) && has(&["name", "timestamp", "duration", "kind", "localEndpoint"]) {
        zipkin(fields)
    } else if has(&["spanID"]) && has(&["startTime"]) && has(&["operationName"]) {
        jaeger(fields) // inside a trace its id may be left out
    } else {
        return Found::Nothing;
    };
    read.unwrap_or_else(Found::Broken)
}

fn otlp(fields: &Fields) -> Result<Found, String> {
    let get = |camel: &str, snake: &str| fields.get(camel).or_else(|| fields.get(snake));
    let mut span = Span {
        id: id(get("spanId", "span_id"), "spanId")?,
        parent: parent(get("parentSpanId", "parent_span_id")),
        name: name(fields.get("name")),
        kind: match fields.get("kind") {
            Some(Value::String(word)) => word.parse().map_or_else(|_| Kind::named(word), Kind::numbered),
            Some(number) => Kind::numbered(number.as_u64().unwrap_or_default()),
            None => Kind::Unspecified,
        },
        ..Span::default()
    };
    let began = time(get("startTimeUnixNano", "start_time_unix_nano"), "startTimeUnixNano", 1)?;
    let ended = time(get("endTimeUnixNano", "end_time_unix_nano"), "endTimeUnixNano", 1)?;
    if let (Some(began @ 1..), Some(ended @ 1..)) = (began, ended) {
        span.took_place(began, ended, 1);
    }
    for (key, value) in pairs(fields.get("attributes")) {
        span.attribute(key, value);
    }
    let code = fields.get("status").and_then(|status| status.get("code"));
    span.error |= code.is_some_and(|code| code.as_u64() == Some(2) || code.as_str() == Some("STATUS_CODE_ERROR"));
    found(id(get("traceId", "trace_id"), "traceId")?, span, Format::Otlp, None)
}

fn jaeger(fields: &Fields) -> Result<Found, String> {
    let trace = fields.get("traceID").map(|trace| id(Some(trace), "traceID")).transpose()?.unwrap_or_default();
    let mut span = Span {
        id: id(fields.get("spanID"), "spanID")?,
        parent: parent(fields.get("parentSpanID")),
        name: name(fields.get("operationName")),
        ..Span::default()
    };
    let began = time(fields.get("startTime"), "startTime", 1_000)?;
    let took = length(fields.get("duration"), "duration", 1_000)?;
    if let (Some(began), Some(took)) = (began, took) {
        span.took_place(began, end(began, took), 1_000);
    }
    // A reference into another trace is a link, not a parent.
    let references = fields.get("references").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let here = |reference: &&Value| {
        reference.get("traceID").and_then(Value::as_str).is_none_or(|other| trace.is_empty() || hex(other) == trace)
    };
    let of = |reference_type: &str| {
        let mut references = references.iter().filter(here);
        references.find(|reference| reference.get("refType").and_then(Value::as_str) == Some(reference_type))
    };
    if let Some(reference) = of("CHILD_OF") {
        span.parent = parent(reference.get("spanID"));
    } else if let Some(reference) = of("FOLLOWS_FROM") {
        (span.parent, span.follows) = (parent(reference.get("spanID")), true);
    }
    for (key, value) in pairs(fields.get("tags")) {
        span.attribute(key, value);
    }
    if let Some(process) = fields.get("process") {
        span.process = Arc::new(jaeger_process(process));
    }
    let process = fields.get("processID").and_then(Value::as_str).map(str::to_owned);
    found(trace, span, Format::Jaeger, process)
}

fn zipkin(fields: &Fields) -> Result<Found, String> {
    let mut span = Span {
        id: id(fields.get("id"), "id")?,
        parent: parent(fields.get("parentId")),
        name: name(fields.get("name")),
        kind: fields.get("kind").and_then(Value::as_str).map_or(Kind::Unspecified, Kind::named),
        ..Span::default()
    };
    let began = time(fields.get("timestamp"), "timestamp", 1_000)?;
    let took = length(fields.get("duration"), "duration", 1_000)?;
    if let (Some(began), Some(took)) = (began, took) {
        span.took_place(began, end(began, took), 1_000);
    }
    let endpoint = |which: &str, field: &str| fields.get(which)?.get(field)?.as_str();
    let mut process = Process::of(endpoint("localEndpoint", "serviceName").unwrap_or_default());
    for address in ["ipv4", "ipv6"] {
        if let Some(address) = endpoint("localEndpoint", address) {
            process.also(address);
        }
    }
    span.process = Arc::new(process);
    if let Some(Value::Object(tags)) = fields.get("tags") {
        for (key, value) in tags {
            span.attribute(key, value);
        }
    }
    if let Some(peer) = endpoint("remoteEndpoint", "serviceName") {
        span.attribute("peer.service", &Value::from(peer));
    }
    // The called side of a call that has one id on both sides.
    if fields.get("shared") == Some(&Value::Bool(true)) {
        span.kind = Kind::Server;
    }
    found(id(fields.get("traceId"), "traceId")?, span, Format::Zipkin, None)
}

fn found(mut trace: String, mut span: Span, format: Format, process: Option<String>) -> Result<Found, String> {
    span.cut();
    cut(&mut trace);
    Ok(Found::Span { trace, span: Box::new(span), format, process })
}

/// OTLP's resource.
pub(super) fn resource(resource: &Value) -> Process {
    let mut process = Process::default();
    for (key, value) in pairs(resource.get("attributes")) {
        process.attribute(key, value);
    }
    process
}

/// Jaeger's processes of one trace, by their ids in it.
pub(super) fn processes(processes: Option<&Value>) -> HashMap<String, Arc<Process>> {
    let Some(Value::Object(processes)) = processes else { return HashMap::new() };
    processes.iter().map(|(id, process)| (id.clone(), Arc::new(jaeger_process(process)))).collect()
}

fn jaeger_process(process: &Value) -> Process {
    let mut read = Process::of(process.get("serviceName").and_then(Value::as_str).unwrap_or_default());
    for (key, value) in pairs(process.get("tags")) {
        read.attribute(key, value);
    }
    read
}

/// Attributes as OTLP and Jaeger list them: OTLP wraps the value in its type.
fn pairs(list: Option<&Value>) -> impl Iterator<Item = (&str, &Value)> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|pair| {
        let value = pair.get("value")?;
        let inner = value.as_object().and_then(|typed| typed.values().next()).unwrap_or(value);
        let inner = match inner.get("values").and_then(Value::as_array).and_then(|values| values.first()) {
            Some(first) => first.as_object().and_then(|typed| typed.values().next()).unwrap_or(first),
            None => inner,
        };
        Some((pair.get("key")?.as_str()?, inner))
    })
}

/// Hexadecimal digits mean the same in both cases; anything else is kept.
fn hex(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_hexdigit()) { text.to_ascii_lowercase() } else { text.to_owned() }
}

fn id(value: Option<&Value>, field: &str) -> Result<String, String> {
    match value {
        Some(Value::String(text)) if !text.is_empty() => Ok(hex(text)),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(other) => Err(format!("{field} is {}, not an id", short(other))),
        None => Err(format!("it has no {field}")),
    }
}

/// Empty and all zeros mean none, in base64 as well.
fn parent(value: Option<&Value>) -> Option<String> {
    let none = |id: &str| id.bytes().all(|byte| byte == b'0') || id == "AAAAAAAAAAA=";
    id(value, "").ok().filter(|id| !none(id))
}

fn name(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A moment in units of so many nanoseconds: a number, or one in a text.
fn time(value: Option<&Value>, field: &str, unit: u64) -> Result<Option<u64>, String> {
    let wrong = |value: &Value| format!("{field} is {}, not a time", short(value));
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match whole(value) {
            Some(number @ 0..) => Ok(Some(u64::try_from(number).unwrap_or(u64::MAX).saturating_mul(unit))),
            _ => Err(wrong(value)),
        },
    }
}

/// A length: like a moment, but it may be negative where clocks were set back.
fn length(value: Option<&Value>, field: &str, unit: i128) -> Result<Option<i128>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match whole(value) {
            Some(number) => Ok(Some(number.saturating_mul(unit))),
            None => Err(format!("{field} is {}, not a length of time", short(value))),
        },
    }
}

fn end(began: u64, took: i128) -> u64 {
    u64::try_from(i128::from(began).saturating_add(took).max(0)).unwrap_or(u64::MAX)
}

/// A number without its fraction.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => {
            let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
            whole.or_else(|| number.as_f64().filter(|number| number.is_finite()).map(|number| number as i128))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 { text } else { format!("{}…", text.chars().take(40).collect::<String>()) }
}
