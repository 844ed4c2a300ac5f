//! One piece of work as its handler sees it, and what a handler says of its end.
//!
//! Decides that a step which cannot be taken back asks first, and that until one has, nothing has happened: what fails before is
//! proven not to have been done, what fails afterwards is unknown unless its error says otherwise (contract R8).

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use oneclock::{Operation, clock, stopped_in};
use oneclock_core::expiry::{Handled, Stop};
use oneclock_core::idempotency::{Fence, Key};
use oneclock_core::{Outcome, Stage};

use super::tenure::Tenure;
use crate::Message;

/// One piece of work. Cheap to clone.
#[derive(Clone)]
pub struct Job(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) message: Message,
    pub(super) operation: Operation,
    pub(super) attempt: u32,
    pub(super) late: bool,
    pub(super) fence: Option<Fence>,
    pub(super) tenure: Arc<Tenure>,
}

/// A handler did not do its work. Every error becomes one with `?`.
///
/// - [`failed`](Self::failed), which says an outcome: that one counts. Errors of drivers know theirs and have to be asked:
///   `.map_err(|error| { let outcome = error.outcome(); JobError::failed(error, outcome) })`;
/// - an end of the operation, or something that was not begun for want of time: what that says;
/// - any other, before the first [`Job::before_effect`]: nothing happened, and the work is tried again later;
/// - any other, after it: it may have happened. Tried again only where that is safe, else somebody looks at it.
pub struct JobError {
    error: Box<dyn Error + Send + Sync>,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Failed(Option<Outcome>),
    Rejected,
}

// === Job ===

impl Job {
    /// Its message.
    pub fn message(&self) -> &Message {
        &self.0.message
    }

    /// The body of its message.
    pub fn body(&self) -> &bytes::Bytes {
        &self.0.message.body
    }

    /// The operation that it is done in: bounded by its expiry, by its handler's limit and by its lease.
    pub fn operation(&self) -> &Operation {
        &self.0.operation
    }

    /// Which delivery of it this is, counted from one.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Whether it has expired, or may have, and is done all the same.
    pub fn is_late(&self) -> bool {
        self.0.late
    }

    /// The key under which it has one effect: its own, to be written with the effect where the handler enforces keys.
    pub fn key(&self) -> Option<&Key> {
        self.0.message.stamp.key.as_ref()
    }

    /// The number of this run under its key, where an idempotency store stands before the handler. What it changes elsewhere may
    /// carry it, so that the far side refuses lower ones.
    pub fn fence(&self) -> Option<Fence> {
        self.0.fence
    }

    /// To be asked before each step that cannot be taken back: whether the work is still to be done, and still ours (contract Q3).
    ///
    /// # Errors
    /// [`Stop`]: return it with `?`. The work then ends as its contract says.
    pub fn before_effect(&self) -> Result<(), Stop> {
        self.0.tenure.before_effect(clock::now())
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("message", &self.0.message.id)
            .field("attempt", &self.0.attempt)
            .finish_non_exhaustive()
    }
}

// === JobError ===

impl JobError {
    /// It failed, and this is known of what it did.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>, outcome: Outcome) -> Self {
        Self { error: error.into(), what: What::Failed(Some(outcome)) }
    }

    /// It will never succeed: it is malformed, or what it is about does not exist. Somebody looks at it; it is not tried again.
    pub fn rejected(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { error: error.into(), what: What::Rejected }
    }

    /// What it came to, when this is what is known of its effects otherwise.
    pub(super) fn handled(&self, otherwise: Outcome) -> Handled {
        let error = &*self.error as &(dyn Error + 'static);
        let outcome = match self.what {
            What::Rejected => return Handled::Rejected,
            What::Failed(Some(outcome)) => outcome,
            What::Failed(None) => stopped_in(error).map_or(otherwise, |stopped| worse(stopped.outcome(), otherwise)),
        };
        match stop_in(error) {
            Some(stop) => Handled::Stopped(stop, worse(outcome, otherwise)),
            None => Handled::Failed(outcome),
        }
    }
}

/// What is known of two steps together: a second one that proves nothing happened says nothing of the first.
fn worse(of_the_error: Outcome, otherwise: Outcome) -> Outcome {
    match (of_the_error, otherwise) {
        (Outcome::Unknown { stage }, _) | (_, Outcome::Unknown { stage }) => Outcome::Unknown { stage },
        (known, _) => known,
    }
}

fn stop_in<'e>(error: &'e (dyn Error + 'static)) -> Option<Stop> {
    let chain = std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| (*error).source());
    chain.take(32).find_map(|error| error.downcast_ref::<Stop>().copied())
}

impl<E: Error + Send + Sync + 'static> From<E> for JobError {
    fn from(error: E) -> Self {
        Self { error: Box::new(error), what: What::Failed(None) }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobError").field("error", &self.error).field("what", &self.what).finish()
    }
}

/// What is known of work of which no effect has begun, or one has.
pub(super) const fn known_of(begun: bool) -> Outcome {
    if begun { Outcome::Unknown { stage: Stage::Work } } else { Outcome::NotSent }
}
