//! What the parts of one connection know of each other: the socket, the service, the loop that ends it.
//!
//! Deliberately no lock: each fact is one number, and on HTTP/1 all parts run in one task.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Extensions;
use oneclock::{Shutdown, clock};
use oneclock_core::{Tick, Trust};

use super::crowd::{Hurry, RESTED};
use super::flushes::{Flushed, Flushes};
use super::limits::ServeLimits;
use super::listener::Introduction;
use crate::arrival::Arrival;
use crate::upload::Uploads;

/// The facts of one connection.
#[derive(Debug)]
pub(super) struct Link {
    trust: Trust,
    peer: Option<SocketAddr>,
    introduction: OnceLock<Introduction>,
    pub(super) shutdown: Shutdown,
    in_flight: AtomicUsize,
    idle_since: AtomicU64, // nanoseconds of a tick
    head_since: AtomicU64, // the same; zero: no head is being read
    speaks: AtomicU8,
    uploads: Arc<Uploads>,
    /// Bytes came after the last head that has no body: more may be on its way.
    pub(super) may_be_sending: Flag,
    /// A write is pending.
    pub(super) stalled: Flag,
    /// Hyper is done with it; what is left is the polite end.
    pub(super) lingering: Flag,
    /// HTTP/1: its last request came right behind the answer before it, so another one may, too.
    pub(super) quick: Flag,
    has_answered: Flag,
    /// No further request, close when idle.
    pub(super) closing: Flag,
    /// HTTP/1: the head of an answer was handed over, the end of its body was not.
    pub(super) answering: Flag,
    /// Cut off in the middle: reset it rather than close it.
    pub(super) cut_off: Flag,
    /// Its place is wanted by another.
    pub(super) hurry: Hurry,
    /// Answers that broke off, and wait until what they said before is on its way.
    pub(super) flushes: Flushes,
}

/// Which protocol the peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    NotKnown,
    Http1,
    Http2,
}

#[derive(Debug, Default)]
pub(super) struct Flag(AtomicBool);

/// One request whose answer is not handed over as a whole; over when dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Link>);

// === Link ===

impl Link {
    /// `trust` is what peers of its listener get that prove nothing else.
    pub(super) fn new(trust: Trust, peer: Option<SocketAddr>, shutdown: Shutdown) -> Self {
        let now = clock::now().as_nanos();
        Self {
            trust,
            peer,
            introduction: OnceLock::new(),
            shutdown,
            in_flight: AtomicUsize::new(0),
            idle_since: AtomicU64::new(now),
            head_since: AtomicU64::new(now),
            speaks: AtomicU8::new(0),
            uploads: Arc::default(),
            may_be_sending: Flag::default(),
            stalled: Flag::default(),
            lingering: Flag::default(),
            quick: Flag::default(),
            has_answered: Flag::default(),
            closing: Flag::default(),
            answering: Flag::default(),
            cut_off: Flag::default(),
            hurry: Hurry::default(),
            flushes: Flushes::default(),
        }
    }

    /// What had to be agreed is agreed: from here its first head may come.
    pub(super) fn agreed(&self, introduction: Introduction) {
        let now = clock::now().as_nanos();
        self.idle_since.store(now, Ordering::Release);
        self.head_since.store(now, Ordering::Relaxed);
        let _ = self.introduction.set(introduction); // once
    }

    /// A head was read.
    pub(super) fn arrived(self: &Arc<Self>, has_body: bool) -> (Arrival, InFlight) {
        let at = clock::now();
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.head_since.store(0, Ordering::Relaxed);
        self.may_be_sending.set(has_body);
        self.quick.set(self.has_answered.is_set() && at.since(self.idle_since()) < RESTED);
        let trust = self.introduction.get().and_then(|it| it.trust).unwrap_or(self.trust);
        let mut arrival = Arrival::new(at, trust, self.peer, self.shutdown.clone());
        if has_body {
            arrival.upload = Some(self.uploads.begins());
        } else {
            self.uploads.are_behind(); // or hyper had read no further head
        }
        (arrival, InFlight(Arc::clone(self)))
    }

    /// What is known of the peer, into the extensions of its request.
    pub(super) fn introduce(&self, request: &mut Extensions) {
        if let Some(Introduction { extensions, .. }) = self.introduction.get()
            && !extensions.is_empty()
        {
            request.extend(extensions.clone());
        }
    }

    /// Bytes were read that may be the beginning of a head.
    pub(super) fn received(&self) {
        self.may_be_sending.set(true);
        if self.head_since.load(Ordering::Relaxed) == 0 && !self.is_busy() && self.speaks() != Speaks::Http2 {
            self.head_since.store(clock::now().as_nanos().max(1), Ordering::Relaxed);
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    pub(super) fn head_since(&self) -> Option<Tick> {
        match self.head_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Tick::from_nanos(since)),
        }
    }

    pub(super) fn idle_since(&self) -> Tick {
        Tick::from_nanos(self.idle_since.load(Ordering::Acquire))
    }

    /// Since when it has had nothing to do, if so: no request, no end that is under way.
    pub(super) fn waits_since(&self) -> Option<Tick> {
        let has_to_do = self.is_busy()
            || self.stalled.is_set()
            || self.lingering.is_set()
            || self.closing.is_set()
            || self.hurry.is_asked();
        if has_to_do { None } else { Some(self.head_since().unwrap_or_else(|| self.idle_since())) }
    }

    /// Whether it is between two requests on HTTP/1, with nothing of the last one left and nothing of the next one there.
    pub(super) fn rests(&self) -> bool {
        self.speaks() == Speaks::Http1
            && self.head_since.load(Ordering::Relaxed) == 0
            && !self.is_busy()
            && !self.stalled.is_set()
            && !self.lingering.is_set()
            && !self.closing.is_set()
            && self.uploads.are_read()
    }

    /// How long it may wait for a head, and how long for the next request.
    pub(super) fn patience(&self, limits: &ServeLimits) -> (Duration, Duration) {
        let most = if self.hurry.is_asked() { RESTED } else { Duration::MAX };
        (limits.header_read_timeout.min(most), limits.idle.min(most))
    }

    pub(super) fn speaks(&self) -> Speaks {
        match self.speaks.load(Ordering::Relaxed) {
            1 => Speaks::Http1,
            2 => Speaks::Http2,
            _ => Speaks::NotKnown,
        }
    }

    pub(super) fn set_speaks(&self, speaks: Speaks) {
        self.speaks.store(speaks as u8, Ordering::Relaxed);
        if speaks == Speaks::Http2 {
            self.head_since.store(0, Ordering::Relaxed); // from here on its bytes are frames
        }
    }
}

impl InFlight {
    /// The head of its answer is there, its body follows.
    pub(super) fn answers(&self) {
        if self.0.speaks() == Speaks::Http1 {
            self.0.answering.set(true);
        }
    }

    /// When all that was handed over until now is on its way.
    pub(super) fn flushed(&self) -> Flushed {
        let flushed = self.0.flushes.next();
        self.0.hurry.look(); // there may be nothing else to poll it for
        flushed
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.answering.set(false); // on HTTP/1 there is one at a time
        self.0.has_answered.set(true);
        // The time first: whoever sees that nothing is in flight sees since when.
        self.0.idle_since.store(clock::now().as_nanos(), Ordering::Release);
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

// === Flag ===

impl Flag {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn set(&self, to: bool) {
        self.0.store(to, Ordering::Release);
    }
}
