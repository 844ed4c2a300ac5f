//! For axum: the key as an extractor, and the route as axum matched it.

use ::axum::extract::{FromRequestParts, MatchedPath, OptionalFromRequestParts};
use ::axum::http::request::Parts;
use ::axum::http::{Extensions, Method};
use ::axum::response::{IntoResponse, Response};
use oneclock_core::idempotency::Refusal;
use oneclock_http::{Problem, Protocol};
use std::time::Duration;

use crate::key::Covered;
use crate::{IdempotencyKey, refuse};

/// The handler asked for a key and there is none.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoKey {
    /// The request has none. As a response it is a 400, `key_missing`.
    #[error("the request has no key")]
    Missing,
    /// The request did not come through an [`Idempotency`](crate::Idempotency) layer, so nothing says whose its key is. As a
    /// response it is a 500, whose reason is logged at level error.
    #[error(
        "no idempotency: no layer covers {method} {route}, or its method has no keys; add `.route_layer(once)` after the \
         routes it is for (axum applies a layer to what was added before it), and name the method in `methods`"
    )]
    NoLayer {
        /// The method of the request.
        method: Method,
        /// The route that matched, else the path of the request.
        route: String,
    },
}

pub(crate) fn matched_route(extensions: &Extensions) -> Option<&str> {
    extensions.get::<MatchedPath>().map(|matched| matched.as_str())
}

impl NoKey {
    fn of(parts: &Parts) -> Self {
        if parts.extensions.get::<Covered>().is_some() {
            return Self::Missing;
        }
        let route = matched_route(&parts.extensions).unwrap_or_else(|| parts.uri.path()).to_owned();
        Self::NoLayer { method: parts.method.clone(), route }
    }
}

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = NoKey;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoKey> {
        Self::of(&parts.extensions).ok_or_else(|| NoKey::of(parts))
    }
}

/// For a handler whose callers may leave the key out. The layer has to be there all the same.
impl<S: Sync> OptionalFromRequestParts<S> for IdempotencyKey {
    type Rejection = NoKey;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, NoKey> {
        match Self::of(&parts.extensions).ok_or_else(|| NoKey::of(parts)) {
            Err(NoKey::Missing) => Ok(None),
            key => key.map(Some),
        }
    }
}

impl IntoResponse for NoKey {
    fn into_response(self) -> Response {
        let answer = match self {
            Self::Missing => refuse::answer(Refusal::KeyMissing, None, Duration::ZERO, Protocol::Http),
            Self::NoLayer { .. } => refuse::of_problem(Problem::of(self), Protocol::Http),
        };
        answer.map(::axum::body::Body::from)
    }
}
