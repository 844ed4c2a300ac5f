//! Between our layers and the channel: tonic's body for any of ours, and what the channel's errors mean.
//!
//! Decides what only somebody who knows tonic can tell: a channel that could not connect has sent nothing.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use oneclock::NotConnected;
use oneclock_http::BoxError;
use pin_project_lite::pin_project;
use tonic::ConnectError;
use tonic::body::Body;
use tower_service::Service;

use crate::status::find;

/// The channel, for bodies of ours.
#[derive(Clone, Debug)]
pub struct Below<S>(S);

pin_project! {
    /// The future of [`Below`].
    #[must_use = "futures do nothing unless polled"]
    pub struct BelowFuture<F> {
        #[pin]
        inner: F,
    }
}

impl<S> Below<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S, B, A> Service<Request<B>> for Below<S>
where
    S: Service<Request<Body>, Response = Response<A>>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<A>;
    type Error = BoxError;
    type Future = BelowFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(known)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        BelowFuture { inner: self.0.call(request.map(Body::new)) }
    }
}

impl<F, A, E> Future for BelowFuture<F>
where
    F: Future<Output = Result<Response<A>, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response<A>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx).map_err(known)
    }
}

fn known(error: impl Into<BoxError>) -> BoxError {
    let error = error.into();
    let source: &(dyn StdError + 'static) = &*error;
    if find::<ConnectError>(source).is_some() { NotConnected::because(error).into() } else { error }
}
