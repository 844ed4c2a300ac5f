//! The layer: holds what was decided when the service was put together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, Uri};
use oneclock::events::Observer;
use oneclock::{Admission, Shutdown};
use oneclock_core::wire::Conventions;
use oneclock_core::{Name, Policy, Trust};
use tower_layer::Layer;

use super::Ingress;
use crate::fields::FieldSet;

/// Gives every request a deadline and keeps it, on head and body. See [`ingress`](crate::ingress) for the order of its
/// steps.
///
/// Under [`serve`](crate::serve) it knows when the head was read and whether the peer is trusted. Under another accept
/// loop the budget runs from when the request reaches this layer, and everybody is outside unless
/// [`trust`](Self::trust) says otherwise: put it outermost.
#[derive(Clone)]
pub struct IngressLayer(pub(super) Arc<Config>);

#[derive(Clone)]
pub(super) struct Config {
    pub(super) policy: Policy,
    pub(super) fields: FieldSet,
    pub(super) trust: Option<Trust>,
    pub(super) route: FindRoute,
    pub(super) platform: Option<Arc<dyn Fn() -> Option<Duration> + Send + Sync>>,
    pub(super) shutdown: Option<Shutdown>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) server_timing: bool,
    pub(super) admission: Option<Admission>,
}

/// How to find what a request was matched to.
#[derive(Clone)]
pub(super) enum FindRoute {
    /// Nobody knows.
    Nowhere,
    /// Whoever matched it left it in the request.
    In(for<'r> fn(&'r Extensions, &'r Uri) -> Option<Route<'r>>),
    /// Whatever comes here was matched to this.
    Here(Name),
}

/// What a request was matched to: the name by which a policy knows its limits.
///
/// Which it is depends on the service that answers, never on what the request claims to speak: nobody may choose their own
/// limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route<'r> {
    /// A router's pattern: `/orders/{id}`.
    Pattern(&'r str),
    /// The path of a remote procedure: `/shop.Pricing/Price`. Limits for the method count, else those for its service
    /// (`/shop.Pricing`).
    Method(&'r str),
    /// A router's pattern under which a service of remote procedures may be mounted, and the path. Limits for the pattern
    /// count, else it is as with [`Route::Method`].
    Mounted {
        /// `/shop.Pricing/{*rest}`
        pattern: &'r str,
        /// `/shop.Pricing/Price`
        path: &'r str,
    },
}

// === Route ===

impl<'r> Route<'r> {
    /// What a router matched to `pattern`, for a request to `path`: [`Mounted`](Self::Mounted) if tonic mounts services by such
    /// a pattern, `/shop.Pricing/{*rest}`, else the [`Pattern`](Self::Pattern). A service without a package looks like any
    /// path.
    ///
    /// ```
    /// # use oneclock_http::Route;
    /// assert_eq!(Route::matched("/orders/{id}", "/orders/7"), Route::Pattern("/orders/{id}"));
    /// let method = Route::matched("/shop.Pricing/{*rest}", "/shop.Pricing/Price");
    /// assert_eq!((method.endpoint(), method.pattern()), ("/shop.Pricing/Price", Some("/shop.Pricing/{*rest}")));
    /// ```
    pub fn matched(pattern: &'r str, path: &'r str) -> Self {
        let service = pattern.strip_suffix("/{*rest}").and_then(|service| service.strip_prefix('/'));
        match service {
            Some(service) if service.contains('.') && !service.contains(['/', '{']) => Self::Mounted { pattern, path },
            _ => Self::Pattern(pattern),
        }
    }

    /// What was asked for: the pattern, or the path of a remote procedure, which names its method. Callers choose such paths,
    /// so it is no label.
    pub fn endpoint(self) -> &'r str {
        match self {
            Self::Pattern(pattern) => pattern,
            Self::Method(path) | Self::Mounted { path, .. } => path,
        }
    }

    /// The router's pattern, of which there are as many as the router has, so that it may be a label.
    pub fn pattern(self) -> Option<&'r str> {
        match self {
            Self::Pattern(pattern) | Self::Mounted { pattern, .. } => Some(pattern),
            Self::Method(_) => None,
        }
    }
}

// === IngressLayer ===

