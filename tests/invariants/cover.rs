//! Our layer for whichever way in, over a router or whatever stands between the two.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Request;
use oneclock_axum::{AxumService, ClockLayer};
use oneclock_core::wire::Conventions;
use oneclock_http::{BoxError, Ingress};
use oneclock_tonic::{ServerLayer, TonicService};
use tower::{Layer, Service};

#[derive(Clone, Debug)]
pub(crate) enum Cover {
    Http(ClockLayer),
    Grpc(ServerLayer),
}

#[derive(Clone, Debug)]
pub(crate) enum Covered<S> {
    Http(Ingress<AxumService<S>>),
    Grpc(Ingress<TonicService<S>>),
}

impl Cover {
    pub(crate) fn reads(self, conventions: Conventions) -> Self {
        match self {
            Self::Http(layer) => Self::Http(layer.reads(conventions)),
            Self::Grpc(layer) => Self::Grpc(layer.reads(conventions)),
        }
    }

    pub(crate) fn platform(self, limit: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Self {
        match self {
            Self::Http(layer) => Self::Http(layer.platform(limit)),
            Self::Grpc(layer) => Self::Grpc(layer.platform(limit)),
        }
    }
}

impl<S> Layer<S> for Cover {
    type Service = Covered<S>;

    fn layer(&self, inner: S) -> Covered<S> {
        match self {
            Self::Http(layer) => Covered::Http(layer.layer(inner)),
            Self::Grpc(layer) => Covered::Grpc(layer.layer(inner)),
        }
    }
}

impl<S, A> Service<Request<Body>> for Covered<S>
where
    S: Service<Request<Body>, Response = Response<A>, Error = Infallible>
        + Service<Request<tonic::body::Body>, Response = Response<A>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    <S as Service<Request<Body>>>::Future: Send,
    <S as Service<Request<tonic::body::Body>>>::Future: Send,
    A: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(())) // as both are
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self {
            Self::Http(service) => {
                let answer = service.call(request);
                Box::pin(async move { Ok(answer.await?.map(Body::new)) })
            }
            Self::Grpc(service) => {
                let answer = service.call(request);
                Box::pin(async move { Ok(answer.await?.map(Body::new)) })
            }
        }
    }
}
