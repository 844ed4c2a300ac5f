//! One connection, from its acceptance to its end.
//!
//! Decides in which order its ends are looked at: hyper first, so that what is ready is delivered; then the peer's
//! leaving, the shutdown, the timers. Whatever ends it, hyper's future is dropped here, which drops the handlers, and the
//! stream tasks are gone before this returns.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use oneclock::{Shutdown, clock};
use oneclock_core::{Deadline, Ending, Trust};
use tokio::time::{Sleep, sleep_until};
use tower_service::Service;

use super::accept::Admitted;
use super::crowd::{Crowd, RESTED};
use super::limits::ServeLimits;
use super::link::{Link, Speaks};
use super::listener::Listener;
use super::service::Stamping;
use super::spoken::Spoken;
use super::streams::Streams;
use super::wire::Wire;
use crate::body::BoxError;
use crate::exchange::Exchange;

/// How long answers have to reach the socket once their operations were ended by a shutdown.
const FLUSH: Duration = Duration::from_millis(500);

/// What all connections of a server share.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) limits: Arc<ServeLimits>,
    pub(super) trust: Trust,
    pub(super) half_close: bool,
    pub(super) shutdown: Shutdown,
    pub(super) crowd: Crowd,
}

impl Terms {
    /// Whether more connections hold buffers than may keep them while they rest.
    pub(super) fn is_warm_beyond_its_limit(&self) -> bool {
        self.crowd.warm() > self.limits.max_warm
    }
}

/// Why a connection is over.
#[derive(Debug)]
enum Over {
    /// Hyper is done with it.
    Served(Result<(), BoxError>),
    /// The answer that was being written has run out of time.
    OutOfTime(Ending),
    /// The peer left while it had a request with us.
    PeerLeft,
    /// It took too long: for a head, or to finish after the end of the grace.
    TooLong(&'static str),
}

/// The one timer of a connection, and what it is for.
struct Clock {
    timer: Pin<Box<Sleep>>,
    hard_end: Option<Deadline>,
}

/// What to do when its time has come.
enum Then {
    Close,
    Cut(&'static str),
    /// It has rested: it need not keep what it would need at once.
    Rest,
}

/// Serves one connection to its end.
pub(super) async fn serve<L, S, B>(admitted: Admitted<L::Io>, service: S, terms: Arc<Terms>)
where
    L: Listener,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let Admitted { mut io, peer, place } = admitted;
    let limits = &terms.limits;
    let link = Arc::new(Link::new(terms.trust, peer, terms.shutdown.clone()));
    terms.crowd.joined_by(&link);
    if let Err(why) = agree::<L>(&mut io, &link, limits).await {
        tracing::debug!(?peer, error = %why, "no connection");
        return;
    }
    link.agreed(L::introduce(&io));
    let mut left = pin!(L::peer_left(&io, terms.half_close));
    let mut peer_left = false;

    let streams = Streams::default();
    let wire = Wire::<L>::new(io, place, Arc::clone(&link), Arc::clone(limits));
    let stamping = Stamping { service, link: Arc::clone(&link) };
    let spawner = streams.spawner(limits.write_progress);
    let mut connection = Spoken::new(wire, stamping, &terms, spawner);
    let asked = Arc::clone(&link);
    let mut told = false;
    let mut served = Box::pin(Exchange::guard_connection(poll_fn(move |cx| {
        if !told && asked.closing.is_set() {
            told = true;
            connection.graceful_shutdown();
        }
        let turn = asked.flushes.begin();
        let polled = connection.poll(cx);
        asked.flushes.end(turn, asked.stalled.is_set());
        if matches!(&polled, Poll::Ready(Err(error)) if is_of_the_answer(error)) {
            asked.cut_off.set(true); // here, since the socket is dropped with this future
        }
        polled
    })));

    let mut signalled = pin!(terms.shutdown.signalled());
    let mut grace_over = pin!(terms.shutdown.grace_over());
    let mut grace_is_over = false;
    let mut clock = Clock::new(limits);

    let over = poll_fn(|cx| {
        link.hurry.wakes(cx.waker());
        loop {
            match served.as_mut().poll(cx) {
                Poll::Ready(Ok(served)) => return Poll::Ready(Over::Served(served)),
                Poll::Ready(Err(ending)) => return Poll::Ready(Over::OutOfTime(ending)),
                Poll::Pending => {}
            }
            peer_left = peer_left || left.as_mut().poll(cx).is_ready();
            if peer_left && link.is_busy() {
                return Poll::Ready(Over::PeerLeft);
            }
            if !grace_is_over && grace_over.as_mut().poll(cx).is_ready() {
                grace_is_over = true;
                clock.end_hard(FLUSH);
            }
            if !link.closing.is_set() && signalled.as_mut().poll(cx).is_ready() {
                if !link.is_busy() && !link.stalled.is_set() {
                    link.may_be_sending.set(false); // idle: whatever comes now is another request, not an upload
                }
                link.closing.set(true);
                continue; // hyper has to hear of it
            }
            return match clock.poll(&link, &terms, cx) {
                Poll::Ready(Then::Cut(why)) => Poll::Ready(Over::TooLong(why)),
                Poll::Ready(Then::Rest) => {
                    link.quick.set(false);
                    continue;
                }
                Poll::Ready(Then::Close) => {
                    link.closing.set(true);
                    clock.end_hard(limits.linger.saturating_add(FLUSH));
                    continue;
                }
                Poll::Pending => Poll::Pending,
            };
        }
    })
    .await;

