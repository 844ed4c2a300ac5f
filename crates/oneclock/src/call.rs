//! One call to something downstream: where it is, how long each stage took, how it ended.
//!
//! Decides how a call is accounted: one ledger entry with its stages as parts, one event, both from a guard (contract
//! N1). It has no cancel tree of its own, since nothing of ours runs below it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use oneclock_core::effect::{self, Seen};
use oneclock_core::ledger::EntryId;
use oneclock_core::wire::server_timing::Account;
use oneclock_core::{Budget, Cause, Deadline, Ending, Name, Outcome, Stage, Tick};

use crate::events::{AnswerHead, CallBegan, Called, Downstream, Event, Fields, Slot, Target};
use crate::health::Watch;
use crate::run::{EndOf, Ended};
use crate::{Operation, clock};

/// A call in progress. Dropped before [`close`](Self::close), it was abandoned, and its outcome follows from its stage.
#[must_use = "dropping a call abandons it"]
pub struct Call {
    operation: Operation,
    name: Name,
    budget: Budget,
    began: Tick,
    attempt: u32,
    downstream: Downstream,
    remaining: Duration, // of its operation, when it began
    slot: Slot,
    watch: Option<Watch>, // tells its destination's health
    below: Option<Account>,
    entry: EntryId,
    part: Option<EntryId>,
    stage: Stage,
    closed: Option<Outcome>,
    over: Option<Tick>, // when it was, if somebody looked at the clock for it
    ended: Option<Ending>,
}

// === Call ===

impl Call {
    pub(crate) fn begin(
        operation: Operation,
        name: Name,
        budget: Budget,
        began: Tick,
        attempt: u32,
        downstream: Downstream,
    ) -> Self {
        let entry = operation.lock_ledger().open(name.clone(), Stage::Arrival, None, began);
        let remaining = operation.deadline().remaining(began);
        let begun = CallBegan { operation: &operation, call: &name, downstream, budget, remaining, attempt };
        let slot = operation.begun(&begun);
        Self {
            operation,
            name,
            budget,
            began,
            attempt,
            downstream,
            remaining,
            slot,
            watch: None,
            below: None,
            entry,
            part: None,
            stage: Stage::Arrival,
            closed: None,
            over: None,
            ended: None,
        }
    }

    /// The operation that makes it.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// What it calls.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The moment after which its answer is useless.
    pub fn deadline(&self) -> Deadline {
        self.budget.deadline
    }

