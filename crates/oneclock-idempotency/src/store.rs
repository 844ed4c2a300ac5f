//! What a store of records has to do.
//!
//! Decides nothing: each method asks `oneclock_core::idempotency` with the store's own clock, and makes what it says durable.

use std::future::Future;
use std::time::Duration;

use oneclock_core::idempotency::{Claim, Claimed, Doubt, Enqueue, Enqueued, Fence, Record, Scope, State, Step};

use crate::{Answer, Changes};

/// Keeps one record for each scope.
///
/// Every method is a compare-and-set: it reads the record, asks the core, and writes what that says, with nobody in between.
/// A claim is answered only after its record would survive a crash of the machine (contract M1); a store that cannot promise
/// that says so in its documentation. Time is the store's own, one clock for all who share it.
pub trait Store: Send + Sync + 'static {
    /// Claims the scope (see [`oneclock_core::idempotency::claim`]).
    ///
    /// # Errors
    /// [`StoreError`]: whether the claim is there is not known. The work must not run (contract M6).
    ///
    /// # Cancel safety
    /// Dropped, the claim may have been made. Asked again with the same owner, it is the same claim.
    fn claim(&self, scope: &Scope, claim: &Claim) -> impl Future<Output = Result<Found, StoreError>> + Send;

    /// Keeps that work was accepted, for whoever claims it later (see [`oneclock_core::idempotency::enqueue`]). As durable as a
    /// claim.
    ///
    /// # Errors
    /// [`StoreError`]: whether it is there is not known. The work must not be put into a queue.
    ///
    /// # Cancel safety
    /// Dropped, it may be there. Asked again with the same owner, it is the same.
    fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> impl Future<Output = Result<Enqueued, StoreError>> + Send;

    /// Says what became of a run: its own word, or what somebody found out.
    ///
    /// # Errors
    /// [`StoreError`]: whether it was written is not known. It may be said again: the second is [`Settled::Already`].
    ///
    /// # Cancel safety
    /// Dropped, it may have been written.
    fn settle(
        &self,
        scope: &Scope,
        fence: Fence,
        settle: Settle,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// The record as it stands now: one whose lease has lapsed is unknown.
    ///
    /// # Errors
    /// [`StoreError`].
    ///
    /// # Cancel safety
    /// Reads only.
    fn read(&self, scope: &Scope) -> impl Future<Output = Result<Option<Kept>, StoreError>> + Send;

    /// The records that `which` names, in the order of their scopes, after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    ///
    /// # Cancel safety
    /// Reads only.
    fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(Scope, Record)>, StoreError>> + Send;

    /// Removes settled records whose time has passed, at most `limit`; returns how many went. What is unknown never goes.
    ///
    /// # Errors
    /// [`StoreError`].
    ///
    /// # Cancel safety
    /// Dropped, they may have gone.
    fn reap(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// Where the store tells that it has changed a record, to who waits for that in this process. `None`: it does not tell, and
    /// who waits looks again now and then.
    fn changes(&self) -> Option<&Changes> {
        None
    }
}

/// What a claim came to, with the answer if the record was completed.
#[derive(Clone, Debug)]
pub struct Found {
    /// What the core says.
    pub claimed: Claimed,
    /// Of a completed record.
    pub answer: Option<Answer>,
}

/// What is said of a run.
#[derive(Clone, Debug)]
pub enum Settle {
    /// It is done, and this is its answer.
    Complete(Answer),
    /// Proven: nothing happened.
    Release,
    /// The same, and nobody is about to try again by itself: this says why, for who asks.
    SetAside(Answer),
    /// Not known.
    Doubt(Doubt),
}

/// What saying it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is written.
    Done,
    /// The same was said before. The answer kept is the first one.
    Already,
    /// Another run has begun since (contract M5).
    Fenced {
        /// The number of the last run.
        current: Fence,
    },
    /// It is settled otherwise.
    Otherwise(State),
    /// There is no such record.
    Absent,
}

/// A record, with what is kept with it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The record.
    pub record: Record,
    /// The answer of a completed one; of one that was [set aside](Settle::SetAside), why.
    pub answer: Option<Answer>,
}

/// Which records to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Those of which it is not known what became of their run.
    Unknown,
}

/// The store gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Its queue is full: nothing was asked.
    #[error("the idempotency store has {places} requests waiting, and takes no more")]
    Full {
        /// The bound of its queue.
        places: usize,
    },
    /// It was closed.
    #[error("the idempotency store is closed")]
    Closed,
    /// It did not answer in time.
    #[error("the idempotency store did not answer within {within:?}")]
    TooSlow {
        /// The time that it had.
        within: Duration,
    },
    /// It failed.
    #[error("the idempotency store failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

// === Settle ===

impl Settle {
    /// The step that the core decides.
    pub const fn step(&self) -> Step {
        match self {
            Self::Complete(_) => Step::Complete,
            Self::Release => Step::Release,
            Self::SetAside(_) => Step::SetAside,
            Self::Doubt(doubt) => Step::Doubt(*doubt),
        }
    }

    /// What is kept with the record.
    pub const fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Complete(answer) | Self::SetAside(answer) => Some(answer),
            Self::Release | Self::Doubt(_) => None,
        }
    }
}

// === StoreError ===

impl StoreError {
    /// Of the store's own error.
    pub fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}
