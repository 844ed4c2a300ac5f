//! Notifications of channels that a session listens to.
//!
//! Decides that they wait in a queue with a bound, whose oldest give way: a listener that does not read must not fill the
//! memory of its process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_postgres::Notification;

/// How many may wait.
const MOST: usize = 1_024;

/// What arrived and was not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Notification>,
    closed: bool,
}

/// The side that puts; with it the inbox closes.
pub(crate) struct Arriving(Arc<Inbox>);

// === Inbox ===

impl Inbox {
    /// The side that puts.
    pub(crate) fn closed_with_it(self: Arc<Self>) -> Arriving {
        Arriving(self)
    }

    /// The next one; `None` once the connection is gone.
    pub(crate) async fn next(&self) -> Option<Notification> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if let Some(first) = state.waiting.pop_front() {
                    return Some(first);
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Forgets what arrived for an earlier borrower.
    pub(crate) fn clear(&self) {
        self.state().waiting.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === Arriving ===

impl Arriving {
    pub(crate) fn put(&self, notification: Notification) {
        let mut state = self.0.state();
        if state.waiting.len() == MOST {
            state.waiting.pop_front();
            tracing::warn!(
                channel = notification.channel(),
                "{MOST} notifications wait and nobody reads: the oldest goes"
            );
        }
        state.waiting.push_back(notification);
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.changed.notify_one();
    }
}
