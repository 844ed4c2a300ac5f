//! What an arriving request may spend, or why it is refused before it costs anything.
//!
//! Decides once per request, from what the wire said, who said it and one policy chosen by the matched route. Reading
//! the fields is [`wire`](crate::wire)'s; answering a refusal is the http crate's. Contract C2, C4, K4, P3, P4, P10.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::time::Legible;
use crate::wire::{MalformedField, Read, Reading};
use crate::{Bound, BoundBy, Budget, Deadline, Name, Reason, Tick};

/// Whether a peer belongs to us. A property of the listener or of the authenticated peer, never of a header (contract
/// C2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Anybody. May shorten what it would get with no deadline at all, never lengthen it, and learns nothing of our
    /// insides.
    #[default]
    Outside,
    /// One of ours: gets what it asks for up to the ceiling, and is told where the time went.
    Inside,
}

/// What to do when a deadline field cannot be read (contract P3). Never unlimited, always counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnMalformed {
    /// Refuse the request: the sender finds its mistake.
    #[default]
    Reject,
    /// Give it what a request without a deadline gets, or what its readable fields say, whichever is shorter.
    Clamp,
}

/// What a route's budget covers (contract S2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coverage {
    /// Head and body: the whole answer. Every route that says nothing else.
    #[default]
    Unary,
    /// The establishment, up to the head. The stream behind it has clocks of its own.
    Streaming {
        /// The longest time between two frames of the stream.
        idle: Duration,
        /// The longest life of the stream, from its head.
        total: Duration,
    },
}

/// The limits of one route.
///
/// ```
/// # use oneclock_core::ingress::Limits; use std::time::Duration;
/// let reports = Limits::new().ceiling(Duration::from_secs(30)).when_absent(Duration::from_secs(20));
/// assert!(reports.check().is_ok());
/// let upside_down = Limits::new().ceiling(Duration::from_secs(1)).when_absent(Duration::from_secs(2));
/// assert_eq!(
///     upside_down.check().unwrap_err().to_string(),
///     "when_absent (2s) is above the ceiling (1s): nobody may get more than the ceiling"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    when_absent: Duration,
    ceiling: Duration,
    min_useful: Duration,
    on_malformed: OnMalformed,
    coverage: Coverage,
    admitted: bool,
}

/// One service's rules for what arrives: limits, and other limits for some routes. Cheap to clone.
///
/// ```
/// # use oneclock_core::ingress::*; use std::time::Duration;
/// # fn ms(n: u64) -> Duration { Duration::from_millis(n) } fn secs(n: u64) -> Duration { Duration::from_secs(n) }
/// let policy = Policy::named("order")
///     .when_absent(ms(800))
///     .ceiling(secs(2))
///     .min_useful(ms(20))
///     .route("/reports/{id}", |limits| limits.when_absent(secs(20)).ceiling(secs(30)))
///     .route_for("POST", "/orders", |limits| limits.min_useful(ms(200))) // its GET has what the service has
///     .build()?;
/// assert_eq!(policy.limits(Some("/reports/{id}")).ceiling_value(), secs(30));
/// assert_eq!(policy.limits(Some("/orders")).ceiling_value(), secs(2));
/// assert_eq!(policy.limits_for("POST", Some("/orders")).min_useful_value(), ms(200));
/// # Ok::<(), PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    name: Name,
    limits: Limits,
    routes: BTreeMap<String, OfRoute>,
}

/// The limits of one route: of all its methods, and of some.
#[derive(Debug, Default)]
struct OfRoute {
    all: Option<Limits>,
    methods: Vec<(String, Limits)>,
}

/// Builds a [`Policy`].
#[derive(Clone, Debug)]
#[must_use = "a policy is made by `build`"]
pub struct PolicyBuilder {
    name: Name,
    limits: Limits,
    routes: Vec<(Option<String>, String, Change)>,
}

/// Limits that contradict one another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A limit of zero would refuse every request: zero means expired, never unlimited.
    #[error("{what} is zero, which means expired and would refuse every request; write the duration that is meant")]
    Zero {
        /// Which limit.
        what: &'static str,
    },
    /// More when nothing is said than the most that is given.
    #[error("when_absent ({when_absent:?}) is above the ceiling ({ceiling:?}): nobody may get more than the ceiling")]
    AbsentAboveCeiling {
        /// The value for requests without a deadline.
        when_absent: Duration,
        /// The endpoint's maximum.
        ceiling: Duration,
    },
    /// The least that is useful is more than a request without a deadline gets.
    #[error(
        "min_useful ({min_useful:?}) is above when_absent ({when_absent:?}): requests without a deadline would all be refused"
    )]
    MinimumAboveAbsent {
        /// The least that is useful.
        min_useful: Duration,
        /// The value for requests without a deadline.
        when_absent: Duration,
    },
    /// A route's ceiling was raised, and nothing was said of those who send no deadline.
    #[error(
        "the ceiling was raised from {was:?} to {ceiling:?}, but who sends no deadline, and whoever is outside, still gets \
         when_absent, {when_absent:?}; write `.when_absent(…)` beside it, with the same value if that is what is meant"
    )]
    CeilingAlone {
        /// The ceiling without the change.
        was: Duration,
        /// The ceiling with it.
        ceiling: Duration,
        /// The value for requests without a deadline.
        when_absent: Duration,
    },
    /// One of the above, in the limits of a route.
    #[error("the limits of route {route} contradict one another")]
    InRoute {
        /// The route.
        route: String,
        /// What is wrong.
        #[source]
        error: Box<PolicyError>,
    },
    /// Limits for something that no router matches.
    #[error(
        "route {route:?} does not begin with a slash; write it as the router spells it, such as \"/reports/{{id}}\""
    )]
    NotARoute {
        /// What was given.
        route: String,
    },
    /// Limits for a method that no request has.
    #[error("{method:?} is no method that a request has; they are written in capitals, such as \"POST\"")]
    NotAMethod {
        /// What was given.
        method: String,
    },
    /// Two sets of limits for one route.
    #[error("route {route} has two sets of limits; keep one")]
    SameRouteTwice {
        /// The route.
        route: String,
    },
}

