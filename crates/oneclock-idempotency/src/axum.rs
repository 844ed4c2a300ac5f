//! For axum: the key as an extractor, and the route as axum matched it, for layers that are told to go by it.

use ::axum::extract::{FromRequestParts, MatchedPath, OptionalFromRequestParts};
use ::axum::http::request::Parts;
use ::axum::http::{Extensions, Method};
use ::axum::response::{IntoResponse, Response};
use oneclock_core::Name;
use oneclock_core::idempotency::Refusal;
use oneclock_http::{Problem, Protocol, Route};
use std::sync::Once;
use std::time::Duration;

use crate::key::Covered;
use crate::layer::IdempotencyBuilder;
use crate::store::Store;
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

impl<St: Store> IdempotencyBuilder<St> {
    /// The layer stands in a router of axum: what that matched is the route of a key's scope, and the name in events. Where
    /// tonic mounts services (`Routes::into_axum_router`) the route is the path, which names the method.
    ///
    /// Without it all routes below the layer share one scope, under the layer's name. A key that is used for two of them is
    /// then refused as another request's (`key_reused`), and the log says once that axum matched a route which nobody went
    /// by.
    ///
    /// Part of each key's scope, and of the keys of [its steps](IdempotencyKey::for_step): a service that begins to say it,
    /// or stops, does not find the records that it has.
    ///
    /// ```
    /// # use oneclock_idempotency::{Idempotency, MemoryStore};
    /// # use axum::{Router, routing::post};
    /// let once = Idempotency::builder("shop", MemoryStore::new()).one_principal().axum_routes().build()?;
    /// let app: Router = Router::new().route("/carts/{id}/pay", post(|| async { "paid" })).route_layer(once);
    /// # Ok::<(), oneclock_idempotency::BadIdempotency>(())
    /// ```
    pub fn axum_routes(self) -> Self {
        self.route_by(|extensions, uri| Some(Route::matched(matched_route(extensions)?, uri.path())))
    }
}

/// A layer that was told nothing of routes stands in a router: said once, since nothing else shows it.
pub(crate) fn tell_if_forgotten(once: &Once, layer: &Name, extensions: &Extensions) {
    if let Some(route) = matched_route(extensions) {
        once.call_once(|| {
            tracing::warn!(
                %layer, route,
                "axum matched a route, and the idempotency layer does not go by it: all routes share one scope of keys. Say \
                 `.axum_routes()` when it is built, or `.route_by(|_, _| None)` if that is meant"
            );
        });
    }
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
