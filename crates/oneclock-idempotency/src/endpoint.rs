//! What a request is for: the route of its key's scope, and what it is called in events.
//!
//! Decides that both are of the matched route and never of what the request claims to speak: else one endpoint has several
//! scopes, and a key several runs (contract M8). A path that its caller chose is at most part of a scope, as the key itself is;
//! names are labels, and of a bounded set. Who finds the matched route is said when the layer is built, and never by a
//! feature: those of one crate in a build are those of all, and a key's scope must not change with them.

use http::request::Parts;
use http::{Extensions, Uri};
use oneclock_core::Name;
use oneclock_http::Route;

use crate::layer::Config;

/// How a router tells what it matched.
pub(crate) type FindRoute = for<'r> fn(&'r Extensions, &'r Uri) -> Option<Route<'r>>;

/// What a request with a key is for.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Part of the key's scope.
    pub(crate) route: Name,
    /// In events, and of the operation.
    pub(crate) called: Name,
}

/// What is below a layer, and so what a request was for that no router has matched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Below {
    /// One thing or another, which the layer's name stands for.
    Anything,
    /// Services of remote procedures, in which a path is a method.
    #[cfg_attr(not(feature = "tonic"), expect(dead_code, reason = "tonic's"))]
    Procedures,
}

impl Below {
    fn route(self, uri: &Uri) -> Option<Route<'_>> {
        match self {
            Self::Anything => None,
            Self::Procedures => Some(Route::Method(uri.path())),
        }
    }
}

impl Endpoint {
    pub(crate) fn of<St>(config: &Config<St>, below: Below, head: &Parts) -> Self {
        let found = config.route.and_then(|find| find(&head.extensions, &head.uri));
        #[cfg(feature = "axum")]
        if config.route.is_none() && matches!(below, Below::Anything) {
            crate::axum::tell_if_forgotten(&config.forgotten, &config.name, &head.extensions);
        }
        let matched = found.or_else(|| below.route(&head.uri));
        let name = |found: Option<&str>| found.map_or_else(|| config.name.clone(), |found| found.to_owned().into());
        Self { route: name(matched.map(Route::endpoint)), called: name(matched.and_then(Route::pattern)) }
    }
}
