//! Calls through somebody else's client service: each spends from the current operation, is told what is left, and is
//! cut off there, on head and body.
//!
//! The wait for the service below is stage `queue` (counted and cut, invariant I4), and the deadline is written after
//! it, at the last moment this layer has (contract E4). Below are pool, connect and TLS, which only a client of its own
//! can tell apart: [`Client`](crate::Client) does.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body::Body;
use oneclock::events::{Slot, Target};
use oneclock::{Call, EndOf, clock};
use oneclock_core::Stage;
use oneclock_core::retry::Attempt;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{BoundedBody, BoxError};
use crate::destination::Destination;
use crate::error::{CallError, seen_in};

/// Gives every call through the service below what its operation has left, tells the far side, and cuts the call off there,
/// on head and body.
///
/// The wait for the service below is stage `queue`, counted and cut. The deadline is written after it: pool, connect and TLS
/// lie further below and cannot be told apart from here; [`Client`](crate::Client) writes it after those. A layer that moves
/// requests to another task goes above this one, with a [`CarryLayer`](crate::CarryLayer) above itself; where answers begin
/// before their uploads are over, an [`EndUploadLayer`](crate::EndUploadLayer) goes below.
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use oneclock::Operation;
/// use oneclock_http::{Destination, EgressLayer};
/// use std::{convert::Infallible, time::Duration};
/// use tower::{ServiceBuilder, ServiceExt};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), oneclock_http::BoxError> {
///
/// let inventory = Destination::named("inventory").cap(Duration::from_millis(300)).build()?;
/// let client = ServiceBuilder::new().layer(EgressLayer::new(inventory)).service_fn(|request: Request<()>| async move {
///     let told = request.headers()["x-remaining-ms"].to_str().unwrap_or_default().to_owned();
///     Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from(told)))
/// });
///
/// let op = Operation::begin("order", Duration::from_millis(800));
/// let response = op.run(client.oneshot(Request::new(()))).await??;
/// let told = http_body_util::BodyExt::collect(response.into_body()).await?.to_bytes();
/// assert_eq!(told, "300");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct EgressLayer {
    destination: Destination,
}

/// In the extensions of a request: a limit of this one call, with all its attempts. It shortens what the destination's cap and
/// the operation leave, and never extends it (contract C1).
///
/// ```
/// # use oneclock_http::CallCap; use std::time::Duration;
/// let mut request = http::Request::get("/stock/7").body(())?;
/// request.extensions_mut().insert(CallCap(Duration::from_millis(50)));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCap(pub Duration);

/// The service of an [`EgressLayer`]. Always ready.
#[derive(Clone)]
pub struct Egress<S> {
    inner: S,
    destination: Destination,
}

pin_project! {
    /// The future of [`Egress`].
    #[must_use = "futures do nothing unless polled"]
    pub struct EgressFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        work: Work<S, S::Future, B>,
        #[pin]
        end: Option<EndOf>,
        call: Option<Call>,
        method: Method,
        destination: Destination,
    }
}

pin_project! {
    #[project = WorkProjection]
    enum Work<S, F, B> {
        NotBegun { error: Option<CallError> },
        Queued { inner: S, request: Option<Request<B>> },
        Running { #[pin] response: F },
        Over,
    }
}

// === EgressLayer ===

impl EgressLayer {
    /// A layer for calls to `destination`.
    pub fn new(destination: Destination) -> Self {
        Self { destination }
    }
}

impl<S> Layer<S> for EgressLayer {
    type Service = Egress<S>;

    fn layer(&self, inner: S) -> Egress<S> {
        Egress { inner, destination: self.destination.clone() }
    }
}

// === Egress ===

impl<S, B, A> Service<Request<B>> for Egress<S>
where
    S: Service<Request<B>, Response = Response<A>> + Clone,
    S::Error: Into<BoxError>,
    A: Body + Unpin + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<BoundedBody<A>>;
    type Error = CallError;
    type Future = EgressFuture<S, B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = request.method().clone();
        let operation = Destination::operation_of(request.extensions());
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next); // the one that may have been made ready
        let attempt = request.extensions().get::<Attempt>().copied();
        let (work, call) = match self.destination.begin_for(request.extensions(), operation, attempt) {
            Ok(call) => {
                if call.is_kept() {
                    let uri = request.uri();
                    call.addressed(&Target::new(method.as_str(), uri.host(), uri.port_u16()));
                }
                (Work::Queued { inner, request: Some(request) }, Some(call))
            }
            Err(not_begun) => (Work::NotBegun { error: Some(not_begun.into()) }, None),
        };
        EgressFuture { work, end: None, call, method, destination: self.destination.clone() }
    }
}

