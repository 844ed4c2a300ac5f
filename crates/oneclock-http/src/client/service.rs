//! The client as a `tower` service, so that layers made for any service (limits, retries) go around it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use http_body::Body;
use tower_service::Service;

use super::{Answer, Client};
use crate::body::BoxError;
use crate::destination::Destination;
use crate::error::CallError;

/// The future of a [`Client`] called as a `tower` service.
#[must_use = "futures do nothing unless polled"]
pub struct ClientFuture(Pin<Box<dyn Future<Output = Result<Answer, CallError>> + Send>>);

/// [`Client::request`] for `tower`. Always ready: the wait for a connection is a stage of the call, where it is counted and
/// cut (invariant I4).
///
/// The operation is the one that is current where `call` runs, else the one in the request's extensions: a layer that moves
/// requests to a task of its own (`Buffer`) has to be given them like that. It needs no [`EgressLayer`](crate::EgressLayer),
/// which is for the clients of others. A layer that repeats calls belongs outside, so that each attempt is a call of its
/// own, with what is left then.
///
/// ```
/// # use std::time::Duration; use bytes::Bytes; use http::Request; use http_body_util::Empty;
/// use oneclock::Operation;
/// use oneclock_http::{BoxError, Client, collect};
/// use tower::{ServiceBuilder, ServiceExt};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// # let peer = oneclock_test::peer::echo_headers(oneclock_test::Protocol::Http1)?;
/// # let uri = peer.url();
///
/// let inventory = Client::builder("inventory", uri).build()?;
/// let inventory = ServiceBuilder::new().concurrency_limit(8).service(inventory);
///
/// let op = Operation::begin("order", Duration::from_secs(5));
/// let answer = op.run(inventory.oneshot(Request::get("/stock/7").body(Empty::<Bytes>::new())?)).await??;
/// let stock = collect(answer.into_body(), 64 * 1024).await?;
/// # assert!(stock.starts_with(b"{"));
/// # Ok(()) }
/// ```
impl<B> Service<Request<B>> for Client
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = CallError;
    type Future = ClientFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ClientFuture {
        let inner = self.0.clone();
        let operation = Destination::operation_of(request.extensions());
        ClientFuture(Box::pin(async move { inner.call(operation, Ok(request)).await }))
    }
}

impl Future for ClientFuture {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ClientFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientFuture").finish_non_exhaustive()
    }
}
