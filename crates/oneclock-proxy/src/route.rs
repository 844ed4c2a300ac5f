//! From the accept loop to a route: the first thing that happens to a request.
//!
//! Decides nothing about which route it is: that is [`Config::route_for`](crate::config::Config::route_for), an exact path
//! before a prefix, the longest prefix first, with a method before without. The table is read once for a request, which keeps
//! what it read: a reload is seen by the next one.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Extensions, Request, Response, Uri};
use hyper::body::Incoming;
use oneclock_core::Name;
use oneclock_http::{BoundedBody, IngressFuture, Route};
use tower_service::Service;

use crate::answer::Forwarded;
use crate::forward::Forward;
use crate::live::Live;
use crate::table::Shared;

/// What a request was matched to. In its extensions, for the ingress layer.
#[derive(Clone, Debug)]
pub(crate) struct Matched(Arc<str>);

/// Takes the requests of one listener to their routes.
#[derive(Clone, Debug)]
pub(crate) struct Dispatch {
    pub(crate) table: Shared,
    pub(crate) listener: Name,
    pub(crate) live: Live,
}

impl Service<Request<Incoming>> for Dispatch {
    type Response = Response<BoundedBody<Forwarded>>;
    type Error = Infallible;
    type Future = IngressFuture<Forward, Incoming, Forwarded>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let entry = self.live.enter();
        let table = self.table.load();
        let found = table.find(&self.listener, request.uri().path(), request.method());
        // Listeners stay what they are for as long as the proxy runs, so there is one by this name.
        let Some((matched, ingress)) = found else { unreachable!("listener {} is in every table", self.listener) };
        let mut ingress = ingress.clone();
        let matched = matched.cloned();
        drop(table);
        let extensions = request.extensions_mut();
        extensions.insert(entry);
        if let Some(matched) = matched {
            extensions.insert(matched);
        }
        ingress.call(request)
    }
}

// === Matched ===

impl Matched {
    pub(crate) fn new(pattern: &str) -> Self {
        Self(pattern.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// For [`IngressLayer::route_by`](oneclock_http::IngressLayer::route_by).
    pub(crate) fn of<'r>(extensions: &'r Extensions, _: &'r Uri) -> Option<Route<'r>> {
        extensions.get::<Self>().map(|matched| Route::Pattern(&matched.0))
    }
}
