//! From the accept loop to a route: the first thing that happens to a request.
//!
//! Decides nothing about which route it is: that is [`Config::route_for`](crate::config::Config::route_for), an exact path
//! before a prefix, the longest prefix first, with a method before without. The table is read once for a request, which keeps
//! what it read: a reload is seen by the next one. An answer of a server that is to end is the last one of its connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, Version};
use hyper::body::Incoming;
use oneclock::{Shutdown, clock};
use oneclock_core::Name;
use oneclock_http::{Arrival, BoundedBody, IngressFuture};
use oneclock_telemetry::readiness::as_probe;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::admin::Probes;
use crate::answer::Forwarded;
use crate::forward::Forward;
use crate::head;
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

pin_project! {
    /// The future of [`Dispatch`].
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Dispatched {
        #[pin]
        inner: IngressFuture<Forward, Incoming, Forwarded>,
        came_by: Option<Arc<Door>>, // over HTTP/1.1
    }
}

impl Service<Request<Incoming>> for Dispatch {
    type Response = Response<BoundedBody<Forwarded>>;
    type Error = Infallible;
    type Future = Dispatched;

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
            let inner = as_probe(|| ingress.call(request)); // none of its callers waits for it
            return Dispatched { inner, came_by: None };
        }
        // Before it is let in: a drain that begins now knows of it, or refuses it.
        let what = What::of(&door.listener, route, &request, since.unwrap_or_else(clock::now));
        drop(table);
        request.extensions_mut().insert(door.live.enter(what));
        let came_by = (request.version() < Version::HTTP_2).then(|| Arc::clone(&self.0));
        Dispatched { inner: ingress.call(request), came_by }
    }
}

// === Dispatch ===

impl Dispatch {
    pub(crate) fn through(door: Door) -> Self {
        Self(Arc::new(door))
    }
}

// === Dispatched ===

impl Future for Dispatched {
    type Output = Result<Response<BoundedBody<Forwarded>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.inner.poll(cx))?;
        let is_last = this.came_by.take().is_some_and(|door| door.leaving.leaves());
        Poll::Ready(Ok(if is_last { head::last(answer, Version::HTTP_11) } else { answer }))
    }
}

impl std::fmt::Debug for Dispatched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatched").finish_non_exhaustive()
    }
}
