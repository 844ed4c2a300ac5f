//! The seam to OpenTelemetry: the parent of a span, and what of it goes out.

use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::context::{Incoming, TRACEPARENT, TRACESTATE};

struct Reading<'i>(&'i Incoming);

#[derive(Default)]
struct Writing(Option<String>, Option<String>);

/// Makes `span` a child of what arrived, unless the application has read that itself: then its span, which is the current one,
/// belongs to the same trace and is the nearer parent.
pub(super) fn adopt(span: &Span, incoming: &Incoming) {
    if outgoing(&Span::current()).is_some_and(|current| current.trace() == incoming.trace()) {
        return;
    }
    // Fails where there is no tracer, or the span is not recorded. Then what arrived goes on as it came.
    let _ = span.set_parent(TraceContextPropagator::new().extract(&Reading(incoming)));
}

/// The trace context of `span`; `None` without a tracer.
pub(super) fn outgoing(span: &Span) -> Option<Incoming> {
    let context = span.context();
    if !context.span().span_context().is_valid() {
        return None;
    }
    let mut writing = Writing::default();
    TraceContextPropagator::new().inject_context(&context, &mut writing);
    Some(Incoming { parent: writing.0?, state: writing.1.filter(|state| !state.is_empty()) })
}

impl Extractor for Reading<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            TRACEPARENT => Some(&self.0.parent),
            TRACESTATE => self.0.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

impl Injector for Writing {
    fn set(&mut self, key: &str, value: String) {
        match key {
            TRACEPARENT => self.0 = Some(value),
            TRACESTATE => self.1 = Some(value),
            _ => {}
        }
    }
}

/// Gives a span that has begun another name, which a record of `otel.name` does not.
pub(super) fn rename(span: &Span, name: &str) {
    span.context().span().update_name(name.to_owned());
}
