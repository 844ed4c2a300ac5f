//! What a handler did: how often it began, how often it came to its end, how often it was dropped before.
//!
//! The counts are written from a guard, because nothing after an `.await` runs once a future is dropped (contract N1).

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use tokio::time::Instant;

use crate::bound::{NotSeen, Tally, now};

/// Counts what a handler did. Clones count together.
///
/// # Example
/// ```
/// # use oneclock_test::{Probe, Ended}; use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let probe = Probe::new();
/// let handler = {
///     let probe = probe.clone();
///     async move {
///         let guard = probe.enter();
///         tokio::time::sleep(Duration::from_secs(3600)).await; // the work
///         guard.finish();
///     }
/// };
/// let call = tokio::spawn(handler);
/// probe.started(1).await?;
/// call.abort(); // its caller left
/// assert_eq!(probe.ended(1).await?.how, Ended::Dropped);
/// assert_eq!(probe.running(), 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Probe(Arc<Seen>);

/// One run of the handler. Dropping it before [`finish`](Self::finish) records that the handler was dropped.
#[derive(Debug)]
#[must_use = "dropping the guard at once records a handler that was dropped at once"]
pub struct ProbeGuard {
    seen: Arc<Seen>,
    finished: bool,
}

/// How a run of the handler ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// It came to its end.
    Finished,
    /// It was dropped before its end.
    Dropped,
}

/// The end of one run, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// How it ended.
    pub how: Ended,
    /// When, on tokio's clock.
    pub at: Instant,
}

#[derive(Debug, Default)]
struct Seen {
    started: Tally<Instant>,
    finished: Tally<Instant>,
    dropped: Tally<Instant>,
    ended: Tally<End>,
}

// === Probe ===

impl Probe {
    /// A probe that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a handler began. Call it first in the handler and keep the guard over its whole work.
    pub fn enter(&self) -> ProbeGuard {
        self.0.started.add(now());
        ProbeGuard { seen: Arc::clone(&self.0), finished: false }
    }

    /// Work that never finishes, recorded like any other: for handlers that something else has to end.
    ///
    /// # Cancel safety
    /// Being dropped is its purpose: that is the only way it ends, and it is recorded.
    pub async fn never(&self) {
        let _guard = self.enter();
        pending::<()>().await;
    }

    /// How many runs began.
    pub fn started_count(&self) -> usize {
        self.0.started.count()
    }

    /// How many runs came to their end.
    pub fn finished_count(&self) -> usize {
        self.0.finished.count()
    }

    /// How many runs were dropped before their end.
    pub fn dropped_count(&self) -> usize {
        self.0.dropped.count()
    }

    /// How many runs have begun and not ended.
    pub fn running(&self) -> usize {
        // The ends first: a run that begins and ends in between must not make the difference negative.
        let ended = self.0.ended.count();
        self.started_count().saturating_sub(ended)
    }

    /// Waits until `n` runs have begun, and returns when the `n`th did.
    ///
    /// # Errors
    /// [`NotSeen`], with the counts, after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    pub async fn started(&self, n: usize) -> Result<Instant, NotSeen> {
        self.0.started.nth(n, "handler start", || self.to_string()).await
    }

    /// Waits until `n` runs have ended, finished or dropped, and returns how and when the `n`th did.
    ///
    /// # Errors
    /// [`NotSeen`], with the counts, after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    pub async fn ended(&self, n: usize) -> Result<End, NotSeen> {
        self.0.ended.nth(n, "handler end", || self.to_string()).await
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = &self.0;
        write!(f, "started {}, finished {}, dropped {}", seen.started, seen.finished, seen.dropped)
    }
}

// === ProbeGuard ===

impl ProbeGuard {
    /// Records that the handler came to its end.
    pub fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for ProbeGuard {
    fn drop(&mut self) {
        let at = now();
        let how = if self.finished { Ended::Finished } else { Ended::Dropped };
        match how {
            Ended::Finished => self.seen.finished.add(at),
            Ended::Dropped => self.seen.dropped.add(at),
        }
        self.seen.ended.add(End { how, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PATIENCE;

    #[tokio::test]
    async fn n1_a_run_that_finishes_and_one_that_is_dropped_are_told_apart() {
        let probe = Probe::new();
        probe.enter().finish();
        drop(probe.enter());
        let _running = probe.enter();
        assert_eq!(probe.ended(1).await.map(|end| end.how), Ok(Ended::Finished));
        assert_eq!(probe.ended(2).await.map(|end| end.how), Ok(Ended::Dropped));
        assert_eq!(probe.to_string(), "started 3, finished 1, dropped 1");
        assert_eq!(probe.running(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_does_not_come_is_an_error_with_what_was_seen() {
        let probe = Probe::new();
        let _running = probe.enter();
        let missed = probe.ended(1).await.expect_err("nothing ended");
        assert_eq!((missed.wanted, missed.seen, missed.waited), (1, 0, PATIENCE));
        assert_eq!(missed.to_string(), "handler end 1 not seen after 10s: seen 0 (started 1, finished 0, dropped 0)");
    }

    #[tokio::test]
    async fn a_run_beyond_the_kept_ones_is_still_counted() {
        let probe = Probe::new();
        for _ in 0..crate::KEPT + 1 {
            probe.enter().finish();
        }
        assert_eq!(probe.finished_count(), crate::KEPT + 1);
        assert!(probe.ended(crate::KEPT + 1).await.is_ok());
    }
}
