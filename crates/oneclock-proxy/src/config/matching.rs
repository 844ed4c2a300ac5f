//! Which route a request takes: the one that says most about it, as Gateway API orders them.
//!
//! An exact path before a prefix, a longer prefix before a shorter one, with a method before without. So the order of a
//! file does not matter, and a broad route cannot hide a narrow one.

use http::Method;

use super::{Config, Route};

/// What a request must be to take a route: its path, and its method where one is given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// The path, without the query.
    pub path: PathMatch,
    /// The method; `None` for any.
    pub method: Option<Method>,
}

/// A path, or all below it. Letters count as written, and nothing is decoded: `/A` is not `/a`, nor `/%61`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathMatch {
    /// This path and no other.
    Exact(String),
    /// This path and all below it: `/orders` is `/orders`, `/orders/` and `/orders/7`, but not `/orders-old`. Without a
    /// slash at its end, `/` apart.
    Prefix(String),
}

// === Match ===

impl Match {
    /// What any request is.
    pub fn everything() -> Self {
        Self { path: PathMatch::Prefix("/".to_owned()), method: None }
    }

    /// Whether a request is this.
    pub fn matches(&self, path: &str, method: &Method) -> bool {
        self.method.as_ref().is_none_or(|wanted| wanted == method) && self.path.matches(path)
    }

    /// How much it says, for comparison.
    fn rank(&self) -> (bool, usize, bool) {
        match &self.path {
            PathMatch::Exact(path) => (true, path.len(), self.method.is_some()),
            PathMatch::Prefix(path) => (false, path.len(), self.method.is_some()),
        }
    }
}

// === PathMatch ===

impl PathMatch {
    /// Whether a path is this. `path` is that of the URI, without its query.
    ///
    /// ```
    /// # use oneclock_proxy::config::PathMatch;
    /// let orders = PathMatch::Prefix("/orders".to_owned());
    /// assert!(orders.matches("/orders") && orders.matches("/orders/7"));
    /// assert!(!orders.matches("/orders-old"));
    /// ```
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) if prefix == "/" => true, // `*` of OPTIONS, too
            Self::Prefix(prefix) => {
                path.strip_prefix(&**prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

// === Config ===

impl Config {
    /// The route that a request takes: of those that match, the one that says most about it. `None`: there is none, and
    /// the answer is 404. `path` is that of the URI, without its query.
    pub fn route_for(&self, path: &str, method: &Method) -> Option<&Route> {
        let all = self.routes.iter().flat_map(|route| route.matches.iter().map(move |one| (one, route)));
        let matching = all.filter(|(one, _)| one.matches(path, method));
        matching.max_by_key(|(one, _)| one.rank()).map(|(_, route)| route)
    }
}
