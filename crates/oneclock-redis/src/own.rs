//! Connections of their own, for commands that the server holds back: on a shared one everybody would wait behind them.
//!
//! Decides that such a connection is lent to one call at a time, is lent again only if its last answer came, and is closed in
//! every other case: the server then forgets the command. What becomes of a command whose caller has left is `blocking`'s
//! business.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::Shared;
use crate::line::Line;

/// Places for connections of their own, and those that wait for the next call.
pub(crate) struct Own {
    pub(crate) places: Arc<Semaphore>, // fair: first come, first served
    pub(crate) size: usize,
    idle: Mutex<Vec<Line>>,
}

/// One connection, lent. Dropped before it is given back, it is closed.
pub(crate) struct Lent {
    shared: Arc<Shared>,
    line: Line,
    _place: OwnedSemaphorePermit,
}

// === Own ===

impl Own {
    pub(crate) fn new(size: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(size)), size, idle: Mutex::default() }
    }

    /// A connection that waits, if one does that the server has not closed.
    pub(crate) fn take_idle(&self) -> Option<Line> {
        let mut idle = self.idle();
        idle.retain(|line| !line.watch().is_closed());
        idle.pop()
    }

    /// Closes those that wait.
    pub(crate) fn drop_idle(&self) {
        let idle = std::mem::take(&mut *self.idle());
        drop(idle); // not under the lock
    }

    pub(crate) fn idle_count(&self) -> usize {
        self.idle().len()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === Lent ===

impl Lent {
    pub(crate) fn new(shared: Arc<Shared>, line: Line, place: OwnedSemaphorePermit) -> Self {
        Self { shared, line, _place: place }
    }

    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    /// Its answer came: it serves the next call.
    pub(crate) fn give_back(self) {
        if !self.line.watch().is_closed() {
            self.shared.own.idle().push(self.line);
        }
    }
}