/// One arrival, as the layer saw it.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// What the deadline fields said.
    pub reading: Reading<'a>,
    /// Whether it is a remote procedure call of gRPC or Connect. These have an answer of their own to a field that cannot be
    /// read, so that nothing is clamped for them (contract P3).
    pub rpc: bool,
    /// Who said it.
    pub trust: Trust,
    /// When the head was read: the budget runs from here (contract K1).
    pub arrived: Tick,
    /// Now, which is later if the request waited.
    pub now: Tick,
    /// What the platform leaves, where it sets a limit.
    pub platform: Option<Deadline>,
}

/// What becomes of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// It may begin.
    Accepted(Accepted<'a>),
    /// It is answered at once.
    Refused(RefusedAtIngress<'a>),
}

/// An accepted request's budget, and how it came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted<'a> {
    /// Its deadline and what made it.
    pub budget: Budget,
    /// The field that the deadline came from, if a caller gave one.
    pub source: Option<&'a Name>,
    /// Whether the caller asked for more than it got.
    pub clamped: bool,
    /// Whether an absolute time was further off than the ceiling, or past by more than the tolerance (contract P10).
    pub skew_suspected: bool,
    /// The field that could not be read, under [`OnMalformed::Clamp`].
    pub malformed: Option<MalformedField<'a>>,
}

/// A refused request: nothing of it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedAtIngress<'a> {
    /// Why.
    pub reason: Reason,
    /// The bound that was in force.
    pub bound: Bound,
    /// What was left.
    pub remaining: Duration,
    /// The least that would have been useful.
    pub min_useful: Duration,
    /// The field that the deadline came from, if a caller gave one.
    pub source: Option<&'a Name>,
    /// The field that could not be read, for [`Reason::Malformed`].
    pub malformed: Option<MalformedField<'a>>,
    /// Whether an absolute time was so far off that the clocks probably differ.
    pub skew_suspected: bool,
}

/// How far an absolute time may lie in the past before the clocks are suspected (contract P10).
pub const SKEW_TOLERANCE: Duration = Duration::from_secs(1);

/// The method of remote procedures.
const PROCEDURES: &str = "POST";

/// A change to the base limits, kept until `build`, so that the order of the calls does not matter.
#[derive(Clone)]
struct Change(Arc<dyn Fn(Limits) -> Limits + Send + Sync>);

// === Limits ===

impl Limits {
    /// 2 s when nobody says anything, a ceiling of 10 s, nothing below 5 ms, malformed fields rejected.
    pub const fn new() -> Self {
        Self {
            when_absent: Duration::from_secs(2),
            ceiling: Duration::from_secs(10),
            min_useful: crate::grant::DEFAULT_MIN_USEFUL,
            on_malformed: OnMalformed::Reject,
            coverage: Coverage::Unary,
            admitted: true,
        }
    }

    /// What a request gets that brings no deadline. Also the most that a caller outside the trust boundary gets.
    #[must_use]
    pub const fn when_absent(mut self, when_absent: Duration) -> Self {
        self.when_absent = when_absent;
        self
    }

