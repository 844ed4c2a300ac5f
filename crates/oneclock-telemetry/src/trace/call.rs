//! What the span of a call says: what it was given, how it came out, and what of it goes to the far side.

use std::sync::Arc;

use oneclock::clock;
use oneclock::events::{CallBegan, Called, Fields};
use oneclock_core::{Cause, Deadline, Outcome};
use tracing::Span;
use tracing::field::{Empty, display};

use super::TARGET;
use super::attributes as a;
use super::context::{self, Incoming};
use super::span::{OperationSpan, around, is_error, millis, record_ending, record_error, record_keep};

/// Beside a call.
#[derive(Debug)]
pub(super) struct CallSpan {
    span: Span,
    within: Span, // whose context goes out if nobody records the call's own span
    incoming: Option<Arc<Incoming>>,
    deadline: Deadline,
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
        Self { span, within: around.unwrap_or_else(Span::current), incoming, deadline: call.budget.deadline }
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
        match called.ending {
            Some(ending) => {
                if ending.cause == Cause::Deadline {
                    record_keep(span);
                }
                if is_error(ending.cause) {
                    record_error(span, ending.reason().as_str(), Some(&ending));
                }
            }
            None if called.outcome != Outcome::Applied => record_error(span, called.outcome.as_str(), None),
            None => {}
        }
    }
}
