//! The layer: what was decided when the service was put together, and whether it can be kept.
//!
//! Decides at construction that a lease outlasts its run and that records outlast what may come back (contract M9).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderName;
use http::request::Parts;
use http::{Extensions, Method, Uri};
use oneclock::events::Observer;
use oneclock_core::Name;
use oneclock_core::idempotency::{Horizons, RetentionTooShort, Takeover};
use oneclock_http::Route;
use tokio::sync::Semaphore;
use tower_layer::Layer;

use crate::answer;
use crate::endpoint::{Below, FindRoute};
use crate::key::HAVE_KEYS;
use crate::monitor::Monitor;
use crate::runs::Runs;
use crate::service::Once;
use crate::store::Store;

/// Makes what is below it take effect at most once for each key: a [`Layer`]. Cheap to clone; all clones share their runs.
///
/// # Where to put it
/// ```text
/// Compression → ingress (deadline, admission) → auth → Idempotency → routes
/// ```
/// With axum: built with `axum_routes()` (feature `axum`), so that a key is of its route; `Router::route_layer`, after the
/// routes it is for. `Router::layer` covers the fallback as well, so that a 404 for
/// a path that nobody serves becomes a record too; that is for a gateway whose work *is* the fallback. What matched no route
/// is not passed on by itself: around a whole router, or around `nest_service`, nothing has a matched route, and protection
/// would be off without a word.
///
/// With tonic's server, or around one of its services: `grpc_layer` (feature `tonic`). A gRPC call is judged by the status in
/// its trailers, which are kept and replayed. Connect's unary calls have keys too; its streams, and gRPC-Web that nobody has
/// translated further out, are refused with one.
///
/// Below admission, so that no record is written for what will not run (contract M1); below whatever finds out who asks;
/// below compression, so that an answer is kept as the service made it. The service below runs on a task of its own, under
/// [`execution`](IdempotencyBuilder::execution), and not under the caller's deadline (contract M10). Its operation is called
/// as the pattern of its matched route, or as the layer where there is none; the step around it, `keyed <layer>`, is claim,
/// run and record.
///
/// A shutdown waits for runs: see [`longest_run`](Self::longest_run).
///
/// The body of a request with a key is read, and made anew for the service: its type is one that is made from
/// [`Bytes`](bytes::Bytes), as axum's and `Full` are. One that is not (hyper's `Incoming`) is mapped above.
pub struct Idempotency<St>(pub(crate) Arc<Config<St>>);

pub(crate) type PrincipalOf = Arc<dyn Fn(&Parts) -> Option<Arc<str>> + Send + Sync>;

pub(crate) struct Config<St> {
    pub(crate) name: Name,
    pub(crate) step: Name, // claim, run and record: of a replay the claim alone, so it is not called as the work is
    pub(crate) store: St,
    pub(crate) limits: Limits,
    pub(crate) principal: PrincipalOf,
    pub(crate) known_by: Option<String>,
    pub(crate) route: Option<FindRoute>,
    #[cfg(feature = "axum")]
    pub(crate) forgotten: std::sync::Once, // whether it was said that axum's routes are not gone by
    pub(crate) methods: Vec<Method>,
    pub(crate) required: bool,
    pub(crate) takeover: Takeover,
    pub(crate) replays: Vec<HeaderName>,
    pub(crate) monitor: Option<String>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) runs: Runs,
    pub(crate) places: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) execution: Duration,
    pub(crate) claim_within: Duration,
    pub(crate) record_within: Duration,
    pub(crate) lease: Duration,
    pub(crate) retention: Duration,
    pub(crate) wait_at_most: Duration,
    pub(crate) reserve: Duration,
    pub(crate) request_bytes: usize,
    pub(crate) answer_bytes: usize,
}

/// Builds an [`Idempotency`] layer.
#[must_use = "a layer is made by `build`"]
pub struct IdempotencyBuilder<St> {
    name: Name,
    store: St,
    limits: Limits,
    lease: Option<Duration>,
    wait_at_most: Option<Duration>,
    horizons: Horizons,
    principal: Option<PrincipalOf>,
    known_by: Option<String>,
    route: Option<FindRoute>,
    methods: Vec<Method>,
    required: bool,
    takeover: Takeover,
    replays: Vec<HeaderName>,
    monitor: Option<String>,
    observer: Option<Arc<dyn Observer>>,
    max_runs: usize,
}

/// A layer cannot be built: what was asked for contradicts itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadIdempotency {
    /// Nobody said whose keys they are (contract M8).
    #[error(
        "whose key is it? say `.principal(…)`, or `.one_principal()` where all callers are the same: else one customer's \
         answer is replayed to another"
    )]
    NoPrincipal,
    /// The lease would lapse while its run goes on.
    #[error("a lease of {lease:?} would lapse under its run, which may take {run:?} (claim, execution and record)")]
    LeaseTooShort {
        /// The lease asked for.
        lease: Duration,
        /// The longest that a run may take.
        run: Duration,
    },
    /// Records would go too early (contract M9).
    #[error(transparent)]
    Retention(#[from] RetentionTooShort),
    /// A header that belongs to one exchange was to be replayed.
    #[error("the header {0} belongs to one exchange and is not replayed")]
    NotForReplay(HeaderName),
    /// No run could ever begin.
    #[error("0 runs at the same time would refuse everything: give max_runs at least 1")]
    NoRuns,
}

