//! The service: what has no key passes, what has one goes its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use oneclock::events::Keyed;
use oneclock_http::{BoxError, Protocol};
use tower_service::Service;

use crate::body::{Body, own, whole};
use crate::endpoint::{Below, Endpoint};
use crate::key::Covered;
use crate::layer::Config;
use crate::store::Store;
use crate::{refuse, request};

/// The service of an [`Idempotency`](crate::Idempotency) layer. Always ready: the service below becomes ready inside of its
/// run.
pub struct Once<S, St> {
    inner: S,
    config: Arc<Config<St>>,
    below: Below,
}

/// The future of a [`Once`]: the wait for an answer, not the work. Dropping it leaves a run going.
#[must_use = "futures do nothing unless polled"]
pub struct OnceFuture<E>(Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>);

impl<S, St> Once<S, St> {
    pub(crate) fn new(inner: S, config: Arc<Config<St>>, below: Below) -> Self {
        Self { inner, config, below }
    }
}

impl<S, St, B, A> Service<Request<B>> for Once<S, St>
where
    St: Store,
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error; // a refusal is an answer
    type Future = OnceFuture<S::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        let protocol = Protocol::of(&head);
        let has_keys = self.config.methods.contains(&head.method);
        let key = if has_keys { request::key_of(&self.config, &head) } else { Ok(None) };
        if has_keys {
            head.extensions.insert(Covered);
        }
        if let Err((refusal, _)) = &key {
            self.config.tell(&Endpoint::of(&self.config, self.below, &head).called, Keyed::Refused(*refusal));
        }
        let request = Request::from_parts(head, body);
        let mut inner = self.inner.clone();
        OnceFuture(match key {
            Err((refusal, why)) => {
                let answer = refuse::answer(refusal, why.map(|why| why.to_string()), Duration::ZERO, protocol);
                Box::pin(async move { Ok(answer.map(whole)) })
            }
            Ok(None) => Box::pin(async move {
                std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
                Ok(inner.call(request).await?.map(own))
            }),
            Ok(Some(key)) => {
                let answer = request::answer(Arc::clone(&self.config), self.below, inner, key, protocol, request);
                Box::pin(async move { Ok(answer.await) })
            }
        })
    }
}

impl<E> Future for OnceFuture<E> {
    type Output = Result<Response<Body>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<S: Clone, St> Clone for Once<S, St> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), config: Arc::clone(&self.config), below: self.below }
    }
}

impl<S, St> fmt::Debug for Once<S, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("name", &self.config.name).finish_non_exhaustive()
    }
}

impl<E> fmt::Debug for OnceFuture<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceFuture").finish_non_exhaustive()
    }
}
