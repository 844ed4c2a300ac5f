//! What the span of a call says: what it was given, how it came out, and what of it goes to the far side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use oneclock::clock;
use oneclock::events::{AnswerHead, CallBegan, Called, Fields, Target};
use oneclock_core::{Cause, Deadline, Outcome};
use oneclock_http::grpc;
use tracing::Span;
use tracing::field::{Empty, display};

use super::TARGET;
use super::attributes as a;
use super::context::{self, Incoming};
use super::span::{OperationSpan, around};
use super::words::{
    NO_CODE, is_error, method_of, millis, name_of_code, of_grpc, record_ending, record_error, record_keep,
};

/// Beside a call.
#[derive(Debug)]
pub(super) struct CallSpan {
    span: Span,
    within: Span, // whose context goes out if nobody records the call's own span
    incoming: Option<Arc<Incoming>>,
    deadline: Deadline,
    status: AtomicU16, // of HTTP, as its answer has it; 0: none came
    rpc: AtomicBool,   // whether that is an answer of gRPC
    code: AtomicU16,   // of gRPC; NO_CODE: not known
}

// === CallSpan ===

impl CallSpan {
    pub(super) fn begin(call: &CallBegan<'_>) -> Self {
        let above = call.operation.nearest_slot().get::<OperationSpan>();
        let around = around(call.operation);
        let (remaining, bound) = (millis(call.budget.deadline.remaining(clock::now())), call.budget.bound);
        let attempt = i64::from(call.attempt);
        macro_rules! span {
            ($($parent:tt)*) => {
                tracing::info_span!(
                    target: TARGET, $($parent)*
                    "call",
                    otel.name = call.call.as_str(),
                    otel.kind = "client",
                    otel.status_code = Empty,
                    otel.status_description = Empty,
                    { a::REMAINING_AT_START } = remaining,
                    { a::REMAINING_AT_END } = Empty,
                    { a::LIMIT } = millis(bound.limit),
                    { a::BOUND } = bound.by.as_str(),
                    { a::LAYER } = call.downstream.as_str(),
                    { a::ATTEMPT } = attempt,
                    { a::HTTP_RESEND_COUNT } = Empty,
                    { a::CAUSE } = Empty,
                    { a::STAGE } = Empty,
                    { a::OUTCOME } = Empty,
                    { a::BELOW } = Empty,
                    { a::KEEP } = Empty,
                    { a::SAMPLING_PRIORITY } = Empty,
                    { a::HTTP_METHOD } = Empty,
                    { a::HTTP_STATUS } = Empty,
                    { a::SERVER_ADDRESS } = Empty,
                    { a::SERVER_PORT } = Empty,
                    { a::RPC_SYSTEM } = Empty,
                    { a::RPC_STATUS } = Empty,
                    { a::ERROR_TYPE } = Empty,
                )
            };
        }
        let span = match &around {
            Some(around) => span!(parent: around,),
            None => span!(),
        };
        if attempt > 1 {
            span.record(a::HTTP_RESEND_COUNT, attempt - 1);
        }
        let incoming = above.and_then(OperationSpan::incoming);
        let (within, deadline) = (around.unwrap_or_else(Span::current), call.budget.deadline);
        let (status, rpc, code) = (AtomicU16::new(0), AtomicBool::new(false), AtomicU16::new(NO_CODE));
        Self { span, within, incoming, deadline, status, rpc, code }
    }

    /// What it asks over HTTP.
    pub(super) fn addressed(&self, target: &Target<'_>) {
        self.span.record(a::HTTP_METHOD, method_of(target.method));
        if let Some(host) = target.host {
            self.span.record(a::SERVER_ADDRESS, host);
        }
        if let Some(port) = target.port {
            self.span.record(a::SERVER_PORT, i64::from(port));
        }
    }

    /// Its answer came with this head.
    pub(super) fn answered(&self, answer: &AnswerHead<'_>) {
        if self.span.is_disabled() {
            return;
        }
        self.status.store(answer.status, Ordering::Relaxed);
        let said = of_grpc(answer.fields);
        self.rpc.store(grpc::is_grpc(&said), Ordering::Relaxed);
        self.code.store(grpc::status(&said).map_or(NO_CODE, u16::from), Ordering::Relaxed);
    }

    pub(super) fn carry(&self, fields: &mut dyn Fields) {
        let span = if self.span.is_disabled() { &self.within } else { &self.span };
        context::write(span, self.incoming.as_deref(), fields);
    }

    pub(super) fn over(&self, called: &Called) {
        let span = &self.span;
        if span.is_disabled() {
            return;
        }
        span.record(a::REMAINING_AT_END, millis(self.deadline.remaining(clock::now())));
        span.record(a::OUTCOME, called.outcome.as_str());
        if let Some(below) = &called.below {
            span.record(a::BELOW, display(below));
        }
        record_ending(span, called.ending);
        let failed = self.record_status(called);
        match called.ending {
            Some(ending) => {
                if ending.cause == Cause::Deadline {
                    record_keep(span);
                }
                if is_error(ending.cause) {
                    record_error(span, ending.reason().as_str(), Some(&ending));
                }
            }
            None => match failed {
                Some(status) => record_error(span, &status, None),
                None if called.outcome != Outcome::Applied => record_error(span, called.outcome.as_str(), None),
                None => {}
            },
        }
    }

    /// The status of its answer; returned if, to a client, that is one of a failure.
    fn record_status(&self, called: &Called) -> Option<String> {
        let (span, status) = (&self.span, self.status.load(Ordering::Relaxed));
        if self.rpc.load(Ordering::Relaxed) {
            span.record(a::RPC_SYSTEM, "grpc");
            let code = match self.code.load(Ordering::Relaxed) {
                // It stood in the trailers: of what ended there only the one that went well has had its effect.
                NO_CODE if called.ending.is_none() && called.outcome == Outcome::Applied => 0,
                code => code,
            };
            if let Some(name) = name_of_code(code) {
                span.record(a::RPC_STATUS, name);
            }
            if code != NO_CODE {
                return (code != 0).then(|| name_of_code(code).unwrap_or("_OTHER").to_owned());
            }
        }
        if status != 0 && !(status == 200 && self.rpc.load(Ordering::Relaxed)) {
            span.record(a::HTTP_STATUS, i64::from(status));
        }
        (status >= 400).then(|| status.to_string())
    }
}