    if over.is_cut_off(&link) {
        link.cut_off.set(true);
    }
    over.tell(peer);
    link.closing.set(true); // an upgraded connection keeps its link: nobody is to wait for it to make room
    drop(served);
    streams.end().await;
}

/// What comes before the first head (TLS), under its own limit. A server that is shutting down begins nothing.
async fn agree<L: Listener>(io: &mut L::Io, link: &Link, limits: &ServeLimits) -> io::Result<()> {
    let mut handshake = pin!(L::handshake(io));
    // Most have none: they need no timer.
    if let Poll::Ready(agreed) = poll_fn(|cx| Poll::Ready(handshake.as_mut().poll(cx))).await {
        return agreed;
    }
    let limit = limits.handshake;
    let end = Deadline::after(clock::now(), limit);
    tokio::select! {
        biased;
        agreed = handshake => agreed,
        () = link.shutdown.signalled() => Err(io::Error::other("the server is shutting down")),
        () = link.hurry.asked() => {
            let why = format!("no handshake within {RESTED:?}, and its place is wanted (limit: max_connections)");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
        () = sleep_until(clock::instant(end)) => {
            let why = format!("no handshake within {limit:?} (limit: handshake)");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

/// Whether the service or its body failed, rather than the connection.
fn is_of_the_answer(error: &BoxError) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_user)
}

// === Over ===

impl Over {
    /// Whether the peer must see that an answer is not complete. A plain close would do for chunks and for a known
    /// length, but not for an answer that ends with its connection.
    fn is_cut_off(&self, link: &Link) -> bool {
        match self {
            Self::OutOfTime(_) => true,
            Self::TooLong(_) => link.is_busy(),
            Self::Served(_) | Self::PeerLeft => false,
        }
    }

    fn tell(&self, peer: Option<SocketAddr>) {
        match self {
            Self::Served(Ok(())) => {}
            Self::Served(Err(error)) => tracing::debug!(?peer, error = %error, "connection failed"),
            Self::OutOfTime(ending) => tracing::debug!(?peer, %ending, "connection closed in the middle of an answer"),
            Self::PeerLeft => tracing::debug!(?peer, "the peer left while its request was being served"),
            Self::TooLong(why) => tracing::debug!(?peer, why, "connection closed"),
        }
    }
}

// === Clock ===

impl Clock {
    fn new(limits: &ServeLimits) -> Self {
        let first = Deadline::after(clock::now(), limits.header_read_timeout);
        Self { timer: Box::pin(sleep_until(clock::instant(first))), hard_end: None }
    }

    /// From now on it has at most `span`.
    fn end_hard(&mut self, span: Duration) {
        let end = Deadline::after(clock::now(), span);
        self.hard_end = Some(self.hard_end.map_or(end, |earlier| earlier.earliest(end)));
    }

    fn due(&self, link: &Link, terms: &Terms) -> Option<(Deadline, Then)> {
        if let Some(end) = self.hard_end {
            return Some((end, Then::Cut("it had to end")));
        }
        if link.is_busy() || link.stalled.is_set() || link.lingering.is_set() {
            return None; // each has a bound of its own
        }
        let (head, idle) = link.patience(&terms.limits);
        match link.head_since() {
            Some(since) => {
                Some((Deadline::after(since, head), Then::Cut("no head (header_read_timeout, max_connections)")))
            }
            None if link.closing.is_set() => None,
            None if link.quick.is_set() && link.speaks() == Speaks::Http1 && terms.is_warm_beyond_its_limit() => {
                Some((Deadline::after(link.idle_since(), idle.min(RESTED)), Then::Rest))
            }
            None => Some((Deadline::after(link.idle_since(), idle), Then::Close)),
        }
    }

    /// Ready with what is to be done now.
    ///
    /// The timer is moved only when it would fire too late; too early, it asks again.
    fn poll(&mut self, link: &Link, terms: &Terms, cx: &mut Context<'_>) -> Poll<Then> {
        loop {
            let Some((at, then)) = self.due(link, terms) else {
                // Looks again, should a stream end without a word to this task.
                if self.timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let again = terms.limits.idle.max(FLUSH);
                self.timer.as_mut().reset(clock::instant(Deadline::after(clock::now(), again)));
                continue;
            };
            let instant = clock::instant(at);
            if self.timer.deadline() > instant {
                self.timer.as_mut().reset(instant);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if at.is_past(clock::now()) {
                return Poll::Ready(then);
            }
            self.timer.as_mut().reset(instant);
        }
    }
}
