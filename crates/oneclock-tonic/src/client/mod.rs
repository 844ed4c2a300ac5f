//! Calls through tonic's channel: each spends from the current operation, is told what is left, and is cut off there, on
//! head, messages and trailers.
//!
//! Decides nothing about deadlines: that is [`EgressLayer`]'s and [`RetryLayer`]'s, which are below. This puts them between
//! tonic's clients and their channel: the timeout that a request brought becomes the cap of its call, and what came of it
//! becomes a status.

mod answer;
mod below;
mod direct;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use oneclock_core::wire::writes;
use oneclock_http::{
    BoundedBody, BoxError, CallCap, CallError, Destination, Egress, EgressFuture, EgressLayer, EndUpload,
    EndUploadLayer, Retry, RetryFuture, RetryLayer, TiedAnswer,
};
use pin_project_lite::pin_project;
use tonic::Status;
use tonic::body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::fields;
use crate::status;
use below::Below;

pub use answer::ClientAnswer;
pub use direct::GrpcClient;

/// Gives every call of a tonic client what its operation has left, tells the far side, and cuts the call off there: on head,
/// messages and trailers, a stream as a whole (contract S1).
///
/// What is left is written as `grpc-timeout`, anew for each attempt, with no code in handlers. A timeout of the request's own
/// ([`tonic::Request::set_timeout`]) can only shorten it. Waiting for the channel to become ready, its buffer and connecting
/// are counted and cut off (invariant I4). If the destination has a retry policy, calls are tried again by it, inside the
/// same budget; what repeating a call does has to be said, since every gRPC call is a `POST`: with
/// [`RetryPolicy::effect`](oneclock_core::retry::RetryPolicy) for a destination, or with an
/// [`Effect`](oneclock_core::Effect) in the extensions of one request.
///
/// Every error is a [`Status`] made here: `DEADLINE_EXCEEDED` if our own deadline has passed, whatever the far side or the
/// connection said (contract X2). [`call_error`](crate::call_error), [`answered`](crate::answered) and
/// [`outcome`](crate::outcome) say more about it.
///
/// ```no_run
/// # use std::time::Duration;
/// use oneclock_tonic::{ClientLayer, destination};
/// use tonic::transport::Endpoint;
/// use tonic_health::pb::health_client::HealthClient;
/// use tower::ServiceBuilder;
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let channel = Endpoint::from_static("http://pricing:50051").connect_lazy();
/// let pricing = destination("pricing").cap(Duration::from_millis(300)).build()?;
/// let mut client = HealthClient::new(ServiceBuilder::new().layer(ClientLayer::new(pricing)).service(channel));
/// # Ok(()) }
/// ```
///
/// # What a channel cannot tell
/// - The fields of a call are fixed before the channel looks for its connection. The far side is told what was left then;
///   the time that a cold connection takes is not taken off (contract E4), only counted here. Where connecting is slow, give
///   the destination a reserve, or take [`GrpcClient`], which can tell.
/// - In the ledger everything up to the head is one stage, `wait`.
///
/// # Cancel safety
/// Dropping a call, or the stream of its answer, resets it with `CANCEL`, unless its upload is stuck because the far side takes
/// nothing (flow control): the connection does not ask such an upload for more, so it cannot be told that the call is over,
/// and the stream stays open until the far side reads on, resets it, or the connection ends. The call's own end is not held up
/// by that, and its event is sent from a guard.
#[derive(Clone, Debug)]
pub struct ClientLayer {
    destination: Destination,
}

/// The service of a [`ClientLayer`], for the `new` of a generated client. Always ready.
#[derive(Clone)]
pub struct ClientService<S> {
    once: Once<S>,
    retried: Option<Retry<Once<S>>>,
}

/// One attempt.
type Once<S> = Egress<EndUpload<Below<S>>>;

pin_project! {
    /// The future of [`ClientService`].
    #[must_use = "futures do nothing unless polled"]
    pub struct ClientFuture<F, A> {
        #[pin]
        call: Calling<F, A>,
    }
}

pin_project! {
    #[project = CallingProjection]
    enum Calling<F, A> {
        Once { #[pin] call: F },
        Retried { #[pin] call: RetryFuture<BoundedBody<A>> },
    }
}

// === ClientLayer ===

impl ClientLayer {
    /// A layer for calls to `destination`, which [`destination()`](crate::destination()) begins. One that was begun
    /// elsewhere is told `grpc-timeout` all the same, beside the fields that it is said to understand
    /// ([`also_tells`](oneclock_http::DestinationBuilder::also_tells)): without it the far side would know nothing.
    pub fn new(destination: Destination) -> Self {
        Self { destination: destination.also_tells(&writes::grpc()) }
    }
}

impl<S: Clone> Layer<S> for ClientLayer {
    type Service = ClientService<S>;

    fn layer(&self, inner: S) -> ClientService<S> {
        let once = EgressLayer::new(self.destination.clone()).layer(EndUploadLayer.layer(Below::new(inner)));
        let policy = self.destination.retries();
        let retried = policy.map(|_| RetryLayer::new(self.destination.clone()).layer(once.clone()));
        ClientService { once, retried }
    }
}

// === ClientService ===

impl<S, A> Service<Request<Body>> for ClientService<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    A: http_body::Body + Unpin + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<ClientAnswer<TiedAnswer<A>>>;
    type Error = Status;
    type Future = ClientFuture<EgressFuture<EndUpload<Below<S>>, Body>, TiedAnswer<A>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        cap_by_timeout(&mut request);
        let call = match &mut self.retried {
            Some(retried) => Calling::Retried { call: retried.call(request) },
            None => Calling::Once { call: self.once.call(request) },
        };
        ClientFuture { call }
    }
}

/// The timeout that a request brought becomes the cap of its call (contract C1).
fn cap_by_timeout(request: &mut Request<Body>) {
    if let Some(cap) = fields::take_timeout(request.headers_mut()) {
        let before = request.extensions().get::<CallCap>();
        let cap = before.map_or(cap, |before| before.0.min(cap));
        request.extensions_mut().insert(CallCap(cap));
    }
}

impl<S> fmt::Debug for ClientService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientService").field("call", &self.once).finish_non_exhaustive()
    }
}

// === ClientFuture ===

impl<F, A> Future for ClientFuture<F, A>
where
    F: Future<Output = Result<Response<BoundedBody<A>>, CallError>>,
{
    type Output = Result<Response<ClientAnswer<A>>, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match self.project().call.project() {
            CallingProjection::Once { call } => ready!(call.poll(cx)),
            CallingProjection::Retried { call } => ready!(call.poll(cx)),
        };
        Poll::Ready(match result {
            Ok(response) => answer::head(response),
            Err(error) => Err(status::of_call(error)),
        })
    }
}

impl<F, A> fmt::Debug for ClientFuture<F, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientFuture").finish_non_exhaustive()
    }
}
