//! Spans: one for each request, one for each call that it makes, in one trace from hop to hop.
//!
//! Decides what a span says and when it is over. [`Spans`] is the observer: it makes a span for a request when the ingress layer
//! tells of it, and for a call, sends its trace context with the call, and closes spans with what their events say. So what was
//! refused on arrival has a span, and what died before its service was ready. [`SpanLayer`] stands inside the ingress layer: it
//! enters the span of a request while the handler and its body are polled, and reads the status of gRPC behind a body.
//!
//! Spans are `tracing`'s. With the feature `opentelemetry` and a `tracing-opentelemetry` layer they are OpenTelemetry's too,
//! with the names and the status rules of its conventions: a caller that left is no error, neither here nor there. Without
//! them a W3C trace context that arrives goes out again with our calls as it came, sampled or not, so that no trace ends here.
//! One that is malformed is as good as none.
//!
//! ```
//! use oneclock_core::Policy;
//! use oneclock_http::IngressLayer;
//! use oneclock_telemetry::trace::{SpanLayer, Spans};
//! use std::{sync::Arc, time::Duration};
//! use tower_layer::{Layer, Stack};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! oneclock::events::observe_globally(Arc::new(Spans::new()))?;
//! let policy = Policy::named("order").when_absent(Duration::from_millis(800)).build()?;
//! let layers = Stack::new(SpanLayer::new(), IngressLayer::new(policy)); // the ingress layer is outside
//! # let _ = layers; Ok(()) }
//! ```

mod call;
mod context;
#[cfg(feature = "opentelemetry")]
mod keep;
mod layer;
#[cfg(feature = "opentelemetry")]
mod otel;
pub(crate) mod span;
pub(crate) mod words;

pub mod attributes;

pub use context::trace_in;
#[cfg(feature = "opentelemetry")]
pub use keep::{KeepEnded, RecordAll};
pub use layer::{SpanBody, SpanFuture, SpanLayer, SpanService};
pub use span::span_of;

use oneclock::events::{AnswerHead, CallBegan, Event, Fields, Observer, RequestBegan, Slot, Target};

use call::CallSpan;
use span::OperationSpan;

/// The target of the spans, for filters: at level `INFO`.
pub const TARGET: &str = "oneclock";

/// Makes a span for each request and for each call, sends its trace context with the call, and closes spans with what their
/// events say.
///
/// It needs nothing to be set up before: a span that nobody records costs next to nothing.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Spans;

/// The trace that an operation or a call belongs to, by what stands in its slot: 32 hexadecimal digits. `None` where there is
/// none.
pub fn trace_of(slot: &Slot) -> Option<String> {
    slot.get::<OperationSpan>().and_then(OperationSpan::trace)
}

// === Spans ===

impl Spans {
    /// An observer that does this. Give it to [`observe_globally`](oneclock::events::observe_globally), with others in
    /// [`Several`](crate::Several).
    pub const fn new() -> Self {
        Self
    }
}

impl Observer for Spans {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Ended(ended) => {
                if let Some(span) = ended.slot.get::<OperationSpan>() {
                    span.ended(ended);
                }
            }
            Event::Called(called) => {
                if let Some(span) = called.slot.get::<CallSpan>() {
                    span.over(called);
                }
            }
            Event::Refused(refusal) => {
                if let Some(span) = refusal.slot.get::<OperationSpan>() {
                    span.refused(refusal);
                }
            }
            _ => {}
        }
    }

    fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
        Slot::of(OperationSpan::of_request(request))
    }

    fn begun(&self, call: &CallBegan<'_>) -> Slot {
        Slot::of(CallSpan::begin(call))
    }

    fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
        if let Some(span) = slot.get::<CallSpan>() {
            span.carry(fields);
        }
    }

    fn addressed(&self, slot: &Slot, target: &Target<'_>) {
        if let Some(span) = slot.get::<CallSpan>() {
            span.addressed(target);
        }
    }

    fn answered(&self, slot: &Slot, answer: &AnswerHead<'_>) {
        if let Some(span) = slot.get::<CallSpan>() {
            span.answered(answer);
        } else if let Some(span) = slot.get::<OperationSpan>() {
            span.answered(answer);
        }
    }
}
