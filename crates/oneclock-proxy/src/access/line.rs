//! One line: what it says, and how it is written.
//!
//! Decides the names of the fields and the word for how a request ended: the contract's reason where there is one, also where
//! the caller was told nothing. Text that a caller chose is escaped by the writer of JSON, so that a line stays a line.

use std::time::{Duration, SystemTime};

use oneclock::events::Slot;
use oneclock_core::wire::utc;
use oneclock_core::{BoundBy, Cause, Ending, Name, Reason, Stage};
use serde::{Serialize, Serializer};

use super::figures::Figures;
use super::record::Record;

/// What is told of one request. Made on its way, and small; written by the log's own thread.
#[derive(Debug)]
pub(super) struct Line {
    slot: Slot, // its record
    route: Name,
    at: SystemTime, // its end
    took: Duration,
    over: Over,
    figures: Figures,
    budget_in: Duration,
    streamed: Option<Duration>,
    /// How many refusals before it left no line.
    pub(super) left_out: u64,
    /// How many lines before it were lost.
    pub(super) lost: u64,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) ending: Option<Ending>,
    pub(super) answered: Option<Reason>,
    /// Why it had no place.
    pub(super) why: Option<&'static str>,
    pub(super) bound: Option<BoundBy>,
    /// The field that could not be read.
    pub(super) field: Option<Name>,
    /// Where it was refused, if it never began.
    pub(super) refused_at: Option<Stage>,
}

/// The line as it is written. What is not known is left out.
#[derive(Serialize)]
struct Written<'a> {
    time: Time,
    listener: &'a str,
    route: &'a str,
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grpc_status: Option<u16>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    budget_in_ms: Millis,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    budget_out_ms: Vec<Millis>,
    attempts: u32,
    queue_ms: Millis,
    pool_ms: Millis,
    connect_ms: Millis,
    upstream_ms: Millis,
    #[serde(skip_serializing_if = "Millis::is_zero")]
    backoff_ms: Millis,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_ms: Option<Millis>,
    ms: Millis,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_outcome: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
    #[serde(skip_serializing_if = "is_first")]
    attempt_in: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
}

/// Milliseconds with three decimals, which is what the clock is good for.
#[derive(Clone, Copy)]
struct Millis(Duration);

/// A moment, as RFC 3339 writes it.
struct Time(SystemTime);

fn is_first(attempt: &u32) -> bool {
    *attempt <= 1
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

// === Line ===

impl Line {
    #[expect(
        clippy::too_many_arguments,
        reason = "its fields, in their order; they are made in two places, side by side"
    )]
    pub(super) fn new(
        slot: Slot,
        route: Name,
        at: SystemTime,
        took: Duration,
        over: Over,
        figures: Figures,
        budget_in: Duration,
        streamed: Option<Duration>,
    ) -> Self {
        Self { slot, route, at, took, over, figures, budget_in, streamed, left_out: 0, lost: 0 }
    }

    /// Appends it to `buffer`, with its line feed.
    pub(super) fn write(&self, buffer: &mut Vec<u8>) {
        let Some(record) = self.slot.get::<Record>() else { return }; // it was made from one
        let began = buffer.len();
        let upstream = record.upstream();
        match serde_json::to_writer(&mut *buffer, &self.written(record, upstream.as_ref())) {
            Ok(()) => buffer.push(b'\n'),
            Err(_) => buffer.truncate(began), // text and numbers can always be written
        }
    }

    fn written<'a>(&'a self, record: &'a Record, upstream: Option<&'a Name>) -> Written<'a> {
        let Over { ending, answered, why, bound, field, refused_at } = &self.over;
        let problem = record.problem();
        let outcome = outcome(*ending, *answered, problem.map(|problem| problem.word));
        // Where a call gave up in its own time, or its answer broke off, the call says where it was.
        let called_off = ending.is_none_or(|ending| ending.cause == Cause::CalledOff);
        let by_a_call = called_off && outcome != OK && (problem.is_some() || answered.is_some());
        let stage = self.figures.last.filter(|_| by_a_call).or(ending.map(|ending| ending.stage)).or(*refused_at);
        let stage = stage.or(problem.and_then(|problem| problem.stage));
        // A field that said more than its caller gets made no deadline.
        let source = record.source.as_ref().filter(|_| *bound == Some(BoundBy::Caller));
        let gone = ending.is_some_and(|ending| ending.cause == Cause::CallerGone).then_some(Reason::CallerGone);
        let is_grpc = record.protocol == Some("grpc");
        let said_last = ending.map(Ending::reason).map(|reason| u16::from(reason.grpc_status()));
        Written {
            time: Time(self.at.checked_sub(self.took).unwrap_or(self.at)),
            listener: record.listener.as_str(),
            route: self.route.as_str(),
            method: record.method.as_str(),
            path: &record.path,
            protocol: record.protocol,
            status: record.status().or(gone.map(Reason::http_status)),
            grpc_status: record.grpc_status().or(said_last).filter(|_| is_grpc),
            outcome,
            why: *why,
            stage: stage.map(|stage| stage.as_str()),
            bound: bound.map(|bound| bound.as_str()),
            source: field.as_ref().or(source).map(Name::as_str),
            budget_in_ms: Millis(self.budget_in),
            budget_out_ms: self.figures.told.iter().copied().map(Millis).collect(),
            attempts: self.figures.attempts,
            queue_ms: Millis(self.figures.queue),
            pool_ms: Millis(self.figures.pool),
            connect_ms: Millis(self.figures.connect),
            upstream_ms: Millis(self.figures.upstream),
            backoff_ms: Millis(self.figures.backoff),
            stream_ms: self.streamed.map(Millis),
            ms: Millis(self.took),
            bytes: record.bytes(),
            upstream: upstream.map(Name::as_str),
            upstream_outcome: problem.and_then(|problem| problem.outcome).map(|outcome| outcome.as_str()),
            cause: problem.and_then(|problem| problem.cause.as_deref()),
            attempt_in: record.attempt,
            trace_id: record.trace.map(|trace| format!("{trace:032x}")),
            request_id: record.id.as_deref(),
            left_out: self.left_out,
            lost: self.lost,
        }
    }
}