    /// What it may spend, and what made that.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// What is left of its grant.
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining(clock::now())
    }

    /// When it began.
    pub fn began(&self) -> Tick {
        self.began
    }

    /// Which attempt it is, counted from the first one of the first hop that tried again; one for the first. What it sends
    /// is marked with it (contract R9).
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Lets its observer set the fields that it wants to send with it, such as `traceparent`. For drivers, right before they
    /// send.
    pub fn carry(&self, fields: &mut dyn Fields) {
        self.operation.carry(&self.slot, fields);
    }

    /// Whether an observer keeps something beside it, for drivers that would have to look for what [`addressed`](Self::addressed)
    /// and [`answered`](Self::answered) tell it.
    pub fn is_kept(&self) -> bool {
        !self.slot.is_empty()
    }

    /// Tells its observer what it asks over HTTP, and of whom. For drivers, as soon as they know; nothing happens if nothing is
    /// kept beside it.
    pub fn addressed(&self, target: &Target<'_>) {
        if self.is_kept() {
            self.operation.addressed(&self.slot, target);
        }
    }

    /// Tells its observer the head of its answer over HTTP. For drivers.
    pub fn answered(&self, answer: &AnswerHead<'_>) {
        if self.is_kept() {
            self.operation.tell_answered(&self.slot, answer);
        }
    }

    /// The far side told where its time went: kept by this call's entry in the ledger, and told in its event. The first
    /// account stays. For drivers, and only from a far side inside the trust boundary.
    pub fn tell_below(&mut self, account: Account) {
        if self.below.is_none() {
            self.operation.lock_ledger().tell(self.entry, account.clone());
            self.below = Some(account);
        }
    }

    /// What the far side told of where its time went.
    pub fn below(&self) -> Option<&Account> {
        self.below.as_ref()
    }

    /// Tells its destination's health what was seen of its end, if that is [asked](crate::Grant::health): an answer, or a
    /// failed connection. The first word counts. For drivers; without a word, the stage in which it is dropped decides.
    pub fn saw(&mut self, seen: Seen, now: Tick) {
        if let Some(watch) = &mut self.watch {
            watch.saw(seen, now);
        }
    }

    /// Where it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// It reached `stage`: the time from here on is charged to that.
    pub fn enter(&mut self, stage: Stage) {
        self.enter_at(stage, clock::now());
    }

    /// The same, for drivers that know the time already: reading the clock is a good part of what a call costs.
    pub fn enter_at(&mut self, stage: Stage, now: Tick) {
        self.stage = stage;
        if let (Stage::Body, Some(watch)) = (stage, &mut self.watch) {
            watch.answer_begins(now);
        }
        self.operation.set_stage(stage);
        let mut ledger = self.operation.lock_ledger();
        if let Some(part) = self.part.take() {
            ledger.close(part, now);
        }
        self.part = Some(ledger.open(stage.as_str(), stage, Some(self.entry), now));
    }

    /// Why it must end now, if it must: its grant is used up, or its operation is over.
    pub fn ending(&self) -> Option<Ending> {
        self.ending_at(clock::now())
    }

    /// The same, for drivers that know the time already.
    pub fn ending_at(&self, now: Tick) -> Option<Ending> {
        match self.operation.over_at(now) {
            Some(ending) if ending.at < self.deadline().tick() => Some(self.placed(ending)),
            _ if self.deadline().is_past(now) => Some(self.out_of_time(now)),
            ending => ending.map(|ending| self.placed(ending)),
        }
    }

    /// Runs `work` until it is done or the call must end.
    ///
    /// The work is polled first (contract X1), except when the call must end before it begins.
    ///
    /// # Errors
    /// [`Ended`]; the work was dropped, and this call's event will say so.
    ///
    /// # Cancel safety
    /// Dropping it drops the work.
    pub fn run<F: Future>(&mut self, work: F) -> impl Future<Output = Result<F::Output, Ended>> + use<'_, F> {
        self.run_from(None, work)
    }

    /// The same from `now` on, for drivers that know the time already. The future is polled at once.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn run_at<F: Future>(
        &mut self,
        now: Tick,
        work: F,
    ) -> impl Future<Output = Result<F::Output, Ended>> + use<'_, F> {
        self.run_from(Some(now), work)
    }

    async fn run_from<F: Future>(&mut self, now: Option<Tick>, work: F) -> Result<F::Output, Ended> {
        if let Some(ending) = self.ending_at(now.unwrap_or_else(clock::now)) {
            return Err(self.cut_off(ending));
        }
        let mut work = pin!(work);
        let mut end = pin!(EndOf::or_at(self.operation.clone(), self.deadline()));
        let result = poll_fn(|cx| {
            if let Poll::Ready(value) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            end.as_mut().poll(cx).map(Err)
        })
        .await;
        result.map_err(|_| {
            let now = clock::now();
            let ending = self.ending().unwrap_or_else(|| self.out_of_time(now));
            self.cut_off(ending)
        })
    }

    /// It is over, with this outcome.
    pub fn close(mut self, outcome: Outcome) {
        self.closed = Some(outcome);
    }

    /// The same, for drivers that know the time already.
    pub fn close_at(mut self, outcome: Outcome, now: Tick) {
        self.over = Some(now);
        self.closed = Some(outcome);
    }

    /// It was cut off for `ending`; says so in its event, and makes the error.
    pub fn cut_off(&mut self, ending: Ending) -> Ended {
        let ending = self.placed(ending);
        self.ended = Some(ending);
        if let Some(part) = self.part.take() {
            self.operation.lock_ledger().close(part, clock::now()); // so that the error can say how long it took
        }
        self.ended_error(ending)
    }

    /// What is known of the far side if it is cut off now.
    pub fn outcome_if_cut_off(&self) -> Outcome {
        effect::outcome(Seen::CutOff { stage: self.stage }, false)
    }

    pub(crate) fn watched(mut self, watch: Option<Watch>) -> Self {
        self.watch = watch;
        self
    }

    /// Nothing was seen of its end: where it was decides what that tells.
    fn tell_unseen(&self, mut watch: Watch, now: Tick) {
        let cut_off = self.closed.is_some() || self.ended.is_some() || self.ending_at(now).is_some();
        match self.closed {
            Some(Outcome::NotSent) => watch.saw(Seen::RefusedHere, now),
            _ if self.stage == Stage::Body && !cut_off => watch.saw(Seen::CutOff { stage: self.stage }, now), // it broke off
            _ => watch.over(self.stage, now),
        }
    }

    fn out_of_time(&self, at: Tick) -> Ending {
        Ending::out_of_time(self.budget.bound.by, self.stage, at)
    }

    /// An ending seen from this call: its own stage says where.
    fn placed(&self, ending: Ending) -> Ending {
        let bound = if ending.cause == Cause::Deadline { self.budget.bound.by } else { ending.bound };
        Ending { stage: self.stage, bound, ..ending }
    }

    fn ended_error(&self, ending: Ending) -> Ended {
        Ended {
            operation: self.operation.name().clone(),
            call: Some(self.name.clone()),
            ending,
            bound: self.budget.bound,
            elapsed: clock::now().since(self.began),
            ledger: Box::new(self.operation.ledger().part(self.entry)),
            found: None,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let now = self.over.unwrap_or_else(clock::now);
        {
            let mut ledger = self.operation.lock_ledger();
            if let Some(part) = self.part.take() {
                ledger.close(part, now);
            }
            ledger.close(self.entry, now);
        }
        self.operation.set_stage(Stage::Work);
        if let Some(watch) = self.watch.take() {
            self.tell_unseen(watch, now);
        }
        let outcome = self.closed.unwrap_or_else(|| self.outcome_if_cut_off());
        let ending = match (self.closed, self.ended) {
            (Some(_), ended) | (None, ended @ Some(_)) => ended,
            // Abandoned: by the end of its operation, or by code that lost interest.
            (None, None) => Some(self.ending().unwrap_or(Ending {
                cause: Cause::CalledOff,
                bound: self.budget.bound.by,
                stage: self.stage,
                at: now,
            })),
        };
        if !self.operation.is_observed() {
            return;
        }
        self.operation.tell(&Event::Called(&Called {
            operation: self.operation.name().clone(),
            call: self.name.clone(),
            downstream: self.downstream,
            remaining: self.remaining,
            bound: self.budget.bound,
            ending,
            elapsed: now.since(self.began),
            outcome,
            attempt: self.attempt,
            below: self.below.take(),
            slot: self.slot.clone(),
        }));
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("operation", self.operation.name())
            .field("name", &self.name)
            .field("stage", &self.stage)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
