//! The service behind the ingress layer: which way a request goes, and that no answer is an answer, too.
//!
//! Decides nothing about time, and not which client is asked ([`to`](crate::to)). What an upstream does not answer is told by
//! [`Problem`], in the words of whoever asked: 502 where the call failed, 504 where it was out of time, a status of gRPC (contract
//! X5). Never a success that nobody gave. It is 502 also where nobody could be reached and nothing was sent, which the document
//! says to callers of ours (`outcome`): a 503 that gives none of the contract's reasons is load to them, and their breakers would
//! not count it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use oneclock_core::Trust;
use oneclock_http::{Problem, Upload};
use tower_service::Service;

use crate::access::Note;
use crate::answer::Forwarded;
use crate::head;
use crate::keyed::{Keyed, Sent};
use crate::to::To;

/// What the ingress layer hands on.
type Asked = Request<Upload<Incoming>>;

/// Forwards the requests of one route. Always ready.
#[derive(Clone, Debug)]
pub(crate) struct Forward(Arc<Way>);

#[derive(Debug)]
enum Way {
    /// No route takes it.
    Nowhere,
    To(To),
    /// Once for each idempotency key.
    Keyed(Keyed),
}

/// The future of [`Forward`].
#[must_use = "futures do nothing unless polled"]
pub(crate) struct ForwardFuture(Pin<Box<dyn Future<Output = Result<Response<Forwarded>, Infallible>> + Send>>);

// === Forward ===

impl Forward {
    /// To an upstream.
    pub(crate) fn to(to: To) -> Self {
        Self(Arc::new(Way::To(to)))
    }

    /// To an upstream, once for each idempotency key.
    pub(crate) fn once(keyed: Keyed) -> Self {
        Self(Arc::new(Way::Keyed(keyed)))
    }

    /// The one for requests that no route takes.
    pub(crate) fn nowhere() -> Self {
        Self(Arc::new(Way::Nowhere))
    }
}

impl Service<Asked> for Forward {
    type Response = Response<Forwarded>;
    type Error = Infallible; // no answer is an answer, too: a problem
    type Future = ForwardFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Asked) -> ForwardFuture {
        let way = Arc::clone(&self.0);
        let note = Note::of(request.extensions());
        ForwardFuture(Box::pin(async move {
            let answer = match (head::refused(&request), &*way) {
                (Some(why), _) => head::last(problem(&why), request.version()),
                (None, Way::Nowhere) => problem(&nowhere(&request)),
                (None, Way::To(to)) => to.answer(request.map(Sent::from)).await,
                (None, Way::Keyed(keyed)) => Box::pin(keyed.answer(request)).await, // what is rare is boxed: futures are moved
            };
            if let Some(problem) = answer.extensions().get() {
                note.says(problem);
            }
            Ok(answer.map(|body| body.noted(note)))
        }))
    }
}

/// A gRPC client takes "not found" for an answer of the method: that there is no such method has a status of its own.
fn nowhere(request: &Asked) -> Problem {
    const UNIMPLEMENTED: u8 = 12;
    let problem = Problem::with_status(StatusCode::NOT_FOUND, "no route takes this request");
    problem.typed("no_route", UNIMPLEMENTED).detail(format!("{} {}", request.method(), request.uri().path()))
}

/// The answer that says it.
pub(crate) fn problem(problem: &Problem) -> Response<Forwarded> {
    let (mut head, _) = problem.to_response(Trust::Outside).into_parts();
    head.extensions.insert(problem.clone()); // the ingress layer writes the body
    Response::from_parts(head, Forwarded::nothing())
}

// === ForwardFuture ===

impl Future for ForwardFuture {
    type Output = Result<Response<Forwarded>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl std::fmt::Debug for ForwardFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardFuture").finish_non_exhaustive()
    }
}