/// How much longer a lease is than its run can take, unless said otherwise.
const LEASE_MARGIN: Duration = Duration::from_secs(5);

// === Limits ===

impl Limits {
    /// The longest that a run may take, from before its claim until after its record.
    pub(crate) fn run(&self) -> Duration {
        self.claim_within.saturating_add(self.execution).saturating_add(self.record_within)
    }
}

// === Idempotency ===

impl<St: Store> Idempotency<St> {
    /// Begins a layer called `name` over `store`.
    ///
    /// Unless said otherwise: a run may take 10 s, a claim 2 s, writing down what became of it 5 s; records are kept for
    /// 24 h; requests and answers of up to 256 KiB; `POST` and `PATCH` have keys, which are optional; what is unknown is not
    /// run again.
    pub fn builder(name: impl Into<Name>, store: St) -> IdempotencyBuilder<St> {
        IdempotencyBuilder {
            name: name.into(),
            store,
            limits: Limits {
                execution: Duration::from_secs(10),
                claim_within: Duration::from_secs(2),
                record_within: Duration::from_secs(5),
                lease: Duration::ZERO,
                retention: Duration::from_secs(24 * 3600),
                wait_at_most: Duration::ZERO,
                reserve: Duration::from_millis(20),
                request_bytes: 256 * 1024,
                answer_bytes: 256 * 1024,
            },
            lease: None,
            wait_at_most: None,
            horizons: Horizons::default(),
            principal: None,
            known_by: None,
            route: None,
            methods: HAVE_KEYS.to_vec(),
            required: false,
            takeover: Takeover::Never,
            replays: Vec::new(),
            monitor: None,
            observer: None,
            max_runs: 1_024,
        }
    }

    /// The resource to ask what became of an operation, for the same principals. Mount it where
    /// [`monitor_at`](IdempotencyBuilder::monitor_at) says, with one more path segment.
    pub fn monitor(&self) -> Monitor<St> {
        Monitor::new(self.clone())
    }

    /// The store.
    pub fn store(&self) -> &St {
        &self.0.store
    }

    /// The longest that a run may take from before its claim until after its record: the bounds of
    /// [`claim_within`](IdempotencyBuilder::claim_within), [`execution`](IdempotencyBuilder::execution) and
    /// [`record_within`](IdempotencyBuilder::record_within), together 17 s unless said otherwise.
    ///
    /// One that began just before the end of a shutdown's grace is waited for this long after it (contract X10), so a
    /// process has to be given the grace and this before it is killed.
    pub fn longest_run(&self) -> Duration {
        self.0.limits.run()
    }

    /// How many runs are under way in this process.
    pub fn runs(&self) -> usize {
        self.0.runs.len()
    }
}

impl<St> Clone for Idempotency<St> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<St, S> Layer<S> for Idempotency<St> {
    type Service = Once<S, St>;

    fn layer(&self, inner: S) -> Once<S, St> {
        Once::new(inner, Arc::clone(&self.0), Below::Anything)
    }
}

impl<St> fmt::Debug for Idempotency<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("name", &self.0.name)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

// === IdempotencyBuilder ===

impl<St: Store> IdempotencyBuilder<St> {
    /// Whose key it is: an account or a tenant, found in the request's head; never a credential, since it is stored. A
    /// request without one and with a key is refused with 401.
    pub fn principal<P: Into<Arc<str>>>(mut self, of: impl Fn(&Parts) -> Option<P> + Send + Sync + 'static) -> Self {
        self.principal = Some(Arc::new(move |head| of(head).map(Into::into)));
        self
    }

    /// What a [principal](Self::principal) is found by, for who is refused without one: `the field x-account`. Every caller may
    /// read it.
    pub fn known_by(mut self, what: impl Into<String>) -> Self {
        self.known_by = Some(what.into());
        self
    }

    /// All callers are one and the same, and may see each other's answers.
    pub fn one_principal(self) -> Self {
        self.principal(|_| Some("-"))
    }

    /// The bound of one run, whoever waits for it (contract M10).
    pub fn execution(mut self, bound: Duration) -> Self {
        self.limits.execution = bound;
        self
    }

    /// How long a claim may take before the request is refused with 503 (contract M6).
    pub fn claim_within(mut self, within: Duration) -> Self {
        self.limits.claim_within = within;
        self
    }

    /// How long a run may try to write down what became of it, whoever has left (contract M2).
    pub fn record_within(mut self, within: Duration) -> Self {
        self.limits.record_within = within;
        self
    }

    /// How long a run may be silent before it counts as lost. Unless said otherwise: 5 s longer than it can take.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How long records are kept after their last step (contract M9).
    pub fn retention(mut self, retention: Duration) -> Self {
        self.limits.retention = retention;
        self
    }

