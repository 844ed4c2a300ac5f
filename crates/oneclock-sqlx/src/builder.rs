//! How a pool is configured, and which configurations contradict themselves.

use std::sync::Arc;
use std::time::Duration;

use oneclock::{Caps, WithoutOperation};
use oneclock_core::Name;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::Semaphore;

use crate::error::BadPool;
use crate::pool::{Limits, Pool, Shared};
use crate::turn::SETTLE;

/// How many connections a pool has unless said otherwise.
const DEFAULT_SIZE: usize = 10;

/// How many callers may wait for a connection unless said otherwise.
const DEFAULT_MAX_WAITING: usize = 1_024;

/// Builds a [`Pool`].
#[derive(Debug)]
#[must_use = "a pool is made by `build`"]
pub struct PoolBuilder {
    options: Result<PgConnectOptions, sqlx::Error>,
    size: usize,
    max_waiting: usize,
    caps: Caps,
}

// === PoolBuilder ===

impl PoolBuilder {
    pub(crate) fn new(options: Result<PgConnectOptions, sqlx::Error>) -> Self {
        let mut caps = Caps::new();
        caps.way_home(SETTLE);
        Self { options, size: DEFAULT_SIZE, max_waiting: DEFAULT_MAX_WAITING, caps }
    }

    /// How many connections it has at most; 10 unless said otherwise. They are opened when they are needed.
    pub fn size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// How many calls may wait for a connection; 1024 unless said otherwise. Who comes when that many wait is refused
    /// (`shed`).
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.max_waiting = calls;
        self
    }

    /// The most that one call of this name may take. It can shorten, never extend (invariant I3); said twice, the smaller
    /// counts. Calls of other names get what their operation leaves.
    pub fn cap(mut self, name: impl Into<Name>, cap: Duration) -> Self {
        self.caps.cap(name, cap);
        self
    }

    /// What operations keep back from each call: for their later steps and for the way home. Unless this is said, an eighth of
    /// what they have left, and at most 25 ms: in that time the server answers what was cancelled, and that answer is the proof
    /// behind [`Outcome::Rejected`](oneclock_core::Outcome::Rejected).
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.caps.reserve(reserve);
        self
    }

    /// The least that is useful for a call; 5 ms unless said otherwise. With less left it is not begun.
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.caps.min_useful(min_useful);
        self
    }

    /// Refuses calls where no operation is current. Unless this is said they get their cap, or 10 s, and a warning is
    /// logged once (contract C6).
    pub fn require_operation(mut self) -> Self {
        self.caps.without_operation(WithoutOperation::Require);
        self
    }

    /// The pool. Nothing is opened yet; ask [`self_test`](Pool::self_test) when a service starts.
    ///
    /// # Errors
    /// [`BadPool`], which names what contradicts what.
    pub fn build(self) -> Result<Pool, BadPool> {
        if self.size == 0 {
            return Err(BadPool::NoConnections);
        }
        if self.size > Semaphore::MAX_PERMITS {
            return Err(BadPool::TooManyConnections { size: self.size, most: Semaphore::MAX_PERMITS });
        }
        if self.max_waiting == 0 {
            return Err(BadPool::NoPlaces);
        }
        self.caps.check().map_err(|(call, source)| BadPool::Cap { call, source })?;
        let options = self.options.map_err(|source| BadPool::Address { source })?;
        let limits = Limits { size: self.size, max_waiting: self.max_waiting, caps: self.caps };
        Ok(Pool(Arc::new(Shared::new(options, limits))))
    }
}
