//! The two sides that have to agree: what the handlers saw of themselves, and what the events say of them.
//!
//! Counts only, so that a long run holds no more than a short one. What a handler cannot know, the doorkeeper sees: a
//! middleware around the ingress layer, which is there when a request is over, whichever way.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use oneclock::Operation;
use oneclock::events::{Event, Observer};
use oneclock::operation::Kind;
use oneclock_core::{Cause, Outcome, Reason};

use super::Row;

pub(super) const SERVICES: [&str; 2] = ["gateway", "inventory"];
const ENDS: [&str; 7] = ["done", "deadline", "caller_gone", "sibling_failed", "called_off", "shed", "shutdown"];

/// What everybody saw.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: Counts,
    told: Counts,
    events: AtomicU64,
    loses_one_in: u64,
}

/// Counts by what, of whom.
#[derive(Debug, Default)]
struct Counts(Mutex<BTreeMap<(&'static str, String), u64>>);

/// One request at one service, from its first poll to the drop of the last that belongs to it.
#[derive(Debug)]
pub(super) struct Record {
    service: &'static str,
    witness: Arc<Witness>,
    operation: OnceLock<Operation>,
    handled: Mutex<Handled>,
    /// Its body is that of a call, which can fail while there is time.
    passes_on: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    NotStarted,
    Running,
    Finished,
    Dropped,
}

/// One run of a handler.
#[derive(Debug)]
pub(super) struct Handling {
    record: Arc<Record>,
    finished: bool,
}

/// Some work below a handler. Dropped before its end, it says so.
#[derive(Debug)]
pub(super) struct Working {
    witness: Arc<Witness>,
    what: &'static str,
    finished: bool,
}

/// How an answer left, as far as the doorkeeper saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// There was none: the request was dropped before.
    None,
    /// To its end.
    Whole,
    /// It ended with an error.
    Failed,
    /// Nobody took the rest.
    Dropped,
}

// === Witness ===

impl Witness {
    pub(super) fn new(loses_one_in: u64) -> Self {
        Self { loses_one_in, ..Self::default() }
    }

    /// Somebody saw this happen.
    pub(super) fn saw(&self, what: &'static str, whose: &str) {
        self.seen.add(what, whose);
    }

    pub(super) fn working(self: &Arc<Self>, what: &'static str) -> Working {
        self.saw("started", what);
        Working { witness: Arc::clone(self), what, finished: false }
    }

    /// What has to agree.
    pub(super) fn rows(&self) -> Vec<Row> {
        let (seen, told) = (&self.seen, &self.told);
        let mut rows = Vec::new();
        for service in SERVICES {
            let of = |what: &str| format!("{service}: {what}");
            // Accepted, but its turn came after its deadline: it never began (contract X7). The caller is told the same as
            // one that was refused as expired, so the difference has to show in three places.
            let expired = format!("{service} {}", Reason::ExpiredBeforeStart);
            let too_late = seen.of("not started", &expired).saturating_sub(told.of("refused for", &expired));
            rows.extend([
                Row::new(
                    of("requests let in or refused"),
                    seen.of("entered", service),
                    told.of("arrived", service) + told.of("refused", service),
                ),
                Row::new(
                    of("handlers started or never begun, Arrived"),
                    seen.of("started", service) + too_late,
                    told.of("arrived", service),
                ),
                Row::new(
                    of("handlers started, finished or dropped"),
                    seen.of("started", service),
                    seen.of("finished", service) + seen.of("dropped", service),
                ),
            ]);
            for reason in [Reason::Malformed, Reason::InsufficientBudget, Reason::Shutdown] {
                let refused = format!("{service} {reason}");
                let (seen, told) = (seen.of("not started", &refused), told.of("refused for", &refused));
                rows.push(Row::new(of(&format!("refused, {reason}")), seen, told));
            }
            for end in ENDS {
                let ended = format!("{service} {end}");
                let never_begun = if end == Cause::Deadline.as_str() { too_late } else { 0 };
                let seen = seen.of("over", &ended) + never_begun;
                rows.push(Row::new(of(&format!("over, {end}")), seen, told.of("ended", &ended)));
            }
        }
        let work = |what: &str| told.of("part ended", what) + told.of("not called", what);
        rows.extend([
            Row::new(
                "calls begun",
                seen.of("begun", "inventory"),
                told.of("called", "inventory") + told.of("not called", "inventory")
                    - told.of("told twice", "inventory"),
            ),
            Row::new("calls told as made and as not made", 0, told.of("told twice", "inventory")),
            Row::new("children begun", seen.of("begun", "child"), work("child")),
            Row::new("closures begun", seen.of("begun", "closure"), work("closure")),
            Row::new("steps begun", seen.of("begun", "step"), work("step")),
            Row::new("steps started, ended", seen.of("started", "step"), told.of("part ended", "step")),
            Row::new("steps that did not finish", 0, seen.of("dropped", "step")),
        ]);
        for what in ["child", "closure", "step"] {
            let ended = seen.of("finished", what) + seen.of("dropped", what);
            rows.push(Row::new(format!("{what}: started, finished or dropped"), seen.of("started", what), ended));
        }
        rows.push(Row::new("panics", 0, told.of("panicked", "")));
        rows.extend(seen.all("wrong").into_iter().map(|(what, count)| Row::new(format!("wrong: {what}"), 0, count)));
        rows
    }
}

impl Observer for Witness {
    fn on(&self, event: &Event<'_>) {
        let nth = self.events.fetch_add(1, Ordering::Relaxed);
        if self.loses_one_in > 0 && nth.is_multiple_of(self.loses_one_in) {
            return;
        }
        let told = &self.told;
        let not_called = NOT_CALLED.take();
        match event {
            Event::Arrived(arrived) => told.add("arrived", arrived.operation.as_str()),
            Event::Refused(refusal) => {
                told.add("refused", refusal.operation.as_str());
                told.add("refused for", &format!("{} {}", refusal.operation, refusal.reason));
            }
            Event::Ended(ended) if ended.kind == Kind::Request => {
                let end = name(ended.ending.map(|ending| ending.cause));
                told.add("ended", &format!("{} {end}", ended.operation));
            }
            Event::Ended(ended) => told.add("part ended", ended.operation.as_str()),
            Event::Called(called) => {
                told.add("called", called.call.as_str());
                if not_called && called.outcome == Outcome::NotSent && called.ending.is_none() {
                    told.add("told twice", called.call.as_str());
                }
            }
            Event::NotCalled { call, .. } => {
                told.add("not called", call.as_str());
                NOT_CALLED.set(true);
            }
            Event::Panicked { .. } => told.add("panicked", ""),
            _ => {}
        }
    }
}

thread_local! {
    /// Whether the last event of this thread said that a call was not made.
    static NOT_CALLED: Cell<bool> = const { Cell::new(false) };
}

fn name(cause: Option<Cause>) -> &'static str {
    cause.map_or("done", |cause| cause.as_str())
}

