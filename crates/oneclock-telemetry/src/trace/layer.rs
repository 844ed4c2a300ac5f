//! The layer in which the span of a request is the current one.
//!
//! Decides where the span is entered: while the handler and its body are polled, and while they are dropped. It makes none: the
//! span begins where the request arrives, and its end is the operation's, which a handler that is dropped has too.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use oneclock::Operation;
use oneclock::events::Slot;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;
use tracing::instrument::Instrumented;

use super::span::OperationSpan;

/// Enters the span of each request, so that what the handler logs and begins belongs to it, and reads the status of gRPC in
/// trailers. Put it inside the ingress layer, and let [`Spans`](super::Spans) observe, which makes the span when the request
/// arrives, and closes it. Without this layer there are the same spans, in which nothing of the handler's own is recorded.
///
/// In an axum router: `.layer(SpanLayer::new()).layer(policy.layer())`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SpanLayer;

/// The service of a [`SpanLayer`].
#[derive(Clone, Debug)]
pub struct SpanService<S>(S);

pin_project! {
    /// The future of a [`SpanService`].
    #[must_use = "futures do nothing unless polled"]
    pub struct SpanFuture<F> {
        #[pin]
        handler: Instrumented<F>,
        slot: Slot,
    }
}

pin_project! {
    /// A response's body, polled and dropped in the span of its request.
    pub struct SpanBody<A> {
        #[pin]
        body: Instrumented<Inner<A>>,
        slot: Slot,
    }
}

pin_project! {
    struct Inner<A> {
        #[pin]
        body: A,
    }
}

static MISPLACED: AtomicBool = AtomicBool::new(false);

// === SpanLayer ===

impl SpanLayer {
    /// The layer.
    pub const fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for SpanLayer {
    type Service = SpanService<S>;

    fn layer(&self, inner: S) -> SpanService<S> {
        SpanService(inner)
    }
}

// === SpanService ===

impl<S, B, A> Service<Request<B>> for SpanService<S>
where
    S: Service<Request<B>, Response = Response<A>>,
{
    type Response = Response<SpanBody<A>>;
    type Error = S::Error;
    type Future = SpanFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let slot = slot_of(&request);
        let span = slot.get().map(OperationSpan::span).cloned().unwrap_or_else(tracing::Span::none);
        let handler = span.in_scope(|| self.0.call(request));
        SpanFuture { handler: handler.instrument(span), slot }
    }
}

/// What stands beside the operation of this request. Empty where there is no operation, or nobody keeps anything.
fn slot_of<B>(request: &Request<B>) -> Slot {
    let Some(operation) = Operation::current() else {
        if !MISPLACED.swap(true, Ordering::Relaxed) {
            tracing::warn!("a SpanLayer outside of the ingress layer has no spans to enter: put it inside");
        }
        return Slot::default();
    };
    // Of several ingress layers the outermost has it.
    operation.slot().or_else(|| request.extensions().get()).cloned().unwrap_or_default()
}

// === SpanFuture ===

impl<F, A, E> Future for SpanFuture<F>
where
    F: Future<Output = Result<Response<A>, E>>,
{
    type Output = Result<Response<SpanBody<A>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let span = this.handler.span().clone();
        let response = ready!(this.handler.poll(cx))?;
        let (head, body) = response.into_parts();
        let body = SpanBody { body: Inner { body }.instrument(span), slot: this.slot.clone() };
        Poll::Ready(Ok(Response::from_parts(head, body)))
    }
}

impl<F> fmt::Debug for SpanFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanFuture").field("span", self.handler.span()).finish_non_exhaustive()
    }
}

// === SpanBody ===

impl<A: Body> Body for SpanBody<A> {
    type Data = A::Data;
    type Error = A::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let span = this.body.span().clone();
        let _entered = span.enter();
        let frame = ready!(this.body.inner_pin_mut().project().body.poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
            && let Some(kept) = this.slot.get::<OperationSpan>()
        {
            kept.rpc_status(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.inner().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.inner().body.size_hint()
    }
}

impl<A> fmt::Debug for SpanBody<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanBody").field("span", self.body.span()).finish_non_exhaustive()
    }
}
