//! Building a queue: what each setting means, and what contradicts what.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use oneclock_core::Name;
use oneclock_queue::Uncertainty;

use super::counts::Counts;
use super::wakes::Wakes;
use super::{PgQueue, Queue};
use crate::Pool;

/// Builds a [`PgQueue`].
#[must_use = "a queue is made by `build`"]
pub struct PgQueueBuilder(Queue);

/// A queue cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadQueue {
    /// Without time nothing would ever be taken.
    #[error("statements of the queue {queue} that may take 0s would never be made: give it a `within`")]
    NoTime {
        /// The queue.
        queue: Name,
    },
    /// The lease is over before its second heartbeat could be answered.
    #[error(
        "the lease of the queue {queue}, {lease:?}, is renewed each third of it, and its statements may take {within:?}: \
         give it a lease of at least three times that, or less time to its statements"
    )]
    ShortLease {
        /// The queue.
        queue: Name,
        /// Its lease.
        lease: Duration,
        /// What its statements may take.
        within: Duration,
    },
    /// It would be looked for jobs without a pause.
    #[error("the queue {queue} would be looked at without a pause: give it a `poll` of at least a millisecond")]
    NoPause {
        /// The queue.
        queue: Name,
    },
}

// === PgQueueBuilder ===

impl PgQueueBuilder {
    pub(super) fn new(name: Name, pool: Pool) -> Self {
        Self(Queue {
            name,
            outbox_of: None,
            pool,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            within: Duration::from_secs(5),
            by: format!("process {}", std::process::id()),
            uncertainty: Uncertainty::default(),
            notifies: true,
            process: format!("{:016x}", RandomState::new().hash_one(std::process::id())),
            wakes: Wakes::default(),
            counts: Counts::default(),
        })
    }

    /// It is the outbox of this queue of another broker: a [`Relay`](super::Relay) moves its work there, and to no other. What
    /// becomes of work that is accepted here is recorded under that queue's name, where its consumers and whoever asks look.
    ///
    /// An outbox that is called as that queue is needs not say so.
    pub fn outbox_of(mut self, queue: impl Into<Name>) -> Self {
        self.0.outbox_of = Some(queue.into());
        self
    }

    /// For how long a job is its consumer's unless that renews it; 30 s unless said otherwise. So long it takes until the jobs
    /// of a consumer that died come again.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.0.lease = lease;
        self
    }

    /// How long a consumer waits before it looks by itself; 1 s unless said otherwise. Jobs that come again after a while, or
    /// whose lease is over, are found so.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.0.poll = poll;
        self
    }

    /// How long one statement of the queue may take, waiting for a connection included; 5 s unless said otherwise.
    pub fn within(mut self, within: Duration) -> Self {
        self.0.within = within;
        self
    }

    /// What its consumers are called where leases are listed: a host, a pod. "process" and its number unless said otherwise.
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.0.by = name.into();
        self
    }

    /// By how much this process's clock may be wrong; what the machine says unless given.
    pub fn uncertainty(mut self, uncertainty: Uncertainty) -> Self {
        self.0.uncertainty = uncertainty;
        self
    }

    /// Neither notifies nor listens: consumers look for jobs again and again ([`poll`](Self::poll)). Where sessions cannot
    /// listen, or where COMMITs of other work must not wait for NOTIFY.
    pub fn without_notify(mut self) -> Self {
        self.0.notifies = false;
        self
    }

    /// The queue. It asks the server nothing yet.
    ///
    /// # Errors
    /// [`BadQueue`], which names what contradicts what.
    pub fn build(self) -> Result<PgQueue, BadQueue> {
        let Queue { name, lease, poll, within, .. } = &self.0;
        let queue = name.clone();
        if within.is_zero() {
            return Err(BadQueue::NoTime { queue });
        }
        if *lease < *within * 3 {
            return Err(BadQueue::ShortLease { queue, lease: *lease, within: *within });
        }
        if *poll < Duration::from_millis(1) {
            return Err(BadQueue::NoPause { queue });
        }
        Ok(PgQueue(Arc::new(self.0)))
    }
}

impl fmt::Debug for PgQueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PgQueueBuilder").field(&self.0.name).finish()
    }
}