    /// The most that any caller gets: one inside the trust boundary that asks for it. Who sends no deadline, and whoever is
    /// outside, never gets more than [`when_absent`](Self::when_absent).
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Duration) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// The least that is useful: with less left, the request is refused before any side effect (contract C4).
    #[must_use]
    pub const fn min_useful(mut self, min_useful: Duration) -> Self {
        self.min_useful = min_useful;
        self
    }

    /// What to do when a deadline field cannot be read.
    #[must_use]
    pub const fn on_malformed(mut self, on_malformed: OnMalformed) -> Self {
        self.on_malformed = on_malformed;
        self
    }

    /// Declares a stream (server-sent events, long polls, downloads without an end): the budget covers the
    /// establishment, up to the head; the stream ends after `idle` without a frame, and after `total` in any case
    /// (contract S2). An undeclared stream is cut at its budget.
    #[must_use]
    pub const fn streaming(mut self, idle: Duration, total: Duration) -> Self {
        self.coverage = Coverage::Streaming { idle, total };
        self
    }

    /// It needs nothing of what is scarce: it is served without a place, also under overload. For probes and metrics, which have to
    /// be answered when a service is busy most of all.
    #[must_use]
    pub const fn unadmitted(mut self) -> Self {
        self.admitted = false;
        self
    }

    /// Whether it needs a place, where the layer has an admission.
    pub const fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// What the budget covers.
    pub const fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// See [`when_absent`](Self::when_absent).
    pub const fn when_absent_value(&self) -> Duration {
        self.when_absent
    }

    /// See [`ceiling`](Self::ceiling).
    pub const fn ceiling_value(&self) -> Duration {
        self.ceiling
    }

    /// See [`min_useful`](Self::min_useful).
    pub const fn min_useful_value(&self) -> Duration {
        self.min_useful
    }

    /// Whether the limits fit together.
    ///
    /// # Errors
    /// [`PolicyError`], the first that is found.
    pub fn check(&self) -> Result<(), PolicyError> {
        let Self { when_absent, ceiling, min_useful, .. } = *self;
        if ceiling.is_zero() {
            return Err(PolicyError::Zero { what: "ceiling" });
        }
        if when_absent.is_zero() {
            return Err(PolicyError::Zero { what: "when_absent" });
        }
        if when_absent > ceiling {
            return Err(PolicyError::AbsentAboveCeiling { when_absent, ceiling });
        }
        if let Coverage::Streaming { idle, total } = self.coverage {
            if total.is_zero() {
                return Err(PolicyError::Zero { what: "the total limit of a stream" });
            }
            if idle.is_zero() {
                return Err(PolicyError::Zero { what: "the idle limit of a stream" });
            }
        }
        if min_useful > when_absent {
            return Err(PolicyError::MinimumAboveAbsent { min_useful, when_absent });
        }
        Ok(())
    }

    /// Decides about one arrival.
    ///
    /// In this order: malformed fields, then the shortest of what was said and what is allowed, then whether enough of
    /// it is left. Zero on the wire means expired (contract P4).
    pub fn decide<'a>(&self, arriving: &Arriving<'a>) -> Decision<'a> {
        let reading = &arriving.reading;
        let mut decided = Accepted {
            budget: Budget::begin(BoundBy::Absent, self.when_absent, arriving.arrived),
            source: reading.source,
            clamped: false,
            skew_suspected: reading.suspected_skew(self.ceiling, SKEW_TOLERANCE).is_some(),
            malformed: None,
        };
        // What was asked for. A malformed field that is read as absent still cannot lift what was understood.
        let asked = match reading.read {
            Read::Absent => None,
            Read::Valid(span) => Some(span),
            Read::Expired => Some(Duration::ZERO),
            Read::Malformed(_) => match self.on_malformed {
                OnMalformed::Clamp if !arriving.rpc => {
                    decided.malformed = reading.malformed;
                    decided.source = None;
                    reading.at_most.filter(|at_most| *at_most < self.when_absent)
                }
                OnMalformed::Clamp | OnMalformed::Reject => {
                    return self.refused(arriving, &decided, Reason::Malformed, Duration::ZERO);
                }
            },
        };
        if let Some(asked) = asked {
            let (most, by) = match arriving.trust {
                Trust::Outside => (self.when_absent, BoundBy::Absent),
                Trust::Inside => (self.ceiling, BoundBy::Ceiling),
            };
            decided.clamped = asked > most;
            decided.budget = if decided.clamped {
                Budget::begin(by, most, arriving.arrived)
            } else {
                Budget::begin(BoundBy::Caller, asked, arriving.arrived)
            };
        }
        if let Some(platform) = arriving.platform {
            let limit = platform.remaining(arriving.arrived);
            let platform = Budget { deadline: platform, bound: Bound { by: BoundBy::Platform, limit } };
            decided.budget = decided.budget.shortened(platform);
        }
        let remaining = decided.budget.deadline.remaining(arriving.now);
        if remaining.is_zero() {
            return self.refused(arriving, &decided, Reason::ExpiredBeforeStart, remaining);
        }
        if remaining < self.min_useful {
            return self.refused(arriving, &decided, Reason::InsufficientBudget, remaining);
        }
        Decision::Accepted(decided)
    }

    fn refused<'a>(
        &self,
        arriving: &Arriving<'a>,
        decided: &Accepted<'a>,
        reason: Reason,
        remaining: Duration,
    ) -> Decision<'a> {
        Decision::Refused(RefusedAtIngress {
            reason,
            bound: decided.budget.bound,
            remaining,
            min_useful: self.min_useful,
            source: decided.source,
            malformed: arriving.reading.malformed,
            skew_suspected: decided.skew_suspected,
        })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

// === Policy ===

impl Policy {
    /// Begins a policy under a name that ledgers, errors and metrics show: the service's.
    pub fn named(name: impl Into<Name>) -> PolicyBuilder {
        PolicyBuilder { name: name.into(), limits: Limits::new(), routes: Vec::new() }
    }

