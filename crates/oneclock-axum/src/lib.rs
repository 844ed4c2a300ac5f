//! oneclock for axum: one policy for the whole router, decided by the matched route; the current operation as an
//! extractor; problems as responses.
//!
//! ```
//! use axum::{Router, routing::post};
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
//!     .route("/reports/{id}", |limits| limits.ceiling(Duration::from_secs(30)))
//!     .build()?;
//! let app: Router = Router::new().route("/orders", post(place)).layer(clock.layer());
//! # Ok(()) }
//! ```
//!
//! Serve it with [`oneclock_http::serve`], which stamps arrivals, knows whom to trust, and ends connections that hyper
//! cannot. Under `axum::serve` deadlines hold too, but a peer that stops reading keeps its socket.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use oneclock::{Ended, NotBegun, Operation, PartFailed, Stopped, TaskFailed, Unfinished};
use oneclock_core::{Policy, Reason, Trust};
use oneclock_http::{CallError, IngressLayer};

/// The operation of this request.
///
/// Under an [`IngressLayer`] it is the layer's. On a route that no layer covers there is none, and the request is
/// answered with 500: a handler that asked for its operation must not run without a deadline.
///
/// ```
/// # use oneclock_axum::Op;
/// async fn handler(Op(op): Op) -> String {
///     format!("{:?} left of {:?}", op.remaining(), op.bound().limit)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Op(pub Operation);

/// A [`oneclock_http::Problem`] as axum's response. Handlers return it as their error; whatever stopped their work turns
/// into it with `?`.
///
/// The ingress layer writes it for the caller that asked: briefly for outsiders, in full inside the trust boundary.
#[derive(Clone, Debug)]
pub struct Problem(pub oneclock_http::Problem);

/// No ingress layer covers this route.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no operation: no IngressLayer covers this route; add `.layer(policy.layer())` to its router")]
pub struct NoOperation;

/// Makes axum layers of policies.
pub trait PolicyExt {
    /// The layer that gives every request of a router its operation, by the limits of the route that axum matched.
    ///
    /// Add it with [`Router::layer`](axum::Router::layer), which runs after routing, so that the matched route is known.
    fn layer(&self) -> IngressLayer;
}

// === PolicyExt ===

impl PolicyExt for Policy {
    fn layer(&self) -> IngressLayer {
        IngressLayer::new(self.clone())
            .route_by(|extensions| extensions.get::<MatchedPath>().map(|matched| matched.as_str()))
    }
}

// === Op ===

impl<S: Sync> FromRequestParts<S> for Op {
    type Rejection = NoOperation;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoOperation> {
        // The extension first: it is there also when the request was moved to another task.
        let operation = parts.extensions.get::<Operation>().cloned().or_else(Operation::current);
        operation.map(Self).ok_or(NoOperation)
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
        Problem(oneclock_http::Problem::internal(&self)).into_response()
    }
}

// === Problem ===

impl Problem {
    /// The problem of this reason.
    pub fn new(reason: Reason) -> Self {
        Self(oneclock_http::Problem::new(reason))
    }

    /// Our own mistake: 500, and no word about it to outsiders.
    pub fn internal(error: &dyn std::error::Error) -> Self {
        Self(oneclock_http::Problem::internal(error))
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

macro_rules! problem_from {
    ($($error:ty),*) => {$(
        impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Self(error.into())
            }
        }
    )*};
}
problem_from!(CallError, Ended, NotBegun, PartFailed, Stopped);

impl<E: std::error::Error + 'static> From<Unfinished<E>> for Problem {
    fn from(unfinished: Unfinished<E>) -> Self {
        Self(unfinished.into())
    }
}

impl From<TaskFailed> for Problem {
    fn from(failed: TaskFailed) -> Self {
        match failed {
            TaskFailed::Stopped(stopped) => stopped.into(),
            other => Self::internal(&other),
        }
    }
}

impl From<Infallible> for Problem {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
