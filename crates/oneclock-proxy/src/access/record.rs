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
use oneclock::Operation;
use oneclock::events::{AnswerHead, CallBegan, RequestBegan, Slot};
use oneclock::operation::Kind;
use oneclock_core::{Deadline, Name, Outcome, Stage, Tick};
use oneclock_http::{Problem, grpc};
use oneclock_telemetry::trace::trace_in;

use super::figures::Figures;
use super::keep::Sampler;
use crate::shortened::shortened;

/// Of a path this much is kept, in bytes.
const PATH: usize = 512;
/// Of a request's id.
const ID: usize = 128;
/// Of what failed, in the words of whoever failed.
const CAUSE: usize = 512;
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

/// What was answered in the place of what the upstream had to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) word: &'static str,
    status: u16,
    pub(super) outcome: Option<Outcome>,
    /// Where it was, if it is known from nothing else.
    pub(super) stage: Option<Stage>,
    /// What failed, where no reason of the contract's says it.
    pub(super) cause: Option<Box<str>>,
}

#[derive(Debug, Default)]
struct Later {
    calls: usize,
    grants: [Option<Deadline>; CALLS],
    upstream: Option<Name>, // the last one that was called
    // Boxed, because they are rare.
    established: Option<Box<(Figures, Duration)>>, // of a stream: its request's, which is over
    apart: Option<Box<Figures>>,                   // of what was done for it elsewhere
    running: Option<Operation>,                    // the same while it goes on; taken out when that is over
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

    /// A call of it begins: to whom, and with what to spend.
    pub(super) fn granted(&self, call: &CallBegan<'_>) {
        let mut later = self.later();
        let nth = later.calls;
        later.calls += 1;
        if let Some(grant) = later.grants.get_mut(nth) {
            *grant = Some(call.budget.deadline);
        }
        if later.upstream.as_ref() != Some(call.call) {
            later.upstream = Some(call.call.clone());
        }
        // Of a run under a key, which may outlive its request. It is driven: that it is kept here keeps it from no end.
        if !matches!(call.operation.kind(), Kind::Request | Kind::Stream) {
            later.running = Some(call.operation.clone());
        }
    }

    /// Whom it called, the last time.
    pub(super) fn upstream(&self) -> Option<Name> {
        self.later().upstream.clone()
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

    /// This was spent for it in an operation of its own, which is over.
    pub(super) fn apart(&self, figures: Figures) {
        let mut later = self.later();
        let over = later.running.take();
        later.apart.get_or_insert_default().add(figures);
        drop(later); // what goes with it may have something to tell
        drop(over);
    }

    /// What was spent for it in operations of their own until then, also where they go on.
    pub(super) fn take_apart(&self, until: Tick) -> Option<Figures> {
        let (apart, running) = {
            let mut later = self.later();
            (later.apart.take(), later.running.take())
        };
        let running = running.map(|running| Figures::of(&running.ledger(), until, &self.grants()));
        match (apart, running) {
            (Some(mut apart), Some(running)) => {
                apart.add(running);
                Some(*apart)
            }
            (apart, running) => apart.map(|apart| *apart).or(running),
        }
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
    pub(super) fn problem(&self) -> Option<&Told> {
        self.problem.get()
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

// === Told ===

impl Told {
    pub(super) fn is_about_time(&self) -> bool {
        self.status == 504
    }

    /// Whether the upstream could not be reached, or broke off.
    pub(super) fn is_about_the_upstream(&self) -> bool {
        self.status == 502
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
            let cause = problem.why().filter(|_| problem.reason().is_none()).map(|why| shortened(why, CAUSE));
            let (outcome, stage) = (problem.outcome(), problem.stage());
            let _ = record.problem.set(Told { word, status, outcome, stage, cause }); // the first counts
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
        let (word, status) = reason.map_or(("call_failed", 502), |reason| (reason.as_str(), reason.http_status()));
        let problem = Problem::broke_off(error);
        // In trailers, or by the code of a reset, which callers read by the same table.
        let said = u16::from(problem.grpc_status());
        let _ = record.grpc_status.compare_exchange(NONE, said, Ordering::Relaxed, Ordering::Relaxed);
        let cause = problem.why().filter(|_| reason.is_none()).map(|why| shortened(why, CAUSE));
        let _ = record.problem.set(Told { word, status, outcome: None, stage: None, cause });
    }

    fn record(&self) -> Option<&Record> {
        self.0.as_ref()?.get()
    }
}
