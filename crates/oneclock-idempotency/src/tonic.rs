//! For tonic: a layer between services that take tonic's body, and what the status of a handler says of its run.
//!
//! Decides that only the handler's own word is proof (contract M4): a problem that it made itself, and never the status or the
//! error of a call that it made.

use std::error::Error as _;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tonic::Status;
use ::tonic::body::Body as TonicBody;
use ::tonic::server::NamedService;
use bytes::Bytes;
use http::{Extensions, Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use oneclock_http::{BoxError, Problem};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::Body;
use crate::endpoint::Below;
use crate::layer::Idempotency;
use crate::service::{Once, OnceFuture};
use crate::store::Store;

/// An [`Idempotency`] layer for tonic's servers, routes and services. Made by [`Idempotency::grpc_layer`].
pub struct GrpcLayer<St>(Idempotency<St>);

/// The service of a [`GrpcLayer`]. It is called as the service that it covers is, so that it can stand for it in a server.
pub struct GrpcOnce<S, St>(Once<Unwrapped<S>, St>);

/// The covered service, for a body that can be made anew.
#[derive(Clone, Debug)]
pub(crate) struct Unwrapped<S>(S);

/// tonic's body, which can be made from bytes.
#[derive(Debug)]
pub(crate) struct Remade(TonicBody);

// === What a status says ===

/// The problem that the handler's status was made of, if its source is one.
fn problem(status: &Status) -> Option<&Problem> {
    status.source()?.downcast_ref()
}

pub(crate) fn nothing_happened(extensions: &Extensions) -> bool {
    extensions.get::<Status>().and_then(problem).is_some_and(Problem::says_nothing_happened)
}

/// Takes the handler's status out of its answer, if there is a problem that says the same.
pub(crate) fn take_problem(extensions: &mut Extensions) -> Option<Problem> {
    let problem = extensions.get::<Status>().and_then(problem).cloned()?;
    extensions.remove::<Status>();
    Some(problem)
}

// === GrpcLayer ===

impl<St: Store> Idempotency<St> {
    /// The layer for what takes tonic's body: `Server::builder().layer(…)`, inside of the deadline's layer, or around one
    /// service. Where the body is axum's (`Routes::into_axum_router`) the layer itself is right.
    ///
    /// ```
    /// # use oneclock_idempotency::{Idempotency, MemoryStore};
    /// # fn main() -> Result<(), oneclock_idempotency::BadIdempotency> {
    /// let once = Idempotency::builder("charge", MemoryStore::new()).one_principal().required().build()?;
    /// let around_one_service = once.grpc_layer(); // .layer(ChargesServer::new(charges))
    /// # let _ = around_one_service; Ok(()) }
    /// ```
    pub fn grpc_layer(&self) -> GrpcLayer<St> {
        GrpcLayer(self.clone())
    }
}

impl<S, St> Layer<S> for GrpcLayer<St> {
    type Service = GrpcOnce<S, St>;

    fn layer(&self, inner: S) -> GrpcOnce<S, St> {
        GrpcOnce(Once::new(Unwrapped(inner), Arc::clone(&self.0.0), Below::Procedures))
    }
}

impl<S, St, A> Service<Request<TonicBody>> for GrpcOnce<S, St>
where
    St: Store,
    S: Service<Request<TonicBody>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = OnceFuture<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<TonicBody>) -> Self::Future {
        self.0.call(request.map(Remade))
    }
}

impl<S: NamedService, St> NamedService for GrpcOnce<S, St> {
    const NAME: &'static str = S::NAME;
}

// === Unwrapped ===

impl<S: Service<Request<TonicBody>>> Service<Request<Remade>> for Unwrapped<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Remade>) -> S::Future {
        self.0.call(request.map(|Remade(body)| body))
    }
}

// === Remade ===

impl From<Bytes> for Remade {
    fn from(bytes: Bytes) -> Self {
        Self(TonicBody::new(Full::new(bytes)))
    }
}

impl http_body::Body for Remade {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

// === Cloning, printing: whatever the store is ===

impl<St> Clone for GrpcLayer<St> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Clone, St> Clone for GrpcOnce<S, St> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<St> fmt::Debug for GrpcLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GrpcLayer").field(&self.0).finish()
    }
}

impl<S, St> fmt::Debug for GrpcOnce<S, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GrpcOnce").field(&self.0).finish()
    }
}
