//! The layer for routers: like [`IngressLayer`], with what axum's middleware and extractors expect on its inside.
//!
//! Decides nothing about deadlines. It finds the matched route, keeps the request body axum's own [`Body`] (so that
//! `from_fn` works below it), and lets `ConnectInfo` be extracted under [`oneclock_http::serve`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, MatchedPath};
use axum::http::Request;
use bytes::Bytes;
use oneclock::events::Observer;
use oneclock::{Admission, Shutdown};
use oneclock_core::wire::Conventions;
use oneclock_core::{Policy, Trust};
use oneclock_http::{Arrival, BoxError, Ingress, IngressLayer, Route, Upload};
use tower_layer::Layer;
use tower_service::Service;

/// Gives every request of a router its operation, by the limits of the route that axum matched. Made by
/// [`PolicyExt::layer`](crate::PolicyExt::layer).
///
/// # Where to put it
/// With [`Router::layer`](axum::Router::layer), after the routes and the fallback it is for: that runs after routing, so
/// the matched route is known. Around a whole router (`ServiceBuilder` … `.service(router)`) it is not known, and every
/// request gets the policy's own limits. Services under `nest_service` have no matched route of their own either.
///
/// ```text
/// RequestId → CORS → Compression → policy.layer() → SpanLayer → CatchPanic → body limit → auth → routes
/// above: sees its refusals and 504s         below: spends the budget, is dropped at its end
/// ```
///
/// `SpanLayer` is `oneclock-telemetry`'s; where it stands, tower-http's `TraceLayer` would give a request a second span.
///
/// What stands above it must not wait: a queue there is only counted under [`oneclock_http::serve`], which stamped the
/// arrival, and is never cut. Two policies belong to two routers that are merged, never one inside the other: an inner
/// layer can only shorten.
#[derive(Clone, Debug)]
pub struct ClockLayer(IngressLayer);

/// The service inside of a [`ClockLayer`]: hands the request on with axum's body.
#[derive(Clone, Debug)]
pub struct AxumService<S>(S);

// === ClockLayer ===

impl ClockLayer {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self(
            IngressLayer::new(policy.clone()).route_by(|extensions, uri| {
                Some(Route::matched(extensions.get::<MatchedPath>()?.as_str(), uri.path()))
            }),
        )
    }

    /// Whether the peers of this listener belong to us. Overrides what the accept loop says; under `axum::serve`, which
    /// says nothing, everybody is outside without it.
    #[must_use]
    pub fn trust(self, trust: Trust) -> Self {
        Self(self.0.trust(trust))
    }

    /// The deadline fields to read; the contract's default set unless said otherwise.
    #[must_use]
    pub fn reads(self, conventions: Conventions) -> Self {
        Self(self.0.reads(conventions))
    }

    /// A limit of the platform's, asked for each request: the time left, or `None`. It can only shorten.
    #[must_use]
    pub fn platform(self, limit: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Self {
        Self(self.0.platform(limit))
    }

    /// The shutdown that ends what arrives here, under an accept loop that brings none.
    #[must_use]
    pub fn with_shutdown(self, shutdown: &Shutdown) -> Self {
        Self(self.0.with_shutdown(shutdown))
    }

    /// Tells callers inside the trust boundary where the time went, in the `server-timing` field: see
    /// [`IngressLayer::server_timing`].
    #[must_use]
    pub fn server_timing(self) -> Self {
        Self(self.0.server_timing())
    }

    /// What stands behind has only so many places: a request waits for one, and is refused if it would not be done in time. See
    /// [`IngressLayer::admission`].
    #[must_use]
    pub fn admission(self, admission: &Admission) -> Self {
        Self(self.0.admission(admission))
    }

    /// Where the events of what arrives here go; the global observer unless said otherwise.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self(self.0.observed_by(observer))
    }
}

impl<S> Layer<S> for ClockLayer {
    type Service = Ingress<AxumService<S>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.0.layer(AxumService(inner))
    }
}

// === AxumService ===

impl<S, B> Service<Request<Upload<B>>> for AxumService<S>
where
    S: Service<Request<Body>>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Upload<B>>) -> S::Future {
        let mut request = request.map(Body::new);
        let extensions = request.extensions_mut();
        // As `axum::serve` does with `into_make_service_with_connect_info`.
        if extensions.get::<ConnectInfo<SocketAddr>>().is_none()
            && let Some(peer) = extensions.get::<Arrival>().and_then(|arrival| arrival.peer)
        {
            extensions.insert(ConnectInfo(peer));
        }
        self.0.call(request)
    }
}
