//! What a tonic service answers, before the layer writes it for the caller.
//!
//! Decides whose words a status is. One that stands for something of ours (a [`Problem`], a call that was cut off) goes to
//! the layer as a problem, which it writes briefly for outsiders and in full inside the trust boundary. One that the far side
//! of a call gave says what that far side knows: a part never speaks for the whole, so nothing of it may say that the
//! whole was not started or when to come again.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use oneclock_core::wire::names as wire;
use oneclock_http::{CallError, Problem};
use pin_project_lite::pin_project;
use tonic::{Code, Status};

use crate::fields::{self, DETAILS, PUSHBACK, RETRIED};
use crate::status::{Answered, Part, find, write};

pin_project! {
    /// The future of a tonic service below a [`ServerLayer`](crate::ServerLayer).
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct GrpcFuture<F> {
        #[pin]
        inner: F,
    }
}

/// The body of a tonic service's answer.
#[derive(Debug)]
#[must_use = "bodies do nothing unless polled"]
pub struct GrpcAnswer<A>(A);

// === GrpcFuture ===

impl<F> GrpcFuture<F> {
    pub(super) fn new(inner: F) -> Self {
        Self { inner }
    }
}

impl<F, A, E> Future for GrpcFuture<F>
where
    F: Future<Output = Result<Response<A>, E>>,
{
    type Output = Result<Response<GrpcAnswer<A>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.project().inner.poll(cx))?;
        let headers = response.headers_mut();
        headers.remove(RETRIED); // the layer's to say
        let part = Part::take(headers);
        let problem = match response.extensions().get::<Status>() {
            Some(status) => problem_of(status),
            None => part.map(Part::problem), // its source was lost on the way
        };
        if let Some(problem) = problem {
            for stale in [DETAILS, PUSHBACK] {
                response.headers_mut().remove(stale);
            }
            response.extensions_mut().insert(problem);
        }
        Poll::Ready(Ok(response.map(GrpcAnswer)))
    }
}

/// The problem that a status stands for, if it is not the service's own word.
fn problem_of(status: &Status) -> Option<Problem> {
    let source = status.source()?;
    if let Some(problem) = source.downcast_ref::<Problem>() {
        return Some(problem.clone());
    }
    if let Some(answered) = find::<Answered>(source) {
        return answered.part(status.code()).map(|_| answered.problem());
    }
    // Something it called was out of time before we were, and never `UNAVAILABLE`, which callers repeat (contract X5).
    if status.code() == Code::DeadlineExceeded && find::<CallError>(source).is_some_and(|call| call.stopped().is_none())
    {
        return Some(Problem::call_timed_out());
    }
    // What it was is said by the same rule as for handlers of HTTP.
    says_only_that_it_failed(status.code()).then(|| Problem::known(status)).flatten()
}

/// A service that says `NOT_FOUND` because a call failed has decided what it answers.
fn says_only_that_it_failed(code: Code) -> bool {
    use Code::{Cancelled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable, Unknown};
    matches!(code, Cancelled | DeadlineExceeded | Internal | ResourceExhausted | Unavailable | Unknown)
}

// === GrpcAnswer ===

impl<A> Body for GrpcAnswer<A>
where
    A: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = A::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, A::Error>>> {
        let mut frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            clean(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A status that ends a stream. tonic has written it already, without its source, so what it was is known from the mark that
/// [`ClientLayer`](crate::ClientLayer) left on it. Whether the caller is trusted is not known here: it is written as for
/// outsiders.
fn clean(trailers: &mut HeaderMap) {
    for not_the_handlers in wire::OURS_TO_SAY {
        trailers.remove(not_the_handlers);
    }
    let code = fields::code(trailers).unwrap_or(Code::Ok);
    if let Some(part) = Part::take(trailers).filter(|_| says_only_that_it_failed(code)) {
        for stale in [DETAILS, PUSHBACK] {
            trailers.remove(stale);
        }
        write(&part.problem(), trailers);
    }
}
