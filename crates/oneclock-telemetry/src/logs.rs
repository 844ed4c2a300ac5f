//! One line for each operation that is over.
//!
//! Decides the fields, and how loud a line is: `WARN` for what ran out of time or was answered so, `INFO` for what ended early
//! for another cause, `DEBUG` for what was done. Parts of operations have no line: they stand in the line of the whole. A line
//! that nobody wants costs one look at a level.

use std::fmt;

use oneclock::events::{Event, Observer, OperationEnded, Refusal};
use oneclock::operation::Kind;
use oneclock_core::ledger::Ledger;
use oneclock_core::time::Legible;
use oneclock_core::{Cause, Deadline, Tick};

use crate::trace;
use crate::trace::words::{is_about_time, millis, queued};

/// The target of the lines, for filters.
pub const TARGET: &str = "oneclock::operation";

/// Writes a `tracing` event for each operation that is over: requests, streams, what our own code begins or detaches, and
/// steps that must finish. For each request that was refused, too, at `DEBUG`.
///
/// | field | says |
/// |---|---|
/// | `operation`, `kind`, `route` | which: its name, `request`, `stream`, `begun`, `detached` or `must_finish`, and what it was matched to |
/// | `bound`, `budget_ms` | what made its deadline (`caller` for one that came in), and all that this gave |
/// | `elapsed_ms`, `remaining_ms` | how long it took, and what was left then |
/// | `queue_ms` | how long it waited in queues |
/// | `unaccounted_ms` | what nothing of the ledger covers: its own work |
/// | `cause`, `stage` | why it ended early, and where it was; absent if it was done |
/// | `answered` | the reason that its answer gave, if it gave one |
/// | `spent` | each child: how long it took, what was left when it began, and what it told of itself |
/// | `trace_id` | the trace that it belongs to, where there is one: of what is detached or must finish, that of the request |
///
/// ```text
/// WARN oneclock::operation: order: out of time in stage wait (bound: caller) operation="order" kind="request"
///   route="/orders" bound="caller" budget_ms=800.0 elapsed_ms=801.2 remaining_ms=0.0 queue_ms=180.0 unaccounted_ms=1.2
///   cause="deadline" stage="wait" spent="queue 180ms at 800ms left, inventory 620ms at 620ms left"
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Logs;

/// Each child with what was left when it began.
struct Boundaries<'a> {
    ledger: &'a Ledger,
    deadline: Deadline,
    until: Tick,
}

/// What happened, in a few words.
struct Headline<'a>(&'a OperationEnded<'a>);

impl Logs {
    /// An observer that does this. Give it to [`observe_globally`](oneclock::events::observe_globally), with others in
    /// [`Several`](crate::Several).
    pub const fn new() -> Self {
        Self
    }
}

impl Observer for Logs {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Ended(ended) if ended.kind != Kind::Child => line(ended),
            Event::Refused(refusal) => refused(refusal),
            _ => {}
        }
    }
}

fn line(ended: &OperationEnded<'_>) {
    macro_rules! line {
        ($level:ident) => {{
            let until = ended.ledger.began() + ended.elapsed;
            tracing::event!(
                target: TARGET,
                tracing::Level::$level,
                operation = ended.operation.as_str(),
                kind = kind(ended.kind),
                route = ended.route.map(|route| route.as_str()),
                bound = ended.bound.by.as_str(),
                budget_ms = millis(ended.bound.limit),
                elapsed_ms = millis(ended.elapsed),
                remaining_ms = millis(ended.deadline.remaining(until)),
                queue_ms = millis(queued(ended.ledger).unwrap_or_default()),
                unaccounted_ms = millis(ended.ledger.unaccounted(until)),
                cause = ended.ending.map(|ending| ending.cause.as_str()),
                stage = ended.ending.map(|ending| ending.stage.as_str()),
                answered = ended.answered.map(|reason| reason.as_str()),
                spent = %Boundaries { ledger: ended.ledger, deadline: ended.deadline, until },
                trace_id = trace::trace_of(ended.nearest_slot),
                "{}",
                Headline(ended)
            )
        }};
    }
    match (ended.ending.map(|ending| ending.cause), ended.answered) {
        (Some(Cause::Deadline), _) => line!(WARN),
        (_, Some(reason)) if is_about_time(reason) => line!(WARN),
        (Some(_), _) => line!(INFO),
        (None, _) => line!(DEBUG),
    }
}

fn refused(refusal: &Refusal) {
    tracing::event!(
        target: TARGET,
        tracing::Level::DEBUG,
        operation = refusal.operation.as_str(),
        route = refusal.route.as_ref().map(|route| route.as_str()),
        remaining_ms = millis(refusal.remaining),
        answered = refusal.reason.as_str(),
        trace_id = trace::trace_of(&refusal.slot),
        "{}",
        Event::Refused(refusal)
    );
}

/// The word for a kind of operation.
pub(crate) const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Request => "request",
        Kind::Begun => "begun",
        Kind::Child => "child",
        Kind::Detached => "detached",
        Kind::MustFinish => "must_finish",
        Kind::Stream => "stream",
        _ => "other",
    }
}

impl fmt::Display for Boundaries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (id, entry) in self.ledger.parts_of(None) {
            let took = Legible(entry.ended.unwrap_or(self.until).since(entry.began));
            let left = Legible(self.deadline.remaining(entry.began));
            write!(f, "{separator}{} {took} at {left} left", entry.name)?;
            if let Some(told) = self.ledger.told_of(id) {
                write!(f, " ({told})")?;
            }
            separator = ", ";
        }
        for folded in self.ledger.folded() {
            write!(f, "{separator}{} {} in {}", folded.name, Legible(folded.sum), folded.count)?;
            separator = ", ";
        }
        Ok(())
    }
}

impl fmt::Display for Headline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.ending, self.0.answered) {
            (Some(ending), _) => write!(f, "{}: {ending}", self.0.operation),
            (None, Some(reason)) => write!(f, "{}: answered with {reason}", self.0.operation),
            (None, None) => write!(f, "{}: done", self.0.operation),
        }
    }
}
