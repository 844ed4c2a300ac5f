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
use oneclock::Shutdown;
use oneclock_core::Name;
use oneclock_http::{Arrival, BoundedBody, IngressFuture, Route};
use oneclock_telemetry::readiness::as_probe;
use tower_service::Service;

use crate::admin::Probes;
use crate::answer::Forwarded;
use crate::forward::Forward;
use crate::leaving::Leaving;
use crate::live::{Live, What};
use crate::table::{Found, Shared, Table};

/// What a request was matched to. In its extensions, for the ingress layer.
#[derive(Clone, Debug)]
pub(crate) struct Matched(Arc<str>);

/// Takes the requests of one listener to their routes.
#[derive(Clone, Debug)]
pub(crate) struct Dispatch(Arc<Door>);

/// What every request of one server needs.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) table: Shared,
    pub(crate) listener: Name,
    pub(crate) live: Live,
    pub(crate) probes: Probes,
    /// The shutdown of the process. Once it is signalled nothing more is let in.
    pub(crate) process: Shutdown,
    /// That of what is under way on this server.
    pub(crate) work: Shutdown,
    pub(crate) leaving: Leaving,
}

impl Service<Request<Incoming>> for Dispatch {
    type Response = Response<BoundedBody<Forwarded>>;
    type Error = Infallible;
    type Future = IngressFuture<Forward, Incoming, Forwarded>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let door = &*self.0;
        let table = door.table.load();
        let find = |table| Table::find(table, &door.listener, request.uri().path(), request.method());
        let before;
        let found = match find(&table) {
            Some(found) => Some(found),
            // A listener that is gone was in the table before, which it was given first.
            None => {
                before = door.leaving.table();
                before.as_deref().and_then(find)
            }
        };
        let Some(Found { route, ingress }) = found else {
            unreachable!("listener {} is in every table", door.listener)
        };
        let mut ingress = ingress.clone();
        let peer = request.extensions().get::<Arrival>().and_then(|arrival| arrival.peer);
        let is_probe = door.probes.sent(&door.listener, peer);
        // Before it is let in: a drain that begins now knows of it, or refuses it. None of its callers waits for a probe.
        let what = (!is_probe).then(|| What::of(&door.listener, route.map(|(name, _)| name), &request));
        let entry = what.map(|what| door.live.enter(what));
        let matched = route.map(|(_, matched)| matched.clone());
        drop(table);
        let extensions = request.extensions_mut();
        if let Some(arrival) = extensions.get_mut::<Arrival>() {
            // Not that of its connections, which may be told to go while work goes on being let in.
            arrival.shutdown = if door.process.is_signalled() { door.process.clone() } else { door.work.clone() };
        }
        if let Some(entry) = entry {
            extensions.insert(entry);
        }
        if let Some(matched) = matched {
            extensions.insert(matched);
        }
        if is_probe { as_probe(|| ingress.call(request)) } else { ingress.call(request) }
    }
}

// === Dispatch ===

impl Dispatch {
    pub(crate) fn through(door: Door) -> Self {
        Self(Arc::new(door))
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
