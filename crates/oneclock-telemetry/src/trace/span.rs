//! What a span says of its operation, at the beginning and at the end.
//!
//! Decides what is an error: what ran out of time or failed, as OpenTelemetry's conventions have it; never a caller that left,
//! nor what its own code called off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use http::{Method, Request};
use oneclock::Operation;
use oneclock::events::{OperationEnded, Slot};
use oneclock_core::{Cause, Ending, Ledger, Reason, Stage};
use oneclock_http::{Route, grpc};
use tracing::Span;
use tracing::field::{Empty, display};

use super::TARGET;
use super::attributes as a;
use super::context::Incoming;

/// What a request that may be a call of gRPC is called: as one, and if it is none.
#[derive(Debug, Default)]
struct Names {
    method: String,
    #[cfg_attr(not(feature = "opentelemetry"), allow(dead_code, reason = "only a tracer can rename"))]
    http: String,
}

/// Beside an operation.
#[derive(Debug)]
pub(super) struct OperationSpan {
    span: Span,
    incoming: Option<Arc<Incoming>>,
    rpc: AtomicBool, // whether it is a call of gRPC: as it claims, until the answer says that it is none
    names: Names,
    status: AtomicU16, // of HTTP, as the handler answered; 0: it has not
    code: AtomicU16,   // of gRPC; NO_CODE: not known
    over: AtomicBool,
}

const NO_CODE: u16 = u16::MAX;

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
const SERVER_ERRORS: [u16; 6] = [2, 4, 12, 13, 14, 15];

/// The span of an operation that our own code began: enter it while its work runs, with `tracing`'s `Instrument`. It is
/// closed by the operation's end, and its calls are its children. `None` if the operation has a span already.
///
/// ```
/// use oneclock::Operation;
/// use oneclock_telemetry::trace::span_of;
/// use std::time::Duration;
/// use tracing::Instrument;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let nightly = Operation::begin("nightly-reconcile", Duration::from_secs(300));
/// let span = span_of(&nightly).expect("it is the first one");
/// assert!(nightly.run(async { 42 }.instrument(span)).await.is_ok());
/// # }
/// ```
pub fn span_of(operation: &Operation) -> Option<Span> {
    if operation.slot().is_some() {
        return None;
    }
    let around = around(operation);
    let span = operation_span(operation, operation.name().as_str(), "internal", around.as_ref());
    let incoming = operation.nearest_slot().get::<OperationSpan>().and_then(OperationSpan::incoming);
    operation.keep(Slot::of(OperationSpan::new(span.clone(), incoming, false, Names::default())));
    Some(span)
}

// === OperationSpan ===

impl OperationSpan {
    fn new(span: Span, incoming: Option<Arc<Incoming>>, rpc: bool, names: Names) -> Self {
        let (status, code) = (AtomicU16::new(0), AtomicU16::new(NO_CODE));
        Self { span, incoming, rpc: AtomicBool::new(rpc), names, status, code, over: AtomicBool::new(false) }
    }

    /// Of a request, whose trace context decides the parent.
    pub(super) fn of_request<B>(operation: &Operation, request: &Request<B>) -> Self {
        let incoming = Incoming::of(request.headers()).map(Arc::new);
        let route = operation.route().map(|route| route.as_str());
        // By what was matched, too: behind an ordinary route the content type is a claim, and the path is no method. What
        // matched nothing keeps its claim until its answer says otherwise.
        let rpc = *request.method() == Method::POST
            && grpc::is_grpc(request.headers())
            && route.is_none_or(|route| may_be_a_method(route, request.uri().path()));
        let method = request.uri().path().trim_start_matches('/');
        let http = match route {
            Some(route) => format!("{} {route}", method_of(request.method())),
            None => method_of(request.method()).to_owned(),
        };
        let name = if rpc && is_label(method) { method } else { &http };
        let span = operation_span(operation, name, "server", None);
        #[cfg(feature = "opentelemetry")]
        if let Some(incoming) = &incoming {
            super::otel::adopt(&span, incoming);
        }
        span.record(a::HTTP_METHOD, method_of(request.method()));
        if let Some(route) = route {
            span.record(a::HTTP_ROUTE, route);
        }
        let method = if is_label(method) { method } else { "_OTHER" }.to_owned();
        Self::new(span, incoming, rpc, if rpc { Names { http, method } } else { Names::default() })
    }

