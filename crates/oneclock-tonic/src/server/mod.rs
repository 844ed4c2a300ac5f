//! The layer for tonic's servers and routers: like [`IngressLayer`], with what tonic's services expect on its inside.
//!
//! Decides nothing about deadlines. It gives the service below tonic's own body, and looks at what that answers
//! (`answer`).

mod answer;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use oneclock::events::Observer;
use oneclock::{Admission, Shutdown};
use oneclock_core::wire::Conventions;
use oneclock_core::{Policy, Trust};
use oneclock_http::{BoxError, Ingress, IngressLayer, Route, Upload};
use tonic::body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::status;

pub use answer::{GrpcAnswer, GrpcFuture};

/// Gives every call to a tonic server its operation, by the limits of its method. Made by
/// [`PolicyExt::grpc_layer`](crate::PolicyExt::grpc_layer).
///
/// # Where to put it
/// ```text
/// oneclock_http::serve(..).trust(Inside)     tonic::transport::Server
///   → GrpcWebLayer (for browsers)              → GrpcTimeout, concurrency_limit, load_shed (tonic's own)
///   → policy.grpc_layer()                      → GrpcWebLayer → policy.grpc_layer().trust(Inside)
///     (and its `.admission(..)`)                 (and its `.admission(..)`)
///   → SpanLayer → auth                         → SpanLayer → auth
///   → Routes::into_axum_router()               → the services, with their interceptors
/// ```
/// `Inside` is for a listener that only your own services reach, a gateway of yours among them. Everybody else is outside,
/// which is the default.
///
/// With `Routes::into_axum_router().layer(..)` and [`oneclock_http::serve`] the budget runs from when the head was read, the
/// listener's trust is known, and a peer that stops reading loses its stream. With `Server::builder().layer(..)` or
/// `axum::serve` the budget runs from this layer on, and everybody is outside unless [`trust`](Self::trust) says otherwise.
/// What stands above it must not wait: see the crate's documentation for tonic's own limits. Where something behind is scarce, a
/// pool for example, [`admission`](Self::admission) takes the place of tonic's limits and of tower's: it knows what each call has
/// left.
#[derive(Clone, Debug)]
pub struct ServerLayer(IngressLayer);

/// The service inside of a [`ServerLayer`]: one of tonic's, given requests with tonic's own body.
#[derive(Clone, Debug)]
pub struct TonicService<S>(S);

// === ServerLayer ===

impl ServerLayer {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self(IngressLayer::new(policy.clone()).route_by(|_, uri| Some(Route::Method(uri.path()))))
    }

    /// Whether the peers of this listener belong to us. Overrides what the accept loop says; under tonic's own server and
    /// under `axum::serve`, which say nothing, everybody is outside without it.
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
    /// [`IngressLayer::server_timing`](oneclock_http::IngressLayer::server_timing).
    #[must_use]
    pub fn server_timing(self) -> Self {
        Self(self.0.server_timing())
    }

    /// What stands behind has only so many places: a call waits for one, and is refused if it would not be done in time. See
    /// [`IngressLayer::admission`].
    ///
    /// Each method that the policy lists has an estimate of its own; all others share one, since callers choose their paths. With
    /// [`Limits::unadmitted`](oneclock_core::ingress::Limits::unadmitted) a method needs no place.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use oneclock_tonic::admission::{Admission, Settings};
    /// use oneclock_tonic::{Policy, PolicyExt as _};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::named("pricing")
    ///     .when_absent(Duration::from_millis(800))
    ///     .route("/shop.Pricing/Price", |limits| limits) // listed: an estimate of its own
    ///     .route("/shop.Pricing/Export", |limits| limits.min_useful(Duration::from_millis(200)))
    ///     .route("/grpc.health.v1.Health", |limits| limits.unadmitted()) // probes need no place
    ///     .build()?;
    /// let connections = Admission::to("prices-database", Settings::fixed(8))?; // a pool of eight
    /// let layer = policy.grpc_layer().admission(&connections);
    /// # let _ = layer; Ok(()) }
    /// ```
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

impl<S> Layer<S> for ServerLayer {
    type Service = Ingress<TonicService<S>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.0.layer(TonicService(inner))
    }
}

// === TonicService ===

impl<S, B, A> Service<Request<Upload<B>>> for TonicService<S>
where
    S: Service<Request<Body>, Response = Response<A>>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<GrpcAnswer<A>>;
    type Error = S::Error;
    type Future = GrpcFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Upload<B>>) -> Self::Future {
        // A handler that reads a stream of messages learns why it ended, as a status.
        GrpcFuture::new(self.0.call(request.map(|body| Body::new(body.map_err(status::of_an_upload)))))
    }
}