    /// The service's name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// The limits of a matched route, or the service's own: for methods that have none of their own there.
    pub fn limits(&self, route: Option<&str>) -> &Limits {
        route.and_then(|route| self.0.routes.get(route)?.all.as_ref()).unwrap_or(&self.0.limits)
    }

    /// The limits of requests with this method to a matched route: those of the method, else those of the route, else the
    /// service's own. `HEAD` is as `GET` where it has none of its own.
    ///
    /// ```
    /// # use oneclock_core::Policy; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
    /// let policy = Policy::named("order").route_for("GET", "/orders", |limits| limits.when_absent(ms(300))).build()?;
    /// assert_eq!(policy.limits_for("HEAD", Some("/orders")).when_absent_value(), ms(300));
    /// assert_eq!(policy.limits_for("POST", Some("/orders")), policy.limits(None));
    /// # Ok::<(), oneclock_core::ingress::PolicyError>(())
    /// ```
    pub fn limits_for(&self, method: &str, route: Option<&str>) -> &Limits {
        route.and_then(|route| self.0.routes.get(route)?.of(method)).unwrap_or(&self.0.limits)
    }

    /// The limits of a remote procedure, whose path names service and method: those of the method (`/shop.Pricing/Price`),
    /// else those of its service (`/shop.Pricing`), else the policy's own. Procedures are called with `POST`.
    ///
    /// ```
    /// # use oneclock_core::Policy; use std::time::Duration; fn secs(n: u64) -> Duration { Duration::from_secs(n) }
    /// let policy = Policy::named("pricing")
    ///     .ceiling(secs(2))
    ///     .route("/shop.Pricing/Reprice", |limits| limits.when_absent(secs(30)).ceiling(secs(30)))
    ///     .build()?;
    /// assert_eq!(policy.limits_of_method("/shop.Pricing/Reprice").ceiling_value(), Duration::from_secs(30));
    /// assert_eq!(policy.limits_of_method("/shop.Pricing/Price").ceiling_value(), Duration::from_secs(2));
    /// # Ok::<(), oneclock_core::ingress::PolicyError>(())
    /// ```
    pub fn limits_of_method(&self, path: &str) -> &Limits {
        self.entry_of_method(path).map_or(&self.0.limits, |(_, limits)| limits)
    }

    /// What the policy calls a remote procedure, by the same rule as [`limits_of_method`](Self::limits_of_method): its method or
    /// its service, whichever has limits. None if neither has: callers choose such paths, and only what the policy spells is
    /// bounded, so that it may be a label.
    ///
    /// ```
    /// # use oneclock_core::Policy; use std::time::Duration;
    /// let policy = Policy::named("pricing")
    ///     .when_absent(Duration::from_millis(800))
    ///     .route("/shop.Pricing/Price", |limits| limits) // limits as all have: only its name
    ///     .route("/shop.Stock", |limits| limits)
    ///     .build()?;
    /// assert_eq!(policy.name_of_method("/shop.Pricing/Price"), Some("/shop.Pricing/Price"));
    /// assert_eq!(policy.name_of_method("/shop.Stock/Reserve"), Some("/shop.Stock"));
    /// assert_eq!(policy.name_of_method("/shop.Pricing/made-up"), None);
    /// # Ok::<(), oneclock_core::ingress::PolicyError>(())
    /// ```
    pub fn name_of_method(&self, path: &str) -> Option<&str> {
        self.entry_of_method(path).map(|(name, _)| name)
    }

    fn entry_of_method(&self, path: &str) -> Option<(&str, &Limits)> {
        let routes = &self.0.routes;
        if routes.is_empty() {
            return None;
        }
        let entry = |name: &str| {
            let (name, of_route) = routes.get_key_value(name)?;
            Some((name.as_str(), of_route.of(PROCEDURES)?))
        };
        entry(path).or_else(|| entry(path.rsplit_once('/')?.0))
    }

    /// The limits of what a router matched to `pattern`, where the pattern may stand for a whole service: those of the pattern,
    /// else as [`limits_of_method`](Self::limits_of_method).
    pub fn limits_of_mounted(&self, pattern: &str, path: &str) -> &Limits {
        let of_pattern = self.0.routes.get(pattern).and_then(|of_route| of_route.of(PROCEDURES));
        of_pattern.unwrap_or_else(|| self.limits_of_method(path))
    }

    /// The routes with limits of their own; one whose methods differ is there once for each of these, too.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &Limits)> {
        self.0.routes.iter().flat_map(|(route, of_route)| {
            let all = of_route.all.iter().chain(of_route.methods.iter().map(|(_, limits)| limits));
            all.map(move |limits| (route.as_str(), limits))
        })
    }
}

// === OfRoute ===

impl OfRoute {
    fn of(&self, method: &str) -> Option<&Limits> {
        let own = |method| self.methods.iter().find(|(known, _)| known == method).map(|(_, limits)| limits);
        let as_get = || if method == "HEAD" { own("GET") } else { None };
        own(method).or_else(as_get).or(self.all.as_ref())
    }
}

// === PolicyBuilder ===

impl PolicyBuilder {
    /// See [`Limits::when_absent`].
    pub fn when_absent(mut self, when_absent: Duration) -> Self {
        self.limits = self.limits.when_absent(when_absent);
        self
    }