impl<S> fmt::Debug for Egress<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("destination", &self.destination).finish_non_exhaustive()
    }
}

// === EgressFuture ===

impl<S, B, A> Future for EgressFuture<S, B>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Error: Into<BoxError>,
    A: Body + Unpin + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Output = Result<Response<BoundedBody<A>>, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let WorkProjection::NotBegun { error } = this.work.as_mut().project() {
            return match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Pending, // polled after it was done
            };
        }
        let Some(call) = this.call.as_mut() else { return Poll::Pending };
        let polled = match this.work.as_mut().poll(cx, call, this.destination) {
            Poll::Ready(result) => result,
            Poll::Pending => {
                if this.end.is_none() {
                    this.end.set(Some(EndOf::or_at(call.operation().clone(), call.deadline())));
                }
                let Some(end) = this.end.as_mut().as_pin_mut() else { return Poll::Pending };
                let ending = ready!(end.poll(cx));
                let error = call.cut_off(call.ending().unwrap_or(ending));
                Err(error.into())
            }
        };
        this.end.set(None);
        this.work.set(Work::Over);
        let Some(call) = this.call.take() else { return Poll::Pending };
        Poll::Ready(match polled {
            Ok(Ok(response)) => this.destination.answered(call, this.method, response, cx),
            Ok(Err(error)) => {
                let error = error.into();
                let seen = seen_in(&*error, call.stage());
                Err(this.destination.failed(call, seen, error))
            }
            Err(error) => Err(error),
        })
    }
}

impl<S, B> Work<S, S::Future, B>
where
    S: Service<Request<B>>,
{
    /// The outer error is the call's own; the inner one is that of the service below.
    #[allow(clippy::type_complexity)]
    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        call: &mut Call,
        destination: &Destination,
    ) -> Poll<Result<Result<S::Response, S::Error>, CallError>> {
        loop {
            let response = match self.as_mut().project() {
                WorkProjection::Running { response } => return response.poll(cx).map(Ok),
                WorkProjection::NotBegun { .. } | WorkProjection::Over => return Poll::Pending,
                WorkProjection::Queued { inner, request } => {
                    match inner.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Ok(Err(error))),
                        Poll::Pending => {
                            if call.stage() != Stage::Queue {
                                call.enter(Stage::Queue);
                            }
                            return Poll::Pending;
                        }
                    }
                    let Some(mut request) = request.take() else { return Poll::Pending };
                    // They are of this call: a service in this process that passes on what it was asked with would make
                    // its own calls the same attempt.
                    request.extensions_mut().remove::<Attempt>();
                    request.extensions_mut().remove::<CallCap>();
                    request.extensions_mut().remove::<Slot>(); // and this is of the request that came
                    // Ready only now: what is left may be too little (contract E2, X6).
                    let now = clock::now();
                    if let Some(ending) = call.ending_at(now) {
                        return Poll::Ready(Err(call.cut_off(ending).into()));
                    }
                    if let Err(not_begun) = destination.write_head_at(call, request.headers_mut(), now) {
                        return Poll::Ready(Err(not_begun.into()));
                    }
                    call.enter_at(Stage::Wait, now);
                    inner.call(request)
                }
            };
            self.set(Work::Running { response });
        }
    }
}

impl<S, B> fmt::Debug for EgressFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressFuture").field("call", &self.call).finish_non_exhaustive()
    }
}
