//! From the accept loop to a route: the first thing that happens to a request.
//!
//! Decides nothing about which route it is: that is [`Config::route_for`](crate::config::Config::route_for), an exact path
//! before a prefix, the longest prefix first, with a method before without. The table is read once for a request, which keeps
//! what it read: a reload is seen by the next one.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use oneclock::{Shutdown, clock};
use oneclock_core::Name;
use oneclock_http::{Arrival, BoundedBody, IngressFuture};
use oneclock_telemetry::readiness::as_probe;
use tower_service::Service;

use crate::admin::Probes;
use crate::answer::Forwarded;
use crate::forward::Forward;
use crate::leaving::Leaving;
use crate::live::{Live, What};
use crate::table::{Found, Shared, Table};

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
        let (mut peer, mut since) = (None, None);
        if let Some(arrival) = request.extensions_mut().get_mut::<Arrival>() {
            // Not that of its connections, which may be told to go while work goes on being let in.
            arrival.shutdown = if door.process.is_signalled() { door.process.clone() } else { door.work.clone() };
            (peer, since) = (arrival.peer, Some(arrival.at));
        }
        if door.probes.sent(&door.listener, peer) {
            drop(table);
            return as_probe(|| ingress.call(request)); // none of its callers waits for it
        }
        // Before it is let in: a drain that begins now knows of it, or refuses it.
        let what = What::of(&door.listener, route, &request, since.unwrap_or_else(clock::now));
        drop(table);
        request.extensions_mut().insert(door.live.enter(what));
        ingress.call(request)
    }
}

// === Dispatch ===

impl Dispatch {
    pub(crate) fn through(door: Door) -> Self {
        Self(Arc::new(door))
    }
}
