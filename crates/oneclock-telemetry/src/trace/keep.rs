//! Keeping what ran out of time, whatever the head sampler said.
//!
//! Decides that a span that must be kept ([`attributes::KEEP`](super::attributes::KEEP)) is exported although its trace is not
//! sampled. A head sampler decides before anybody knows how a request ends, so this takes two parts: [`RecordAll`] makes spans
//! that are not sampled be recorded, which costs their memory, and [`KeepEnded`] lets those through that must be kept. What is
//! then exported are the spans of operations and calls that ended by a deadline, with their attributes and their parents'
//! ids, and not the rest of their trace. For whole traces sample at the tail, in a collector.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{Link, SpanContext, SpanKind, TraceFlags, TraceId};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample, Span, SpanData, SpanProcessor};

use super::attributes::KEEP;

/// Samples as the sampler inside does, and has everything else recorded, so that [`KeepEnded`] can look at its end. What goes
/// out with calls stays as sampled or not as it was.
#[derive(Clone, Debug)]
pub struct RecordAll<S>(pub S);

/// Hands sampled spans to the processor inside, and those that must be kept.
#[derive(Debug)]
pub struct KeepEnded<P>(pub P);

impl<S: ShouldSample + Clone + 'static> ShouldSample for RecordAll<S> {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let mut result = self.0.should_sample(parent, trace, name, kind, attributes, links);
        if result.decision == SamplingDecision::Drop {
            result.decision = SamplingDecision::RecordOnly;
        }
        result
    }
}

impl<P: SpanProcessor> SpanProcessor for KeepEnded<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, mut span: SpanData) {
        if !span.span_context.is_sampled() {
            if !span.attributes.iter().any(|kept| kept.key.as_str() == KEEP && kept.value == Value::Bool(true)) {
                return;
            }
            let was = &span.span_context;
            let flags = was.trace_flags() | TraceFlags::SAMPLED; // processors and collectors drop it otherwise
            let (trace, id, state) = (was.trace_id(), was.span_id(), was.trace_state().clone());
            span.span_context = SpanContext::new(trace, id, flags, was.is_remote(), state);
        }
        self.0.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}