// === Counts ===

impl Counts {
    fn add(&self, what: &'static str, whose: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((what, whose.to_owned())).or_default() += 1;
    }

    fn of(&self, what: &'static str, whose: &str) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&(what, whose.to_owned())).copied().unwrap_or(0)
    }

    fn all(&self, what: &'static str) -> Vec<(String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().filter(|((of, _), _)| *of == what).map(|((_, whose), count)| (whose.clone(), *count)).collect()
    }
}

// === Record ===

impl Record {
    pub(super) fn new(service: &'static str, witness: &Arc<Witness>) -> Arc<Self> {
        witness.saw("entered", service);
        Arc::new(Self {
            service,
            witness: Arc::clone(witness),
            operation: OnceLock::new(),
            handled: Mutex::new(Handled::NotStarted),
            passes_on: AtomicBool::new(false),
        })
    }

    pub(super) fn handling(self: &Arc<Self>, operation: &Operation) -> Handling {
        let _ = self.operation.set(operation.clone());
        self.set(Handled::Running);
        self.witness.saw("started", self.service);
        Handling { record: Arc::clone(self), finished: false }
    }

    /// The answer's body will be that of a call.
    pub(super) fn passes_on(&self) {
        self.passes_on.store(true, Ordering::Relaxed);
    }

    /// The request is over, and everything of it is dropped. `reason` is the layer's, if the answer was not the
    /// handler's own.
    pub(super) fn over(&self, answer: Answer, reason: Option<&str>) {
        let handled = *self.handled.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(operation) = self.operation.get() else {
            let reason = reason.unwrap_or("no reason given");
            self.witness.saw("not started", &format!("{} {reason}", self.service));
            if answer == Answer::None {
                self.witness.saw("wrong", "neither started nor answered");
            }
            return;
        };
        let cause = operation.ending().map(|ending| ending.cause);
        self.witness.saw("over", &format!("{} {}", self.service, name(cause)));
        let wrong = match (handled, answer, cause) {
            (Handled::NotStarted | Handled::Running, ..) => Some("a handler outlived its request"),
            (Handled::Dropped, Answer::Whole, None) => Some("answered for a handler that was dropped, and not ended"),
            (_, Answer::None, None) => Some("dropped before its answer, and not ended"),
            (_, Answer::Failed, None) if !self.passes_on.load(Ordering::Relaxed) => Some("cut off, and not ended"),
            (_, Answer::Whole, Some(Cause::CallerGone)) if reason.is_none() => {
                Some("delivered to a caller that was gone")
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            self.witness.saw("wrong", wrong);
        }
    }

    fn set(&self, handled: Handled) {
        *self.handled.lock().unwrap_or_else(PoisonError::into_inner) = handled;
    }
}

// === Handling ===

impl Handling {
    pub(super) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        let record = &self.record;
        if self.finished {
            record.set(Handled::Finished);
            record.witness.saw("finished", record.service);
            return;
        }
        record.set(Handled::Dropped);
        record.witness.saw("dropped", record.service);
        // The operation ends before its handler is dropped, so that whatever is dropped with it learns why.
        if record.operation.get().is_none_or(|operation| operation.ending().is_none()) {
            record.witness.saw("wrong", "a handler was dropped before its operation had ended");
        }
    }
}

// === Working ===

impl Working {
    pub(super) fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.witness.saw(if self.finished { "finished" } else { "dropped" }, self.what);
    }
}
