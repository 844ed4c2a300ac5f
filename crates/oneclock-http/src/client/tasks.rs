//! What hyper spawns for one HTTP/2 connection: the connection itself, which holds the socket, and the uploads on it.
//!
//! Decides that they end with whoever owns the connection. Spawned by themselves they would live for as long as a peer that
//! stops reading likes: what they have to say to it is never said.
//!
//! And that the socket is polled by the task that begins calls, behind it. In a task of its own it may send a request and hear the
//! answer and the end of the connection before the other task has seen that the request is on its way; then hyper tells of the end,
//! and the answer is lost.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Spawns what hyper spawns for one connection. Not part of the promise of this crate.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Tasks {
    cut: CancellationToken,
    tracker: TaskTracker,
    first: Arc<Mutex<First>>,
}

/// What drives the socket of one connection, for whoever polls it. Dropped, the socket is closed. Not part of the promise of this
/// crate.
#[doc(hidden)]
#[must_use = "a connection that nobody polls does nothing"]
pub struct Socket(Option<Work>);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What hyper wants to have spawned during the handshake is the socket; all else comes later.
#[derive(Default)]
enum First {
    #[default]
    Awaited,
    Here(Work),
    Taken,
}

impl Tasks {
    /// None yet.
    #[doc(hidden)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts them off when it is dropped: for whoever owns the connection, and may be dropped itself.
    #[doc(hidden)]
    #[must_use = "dropped, it cuts them off"]
    pub fn owned(&self) -> DropGuard {
        self.cut.clone().drop_guard()
    }

    /// The socket, once the handshake is over.
    #[doc(hidden)]
    pub fn take_socket(&self) -> Socket {
        match mem::replace(&mut *self.first(), First::Taken) {
            First::Here(work) => Socket(Some(work)),
            First::Awaited | First::Taken => Socket(None),
        }
    }

    fn first(&self) -> std::sync::MutexGuard<'_, First> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    /// Waits until there is none.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    #[doc(hidden)]
    pub async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Cuts them off unless they and the socket have ended within `goodbye`, and waits until they are gone.
    ///
    /// # Cancel safety
    /// Dropped, they are not cut off; [`owned`](Self::owned) does that.
    pub(super) async fn end_within(&self, goodbye: Duration, mut socket: Socket) {
        let _ = timeout(goodbye, socket.to_its_end(self.ended())).await;
        drop(socket);
        self.cut_off().await;
    }

    /// Cuts them off, and waits until they are gone.
    ///
    /// # Cancel safety
    /// From the first poll on they are cut off.
    #[doc(hidden)]
    pub async fn cut_off(&self) {
        self.cut.cancel();
        self.ended().await;
    }
}

impl Socket {
    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_none()
    }

    /// Polls `first`, and the socket behind it.
    pub(super) fn poll_behind<T>(&mut self, first: Poll<T>, cx: &mut Context<'_>) -> Poll<T> {
        if first.is_pending()
            && let Some(socket) = &mut self.0
            && socket.as_mut().poll(cx).is_ready()
        {
            self.0 = None;
        }
        first
    }

    /// Waits for `first`, and lets the socket go on meanwhile.
    ///
    /// # Cancel safety
    /// That of `first`; the socket goes on with the next wait.
    #[doc(hidden)]
    pub async fn behind<F: Future>(&mut self, first: F) -> F::Output {
        let mut first = pin!(first);
        poll_fn(|cx| {
            let polled = first.as_mut().poll(cx);
            self.poll_behind(polled, cx)
        })
        .await
    }

    /// Waits for `first`, and until it is closed.
    ///
    /// # Cancel safety
    /// As [`behind`](Self::behind).
    #[doc(hidden)]
    pub async fn to_its_end(&mut self, first: impl Future<Output = ()>) {
        self.behind(first).await;
        if let Some(socket) = &mut self.0 {
            socket.await;
            self.0 = None;
        }
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, work: F) {
        let mut first = self.first();
        if matches!(*first, First::Awaited) {
            *first = First::Here(Box::pin(work));
            return;
        }
        drop(first);
        let cut = self.cut.clone();
        self.tracker.spawn(async move {
            let _ = cut.run_until_cancelled_owned(work).await;
        });
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("count", &self.tracker.len()).finish_non_exhaustive()
    }
}