    /// How long something may still come back with the same key, for the check of the retention.
    pub fn horizons(mut self, horizons: Horizons) -> Self {
        self.horizons = horizons;
        self
    }

    /// The longest that a request waits for a run, within what its caller has left. Unless said otherwise: as long as a run
    /// may take.
    pub fn wait_at_most(mut self, wait: Duration) -> Self {
        self.wait_at_most = Some(wait);
        self
    }

    /// What a waiting request keeps back of its caller's time, to say that the work goes on.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.limits.reserve = reserve;
        self
    }

    /// The largest request body; a larger one with a key is refused with 413, since it could not be told from another.
    pub fn request_bytes(mut self, most: usize) -> Self {
        self.limits.request_bytes = most;
        self
    }

    /// The largest answer body that is kept. A larger one is given once, and then known to have been given.
    pub fn answer_bytes(mut self, most: usize) -> Self {
        self.limits.answer_bytes = most;
        self
    }

    /// Requests without a key are refused with 400. Else they run as if the layer were not there.
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The methods that have keys: `POST` and `PATCH` unless said otherwise. Others pass.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// How to find what a request was matched to, as of
    /// [`IngressLayer::route_by`](oneclock_http::IngressLayer::route_by). Its [`endpoint`](Route::endpoint) is part of the key's
    /// scope, its [`pattern`](Route::pattern) a label; the layer's name stands for either where there is none. What a request
    /// claims to speak has no part in it. Below a router of axum say `axum_routes()` (feature `axum`); under `grpc_layer`
    /// what is not matched is a [`Method`](Route::Method).
    ///
    /// ```
    /// # use oneclock_http::Route; use oneclock_idempotency::{Idempotency, MemoryStore};
    /// #[derive(Clone)]
    /// struct Matched(&'static str); // put into the extensions by the router
    /// let once = Idempotency::builder("shop", MemoryStore::new()).one_principal();
    /// let once = once.route_by(|extensions, _| Some(Route::Pattern(extensions.get::<Matched>()?.0)));
    /// # once.build().unwrap();
    /// ```
    pub fn route_by(mut self, route: for<'r> fn(&'r Extensions, &'r Uri) -> Option<Route<'r>>) -> Self {
        self.route = Some(route);
        self
    }

    /// Declares that the work may be repeated when nothing is known of a run (contract M3). It can then take effect twice.
    pub fn safe_to_repeat(mut self) -> Self {
        self.takeover = Takeover::DeclaredSafe;
        self
    }

    /// Keeps and replays this header of answers too.
    pub fn replays(mut self, header: HeaderName) -> Self {
        self.replays.push(header);
        self
    }

    /// The path under which [`monitor`](Idempotency::monitor) is mounted, for the links of answers that leave something open.
    pub fn monitor_at(mut self, path: impl Into<String>) -> Self {
        let mut path = path.into();
        path.truncate(path.trim_end_matches('/').len());
        self.monitor = Some(path);
        self
    }

    /// Where events go; the global observer unless said otherwise.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// How many runs may be under way at the same time: work whose callers have left still takes a place. What finds none is
    /// shed, before its claim.
    pub fn max_runs(mut self, runs: usize) -> Self {
        self.max_runs = runs;
        self
    }

    /// The layer.
    ///
    /// # Errors
    /// [`BadIdempotency`], which says what contradicts what.
    pub fn build(self) -> Result<Idempotency<St>, BadIdempotency> {
        let mut limits = self.limits;
        let run = limits.run();
        limits.lease = self.lease.unwrap_or(run.saturating_add(LEASE_MARGIN));
        if limits.lease < run {
            return Err(BadIdempotency::LeaseTooShort { lease: limits.lease, run });
        }
        limits.wait_at_most = self.wait_at_most.unwrap_or(run);
        let longest_timeout = self.horizons.longest_timeout.max(limits.execution);
        Horizons { longest_timeout, ..self.horizons }.check(limits.retention)?;
        if let Some(header) = self.replays.iter().find(|header| answer::NEVER.contains(header)) {
            return Err(BadIdempotency::NotForReplay(header.clone()));
        }
        if self.max_runs == 0 || self.max_runs > Semaphore::MAX_PERMITS {
            return Err(BadIdempotency::NoRuns);
        }
        Ok(Idempotency(Arc::new(Config {
            step: format!("keyed {}", self.name).into(),
            name: self.name,
            store: self.store,
            limits,
            principal: self.principal.ok_or(BadIdempotency::NoPrincipal)?,
            known_by: self.known_by,
            route: self.route,
            #[cfg(feature = "axum")]
            forgotten: std::sync::Once::new(),
            methods: self.methods,
            required: self.required,
            takeover: self.takeover,
            replays: self.replays,
            monitor: self.monitor,
            observer: self.observer,
            runs: Runs::default(),
            places: Arc::new(Semaphore::new(self.max_runs)),
        })))
    }
}

impl<St> fmt::Debug for IdempotencyBuilder<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyBuilder")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
