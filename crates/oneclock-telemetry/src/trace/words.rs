//! How spans spell what they say, of requests and of calls.
//!
//! Decides what is an error: what ran out of time or failed, as OpenTelemetry's conventions have it; never a caller that left,
//! nor what its own code called off.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use oneclock::events::Head;
use oneclock_core::{Cause, Ending, Ledger, Reason, Stage};
use oneclock_http::grpc;
use tracing::Span;
use tracing::field::display;

use super::attributes as a;

/// Of a status of gRPC that is not known.
pub(super) const NO_CODE: u16 = u16::MAX;

/// The names of gRPC's statuses, by their numbers.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Which of them are a server's errors: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS.
pub(super) const SERVER_ERRORS: [u16; 6] = [2, 4, 12, 13, 14, 15];

/// The name of a status of gRPC; `None` for what is none.
pub(super) fn name_of_code(code: u16) -> Option<&'static str> {
    CODES.get(usize::from(code)).copied()
}

/// What of these fields says whether a message is gRPC's, and how its call ended.
pub(super) fn of_grpc(fields: &dyn Head) -> HeaderMap {
    let mut said = HeaderMap::new();
    let is_grpcs =
        |value: &str| value.as_bytes().get(..16).is_some_and(|it| it.eq_ignore_ascii_case(b"application/grpc"));
    let mut say = |name: HeaderName, value: Option<&str>| {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            said.insert(name, value);
        }
    };
    say(header::CONTENT_TYPE, fields.get(header::CONTENT_TYPE.as_str()).filter(|value| is_grpcs(value)));
    say(grpc::STATUS, fields.get(grpc::STATUS.as_str()));
    said
}

/// Milliseconds with three decimals, which is what the clock is good for.
pub(crate) fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1_000.0
}

/// How long it waited in queues; `None` if it never did.
pub(crate) fn queued(ledger: &Ledger) -> Option<Duration> {
    let queues = ledger.entries().iter().filter(|entry| entry.stage == Stage::Queue && entry.part_of.is_none());
    queues.filter_map(|entry| Some(entry.ended?.since(entry.began))).reduce(|one, other| one + other)
}

/// Whether an answer with this reason was about time running out.
pub(crate) fn is_about_time(reason: Reason) -> bool {
    reason.http_status() == 504
}

pub(super) fn record_ending(span: &Span, ending: Option<Ending>) {
    if let Some(ending) = ending {
        span.record(a::CAUSE, ending.cause.as_str());
        span.record(a::STAGE, ending.stage.as_str());
    }
}

pub(super) fn record_keep(span: &Span) {
    span.record(a::KEEP, true);
    span.record(a::SAMPLING_PRIORITY, 1_i64);
}

pub(super) fn record_error(span: &Span, kind: &str, ending: Option<&Ending>) {
    span.record("otel.status_code", "ERROR");
    span.record(a::ERROR_TYPE, kind);
    if let Some(ending) = ending {
        span.record("otel.status_description", display(ending));
    }
}

pub(super) fn is_error(cause: Cause) -> bool {
    match cause {
        Cause::Deadline | Cause::Shed | Cause::Shutdown => true,
        _ => false, // nobody was failed: the caller left, or our own code wanted it no longer
    }
}

/// A method of HTTP's, as the conventions want it.
pub(super) fn method_of(method: &str) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "PATCH", "TRACE"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or("_OTHER")
}

/// Whether the path of a remote procedure is short and plain enough for a name.
pub(super) fn is_label(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/');
    (1..=128).contains(&path.len()) && path.bytes().all(plain) && path.matches('/').count() == 1
}
