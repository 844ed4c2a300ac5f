//! What hyper spawns for one HTTP/2 connection: the connection itself, which holds the socket, and the uploads on it.
//!
//! Decides that they end with whoever owns the connection. Spawned by themselves they would live for as long as a peer that
//! stops reading likes: what they have to say to it is never said.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Spawns what hyper spawns for one connection. Not part of the promise of this crate.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    cut: CancellationToken,
    tracker: TaskTracker,
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

    /// Cuts them off unless they have ended within `goodbye`, and waits until they are gone.
    ///
    /// # Cancel safety
    /// Dropped, they are not cut off; [`owned`](Self::owned) does that.
    pub(super) async fn end_within(&self, goodbye: Duration) {
        let _ = timeout(goodbye, self.ended()).await;
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

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, work: F) {
        let cut = self.cut.clone();
        self.tracker.spawn(async move {
            let _ = cut.run_until_cancelled_owned(work).await;
        });
    }
}