impl IngressLayer {
    /// A layer that decides by `policy`.
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(Config {
            policy,
            fields: FieldSet::new(Conventions::default_set()),
            trust: None,
            route: FindRoute::Nowhere,
            platform: None,
            shutdown: None,
            observer: None,
            server_timing: false,
            admission: None,
        }))
    }

    /// Whether the peers of this listener belong to us. Overrides what the accept loop says.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.config().trust = Some(trust);
        self
    }

    /// The deadline fields to read; the contract's default set unless said otherwise.
    #[must_use]
    pub fn reads(mut self, conventions: Conventions) -> Self {
        self.config().fields = FieldSet::new(conventions);
        self
    }

    /// How to find what a request was matched to, in its extensions and its target. `oneclock-axum` and `oneclock-tonic` set
    /// it.
    #[must_use]
    pub fn route_by(mut self, route: for<'r> fn(&'r Extensions, &'r Uri) -> Option<Route<'r>>) -> Self {
        self.config().route = FindRoute::In(route);
        self
    }

    /// Everything that comes here was matched to `pattern`, by a router that has a layer for each route: requests need not say so.
    ///
    /// ```
    /// # use oneclock_core::Policy; use oneclock_http::IngressLayer; use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// let policy = Policy::named("shop").route("/cart", move |limits| limits.when_absent(second).ceiling(second)).build()?;
    /// let layer = IngressLayer::new(policy).on_route("/cart");
    /// # Ok::<(), oneclock_core::ingress::PolicyError>(())
    /// ```
    #[must_use]
    pub fn on_route(mut self, pattern: impl Into<Name>) -> Self {
        self.config().route = FindRoute::Here(pattern.into());
        self
    }

    /// A limit of the platform's, asked for each request: the time left, or `None`. It can only shorten.
    #[must_use]
    pub fn platform(mut self, limit: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Self {
        self.config().platform = Some(Arc::new(limit));
        self
    }

    /// The shutdown that ends what arrives here, under an accept loop that brings none.
    #[must_use]
    pub fn with_shutdown(mut self, shutdown: &Shutdown) -> Self {
        self.config().shutdown = Some(shutdown.clone());
        self
    }

    /// Where the events of what arrives here go; the global observer unless said otherwise.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.config().observer = Some(observer);
        self
    }

    /// Tells callers inside the trust boundary where the time went, in the `server-timing` field of every answer whose
    /// operation began, 504s too: an entry for each of the ledger's, as of the head. Outsiders are told nothing, also nothing
    /// that was copied from an answer below. What our clients read of it stands in the caller's own ledger.
    ///
    /// ```text
    /// server-timing: oneclock;desc=order;dur=812.4, queue;dur=180, inventory;dur=620, unaccounted;dur=12.4, left;dur=70
    /// ```
    #[must_use]
    pub fn server_timing(mut self) -> Self {
        self.config().server_timing = true;
        self
    }

    /// What stands behind has only so many places: a request that finds none free waits for one, and is refused if it would
    /// not be done in time any more. Each route has an estimate of its own, and so has each method that the policy knows. A
    /// request has its place until its answer is whole or its operation is over, or until its handler says that it needs none
    /// ([`Operation::vacate`](oneclock::Operation::vacate)); a step that must finish keeps it. Everything that shares the
    /// resource shares the `Admission`; only the layer that knows it asks.
    ///
    /// ```
    /// use oneclock::Admission;
    /// use oneclock_core::{Policy, admission::Settings};
    /// use oneclock_http::IngressLayer;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let connections = Admission::to("orders-database", Settings::fixed(8))?; // a pool of eight
    /// let layer = IngressLayer::new(Policy::named("order").build()?).admission(&connections);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn admission(mut self, admission: &Admission) -> Self {
        self.config().admission = Some(admission.clone());
        self
    }

    fn config(&mut self) -> &mut Config {
        Arc::make_mut(&mut self.0)
    }
}

impl<S> Layer<S> for IngressLayer {
    type Service = Ingress<S>;

    fn layer(&self, inner: S) -> Ingress<S> {
        if matches!(self.0.route, FindRoute::Nowhere) && self.0.policy.routes().next().is_some() {
            tracing::warn!(
                policy = %self.0.policy.name(),
                "the policy has limits for routes, and nothing finds the matched route: see IngressLayer::route_by; in an \
                 axum router use `policy.layer()` of oneclock-axum"
            );
        }
        Ingress::new(inner, Arc::clone(&self.0))
    }
}

impl fmt::Debug for IngressLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IngressLayer")
            .field("policy", self.0.policy.name())
            .field("trust", &self.0.trust)
            .finish_non_exhaustive()
    }
}
