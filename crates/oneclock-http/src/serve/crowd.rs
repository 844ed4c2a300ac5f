//! When every place is taken and somebody waits for one: who has to go.
//!
//! Decides that it is the connection that has waited longest with nothing to do: no request on it, no head that is complete.
//! So whoever holds thousands of connections open does not lock the others out. A peer that was busy a moment ago is not
//! asked, and a request is never cut off for this. What costs: nothing, until every place is taken.
//!
//! Counts besides how many connections hold buffers, so that only where many are open those that rest give theirs back.
//!
//! Deliberately not exact: it looks at some of the connections in turn and takes the one among them that has waited longest.
//! An exact order would have to be kept by every request.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use oneclock::clock;
use oneclock_core::{Deadline, Tick};

use super::connection::Terms;
use super::link::{Flag, Link};

/// How long a connection has done nothing before its place may be given to another.
pub(super) const RESTED: Duration = Duration::from_secs(1);

/// How often it is looked again while somebody waits for a place.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How many connections are looked at, at a time.
const SAMPLE: usize = 64;

/// The connections of a server.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    row: Mutex<Row>,
    warm: AtomicUsize,
}

#[derive(Debug, Default)]
struct Row {
    links: Vec<Weak<Link>>,
    next: usize,
    tidy_at: usize, // how many there are before those that are gone are looked for
}

/// An HTTP/1 connection that holds buffers; one less when it is dropped.
pub(super) struct Warm(Arc<Terms>);

/// A connection is asked to go as soon as it does nothing.
#[derive(Debug, Default)]
pub(super) struct Hurry {
    asked: Flag,
    waker: AtomicWaker,
}

// === Crowd ===

impl Crowd {
    pub(super) fn joined_by(&self, link: &Arc<Link>) {
        let mut row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        if row.links.len() >= row.tidy_at {
            row.links.retain(|link| link.strong_count() > 0);
            row.tidy_at = row.links.len().saturating_mul(2).max(SAMPLE);
        }
        row.links.push(Arc::downgrade(link));
    }

    /// How many hold buffers.
    pub(super) fn warm(&self) -> usize {
        self.warm.load(Ordering::Relaxed)
    }

    /// Asks one to go, if there is one that has nothing to do.
    pub(super) fn make_room(&self) {
        let row = &mut *self.row.lock().unwrap_or_else(PoisonError::into_inner);
        let mut longest: Option<(Tick, Arc<Link>)> = None;
        let mut looked_at = 0;
        while looked_at < SAMPLE.min(row.links.len()) {
            if row.next >= row.links.len() {
                row.next = 0;
            }
            let Some(link) = row.links.get(row.next).and_then(Weak::upgrade) else {
                row.links.swap_remove(row.next);
                continue;
            };
            if let Some(since) = link.waits_since()
                && longest.as_ref().is_none_or(|(longer, _)| since < *longer)
            {
                longest = Some((since, link));
            }
            row.next += 1;
            looked_at += 1;
        }
        if let Some((since, link)) = longest
            && Deadline::after(since, RESTED).is_past(clock::now())
        {
            link.hurry.ask();
        }
    }
}

// === Warm ===

impl Warm {
    pub(super) fn new(terms: &Arc<Terms>) -> Self {
        terms.crowd.warm.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(terms))
    }

    /// Whether there are more than may keep their buffers.
    pub(super) fn is_one_too_many(&self) -> bool {
        self.0.is_warm_beyond_its_limit()
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.0.crowd.warm.fetch_sub(1, Ordering::Relaxed);
    }
}

// === Hurry ===

impl Hurry {
    fn ask(&self) {
        self.asked.set(true);
        self.waker.wake();
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_set()
    }

    /// Has the connection polled once more.
    pub(super) fn look(&self) {
        self.waker.wake();
    }

    /// Has the task that polls this code polled again once it is asked.
    pub(super) fn wakes(&self, waker: &std::task::Waker) {
        self.waker.register(waker);
    }

    /// Returns once it is asked.
    ///
    /// # Cancel safety
    /// Waits only.
    pub(super) async fn asked(&self) {
        poll_fn(|cx| {
            self.wakes(cx.waker());
            if self.is_asked() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