/// It was done, and its answer was passed on whole, whatever that says.
const OK: &str = "ok";

/// The word for how a request ended.
fn outcome(ending: Option<Ending>, answered: Option<Reason>, problem: Option<&'static str>) -> &'static str {
    match (ending, answered) {
        (_, Some(reason)) => reason.as_str(),
        // What our own code called off: because the upstream's answer broke off, or it panicked.
        (Some(ending), None) if ending.cause == Cause::CalledOff => problem.unwrap_or(ending.reason().as_str()),
        (Some(ending), None) => ending.reason().as_str(),
        (None, None) => problem.unwrap_or(OK),
    }
}

impl Millis {
    fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_micros() as f64 / 1_000.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let since_1970 = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        serializer.serialize_str(utc(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)).as_str())
    }
}

#[cfg(test)]
mod tests {
    use oneclock_core::Tick;

    use super::*;

    #[test]
    fn the_word_is_the_contracts_where_there_is_one() {
        let ended = |cause, bound| Some(Ending { cause, bound, stage: Stage::Wait, at: Tick::default() });
        let by_caller = |cause| ended(cause, BoundBy::Caller);
        for (ending, answered, problem, want) in [
            (None, None, None, "ok"),
            (None, None, Some("call_failed"), "call_failed"),
            (None, Some(Reason::Deadline), None, "deadline"),
            (None, Some(Reason::Shed), None, "shed"),
            (by_caller(Cause::Deadline), None, None, "deadline"),
            (ended(Cause::Deadline, BoundBy::Cap), None, None, "cap"),
            (by_caller(Cause::Deadline), Some(Reason::ExpiredBeforeStart), None, "expired_before_start"),
            (by_caller(Cause::CallerGone), None, None, "caller_gone"),
            (by_caller(Cause::CallerGone), None, Some("call_failed"), "caller_gone"),
            (by_caller(Cause::CalledOff), None, Some("call_failed"), "call_failed"),
            (by_caller(Cause::CalledOff), None, None, "called_off"),
            (by_caller(Cause::Shutdown), None, None, "shutdown_midway"),
        ] {
            assert_eq!(outcome(ending, answered, problem), want, "{ending:?} {answered:?} {problem:?}");
        }
    }

    #[test]
    fn milliseconds_have_three_decimals() {
        let written = |micros| serde_json::to_string(&Millis(Duration::from_micros(micros))).unwrap();
        assert_eq!([0, 1, 412, 1_000, 800_123].map(written), ["0.0", "0.001", "0.412", "1.0", "800.123"]);
    }
}
