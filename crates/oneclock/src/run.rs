//! Running a future until it is done or its operation ends, and the error that says which end it was.
//!
//! Decides the order (contract X1): the work is polled first, then the clock is asked, and only then the timer, which
//! merely wakes us (contract K3).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use oneclock_core::name::Hop;
use oneclock_core::time::Legible;
use oneclock_core::{Bound, BoundBy, Deadline, Ending, Ledger, Name, Outcome, Reason, Stage, effect};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::on_end::cutting_off;
use crate::scope::{self, Scoped};
use crate::{Operation, clock};

pin_project! {
    /// The future of [`Operation::run`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Run<F: Future> {
        #[pin]
        work: Option<Scoped<F>>,
        #[pin]
        end: EndOf,
        begun: bool,
        done: bool,
    }

    impl<F: Future> PinnedDrop for Run<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if !*this.done {
                // This ends nothing. One without a driver remembers it for the moment when its last clone goes.
                if !this.end.operation.is_driven() {
                    this.end.operation.set_unfinished(true);
                }
                cutting_off(|| this.work.set(None));
            }
        }
    }
}

pin_project! {
    /// Becomes ready when an operation ends early, or when its work is done and whatever of it still runs is no longer
    /// needed ([`Cause::CalledOff`](oneclock_core::Cause::CalledOff), contract N5). One timer and one waiter, made at the first poll that
    /// has to wait; none where whoever polls it has them already.
    #[must_use = "futures do nothing unless polled"]
    pub struct EndOf {
        operation: Operation,
        deadline: Deadline,
        #[pin]
        timer: Option<Sleep>,
        #[pin]
        cancelled: Option<WaitForCancellationFutureOwned>,
    }
}

/// An operation, or a call of one, ended before its work was done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The operation.
    pub operation: Name,
    /// The call or branch of it that was cut off, if it was one.
    pub call: Option<Name>,
    /// Why, where and when.
    pub ending: Ending,
    /// What had made its deadline.
    pub bound: Bound,
    /// How long it had taken.
    pub elapsed: Duration,
    /// Where the time went.
    pub ledger: Box<Ledger>,
    /// What was found out of the far side after the end, by a driver that can: more than the stage says.
    pub found: Option<Outcome>,
}

// === Run ===

impl<F: Future> Run<F> {
    pub(crate) fn new(operation: Operation, future: F) -> Self {
        let work = scope::scoped(operation.clone(), future);
        Self { work: Some(work), end: EndOf::new(operation), begun: false, done: false }
    }
}

impl<F: Future> Future for Run<F> {
    type Output = Result<F::Output, Ended>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if !*this.begun {
            *this.begun = true;
            if let Some(ending) = this.end.operation.over_at(clock::now()) {
                *this.done = true;
                return Poll::Ready(Err(Ended::of(&this.end.operation, ending))); // X6: not begun after the end
            }
        }
        let Some(work) = this.work.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = {
            let _awaiting = scope::awaiting(&this.end.operation, cx);
            // If it has a driver, that notices a panic.
            let _polling = (!this.end.operation.is_driven()).then(|| this.end.operation.polling());
            work.poll(cx)
        };
        if let Poll::Ready(value) = polled {
            *this.done = true;
            if !this.end.operation.is_driven() {
                this.end.operation.set_unfinished(false);
            }
            this.end.operation.tell_if_late(this.end.operation.deadline());
            return Poll::Ready(Ok(value));
        }
        let ending = ready!(this.end.as_mut().poll(cx));
        *this.done = true;
        Poll::Ready(Err(Ended::of(&this.end.operation, ending)))
    }
}

// === EndOf ===

impl EndOf {
    /// The early end of `operation`.
    pub fn new(operation: Operation) -> Self {
        Self { deadline: operation.deadline(), operation, timer: None, cancelled: None }
    }

    /// The early end of `operation`, or `deadline` if that comes first. At that moment it is ready whether or not the
    /// operation itself has ended.
    pub fn or_at(operation: Operation, deadline: Deadline) -> Self {
        Self { deadline: deadline.earliest(operation.deadline()), operation, timer: None, cancelled: None }
    }

    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }
}

impl Future for EndOf {
    type Output = Ending;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ending> {
        let mut this = self.project();
        let is_awaited = scope::is_awaited(this.operation, cx); // or not any more: it may have been moved
        if this.timer.is_none() && (!is_awaited || *this.deadline < this.operation.deadline()) {
            this.timer.set(Some(tokio::time::sleep_until(clock::instant(*this.deadline))));
        }
        if this.cancelled.is_none() && !is_awaited {
            this.cancelled.set(Some(this.operation.token().clone().cancelled_owned()));
        }
        loop {
            // Asked before each wait, so that what happened between two polls is not slept over.
            let now = clock::now();
            if let Some(ending) = this.operation.over_at(now) {
                return Poll::Ready(ending);
            }
            if this.deadline.is_past(now) {
                return Poll::Ready(Ending::out_of_time(BoundBy::Cap, this.operation.stage(), now));
            }
            if let Some(cancelled) = this.cancelled.as_mut().as_pin_mut()
                && cancelled.poll(cx).is_ready()
            {
                this.cancelled.set(None);
                continue;
            }
            let Some(timer) = this.timer.as_mut().as_pin_mut() else { return Poll::Pending }; // it is woken with its caller
            ready!(timer.poll(cx));
            // Fired, and the clock said no: timers have a grain. Wait for the rest.
            this.timer.set(Some(tokio::time::sleep_until(clock::instant(*this.deadline))));
        }
    }
}

impl fmt::Debug for EndOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndOf").field("operation", &self.operation).finish_non_exhaustive()
    }
}

// === Ended ===

impl Ended {
    /// The error of an operation that ended, with a copy of its ledger. For drivers.
    pub fn of(operation: &Operation, ending: Ending) -> Self {
        Self {
            operation: operation.name().clone(),
            call: None,
            ending,
            bound: operation.bound(),
            elapsed: clock::now().since(operation.began()),
            ledger: Box::new(operation.ledger()),
            found: None,
        }
    }

    /// What a caller is told (contract section 5).
    pub fn reason(&self) -> Reason {
        self.ending.reason()
    }

    /// What is known of the far side of work that was cut off here. For one [`call`](Self::call) its stage says it, or what
    /// was [`found`](Self::found) out. For an operation it is unknown: its parts may have had their effects, wherever the last
    /// of them was.
    pub fn outcome(&self) -> Outcome {
        if let Some(found) = self.found {
            return found;
        }
        match self.call {
            Some(_) => effect::outcome(effect::Seen::CutOff { stage: self.ending.stage }, false),
            None => effect::outcome_of_the_whole(self.ending.stage),
        }
    }

    /// Where it was.
    pub fn stage(&self) -> Stage {
        self.ending.stage
    }
}

/// `order → inventory: out of time in stage connect (bound: caller) after 812ms of 800ms, outcome: not sent; spent: …`
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hop = Hop(&self.operation, self.call.as_ref());
        write!(f, "{hop}: {} after {} of {}", self.ending, Legible(self.elapsed), Legible(self.bound.limit))?;
        if self.call.is_some() {
            write!(f, ", outcome: {}", self.outcome())?;
        }
        if !self.ledger.entries().is_empty() {
            write!(f, "; spent: {}", self.ledger)?;
        }
        Ok(())
    }
}

impl std::error::Error for Ended {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.ending)
    }
}
