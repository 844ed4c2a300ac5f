//! How long the fixtures wait for an event, and what they say when it does not come.
//!
//! Everything that can be awaited here is awaited with a bound, so that a test which would hang fails instead, and says
//! what it saw. Events are counted without limit; their particulars are kept for the first [`KEPT`] only.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long an awaited event may take: far longer than anything on a loopback socket needs, so that a slow machine does
/// not fail a test that is right.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Of how many events each fixture keeps the particulars (their moment, their head). Later ones are counted only.
pub const KEPT: usize = 4096;

/// An awaited event did not come. Says what was seen instead.
///
/// ```
/// # use oneclock_test::NotSeen; use std::time::Duration;
/// let missed = NotSeen { event: "request", wanted: 2, seen: 1, waited: Duration::from_secs(10), picture: "1 open".into() };
/// assert_eq!(missed.to_string(), "request 2 not seen after 10s: seen 1 (1 open)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} {wanted} not seen after {waited:?}: seen {seen} ({picture})")]
pub struct NotSeen {
    /// What was awaited.
    pub event: &'static str,
    /// How many of it.
    pub wanted: usize,
    /// How many of it there were when the patience ran out.
    pub seen: usize,
    /// How long it was awaited.
    pub waited: Duration,
    /// The other counters of the same fixture.
    pub picture: String,
}

/// Now, on the clock that stands still when a test pauses time.
#[allow(
    clippy::disallowed_methods,
    reason = "the fixtures do not depend on what they judge, so not on oneclock::clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Runs `work` for at most [`PATIENCE`].
pub(crate) async fn patiently<F: Future>(work: F) -> Option<F::Output> {
    tokio::time::timeout(PATIENCE, work).await.ok()
}

// === Tally ===

/// A count of events that can be awaited, with the particulars of the first [`KEPT`].
#[derive(Debug)]
pub(crate) struct Tally<T>(watch::Sender<Counted<T>>);

#[derive(Debug)]
struct Counted<T> {
    count: usize,
    kept: Vec<T>,
    last: Option<T>,
}

impl<T> Default for Tally<T> {
    fn default() -> Self {
        Self(watch::Sender::new(Counted { count: 0, kept: Vec::new(), last: None }))
    }
}

impl<T: Clone> Tally<T> {
    pub(crate) fn add(&self, event: T) {
        self.0.send_modify(|counted| {
            counted.count += 1;
            if counted.kept.len() < KEPT {
                counted.kept.push(event.clone());
            }
            counted.last = Some(event);
        });
    }

    pub(crate) fn count(&self) -> usize {
        self.0.borrow().count
    }

    /// The particulars of the `nth` event (counted from 1), or those of the latest one if the `nth` was not kept.
    pub(crate) async fn nth(
        &self,
        nth: usize,
        event: &'static str,
        picture: impl Fn() -> String,
    ) -> Result<T, NotSeen> {
        let mut changes = self.0.subscribe();
        let came = patiently(changes.wait_for(|counted| counted.count >= nth)).await;
        let found = match came {
            Some(Ok(counted)) => counted.kept.get(nth.saturating_sub(1)).or(counted.last.as_ref()).cloned(),
            // The sender lives in `self`, so the channel cannot be closed here: only patience ends this wait.
            Some(Err(_)) | None => None,
        };
        found.ok_or_else(|| NotSeen { event, wanted: nth, seen: self.count(), waited: PATIENCE, picture: picture() })
    }
}

impl<T> fmt::Display for Tally<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.borrow().count.fmt(f)
    }
}

// === Owned ===

/// A task that ends with its owner.
#[derive(Debug)]
pub(crate) struct Owned<T>(tokio::task::JoinHandle<T>);

impl<T: Send + 'static> Owned<T> {
    pub(crate) fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// Ends the task and waits until everything it held is dropped.
    pub(crate) async fn end(mut self) {
        self.0.abort();
        // An error here says that the task was aborted, which was the point.
        let _ = (&mut self.0).await;
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
