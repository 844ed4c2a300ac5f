//! The span of an operation: what it says at the beginning, of the answer, and at the end.
//!
//! Decides what of a request and of its end goes into it; how that is spelled, and what is an error, `words` decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use http::HeaderMap;
use oneclock::events::{AnswerHead, OperationEnded, Refusal, RequestBegan, Slot};
use oneclock::{Operation, clock};
use oneclock_core::{Bound, Budget, Cause, Ending, Reason};
use oneclock_http::{Route, grpc};
use tracing::Span;
use tracing::field::{Empty, display};

use super::TARGET;
use super::attributes as a;
use super::context::Incoming;
use super::words::{
    NO_CODE, SERVER_ERRORS, is_about_time, is_error, is_label, method_of, millis, name_of_code, of_grpc, queued,
    record_ending, record_error, record_keep,
};

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
    status: AtomicU16, // of HTTP, as the answer left; 0: none has
    code: AtomicU16,   // of gRPC; NO_CODE: not known
    over: AtomicBool,
}

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
    let begins = Begins::with(Some(operation.budget()), operation.attempt());
    let span = operation_span(&begins, operation.name().as_str(), "internal", around.as_ref());
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
    pub(super) fn of_request(request: &RequestBegan<'_>) -> Self {
        let incoming = Incoming::of(request.fields).map(Arc::new);
        let route = request.route.map(|route| route.as_str());
        // By what was matched, too: behind an ordinary route the content type is a claim, and the path is no method. What
        // matched nothing keeps its claim until its answer says otherwise.
        let rpc = request.method == "POST"
            && grpc::is_grpc(&of_grpc(request.fields))
            && route.is_none_or(|route| may_be_a_method(route, request.path));
        let method = request.path.trim_start_matches('/');
        let http = match route {
            Some(route) => format!("{} {route}", method_of(request.method)),
            None => method_of(request.method).to_owned(),
        };
        // Nobody but us answers what is refused: where nothing was matched, no service ever says that there is such a method.
        let is_known = route.is_some() || request.budget.is_some();
        let name = if rpc && is_known && is_label(method) { method } else { &http };
        let span = operation_span(&Begins::with(request.budget, request.attempt), name, "server", None);
        #[cfg(feature = "opentelemetry")]
        if let Some(incoming) = &incoming {
            super::otel::adopt(&span, incoming);
        }
        span.record(a::HTTP_METHOD, method_of(request.method));
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

    /// An answer leaves with this head.
    pub(super) fn answered(&self, answer: &AnswerHead<'_>) {
        self.status.store(answer.status, Ordering::Relaxed);
        if !self.is_rpc() {
            return;
        }
        let said = of_grpc(answer.fields);
        if !grpc::is_grpc(&said) {
            self.rpc.store(false, Ordering::Relaxed); // so its path was a caller's invention
            #[cfg(feature = "opentelemetry")]
            super::otel::rename(&self.span, &self.names.http);
        }
        self.rpc_status(&said);
    }

    /// Fields that may have the status of a call: the head, or the trailers.
    pub(super) fn rpc_status(&self, fields: &HeaderMap) {
        if self.is_rpc()
            && let Some(code) = grpc::status(fields)
        {
            self.code.store(code.into(), Ordering::Relaxed);
        }
    }

    /// It was refused on arrival, so that it is over as soon as it began.
    pub(super) fn refused(&self, refusal: &Refusal) {
        let span = &self.span;
        if span.is_disabled() || self.over.swap(true, Ordering::Relaxed) {
            return;
        }
        span.record(a::REMAINING_AT_START, millis(refusal.remaining));
        span.record(a::REMAINING_AT_END, millis(refusal.remaining));
        self.record_status(Some(refusal.reason));
        if is_about_time(refusal.reason) {
            record_keep(span);
        }
        self.record_failure(Some(refusal.reason));
        span.in_scope(|| ());
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
        span.record(a::QUEUE_WAIT, millis(queued(ended.ledger).unwrap_or_default()));
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
        if let Some(reason) = answered {
            self.span.record(a::REASON, reason.as_str());
        }
        if self.is_rpc() {
            self.span.record(a::RPC_SYSTEM, "grpc");
            self.span.record(a::RPC_METHOD, &*self.names.method);
            let code = match (self.code.load(Ordering::Relaxed), answered) {
                (NO_CODE, Some(reason)) => u16::from(reason.grpc_status()),
                (code, _) => code,
            };
            self.code.store(code, Ordering::Relaxed);
            if let Some(name) = name_of_code(code) {
                self.span.record(a::RPC_STATUS, name);
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
                let name = name_of_code(code).unwrap_or("_OTHER");
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

/// What a span says of an operation when it begins. Of one that is refused nothing is known.
struct Begins {
    remaining: Option<f64>,
    bound: Option<Bound>,
    attempt: i64,
}

impl Begins {
    fn with(budget: Option<Budget>, attempt: u32) -> Self {
        let remaining = budget.map(|budget| millis(budget.deadline.remaining(clock::now())));
        Self { remaining, bound: budget.map(|budget| budget.bound), attempt: i64::from(attempt) }
    }
}

fn operation_span(begins: &Begins, name: &str, kind: &str, parent: Option<&Span>) -> Span {
    let &Begins { remaining, bound, attempt } = begins;
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
                { a::LIMIT } = bound.map(|bound| millis(bound.limit)),
                { a::BOUND } = bound.map(|bound| bound.by.as_str()),
                { a::ATTEMPT } = attempt,
                { a::QUEUE_WAIT } = Empty,
                { a::CAUSE } = Empty,
                { a::STAGE } = Empty,
                { a::REASON } = Empty,
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
