//! oneclock for axum: one policy for the whole router, decided by the matched route; the current operation as an
//! extractor; problems as responses.
//!
//! ```
//! use axum::{Router, http::Method, routing::post};
//! use oneclock_axum::{Op, PolicyExt as _, Problem};
//! use oneclock_core::Policy;
//! use std::time::Duration;
//!
//! async fn place(Op(op): Op) -> Result<String, Problem> {
//!     let left = op.grant("dynamodb").cap(Duration::from_millis(400)).remaining()?;
//!     Ok(format!("{left:?} for the store"))
//! }
//!
//! # fn main() -> Result<(), oneclock_core::ingress::PolicyError> {
//! let clock = Policy::named("order")
//!     .when_absent(Duration::from_millis(800))
//!     .ceiling(Duration::from_secs(2))
//!     .route("/reports/{id}", |limits| limits.when_absent(Duration::from_secs(5)).ceiling(Duration::from_secs(30)))
//!     .route_for(Method::POST, "/orders", |limits| limits.min_useful(Duration::from_millis(200)))
//!     .build()?;
//! let app: Router = Router::new().route("/orders", post(place)).layer(clock.layer());
//! # Ok(()) }
//! ```
//!
//! Serve it with [`oneclock_http::serve`], which stamps arrivals, knows whom to trust, and ends connections that hyper
//! cannot. Under `axum::serve` deadlines hold too, but a peer that stops reading keeps its socket.

mod layer;
mod or_problem;

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, OptionalFromRequestParts};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use oneclock::{Ended, Missing, NotBegun, PartFailed, Stopped, TaskFailed, TooLate, Unfinished};
use oneclock_core::Reason;
use oneclock_http::{BoxError, NotCollected, NotSuccessful};

pub use layer::{AxumService, ClockLayer};
pub use or_problem::OrProblem;
// What a service needs beside this crate, so that it can depend on this one alone.
pub use oneclock::{Effect, Operation, Outcome, Shutdown, Stage};
pub use oneclock_core::ingress::{OnMalformed, PolicyError};
pub use oneclock_core::retry::RetryPolicy;
pub use oneclock_core::{Policy, Trust};
pub use oneclock_http::{CallError, Client, collect, collect_json, outcome_in, serve, successful};

/// The operation of this request.
///
/// Under a [`ClockLayer`] it is the layer's. On a route that no layer covers there is none, and the request is
/// answered with 500: a handler that asked for its operation must not run without a deadline. What is missing is logged.
///
/// ```
/// # use oneclock_axum::Op;
/// async fn handler(Op(op): Op) -> String {
///     format!("{:?} left of {:?}", op.remaining(), op.bound().limit)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Op(pub Operation);

/// A [`oneclock_http::Problem`] as axum's response. Handlers return it as their error. This workspace's own errors of calls,
/// parts and tasks turn into it with `?`; those of databases and caches, and any other, with
/// [`or_problem`](OrProblem::or_problem)`()?`.
///
/// The ingress layer writes it for the caller that asked: briefly for outsiders, in full inside the trust boundary.
///
/// A type of its own, since axum's traits cannot be implemented on one of another crate. It reads as what it is made of does
/// (`problem.status()`), and its methods that change it are here too:
///
/// ```
/// # use {axum::http::StatusCode, oneclock_axum::Problem, std::time::Duration};
/// let busy = Problem::with_status(StatusCode::CONFLICT, "being packed").come_again(Duration::from_secs(2));
/// assert_eq!((busy.status(), busy.grpc_status()), (409, 10));
/// ```
#[derive(Clone, Debug)]
pub struct Problem(pub oneclock_http::Problem);

/// No layer covers this route. As a response it is a 500, whose reason is logged at level error.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "no operation: no layer covers {method} {route}; add `.layer(policy.layer())` after the routes it is for (axum \
     applies a layer to the routes and the fallback that were added before it)"
)]
#[non_exhaustive]
pub struct NoOperation {
    /// The method of the request.
    pub method: Method,
    /// The route that matched, else the path of the request.
    pub route: String,
}

/// Makes axum layers of policies.
pub trait PolicyExt {
    /// The layer that gives every request of a router its operation. Where to put it: see [`ClockLayer`].
    fn layer(&self) -> ClockLayer;
}

// === PolicyExt ===

impl PolicyExt for Policy {
    fn layer(&self) -> ClockLayer {
        ClockLayer::new(self)
    }
}

// === Op ===