    /// See [`Limits::ceiling`].
    pub fn ceiling(mut self, ceiling: Duration) -> Self {
        self.limits = self.limits.ceiling(ceiling);
        self
    }

    /// See [`Limits::min_useful`].
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.limits = self.limits.min_useful(min_useful);
        self
    }

    /// See [`Limits::on_malformed`].
    pub fn on_malformed(mut self, on_malformed: OnMalformed) -> Self {
        self.limits = self.limits.on_malformed(on_malformed);
        self
    }

    /// All limits at once, in place of those so far: also what the budget covers, for what is one route as a whole.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Other limits for one matched route, spelled as the router spells it. `change` gets the service's own limits.
    ///
    /// A ceiling above the service's says nothing of those who send no deadline, nor of outsiders: they get `when_absent`.
    /// So a route that raises the one has to say the other, too ([`PolicyError::CeilingAlone`]).
    pub fn route(
        mut self,
        route: impl Into<String>,
        change: impl Fn(Limits) -> Limits + Send + Sync + 'static,
    ) -> Self {
        self.routes.push((None, route.into(), Change(Arc::new(change))));
        self
    }

    /// Other limits for one method of a matched route: `"POST"`, or `http::Method::POST`. `change` gets the limits that the
    /// route has without this, whichever of the two was said first. What is said of `GET` holds for `HEAD`, unless that has
    /// its own.
    ///
    /// ```
    /// # use oneclock_core::Policy; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
    /// let policy = Policy::named("order")
    ///     .route_for("POST", "/orders", |limits| limits.when_absent(ms(1_500)))
    ///     .route("/orders", |limits| limits.min_useful(ms(50)))
    ///     .build()?;
    /// let placing = policy.limits_for("POST", Some("/orders"));
    /// assert_eq!((placing.when_absent_value(), placing.min_useful_value()), (ms(1_500), ms(50)));
    /// assert_eq!(policy.limits_for("GET", Some("/orders")).when_absent_value(), ms(2_000));
    /// # Ok::<(), oneclock_core::ingress::PolicyError>(())
    /// ```
    pub fn route_for(
        mut self,
        method: impl AsRef<str>,
        route: impl Into<String>,
        change: impl Fn(Limits) -> Limits + Send + Sync + 'static,
    ) -> Self {
        self.routes.push((Some(method.as_ref().to_owned()), route.into(), Change(Arc::new(change))));
        self
    }

    /// The policy.
    ///
    /// # Errors
    /// [`PolicyError`], if limits contradict one another, here rather than at the first request.
    pub fn build(self) -> Result<Policy, PolicyError> {
        self.limits.check()?;
        let mut routes = BTreeMap::<String, OfRoute>::new();
        // Those of whole routes first: a method's begin with them.
        let (of_methods, whole): (Vec<_>, Vec<_>) = self.routes.into_iter().partition(|(method, ..)| method.is_some());
        for (method, route, change) in whole.into_iter().chain(of_methods) {
            if !route.starts_with('/') {
                return Err(PolicyError::NotARoute { route });
            }
            let said = method.as_ref().map_or_else(|| route.clone(), |method| format!("{method} {route}"));
            let of_route = routes.entry(route).or_default();
            let base = of_route.all.filter(|_| method.is_some()).unwrap_or(self.limits);
            let limits = change
                .checked(base)
                .map_err(|error| PolicyError::InRoute { route: said.clone(), error: Box::new(error) })?;
            let is_second = match method {
                None => of_route.all.replace(limits).is_some(),
                Some(method) if !is_method(&method) => return Err(PolicyError::NotAMethod { method }),
                Some(method) => {
                    let is_second = of_route.methods.iter().any(|(known, _)| *known == method);
                    of_route.methods.push((method, limits));
                    is_second
                }
            };
            if is_second {
                return Err(PolicyError::SameRouteTwice { route: said });
            }
        }
        Ok(Policy(Arc::new(Rules { name: self.name, limits: self.limits, routes })))
    }
}

/// A token of HTTP without small letters: methods are told apart by case, and no router knows one with any.
fn is_method(method: &str) -> bool {
    let is_of_it = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    !method.is_empty() && method.bytes().all(is_of_it)
}

// === Change ===

impl Change {
    /// What it makes of `base`, if that fits together.
    fn checked(&self, base: Limits) -> Result<Limits, PolicyError> {
        let limits = (self.0)(base);
        limits.check()?;
        let Limits { when_absent, ceiling, .. } = limits;
        if ceiling > base.ceiling && !self.says_when_absent(base) {
            return Err(PolicyError::CeilingAlone { was: base.ceiling, ceiling, when_absent });
        }
        Ok(limits)
    }

