//! What is known of a request before its end, beside its operation.
//!
//! Decides what of a head is kept: the method, the path without its query, and two ids. No other field, since fields hold
//! secrets; and of each of those at most so much, since a caller chooses how long they are.

use std::error::Error;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue, Method};
use http_body::Frame;
use oneclock::events::{AnswerHead, RequestBegan, Slot};
use oneclock_core::{Deadline, Name, Outcome, Tick};
use oneclock_http::{Problem, grpc};
use oneclock_telemetry::trace::trace_in;

use super::figures::Figures;
use super::is_about_time;
use super::keep::Sampler;

/// Of a path this much is kept, in bytes.
const PATH: usize = 512;
/// Of a request's id.
const ID: usize = 128;
/// The field of a request's id.
const REQUEST_ID: &str = "x-request-id";
/// The status of an answer that never left, and of gRPC where nothing is said.
const NONE: u16 = u16::MAX;

/// How many calls of one request have what they were given kept: as many as a route can make.
pub(super) const CALLS: usize = 10;

/// One request.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) listener: Name,
    pub(super) arrived: Tick,
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) protocol: Option<&'static str>,
    /// The field that its deadline came from.
    pub(super) source: Option<Name>,
    /// Which attempt of the hop above it is.
    pub(super) attempt: u32,
    pub(super) trace: Option<u128>,
    pub(super) id: Option<Box<str>>,
    /// Whether it leaves a line however it ends.
    pub(super) sampled: bool,
    status: AtomicU16,
    grpc_status: AtomicU16,
    bytes: AtomicU64,
    problem: OnceLock<Told>,
    later: Mutex<Later>,
}

/// What was answered in the place of what the upstream had to say, without a reason of the contract's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) word: &'static str,
    status: u16,
    pub(super) outcome: Option<Outcome>,
}

#[derive(Debug, Default)]
struct Later {
    calls: usize,
    grants: [Option<Deadline>; CALLS],
    // Boxed, because they are rare.
    established: Option<Box<(Figures, Duration)>>, // of a stream: its request's, which is over
    apart: Option<Box<Figures>>,                   // of what was done for it elsewhere
}

/// What a request's way through the proxy tells its record. Nothing without a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note(Option<Slot>);

// === Record ===

impl Record {
    /// That of a request whose caller is one of `ours`, or an outsider.
    pub(super) fn of(request: &RequestBegan<'_>, listener: &Name, sampler: &Sampler, ours: bool) -> Self {
        let trace = trace_in(request.fields).and_then(|trace| u128::from_str_radix(trace, 16).ok());
        Self {
            listener: listener.clone(),
            arrived: request.arrived,
            method: Method::from_bytes(request.method.as_bytes()).unwrap_or_default(),
            path: shortened(request.path, PATH),
            protocol: request.protocol,
            source: request.source.cloned(),
            attempt: request.attempt,
            trace,
            id: request.fields.get(REQUEST_ID).map(|id| shortened(id, ID)),
            sampled: sampler.takes(trace.filter(|_| ours)),
            status: AtomicU16::new(NONE),
            grpc_status: AtomicU16::new(NONE),
            bytes: AtomicU64::new(0),
            problem: OnceLock::new(),
            later: Mutex::default(),
        }
    }

    /// Its answer leaves with this head.
    pub(super) fn answered(&self, answer: &AnswerHead<'_>) {
        self.status.store(answer.status, Ordering::Relaxed);
        if self.protocol == Some("grpc")
            && let Some(said) = answer.fields.get(grpc::STATUS.as_str())
            && let Ok(said) = HeaderValue::from_str(said)
        {
            self.trailers(&HeaderMap::from_iter([(grpc::STATUS, said)])); // of an answer that has nothing else
        }
    }

    /// A call of it begins, with this to spend.
    pub(super) fn granted(&self, deadline: Deadline) {
        let mut later = self.later();
        let nth = later.calls;
        later.calls += 1;
        if let Some(grant) = later.grants.get_mut(nth) {
            *grant = Some(deadline);
        }
    }

    /// What its calls were given, in their order.
    pub(super) fn grants(&self) -> [Option<Deadline>; CALLS] {
        self.later().grants
    }

    /// Its answer goes on as a stream: what is known of the time before.
    pub(super) fn established(&self, figures: Figures, budget_in: Duration) {
        self.later().established = Some(Box::new((figures, budget_in)));
    }

    pub(super) fn take_established(&self) -> Option<(Figures, Duration)> {
        self.later().established.take().map(|both| *both)
    }

    /// This was spent for it in an operation of its own.
    pub(super) fn apart(&self, figures: Figures) {
        self.later().apart.get_or_insert_default().add(figures);
    }

    pub(super) fn take_apart(&self) -> Option<Figures> {
        self.later().apart.take().map(|figures| *figures)
    }

    /// The status that its answer left with.
    pub(super) fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status != NONE)
    }

    /// What gRPC said of it, in its head or behind it.
    pub(super) fn grpc_status(&self) -> Option<u16> {
        Some(self.grpc_status.load(Ordering::Relaxed)).filter(|status| *status != NONE)
    }

    /// How much of the upstream's body was passed on.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What was answered in its place.
    pub(super) fn problem(&self) -> Option<Told> {
        self.problem.get().copied()
    }

    fn trailers(&self, trailers: &HeaderMap) {
        if let Some(status) = grpc::status(trailers) {
            self.grpc_status.store(u16::from(status), Ordering::Relaxed);
        }
    }

    fn later(&self) -> MutexGuard<'_, Later> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At most so many bytes of it; what is shortened says so.
fn shortened(text: &str, most: usize) -> Box<str> {
    if text.len() <= most {
        return text.into();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}…", &text[..end]).into()
}

// === Told ===

impl Told {
    pub(super) fn is_about_time(self) -> bool {
        self.status == 504
    }
}

// === Note ===

impl Note {
    /// That of the request with these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        Self(extensions.get::<Slot>().filter(|slot| slot.get::<Record>().is_some()).cloned())
    }

    /// It is answered with this.
    pub(crate) fn says(&self, problem: &Problem) {
        if let Some(record) = self.record() {
            let (word, status) = (problem.word().unwrap_or("problem"), problem.status());
            let _ = record.problem.set(Told { word, status, outcome: problem.outcome() }); // the first counts
        }
    }

    /// This of its answer is handed on.
    pub(crate) fn passes(&self, frame: &Frame<Bytes>) {
        let Some(record) = self.record() else { return };
        if let Some(data) = frame.data_ref() {
            record.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        } else if let Some(trailers) = frame.trailers_ref() {
            record.trailers(trailers);
        }
    }

    /// Its answer broke off.
    pub(crate) fn breaks_off(&self, error: &(dyn Error + 'static)) {
        let Some(record) = self.record() else { return };
        let reason = oneclock::reason_in(error); // of the call: the request has its own
        let (word, status) = match reason {
            Some(reason) => (reason.as_str(), if is_about_time(reason) { 504 } else { 502 }),
            None => ("call_failed", 502),
        };
        let _ = record.problem.set(Told { word, status, outcome: None });
    }

    fn record(&self) -> Option<&Record> {
        self.0.as_ref()?.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_shortened_between_characters() {
        assert_eq!(&*shortened("/orders/7", 9), "/orders/7");
        assert_eq!(&*shortened("/orders/7", 8), "/orders/…");
        assert_eq!(&*shortened("/größe", 5), "/grö…");
        assert_eq!(&*shortened("/größe", 4), "/gr…");
    }
}