impl<S: Sync> FromRequestParts<S> for Op {
    type Rejection = NoOperation;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoOperation> {
        oneclock_http::Destination::operation_of(&parts.extensions).map(Self).ok_or_else(|| {
            let matched = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
            let route = matched.unwrap_or_else(|| parts.uri.path()).to_owned();
            NoOperation { method: parts.method.clone(), route }
        })
    }
}

/// For a handler that is mounted with and without a layer.
impl<S: Sync> OptionalFromRequestParts<S> for Op {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Option<Self>, Infallible> {
        Ok(<Self as FromRequestParts<S>>::from_request_parts(parts, state).await.ok())
    }
}

impl std::ops::Deref for Op {
    type Target = Operation;

    fn deref(&self) -> &Operation {
        &self.0
    }
}

impl IntoResponse for NoOperation {
    fn into_response(self) -> Response {
        Problem::of(self).into_response()
    }
}

// === Problem ===

impl Problem {
    /// The problem of this reason.
    pub fn new(reason: Reason) -> Self {
        Self(oneclock_http::Problem::new(reason))
    }

    /// The problem of any error: see [`oneclock_http::Problem::of`]. For `map_err(Problem::of)?`.
    pub fn of(error: impl Into<BoxError>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(problem) => *problem,
            Err(error) => Self(oneclock_http::Problem::of(error)),
        }
    }

    /// A problem of the service's own making: see [`oneclock_http::Problem::with_status`].
    pub fn with_status(status: StatusCode, title: impl Into<Cow<'static, str>>) -> Self {
        Self(oneclock_http::Problem::with_status(status, title))
    }

    /// Adds a sentence that outsiders may read.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self(self.0.detail(detail))
    }

    /// The caller is welcome again after this: see [`oneclock_http::Problem::come_again`].
    #[must_use]
    pub fn come_again(self, after: Duration) -> Self {
        Self(self.0.come_again(after))
    }

    /// The same request would get the same answer again: see [`oneclock_http::Problem::never_again`].
    #[must_use]
    pub fn never_again(self) -> Self {
        Self(self.0.never_again())
    }

    /// Adds a sentence for trusted callers, in place of what they would read: see [`oneclock_http::Problem::insight`].
    #[must_use]
    pub fn insight(self, insight: impl Into<String>) -> Self {
        Self(self.0.insight(insight))
    }

    /// What is known of what was to be done: see [`oneclock_http::Problem::with_outcome`].
    #[must_use]
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        Self(self.0.with_outcome(outcome))
    }

    /// From a handler that did nothing, and knows it: see [`oneclock_http::Problem::nothing_happened`]. Under an idempotency
    /// layer the next request with the key then runs.
    ///
    /// ```
    /// # use oneclock_axum::Problem;
    /// # async fn reserve() -> std::io::Result<()> { Ok(()) }
    /// async fn place() -> Result<&'static str, Problem> {
    ///     // The first thing it does, so a failure here leaves nothing behind.
    ///     reserve().await.map_err(|error| Problem::of(error).nothing_happened())?;
    ///     Ok("placed")
    /// }
    /// ```
    #[must_use]
    pub fn nothing_happened(self) -> Self {
        Self(self.0.nothing_happened())
    }
}

impl std::ops::Deref for Problem {
    type Target = oneclock_http::Problem;

    fn deref(&self) -> &oneclock_http::Problem {
        &self.0
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Problem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Written as for an outsider, and handed on whole to the ingress layer, which writes it anew for a caller that it
/// trusts.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.0.to_response(Trust::Outside).map(Body::from);
        response.extensions_mut().insert(self.0);
        response
    }
}

impl From<oneclock_http::Problem> for Problem {
    fn from(problem: oneclock_http::Problem) -> Self {
        Self(problem)
    }
}

macro_rules! problem_from {
    ($($error:ty),*) => {$(
        impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Self(error.into())
            }
        }
    )*};
}
problem_from!(CallError, Ended, Missing, NotBegun, NotCollected, NotSuccessful, PartFailed, Stopped, TaskFailed);

impl<E: Into<BoxError>> From<Unfinished<E>> for Problem {
    fn from(unfinished: Unfinished<E>) -> Self {
        Self(unfinished.into())
    }
}

impl<T> From<TooLate<T>> for Problem {
    fn from(too_late: TooLate<T>) -> Self {
        Self(too_late.into())
    }
}

impl From<Infallible> for Problem {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
