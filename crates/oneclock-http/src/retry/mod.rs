//! Trying a call again over HTTP: each attempt is a call of its own, told what is left then and marked as what it is.
//!
//! Whether and when is `oneclock_core::retry`'s decision, the loop is `oneclock::Retries`'s; this decides what of a request
//! can be sent again (`replay`) and what an answer says of that (`judge`). Contract R1 to R9, invariants I9, I10.
//!
//! Nothing is tried again once the head of an answer was handed on: whatever happens to its body then is the caller's to
//! know (R6).

pub(crate) mod judge;
mod replay;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use oneclock::{EndOf, NotBegun, Operation, Retries, WhyNot};
use oneclock_core::Outcome;
use oneclock_core::retry::{Attempt, Stop, Tried};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::BoxError;
use crate::destination::Destination;
use crate::error::{CallError, CallGaveUp};
use replay::Kept;

pub use replay::Replay;

/// Tries calls through the service below again, by the policy of a destination
/// ([`DestinationBuilder::retry`](crate::DestinationBuilder::retry)).
///
/// Below it belongs what makes one call: an [`EgressLayer`](crate::EgressLayer) for the same destination over a client of
/// somebody else's, so that each attempt is a call of its own. [`ClientBuilder::retry`](crate::ClientBuilder::retry) does
/// all of it for our own client. Without a policy it passes requests on.
///
/// What a request does when it is repeated follows from its method and its `idempotency-key`; an
/// [`Effect`](oneclock_core::Effect) in its extensions says it better.
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use oneclock::Operation;
/// use oneclock_core::retry::RetryPolicy;
/// use oneclock_http::{Destination, EgressLayer, Replay, RetryLayer};
/// use std::{convert::Infallible, sync::atomic::{AtomicU32, Ordering}, time::Duration};
/// use tower::{ServiceBuilder, ServiceExt};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), oneclock_http::BoxError> {
///
/// let policy = RetryPolicy::new().attempts(3).per_try(Duration::from_millis(100)).build()?;
/// let inventory = Destination::named("inventory").retry(policy).build()?;
/// # static CALLS: AtomicU32 = AtomicU32::new(0);
/// let client = ServiceBuilder::new()
///     .layer(RetryLayer::new(inventory.clone()))
///     .layer(EgressLayer::new(inventory))
///     .service_fn(|_: Request<Replay>| async {
///         let status = if CALLS.fetch_add(1, Ordering::Relaxed) < 2 { 503 } else { 200 };
///         Response::builder().status(status).body(Full::<bytes::Bytes>::default())
///     });
///
/// let op = Operation::begin("order", Duration::from_millis(800));
/// let response = op.run(client.oneshot(Request::get("/stock/7").body(Full::<bytes::Bytes>::default())?)).await??;
/// assert_eq!(response.status(), 200);
/// # Ok(()) }
/// ```
///
/// # Differences from tower's `retry`
/// That counts attempts, and knows neither what is left nor what is known of the far side; its budget is filled by requests,
/// so it goes on retrying when nothing succeeds any more.
#[derive(Clone, Debug)]
pub struct RetryLayer {
    destination: Destination,
}

/// The service of a [`RetryLayer`]. Always ready: that the service below is, is waited for in each attempt.
#[derive(Clone)]
pub struct Retry<S> {
    inner: S,
    destination: Destination,
}

/// The future of [`Retry`].
#[must_use = "futures do nothing unless polled"]
pub struct RetryFuture<A>(Pin<Box<dyn Future<Output = Result<Response<A>, CallError>> + Send>>);

/// In the extensions of an answer that is a failure and was not tried again: how often it was tried, and why no more. Only
/// from a destination with a retry policy.
///
/// ```no_run
/// # async fn f(inventory: oneclock_http::Client) -> Result<(), oneclock_http::CallError> {
/// let answer = inventory.get("/stock/7").await?;
/// if let Some(gave_up) = answer.extensions().get::<oneclock_http::AnswerGivenUp>() {
///     println!("{} after {} attempts: {}", answer.status(), gave_up.attempts, gave_up.why);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerGivenUp {
    /// How many attempts were made.
    pub attempts: u32,
    /// Why there was no further one.
    pub why: Stop,
}