    /// Whether it says something of requests without a deadline, also if that is what they get anyway.
    fn says_when_absent(&self, base: Limits) -> bool {
        let another = base.when_absent.saturating_add(Duration::from_nanos(1));
        (self.0)(base.when_absent(another)).when_absent != another
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

// === RefusedAtIngress ===

/// A sentence for the person on call.
impl fmt::Display for RefusedAtIngress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(malformed) = &self.malformed
            && self.reason == Reason::Malformed
        {
            return write!(f, "{malformed}");
        }
        write!(
            f,
            "{}: {} left, {} is the least that is useful (bound: {}",
            self.reason.title(),
            Legible(self.remaining),
            Legible(self.min_useful),
            self.bound
        )?;
        match self.source {
            Some(source) => write!(f, ", {source})"),
            None => f.write_str(")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Convention, Conventions, Reader, Wall};
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    use std::cell::Cell;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    const LIMITS: Limits = Limits::new().when_absent(ms(800)).ceiling(ms(2_000)).min_useful(ms(20));
    const ARRIVED: Tick = Tick::from_nanos(5_000_000_000);

    /// What `fields` get from `trust`, `waited` after the head was read.
    #[track_caller]
    fn decides(
        limits: Limits,
        fields: &[(&'static str, &str)],
        trust: Trust,
        waited: Duration,
        want: Result<(Duration, BoundBy), Reason>,
    ) {
        let conventions = Conventions::default_set();
        let mut reader = Reader::new(Wall::from_nanos(1_700_000_000_000_000_000));
        for (name, value) in fields {
            reader.field(conventions.find(name).expect("a default convention"), value.as_bytes());
        }
        let now = ARRIVED + waited;
        let arriving = Arriving { reading: reader.finish(), rpc: false, trust, arrived: ARRIVED, now, platform: None };
        let got = match limits.decide(&arriving) {
            Decision::Accepted(accepted) => Ok((accepted.budget.deadline.remaining(now), accepted.budget.bound.by)),
            Decision::Refused(refused) => Err(refused.reason),
        };
        assert_eq!(got, want, "{fields:?} from {trust:?} after {waited:?}");
    }

    #[test]
    fn c2_absent_gets_when_absent_whoever_asks() {
        for trust in [Trust::Inside, Trust::Outside] {
            decides(LIMITS, &[], trust, ms(0), Ok((ms(800), BoundBy::Absent)));
        }
    }

    #[test]
    fn c2_outside_may_shorten_never_lengthen() {
        let outside = |value, want| decides(LIMITS, &[("x-remaining-ms", value)], Trust::Outside, ms(0), want);
        outside("300", Ok((ms(300), BoundBy::Caller)));
        outside("801", Ok((ms(800), BoundBy::Absent)));
        outside("9999999999", Ok((ms(800), BoundBy::Absent)));
    }

    #[test]
    fn c2_inside_gets_what_it_asks_up_to_the_ceiling() {
        let inside = |value, want| decides(LIMITS, &[("grpc-timeout", value)], Trust::Inside, ms(0), want);
        inside("1500m", Ok((ms(1_500), BoundBy::Caller)));
        inside("2S", Ok((ms(2_000), BoundBy::Caller)));
        inside("99999999H", Ok((ms(2_000), BoundBy::Ceiling)));
    }

    #[test]
    fn k1_waiting_before_the_decision_is_spent() {
        let after = |waited, want| decides(LIMITS, &[("x-remaining-ms", "300")], Trust::Inside, waited, want);
        after(ms(100), Ok((ms(200), BoundBy::Caller)));
        after(ms(281), Err(Reason::InsufficientBudget));
        after(ms(300), Err(Reason::ExpiredBeforeStart));
        after(ms(9_000), Err(Reason::ExpiredBeforeStart));
    }

    #[test]
    fn p4_zero_is_expired_and_c4_too_little_is_refused() {
        for trust in [Trust::Inside, Trust::Outside] {
            decides(LIMITS, &[("grpc-timeout", "0S")], trust, ms(0), Err(Reason::ExpiredBeforeStart));
            decides(LIMITS, &[("x-remaining-ms", "19")], trust, ms(0), Err(Reason::InsufficientBudget));
            decides(LIMITS, &[("x-remaining-ms", "20")], trust, ms(0), Ok((ms(20), BoundBy::Caller)));
        }
        decides(Limits::new(), &[("x-remaining-ms", "4")], Trust::Inside, ms(0), Err(Reason::InsufficientBudget));
    }

    #[test]
    fn p3_malformed_is_never_unlimited() {
        let clamp = LIMITS.on_malformed(OnMalformed::Clamp);
        let bad = ("grpc-timeout", "1.5S");
        decides(LIMITS, &[bad], Trust::Inside, ms(0), Err(Reason::Malformed));
        decides(clamp, &[bad], Trust::Inside, ms(0), Ok((ms(800), BoundBy::Absent)));
        let conventions = Conventions::default_set();
        let mut reader = Reader::new(Wall::default());
        reader.field(conventions.find(bad.0).expect("a default convention"), bad.1.as_bytes());
        let reading = reader.finish();
        let of_grpc =
            Arriving { reading, rpc: true, trust: Trust::Inside, arrived: ARRIVED, now: ARRIVED, platform: None };
        assert!(
            matches!(clamp.decide(&of_grpc), Decision::Refused(refused) if refused.reason == Reason::Malformed),
            "gRPC has an answer of its own"
        );
        decides(clamp, &[bad, ("x-remaining-ms", "300")], Trust::Inside, ms(0), Ok((ms(300), BoundBy::Caller)));
        decides(clamp, &[bad, ("x-remaining-ms", "1900")], Trust::Inside, ms(0), Ok((ms(800), BoundBy::Absent)));
        decides(clamp, &[bad, ("x-remaining-ms", "0")], Trust::Inside, ms(0), Err(Reason::ExpiredBeforeStart));
    }

    #[test]
    fn p10_a_moment_far_off_is_clamped_and_suspected() {
        let convention = Convention::X_REQUEST_DEADLINE;
        for (moment, suspected, accepted) in [
            ("2023-11-14T22:13:21.5Z", false, true), // 1.5 s ahead
            ("2023-11-14T23:13:20Z", true, true),    // an hour ahead
            ("2023-11-14T22:13:19.5Z", false, false),
            ("2023-11-14T21:13:20Z", true, false), // an hour ago
        ] {
            let mut reader = Reader::new(Wall::from_nanos(1_700_000_000_000_000_000));
            reader.field(&convention, moment.as_bytes());
            let reading = reader.finish();
            let arriving =
                Arriving { reading, rpc: false, trust: Trust::Inside, arrived: ARRIVED, now: ARRIVED, platform: None };
            match LIMITS.decide(&arriving) {
                Decision::Accepted(got) => assert!(accepted && got.skew_suspected == suspected, "{moment}"),
                Decision::Refused(got) => assert!(!accepted && got.skew_suspected == suspected, "{moment}"),
            }
        }
    }

    #[test]
    fn the_platform_can_only_shorten() {
        let decide = |platform: u64| {
            let reading = Reader::new(Wall::default()).finish();
            let platform = Some(Deadline::after(ARRIVED, ms(platform)));
            match LIMITS.decide(&Arriving {
                reading,
                rpc: false,
                trust: Trust::Inside,
                arrived: ARRIVED,
                now: ARRIVED,
                platform,
            }) {
                Decision::Accepted(accepted) => accepted.budget.bound,
                Decision::Refused(refused) => refused.bound,
            }
        };
        assert_eq!(decide(500), Bound { by: BoundBy::Platform, limit: ms(500) });
        assert_eq!(decide(5_000).by, BoundBy::Absent);
    }

    #[test]
    fn limits_that_contradict_are_refused_at_construction() {
        #[track_caller]
        fn refused(builder: PolicyBuilder, want: &str) {
            assert_eq!(builder.build().unwrap_err().to_string(), want);
        }
        refused(
            Policy::named("a").ceiling(ms(0)),
            "ceiling is zero, which means expired and would refuse every request; write the duration that is meant",
        );
        refused(
            Policy::named("a").when_absent(ms(10)).min_useful(ms(20)),
            "min_useful (20ms) is above when_absent (10ms): requests without a deadline would all be refused",
        );
        refused(
            Policy::named("a").route("reports", |limits| limits),
            "route \"reports\" does not begin with a slash; write it as the router spells it, such as \"/reports/{id}\"",
        );
        refused(
            Policy::named("a").route("/x", |limits| limits.ceiling(ms(1))),
            "the limits of route /x contradict one another",
        );
        refused(
            Policy::named("a").route("/x", |limits| limits).route("/x", |limits| limits),
            "route /x has two sets of limits; keep one",
        );
        let twice = |limits| limits;
        refused(
            Policy::named("a").route_for("PUT", "/x", twice).route("/x", twice).route_for("PUT", "/x", twice),
            "route PUT /x has two sets of limits; keep one",
        );
        refused(
            Policy::named("a").route_for("post", "/x", |limits| limits),
            "\"post\" is no method that a request has; they are written in capitals, such as \"POST\"",
        );
    }

    /// Contract C2: for outsiders, and for whoever says nothing, a ceiling changes nothing.
    #[test]
    fn c2_a_route_that_raises_its_ceiling_says_what_the_silent_get() {
        let alone = |builder: PolicyBuilder| match builder.build() {
            Ok(_) => None,
            Err(PolicyError::InRoute { error, .. }) => Some(error.to_string()),
            Err(other) => panic!("{other}"),
        };
        let policy = || Policy::named("a").when_absent(ms(800)).ceiling(ms(2_000));
        assert_eq!(
            alone(policy().route("/x", |limits| limits.ceiling(ms(30_000)))).as_deref(),
            Some(
                "the ceiling was raised from 2s to 30s, but who sends no deadline, and whoever is outside, still gets \
                 when_absent, 800ms; write `.when_absent(…)` beside it, with the same value if that is what is meant"
            )
        );
        assert_eq!(alone(policy().route("/x", |limits| limits.ceiling(ms(30_000)).when_absent(ms(800)))), None);
        assert_eq!(
            alone(policy().route("/x", |limits| limits.ceiling(ms(1_000)))),
            None,
            "lower, which is always meant"
        );
        let export = |limits: Limits| limits.ceiling(ms(30_000)).when_absent(ms(20_000));
        assert_eq!(alone(policy().route("/x", export).route_for("PUT", "/x", |limits| limits.min_useful(ms(9)))), None);
        assert!(
            alone(policy().route("/x", export).route_for("PUT", "/x", |limits| limits.ceiling(ms(40_000)))).is_some()
        );
    }

    #[test]
    fn the_method_of_a_route_may_have_limits_of_its_own() {
        let policy = Policy::named("a")
            .route_for("GET", "/x", |limits| limits.when_absent(ms(300)))
            .route("/x", |limits| limits.when_absent(ms(1_000)))
            .route_for("POST", "/only", |limits| limits.when_absent(ms(400)))
            .route_for("POST", "/shop.Pricing/Price", |limits| limits.when_absent(ms(500)))
            .route("/shop.Pricing", |limits| limits.when_absent(ms(600)))
            .route_for("GET", "/shop.Pricing/Stock", |limits| limits.when_absent(ms(700)))
            .build()
            .expect("limits that fit together");
        let of = |method: &str, route: &str| policy.limits_for(method, Some(route)).when_absent_value().as_millis();
        let rows = [("GET", "/x", 300), ("HEAD", "/x", 300), ("POST", "/x", 1_000), ("get", "/x", 1_000)];
        for (method, route, want) in rows.into_iter().chain([("POST", "/only", 400), ("GET", "/only", 2_000)]) {
            assert_eq!(of(method, route), want, "{method} {route}");
        }
        let of_method = |path: &str| policy.limits_of_method(path).when_absent_value().as_millis();
        assert_eq!((of_method("/shop.Pricing/Price"), of_method("/shop.Pricing/Stock")), (500, 600));
        assert_eq!(policy.name_of_method("/shop.Pricing/Price"), Some("/shop.Pricing/Price"));
        assert_eq!(policy.limits_of_mounted("/only", "/shop.Pricing/Price").when_absent_value(), ms(400));
        assert_eq!(policy.routes().filter(|(route, _)| *route == "/x").count(), 2);
    }

    /// What a caller may write into the field of the convention at `index`: mostly a value that the grammar allows, of
    /// every size, and now and then one with something before or behind it.
    fn near_valid(index: usize) -> impl Strategy<Value = String> {
        let relative = index != X_REQUEST_DEADLINE;
        let number = prop_oneof![4 => 20u64..5_000, 1 => 0u64..20, 1 => 5_000u64..10_000_000_000];
        let unit = if index == GRPC_TIMEOUT { "[HMSmm]" } else { "" };
        let junk = || prop_oneof![12 => Just(String::new()), 1 => "[ +.0-9a-zA-Z-]{1,3}", 1 => "\\PC"];
        (junk(), number, unit, junk()).prop_map(move |(before, number, unit, behind)| {
            let value = match relative {
                true => format!("{}{unit}", if index == GRPC_TIMEOUT { number.min(99_999_999) } else { number }),
                false => format!("2023-11-14T22:{:02}:{:02}Z", 13 + number / 60 % 47, number % 60),
            };
            format!("{before}{value}{behind}")
        })
    }

    // Their places in the default set.
    const GRPC_TIMEOUT: usize = 0;
    const X_REQUEST_DEADLINE: usize = 4;

    /// Invariant I1, and C2: whatever arrives, the result is finite and at most what this trust allows.
    #[test]
    fn i1_whatever_arrives_gets_a_finite_deadline() {
        let conventions = Conventions::default_set();
        let of = |index: usize| conventions.iter().nth(index).expect("six by default");
        assert_eq!(of(GRPC_TIMEOUT).name().to_string(), "grpc-timeout");
        assert_eq!(of(X_REQUEST_DEADLINE).name().to_string(), "x-request-deadline");
        let cases = (0usize..6).prop_flat_map(|index| (Just(index), near_valid(index), any::<bool>(), any::<bool>()));
        let (arrived, from_the_caller) = (Cell::new(0), Cell::new(0));
        let mut runner = TestRunner::new(ProptestConfig { cases: 2_000, ..ProptestConfig::default() });
        runner
            .run(&cases, |(index, value, inside, clamp)| {
                let mut reader = Reader::new(Wall::from_nanos(1_700_000_000_000_000_000));
                reader.field(of(index), value.as_bytes());
                let limits = LIMITS.on_malformed(if clamp { OnMalformed::Clamp } else { OnMalformed::Reject });
                let trust = if inside { Trust::Inside } else { Trust::Outside };
                let reading = reader.finish();
                arrived.set(arrived.get() + 1);
                if let Decision::Accepted(accepted) = limits.decide(&Arriving {
                    reading,
                    rpc: false,
                    trust,
                    arrived: ARRIVED,
                    now: ARRIVED,
                    platform: None,
                }) {
                    from_the_caller.set(from_the_caller.get() + i32::from(accepted.source.is_some()));
                    let most = if inside { ms(2_000) } else { ms(800) };
                    prop_assert!(accepted.budget.deadline <= Deadline::after(ARRIVED, most), "{value:?}");
                }
                Ok(())
            })
            .expect("finite, and at most what this trust allows");
        let share = f64::from(from_the_caller.get()) / f64::from(arrived.get());
        assert!(share > 0.5, "too few were read and accepted to prove anything: {share}");
    }
}