    fn is_rpc(&self) -> bool {
        self.rpc.load(Ordering::Relaxed)
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    pub(super) fn incoming(&self) -> Option<Arc<Incoming>> {
        self.incoming.clone()
    }

    pub(super) fn trace(&self) -> Option<String> {
        #[cfg(feature = "opentelemetry")]
        if let Some(own) = super::otel::outgoing(&self.span) {
            return Some(own.trace().to_owned());
        }
        self.incoming.as_ref().map(|incoming| incoming.trace().to_owned())
    }

    /// The handler answered with this head.
    pub(super) fn answered(&self, head: &http::response::Parts) {
        self.status.store(head.status.as_u16(), Ordering::Relaxed);
        if self.is_rpc() && !grpc::is_grpc(&head.headers) {
            self.rpc.store(false, Ordering::Relaxed); // so its path was a caller's invention
            #[cfg(feature = "opentelemetry")]
            super::otel::rename(&self.span, &self.names.http);
        }
        self.rpc_status(&head.headers);
    }

    /// Fields that may have the status of a call: the head, or the trailers.
    pub(super) fn rpc_status(&self, fields: &http::HeaderMap) {
        if self.is_rpc()
            && let Some(code) = grpc::status(fields)
        {
            self.code.store(code.into(), Ordering::Relaxed);
        }
    }

    /// Its operation is over, or, after that, the stream behind its head.
    pub(super) fn ended(&self, ended: &OperationEnded<'_>) {
        let span = &self.span;
        if span.is_disabled() {
            return;
        }
        if self.over.swap(true, Ordering::Relaxed) {
            self.stream_ended(ended.ending);
            return;
        }
        let left = ended.deadline.remaining(ended.ledger.began() + ended.elapsed);
        span.record(a::REMAINING_AT_END, millis(left));
        span.record(a::QUEUE_WAIT, millis(queued(ended.ledger)));
        if !ended.ledger.entries().is_empty() {
            span.record(a::LEDGER, display(ended.ledger));
        }
        record_ending(span, ended.ending);
        let answered = match ended.ending {
            // After the head what was sent stays sent.
            Some(ending) if self.status.load(Ordering::Relaxed) == 0 && ending.cause != Cause::CallerGone => {
                Some(ended.answered.unwrap_or(ending.reason()))
            }
            _ => ended.answered,
        };
        self.record_status(answered);
        let out_of_time = ended.ending.is_some_and(|ending| ending.cause == Cause::Deadline);
        if out_of_time || answered.is_some_and(is_about_time) {
            record_keep(span);
        }
        match ended.ending {
            Some(ending) if is_error(ending.cause) => {
                let reason = answered.unwrap_or(ending.reason());
                record_error(span, reason.as_str(), Some(&ending));
            }
            Some(_) => {}
            None => self.record_failure(answered),
        }
        span.in_scope(|| ()); // its end is now, also if somebody holds it for longer
    }

    /// The request's own end was the head, and a good one; what comes of the stream is added.
    fn stream_ended(&self, ending: Option<Ending>) {
        let Some(ending) = ending else { return };
        record_ending(&self.span, Some(ending));
        if ending.cause == Cause::Deadline {
            record_keep(&self.span);
        }
        if is_error(ending.cause) {
            record_error(&self.span, ending.reason().as_str(), Some(&ending));
        }
        self.span.in_scope(|| ());
    }

    fn record_status(&self, answered: Option<Reason>) {
        if self.is_rpc() {
            self.span.record(a::RPC_SYSTEM, "grpc");
            self.span.record(a::RPC_METHOD, &*self.names.method);
            let code = match (self.code.load(Ordering::Relaxed), answered) {
                (NO_CODE, Some(reason)) => u16::from(reason.grpc_status()),
                (code, _) => code,
            };
            self.code.store(code, Ordering::Relaxed);
            if let Some(name) = CODES.get(usize::from(code)) {
                self.span.record(a::RPC_STATUS, *name);
            }
            // The 200 of every call says nothing; what is no call says it here.
            let status = self.status.load(Ordering::Relaxed);
            if !matches!(status, 0 | 200) {
                self.span.record(a::HTTP_STATUS, i64::from(status));
            }
            return;
        }
        let status = match (self.status.load(Ordering::Relaxed), answered) {
            (0, Some(reason)) => reason.http_status(),
            (status, _) => status,
        };
        self.status.store(status, Ordering::Relaxed);
        if status != 0 {
            self.span.record(a::HTTP_STATUS, i64::from(status));
        }
    }

    /// Its work was done: what it was answered with may be an error all the same.
    fn record_failure(&self, answered: Option<Reason>) {
        let (status, code) = (self.status.load(Ordering::Relaxed), self.code.load(Ordering::Relaxed));
        if self.is_rpc() && code != NO_CODE {
            if SERVER_ERRORS.contains(&code) {
                let name = CODES.get(usize::from(code)).copied().unwrap_or("_OTHER");
                record_error(&self.span, answered.map_or(name, Reason::as_str), None);
            }
        } else if status >= 500 {
            let status = status.to_string();
            record_error(&self.span, answered.map_or(&status, |reason| reason.as_str()), None);
        }
    }
}

/// Whether a route may stand for a remote procedure: one that mounts a service, or that names it without a parameter.
fn may_be_a_method(route: &str, path: &str) -> bool {
    !route.contains('{') || matches!(Route::matched(route, path), Route::Mounted { .. })
}

fn operation_span(operation: &Operation, name: &str, kind: &str, parent: Option<&Span>) -> Span {
    let (remaining, bound) = (millis(operation.remaining()), operation.bound());
    let attempt = i64::from(operation.attempt());
    macro_rules! span {
        ($($parent:tt)*) => {
            tracing::info_span!(
                target: TARGET, $($parent)*
                "operation",
                otel.name = name,
                otel.kind = kind,
                otel.status_code = Empty,
                otel.status_description = Empty,
                { a::REMAINING_AT_START } = remaining,
                { a::REMAINING_AT_END } = Empty,
                { a::LIMIT } = millis(bound.limit),
                { a::BOUND } = bound.by.as_str(),
                { a::ATTEMPT } = attempt,
                { a::QUEUE_WAIT } = Empty,
                { a::CAUSE } = Empty,
                { a::STAGE } = Empty,
                { a::LEDGER } = Empty,
                { a::KEEP } = Empty,
                { a::SAMPLING_PRIORITY } = Empty,
                { a::HTTP_METHOD } = Empty,
                { a::HTTP_ROUTE } = Empty,
                { a::HTTP_STATUS } = Empty,
                { a::RPC_SYSTEM } = Empty,
                { a::RPC_METHOD } = Empty,
                { a::RPC_STATUS } = Empty,
                { a::ERROR_TYPE } = Empty,
            )
        };
    }
    match parent {
        Some(parent) => span!(parent: parent,),
        None => span!(),
    }
}

/// The span that what `operation` begins belongs in: the current one, else, in a task that nobody has instrumented, that of the
/// nearest operation. `None` stands for the current one.
pub(super) fn around(operation: &Operation) -> Option<Span> {
    if !Span::current().is_none() {
        return None;
    }
    operation.nearest_slot().get::<OperationSpan>().map(|above| above.span.clone()).filter(|span| !span.is_disabled())
}

// === Attributes ===

/// Milliseconds with three decimals, which is what the clock is good for.
pub(crate) fn millis(span: Duration) -> f64 {
    span.as_micros() as f64 / 1_000.0
}

/// How long it waited in queues.
pub(crate) fn queued(ledger: &Ledger) -> Duration {
    let queues = ledger.entries().iter().filter(|entry| entry.stage == Stage::Queue && entry.part_of.is_none());
    queues.filter_map(|entry| Some(entry.ended?.since(entry.began))).sum()
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

fn method_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::PATCH => "PATCH",
        Method::TRACE => "TRACE",
        _ => "_OTHER",
    }
}

/// Whether the path of a remote procedure is short and plain enough for a name.
fn is_label(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/');
    (1..=128).contains(&path.len()) && path.bytes().all(plain) && path.matches('/').count() == 1
}
