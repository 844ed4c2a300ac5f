//! Accepting until told to stop, then draining (contract X10).
//!
//! Decides the order: stop accepting, close what is idle, let live work go on for the grace, end it, give its answers a
//! moment to get out, wait for what must finish. Accepting is never ended by a connection that failed. Whoever finds every
//! place taken waits, and idle connections are asked to make room ([`crowd`](super::crowd)).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use oneclock::{Shutdown, clock};
use oneclock_core::Deadline;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tower_service::Service;

use super::connection::{self, Terms};
use super::crowd::{Crowd, LOOK_AGAIN};
use super::listener::Listener;
use super::streams::tell;
use crate::body::BoxError;

/// How long accepting rests after an error that the next attempt would meet again (no descriptors, no memory).
const PAUSE: Duration = Duration::from_millis(50);

/// When the server is to stop, and how long its live work may then go on.
pub(super) struct Stop {
    pub(super) signal: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) grace: Duration,
}

/// Aborts what is left when it is dropped.
type Connections = FuturesUnordered<AbortOnDropHandle<()>>;

/// Gives out connections, no more than there are places.
struct Door<L: Listener> {
    listener: L,
    terms: Arc<Terms>,
    places: Arc<Semaphore>,
    rest_until: Option<Deadline>,
    /// One that was accepted and has no place yet.
    waiting: Option<(L::Io, Option<SocketAddr>)>,
}

/// A connection, and the place that it takes.
pub(super) struct Admitted<Io> {
    pub(super) io: Io,
    pub(super) peer: Option<SocketAddr>,
    pub(super) place: OwnedSemaphorePermit,
}

pub(super) async fn run<L, S, B>(listener: L, service: S, terms: Arc<Terms>, stop: Option<Stop>) -> io::Result<()>
where
    L: Listener,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let shutdown = terms.shutdown.clone();
    let (mut signal, grace) = match stop {
        Some(stop) => (stop.signal, Some(stop.grace)),
        None => (Box::pin(std::future::pending()) as Pin<Box<dyn Future<Output = ()> + Send>>, None),
    };
    let places = terms.limits.max_connections.clamp(1, Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(places));
    let mut door = Door { listener, terms: Arc::clone(&terms), places, rest_until: None, waiting: None };
    let mut connections = Connections::new();

    let stopped = loop {
        let admitted = tokio::select! {
            biased;
            () = shutdown.signalled() => break Ok(()),
            () = &mut signal => break Ok(()),
            Some(over) = connections.next(), if !connections.is_empty() => {
                tell(over, "its connection is closed");
                continue;
            }
            admitted = door.admit() => admitted,
        };
        match admitted {
            Ok(admitted) => {
                let served = connection::serve::<L, S, B>(admitted, service.clone(), Arc::clone(&terms));
                connections.push(AbortOnDropHandle::new(shutdown.spawn(served)));
            }
            Err(broken) => break Err(broken),
        }
    };
    drop(door); // new connections are refused, not left hanging in the backlog
    drain(&shutdown, connections, grace).await;
    stopped
}

/// What is idle closes by itself once it was signalled; each connection ends itself soon after the grace.
async fn drain(shutdown: &Shutdown, mut connections: Connections, grace: Option<Duration>) {
    let end = grace.map(|grace| Deadline::after(clock::now(), grace));
    shutdown.signal();
    let mut grace_over = std::pin::pin!(async {
        match end {
            Some(end) => sleep_until(clock::instant(end)).await,
            None => shutdown.grace_over().await, // whoever shares the shutdown decides
        }
    });
    let mut is_over = false;
    loop {
        tokio::select! {
            biased;
            over = connections.next() => match over {
                Some(over) => tell(over, "its connection is closed"),
                None => break,
            },
            () = &mut grace_over, if !is_over => {
                is_over = true;
                shutdown.end_grace();
            }
        }
    }
    // Without a grace of our own the shutdown is drained by whoever shares it.
    if let Some(end) = end {
        shutdown.drain(end.remaining(clock::now())).await;
        tell_of_the_rest(shutdown);
    }
}

/// What belongs to no server is not ours to end; but whoever stops the process now loses it, and should know.
fn tell_of_the_rest(shutdown: &Shutdown) {
    let process = Shutdown::process();
    let tasks = process.tasks();
    if tasks > 0 && !process.is(shutdown) && !process.is_signalled() {
        tracing::warn!(
            tasks,
            "the server is down, and nobody waits for the tasks of operations that belong to no request: share one \
             shutdown, by `.with_shutdown(Shutdown::process())` on the server, or await `Shutdown::process().drain(grace)`"
        );
    }
}

// === Door ===

impl<L: Listener> Door<L> {
    /// The next connection, once there is a place for it.
    ///
    /// # Errors
    /// The listener is broken for good.
    ///
    /// # Cancel safety
    /// A connection that was accepted keeps waiting, a place that was taken is given back, and a rest that was begun goes on.
    async fn admit(&mut self) -> io::Result<Admitted<L::Io>> {
        if self.waiting.is_none() {
            self.waiting = Some(self.next().await?);
        }
        let place = place(&self.places, &self.terms.crowd).await?;
        match self.waiting.take() {
            Some((io, peer)) => Ok(Admitted { io, peer, place }),
            None => Err(io::ErrorKind::BrokenPipe.into()), // there is one
        }
    }

    async fn next(&mut self) -> io::Result<(L::Io, Option<SocketAddr>)> {
        loop {
            if let Some(until) = self.rest_until {
                sleep_until(clock::instant(until)).await;
                self.rest_until = None;
            }
            match self.listener.accept().await {
                Ok(accepted) => return Ok(accepted),
                Err(error) if is_for_good(&error) => return Err(error),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, pause = ?PAUSE, "accepting failed, trying again");
                    self.terms.crowd.make_room(); // what it takes is held by those that are open
                    self.rest_until = Some(Deadline::after(clock::now(), PAUSE));
                }
            }
        }
    }
}

/// A place, as soon as one is free. Meanwhile those that do nothing are asked to go.
async fn place(places: &Arc<Semaphore>, crowd: &Crowd) -> io::Result<OwnedSemaphorePermit> {
    loop {
        if places.available_permits() == 0 {
            crowd.make_room();
        }
        // Those that are busy now have nothing to do later, so it looks again.
        match timeout(LOOK_AGAIN, Arc::clone(places).acquire_owned()).await {
            Ok(place) => return place.map_err(|_closed| io::ErrorKind::BrokenPipe.into()), // nobody closes it
            Err(_elapsed) => {}
        }
    }
}

/// The peer gave up before we got to it.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn is_for_good(error: &io::Error) -> bool {
    /// `EBADF`, the same number on every Unix.
    const NO_SUCH_DESCRIPTOR: i32 = 9;
    let no_such_descriptor = cfg!(unix) && error.raw_os_error() == Some(NO_SUCH_DESCRIPTOR);
    // `InvalidInput` is a socket that does not listen, or no longer.
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::InvalidInput) || no_such_descriptor
}
