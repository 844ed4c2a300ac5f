//! The tasks of one HTTP/2 connection: one for each stream, owned by the connection, gone with it.
//!
//! Decides when a stream is given up: at its operation's end (contract X3, X8), or when its peer opens no window for too
//! long. Dropping the stream's future is what resets it: h2 sends CANCEL when the last handle goes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::{Deadline, Tick};
use pin_project_lite::pin_project;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Sleep, sleep_until};

use crate::exchange::{Exchange, Guarded};

/// Owns the tasks. Dropped, it aborts them.
#[derive(Debug, Default)]
pub(super) struct Streams(Arc<Mutex<JoinSet<()>>>);

/// Spawns for hyper. Weak, since every stream keeps one: the tasks must not own themselves.
#[derive(Clone, Debug)]
pub(super) struct Spawner {
    streams: Weak<Mutex<JoinSet<()>>>,
    write_progress: Duration,
}

/// Since when a piece of a body waits for its peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace(Arc<AtomicU64>);

tokio::task_local! {
    static PACE: Pace;
}

pin_project! {
    /// One stream, given up when its peer makes no progress.
    struct Paced<F> {
        #[pin]
        inner: Guarded<F>,
        pace: Pace,
        limit: Duration,
        #[pin]
        timer: Option<Sleep>, // only while a piece waits; then possibly early, and asked again
    }
}

// === Streams ===

impl Streams {
    pub(super) fn spawner(&self, write_progress: Duration) -> Spawner {
        Spawner { streams: Arc::downgrade(&self.0), write_progress }
    }

    /// Ends what is left, and returns when it is gone.
    pub(super) async fn end(self) {
        let mut left = std::mem::take(&mut *lock(&self.0));
        left.abort_all();
        while let Some(over) = left.join_next().await {
            tell(over, STREAM);
        }
    }
}

/// What a panic in a stream's task costs.
const STREAM: &str = "its stream is reset";

/// A task that served somebody is over: a panic is for whoever is called at night, on every protocol.
pub(super) fn tell(over: Result<(), JoinError>, cost: &'static str) {
    match over {
        Ok(()) => {}
        Err(error) if error.is_panic() => tracing::error!(%error, "a handler panicked, {cost}"),
        Err(_) => {} // aborted: the connection is over, or the runtime is shutting down
    }
}

fn lock(streams: &Mutex<JoinSet<()>>) -> MutexGuard<'_, JoinSet<()>> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

// === Spawner ===

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let Some(streams) = self.streams.upgrade() else { return }; // the connection is over
        let pace = Pace::default();
        let paced = Paced {
            inner: Exchange::guard_stream(stream),
            pace: pace.clone(),
            limit: self.write_progress,
            timer: None,
        };
        let mut streams = lock(&streams);
        while let Some(over) = streams.try_join_next() {
            tell(over, STREAM); // taken here, so that no more are kept than were ever open at once
        }
        streams.spawn(PACE.scope(pace, paced));
    }
}

// === Pace ===

impl Pace {
    /// That of the stream whose task polls this code.
    pub(super) fn current() -> Option<Self> {
        PACE.try_with(Self::clone).ok()
    }

    /// A piece was handed over.
    pub(super) fn handed(&self) {
        self.0.store(clock::now().as_nanos().max(1), Ordering::Relaxed);
    }

    /// The next one is asked for: what was handed over is on its way.
    pub(super) fn asked(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn waits_since(&self) -> Option<Tick> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Tick::from_nanos(since)),
        }
    }
}

// === Paced ===

impl<F: Future<Output = ()>> Future for Paced<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        match this.inner.poll(cx) {
            Poll::Ready(Ok(())) => return Poll::Ready(()),
            Poll::Ready(Err(ending)) => {
                tracing::debug!(%ending, "stream given up");
                return Poll::Ready(());
            }
            Poll::Pending => {}
        }
        loop {
            let Some(since) = this.pace.waits_since() else {
                this.timer.set(None);
                return Poll::Pending;
            };
            let due = Deadline::after(since, *this.limit);
            match this.timer.as_mut().as_pin_mut() {
                None => this.timer.set(Some(sleep_until(clock::instant(due)))),
                Some(timer) => {
                    if timer.poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    if due.is_past(clock::now()) {
                        tracing::debug!(limit = ?this.limit, "stream given up: its peer opens no window");
                        return Poll::Ready(());
                    }
                    this.timer.set(None);
                }
            }
        }
    }
}
