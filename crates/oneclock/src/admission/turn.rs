//! Waiting for a turn.
//!
//! Decides what is asked first: whether there is a place, then whether there is still time for what would follow. One timer, for
//! whichever moment comes first.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use oneclock_core::admission::{Class, Due, Refusal};
use oneclock_core::queue::Key;
use oneclock_core::{Cause, Deadline, Ending, Name, Stage, Tick};
use tokio::sync::oneshot;

use super::{Place, Shared};
use crate::operation::Spending;
use crate::run::EndOf;
use crate::{Operation, clock};

type Verdict = Result<Place, Refusal>;

/// One that waits, as the core knows it.
pub(super) struct Sleeper {
    class: Arc<Class>,
    wakes: oneshot::Sender<Verdict>,
}

/// A turn that is waited for. Dropped, it leaves the queue.
#[must_use = "dropped, it leaves the queue"]
pub struct Turn {
    shared: Arc<Shared>,
    key: Option<Key>, // none: it does not wait any more
    start_by: Tick,
    verdict: oneshot::Receiver<Verdict>,
    end: Option<Pin<Box<EndOf>>>,
}

/// Why there was no place.
#[derive(Clone, Copy, Debug)]
pub enum NotAdmitted {
    /// It was refused.
    Refused(Refusal),
    /// Its operation ended.
    Ended(Ending),
}

/// Somebody waits: the stage says so, and the ledger.
pub(super) struct InQueue<'a> {
    operation: &'a Operation,
    before: Stage,
    _spending: Spending,
}

// === Sleeper ===

impl Sleeper {
    pub(super) fn new(class: &Arc<Class>) -> (Self, oneshot::Receiver<Verdict>) {
        let (wakes, verdict) = oneshot::channel();
        (Self { class: Arc::clone(class), wakes }, verdict)
    }

    pub(super) fn class(&self) -> &Arc<Class> {
        &self.class
    }

    /// Wakes it; the verdict comes back if it has left.
    pub(super) fn tell(self, verdict: Verdict) -> Result<(), Verdict> {
        self.wakes.send(verdict)
    }
}

// === Turn ===

impl Turn {
    pub(super) fn new(shared: &Arc<Shared>, key: Key, start_by: Tick, verdict: oneshot::Receiver<Verdict>) -> Self {
        Self { shared: Arc::clone(shared), key: Some(key), start_by, verdict, end: None }
    }

    /// Ready with a place, or when there will be none in time, or when `operation` has ended. Not to be polled after that.
    pub fn poll(&mut self, operation: &Operation, cx: &mut Context<'_>) -> Poll<Result<Place, NotAdmitted>> {
        loop {
            if let Poll::Ready(verdict) = Pin::new(&mut self.verdict).poll(cx) {
                self.key = None;
                return Poll::Ready(match verdict {
                    Ok(Ok(place)) => match operation.over_at(clock::now()) {
                        None => Ok(place),
                        Some(ending) => {
                            place.unused(); // it came in time, and is looked at too late: nothing begins any more (contract X6)
                            Err(NotAdmitted::Ended(ending))
                        }
                    },
                    Ok(Err(refusal)) => Err(NotAdmitted::Refused(refusal)),
                    Err(_) => Err(NotAdmitted::Ended(Ending {
                        cause: Cause::CalledOff, // cannot be: whoever wakes it says something
                        bound: operation.bound().by,
                        stage: Stage::Queue,
                        at: clock::now(),
                    })),
                });
            }
            let start_by = Deadline::at(self.start_by);
            let end = self.end.get_or_insert_with(|| Box::pin(EndOf::or_at(operation.clone(), start_by)));
            ready!(end.as_mut().poll(cx));
            self.end = None;
            let now = clock::now();
            if let Some(ending) = operation.over_at(now) {
                return Poll::Ready(Err(NotAdmitted::Ended(ending)));
            }
            let Some(key) = self.key else { return Poll::Pending };
            match self.shared.core.due(key, now) {
                Due::Refused(_, refusal) => {
                    self.key = None;
                    return Poll::Ready(Err(NotAdmitted::Refused(refusal)));
                }
                Due::Later(start_by) => self.start_by = start_by,
                // Its verdict is on its way. What ends the operation is still waited for.
                Due::Gone => self.start_by = operation.deadline().tick(),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            drop(self.shared.core.left(key));
        }
        self.verdict.close();
        if let Ok(Ok(place)) = self.verdict.try_recv() {
            place.unused(); // it was handed over a moment ago
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("before", &self.shared.name)
            .field("start_by", &self.start_by)
            .finish_non_exhaustive()
    }
}

// === InQueue ===

impl<'a> InQueue<'a> {
    pub(super) fn begin(operation: &'a Operation, name: &Name) -> Self {
        let before = operation.stage_said();
        operation.set_stage(Stage::Queue);
        Self { operation, before, _spending: operation.spend(name.clone(), Stage::Queue) }
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.operation.set_stage(self.before);
    }
}