/// Makes one call after another with `send`, until there is no point in another. The operation is that of each call.
pub(crate) async fn drive<B, A, F>(
    destination: &Destination,
    retries: &Retries,
    operation: Operation,
    request: Request<B>,
    mut send: impl FnMut(Attempt, Request<Replay>) -> F,
) -> Result<Response<A>, CallError>
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
    F: Future<Output = Result<Response<A>, CallError>>,
{
    let (mut head, body) = request.into_parts();
    head.extensions.insert(operation.clone()); // for the call, should none be current
    let effect = judge::effect_of(&head, retries.policy());
    let kept = Kept::new(body, retries.policy().replay());
    let attempt = |attempt: Attempt| {
        let mut request = Request::from_parts(head.clone(), kept.body());
        request.extensions_mut().insert(attempt);
        let sent = send(attempt, request);
        async { sent.await.map(Response::into_parts) }
    };
    let judged = |result: &Result<_, _>| {
        let tried: Tried = match result {
            Ok((head, _)) => judge::answered(destination, &effect, head),
            Err(error) => judge::failed(error),
        };
        tried.replayable(kept.is_whole())
    };
    let ask = destination.ask_for(&head.extensions, &operation)?;
    let driven = retries.drive(&operation, ask, &effect, attempt, judged).await?;
    let (attempts, why) = (driven.attempts, driven.why);
    match driven.result {
        Ok((mut head, body)) => {
            if why != Stop::Done {
                head.extensions.insert(AnswerGivenUp { attempts, why });
            }
            Ok(Response::from_parts(head, body))
        }
        Err(last) if attempts > 1 || says_something(why) => {
            Err(CallError::GaveUp(Box::new(CallGaveUp { attempts, why, last })))
        }
        Err(last) => Err(last),
    }
}

/// Whether it is worth saying why a first attempt was the last one: something else kept it from being repeated than what it
/// does and that it was out of time itself.
fn says_something(why: Stop) -> bool {
    match why {
        Stop::Effect { outcome } => matches!(outcome, Outcome::Unknown { .. }),
        Stop::OutOfTime { remaining, .. } => !remaining.is_zero(),
        Stop::PushedBack { .. } | Stop::NoTokens | Stop::NotReplayable | Stop::SwitchedOff | Stop::HopAbove { .. } => {
            true
        }
        _ => false,
    }
}

// === RetryLayer ===

impl RetryLayer {
    /// A layer for calls to `destination`, by its policy.
    pub fn new(destination: Destination) -> Self {
        Self { destination }
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry { inner, destination: self.destination.clone() }
    }
}

// === Retry ===

impl<S, B, A> Service<Request<B>> for Retry<S>
where
    S: Service<Request<Replay>, Response = Response<A>, Error = CallError> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
    A: Send,
{
    type Response = Response<A>;
    type Error = CallError;
    type Future = RetryFuture<A>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> RetryFuture<A> {
        let (inner, destination) = (self.inner.clone(), self.destination.clone());
        let operation = Destination::operation_of(request.extensions());
        RetryFuture(Box::pin(async move {
            let retries = destination.retries().filter(|_| request.extensions().get::<Attempt>().is_none());
            let Some(retries) = retries else {
                let (head, body) = request.into_parts();
                let request = Request::from_parts(head, Kept::new(body, 0).body());
                let mut inner = inner;
                poll_fn(|cx| inner.poll_ready(cx)).await?;
                return inner.call(request).await;
            };
            let operation = destination.operation(operation)?;
            let (by, called) = (operation.clone(), destination.clone());
            let send = move |attempt, request| made_ready(inner.clone(), by.clone(), called.clone(), attempt, request);
            drive(&destination, retries, operation, request, send).await
        }))
    }
}

/// Calls `inner` once it is ready, if that is before the end of the attempt.
async fn made_ready<S, A>(
    mut inner: S,
    operation: Operation,
    destination: Destination,
    attempt: Attempt,
    request: Request<Replay>,
) -> Result<Response<A>, CallError>
where
    S: Service<Request<Replay>, Response = Response<A>, Error = CallError>,
{
    let mut end = pin!(EndOf::or_at(operation.clone(), attempt.budget.deadline));
    let ready = poll_fn(|cx| match inner.poll_ready(cx) {
        Poll::Ready(ready) => Poll::Ready(Ok(ready)),
        Poll::Pending => end.as_mut().poll(cx).map(Err),
    });
    match ready.await {
        Ok(ready) => ready?,
        Err(ending) => {
            let name = destination.name().clone();
            return Err(NotBegun::told(&operation, name, WhyNot::Ended(ending)).into());
        }
    }
    inner.call(request).await
}

impl<S> fmt::Debug for Retry<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("destination", &self.destination).finish_non_exhaustive()
    }
}

// === RetryFuture ===

impl<A> Future for RetryFuture<A> {
    type Output = Result<Response<A>, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<A> fmt::Debug for RetryFuture<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryFuture").finish_non_exhaustive()
    }
}
