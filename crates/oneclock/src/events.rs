//! What happened, told once, to one [`Observer`].
//!
//! Decides what is told; `words` has the words for labels, `text` the sentences, `observer` who hears them. Every count, span
//! and log line elsewhere comes from these events; they are sent from guards, so that cancelled work is counted too (contract
//! N1).

use std::time::Duration;

use oneclock_core::admission;
use oneclock_core::breaker::Change;
use oneclock_core::idempotency::{self, Doubt};
use oneclock_core::ingress::Accepted;
use oneclock_core::retry::Stop;
use oneclock_core::wire::server_timing::Account;
use oneclock_core::{Bound, BoundBy, Budget, Deadline, Ending, Importance, Ledger, Name, Outcome, Reason};

use crate::Operation;

mod counting;
mod delivered;
mod heads;
mod no_place;
mod observer;
mod slot;
mod text;
mod words;

pub use counting::Counting;
pub use delivered::{Delivered, Delivery};
pub use heads::{AnswerHead, Head, RequestBegan, Target};
pub use observer::{
    AlreadyObserved, Fields, Observer, answered, global_observer, is_observed, observe_globally, request_began, send,
};
pub(crate) use observer::{addressed, begun, carry};
pub use slot::Slot;

/// One thing that happened. Printed, it is one line for the person on call: which operation, what it called, which bound,
/// where, after how long, and what is known of the far side.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request arrived and was accepted.
    Arrived(&'a Arrived),
    /// A request was refused before its work began.
    Refused(&'a Refusal),
    /// A request has a place although it would have been refused, since nothing is enforced
    /// ([`Mode::Shadow`](oneclock_core::admission::Mode::Shadow)).
    WouldRefuse {
        /// The operation that begins.
        operation: &'a Name,
        /// What it was matched to, where that is known: a router's pattern.
        route: Option<&'a Name>,
        /// Why it would have been refused.
        refusal: &'a admission::Refusal,
    },
    /// An operation is over, whichever way. Exactly one for each operation.
    Ended(&'a OperationEnded<'a>),
    /// A call to something downstream is over, whichever way. Exactly one for each call that was begun.
    Called(&'a Called),
    /// A call was not made, because it could not have been useful (contract E2, E3, X6).
    NotCalled {
        /// The operation that would have made it.
        operation: &'a Name,
        /// What it would have called.
        call: &'a Name,
        /// Why not.
        reason: Reason,
    },
    /// A call is tried again (contract R9 counts these), or a second attempt begins beside a first that is slow (R10).
    TriedAgain {
        /// The operation that makes it.
        operation: &'a Name,
        /// What it calls.
        call: &'a Name,
        /// Which attempt begins.
        attempt: u32,
        /// What became of the one before.
        because: TriedAgain,
    },
    /// A call that had no success is not tried again.
    GaveUp {
        /// The operation that made it.
        operation: &'a Name,
        /// What it called.
        call: &'a Name,
        /// How many attempts it made.
        attempts: u32,
        /// Why it makes no further one.
        why: Stop,
    },
    /// A result was complete at or after its deadline and was delivered all the same (contract X1).
    Late {
        /// Whose.
        operation: &'a Name,
        /// What it was the result of.
        result: Late,
        /// What the request that all this was for was matched to, where that is known: a router's pattern.
        route: Option<&'a Name>,
        /// By how much.
        by: Duration,
    },
    /// Work went on after its operation had ended, and is over now (invariant I14).
    RanOn {
        /// The operation it belonged to.
        operation: &'a Name,
        /// What went on.
        work: &'a Name,
        /// What kept it going.
        because: RanOn,
        /// For how long after the end.
        for_: Duration,
    },
    /// A new operation was begun that may outlive its parent.
    Detached {
        /// The operation it came from.
        from: &'a Name,
        /// The new one.
        operation: &'a Name,
        /// Why, in the words of whoever detached it.
        reason: &'a str,
    },
    /// What became of a request with an idempotency key, or of its record (contract section 10).
    Keyed {
        /// The route.
        route: &'a Name,
        /// What it was.
        what: Keyed,
    },
    /// A delivery of durable work is over, whichever way. Exactly one for each.
    Delivered(&'a Delivered),
    /// The breaker of something that is called opened, lets a probe through, or closed. Sent to the observer of the operation
    /// that is current then.
    Breaker {
        /// What it is the breaker of.
        destination: &'a Name,
        /// What has become of it.
        change: Change,
    },
    /// A task of ours panicked. The panic itself is reported where it was awaited.
    Panicked {
        /// The operation it belonged to.
        operation: &'a Name,
        /// The task.
        work: &'a Name,
    },
}

/// A request that was accepted, and how its deadline came about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Arrived {
    /// The operation that begins.
    pub operation: Name,
    /// What it was matched to, where that is known: a router's pattern.
    pub route: Option<Name>,
    /// What was left when it arrived.
    pub remaining: Duration,
    /// What made its deadline.
    pub bound: Bound,
    /// The field that the deadline came from, if a caller gave one.
    pub source: Option<Name>,
    /// Whether the caller asked for more than it got.
    pub clamped: bool,
    /// Whether an absolute time was so far off that the clocks probably differ (contract P10).
    pub skew_suspected: bool,
    /// The field that could not be read where the policy reads that as absent (contract P3, `clamp`).
    pub malformed: Option<Name>,
}

/// A request that was refused before its work began.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// The operation that did not begin.
    pub operation: Name,
    /// What it was matched to, where that is known: a router's pattern.
    pub route: Option<Name>,
    /// Why.
    pub reason: Reason,
    /// The field that could not be read, for [`Reason::Malformed`].
    pub field: Option<Name>,
    /// What was left.
    pub remaining: Duration,
    /// What had made its deadline, where that is known.
    pub bound: Option<BoundBy>,
    /// Whether an absolute time was so far off that the clocks probably differ (contract P10).
    pub skew_suspected: bool,
    /// For what was refused a place: why, and the figures that it was decided by.
    pub admission: Option<admission::Refusal>,
    /// What an observer had put beside it.
    pub slot: Slot,
}

/// An operation that is over.
#[derive(Debug)]
#[non_exhaustive]
pub struct OperationEnded<'a> {
    /// Which.
    pub operation: &'a Name,
    /// What sort of operation.
    pub kind: crate::operation::Kind,
    /// The operation it was a part of.
    pub parent: Option<&'a Name>,
    /// What the request that all this was for was matched to, where that is known: a router's pattern.
    pub route: Option<&'a Name>,
    /// The moment after which its result was useless.
    pub deadline: Deadline,
    /// What had made its deadline.
    pub bound: Bound,
    /// Why it ended early; `None` if its work was done, whatever it was answered with. To alert on failures look at
    /// [`answered`](Self::answered) too, and at the status of the answer, which a layer outside of the ingress layer sees.
    pub ending: Option<Ending>,
    /// The reason that its answer gave, if that was a problem with a reason of the contract's: a handler whose call was out
    /// of time has done its work (`ending` is `None`) and was answered with `deadline`. `None` for every other answer, also
    /// for a problem of the handler's own making and for a 500 or 502, and where there was none: the caller had left, or the
    /// head was out before the end.
    pub answered: Option<Reason>,
    /// How much its caller needed it (contract C7).
    pub importance: Importance,
    /// How long it took.
    pub elapsed: Duration,
    /// Where the time went.
    pub ledger: &'a Ledger,
    /// Whether its answer goes on as a stream, which is an operation of its own with the same slot: its end is told by that.
    pub goes_on: bool,
    /// What an observer had put beside it.
    pub slot: &'a Slot,
    /// The same, else what stands beside the nearest operation that it was a part of or was begun from, as by
    /// [`Operation::nearest_slot`]: what serves a request has that of the request.
    pub nearest_slot: &'a Slot,
}

/// A call that begins.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallBegan<'a> {
    /// The operation that makes it.
    pub operation: &'a Operation,
    /// What it calls.
    pub call: &'a Name,
    /// What sort of thing that is.
    pub downstream: Downstream,
    /// What it may spend.
    pub budget: Budget,
    /// What its operation has left.
    pub remaining: Duration,
    /// Which attempt it is, counted as in [`Called::attempt`].
    pub attempt: u32,
}

/// A call that is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Called {
    /// The operation that made it.
    pub operation: Name,
    /// What it called.
    pub call: Name,
    /// What sort of thing that is.
    pub downstream: Downstream,
    /// What its operation had left when it began; its own grant is in `bound`.
    pub remaining: Duration,
    /// What had made its deadline.
    pub bound: Bound,
    /// Why it ended early; `None` if it was answered.
    pub ending: Option<Ending>,
    /// How long it took.
    pub elapsed: Duration,
    /// What is known of the far side.
    pub outcome: Outcome,
    /// Which attempt it was, counted from the first one of the first hop that tried again; one for the first.
    pub attempt: u32,
    /// Where the far side's time went, if it is one of ours and told it. It stands by the call's entry in the operation's
    /// ledger, too.
    pub below: Option<Account>,
    /// What an observer had put beside it when it began.
    pub slot: Slot,
}

/// What sort of thing a call goes to. Cancels that are seen at handlers and not at databases are not passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Downstream {
    /// Another service.
    #[default]
    Service,
    /// A database or a cache.
    Database,
    /// A queue or a broker.
    Queue,
}

/// What a result belongs to that came at or after its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Late {
    /// A request's: its answer.
    Answer,
    /// That of a call, of a part of an operation, or of a job.
    Step,
}

/// Why there is another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TriedAgain {
    /// The one before failed.
    Retry,
    /// The one before is slow, and goes on.
    Hedge,
}

/// What kept work going after its operation had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RanOn {
    /// It was declared as a step that must finish.
    MustFinish,
    /// A blocking closure that had not reached its next checkpoint.
    Blocking,
    /// A statement on a database server that its cancel did not end at once.
    Statement,
}

/// What became of a request with an idempotency key, or of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keyed {
    /// It was claimed, and its work began.
    Ran,
    /// The same, over a run of which nothing is known, since that was declared safe (contract M3).
    TookOver,
    /// It was answered with what an earlier run had answered.
    Replayed,
    /// It was refused.
    Refused(idempotency::Refusal),
    /// Its run was over, and it is not known what it did.
    Unknown(Doubt),
    /// Its run came back after another had begun, and changed nothing (contract M5).
    Fenced,
    /// Its run was over, and the store could not be told: the lease will say that nothing is known.
    NotRecorded,
}

// === Arrived ===

impl Arrived {
    /// From what the ingress decided. For layers.
    pub fn new(operation: &Operation, accepted: &Accepted<'_>) -> Self {
        Self {
            operation: operation.name().clone(),
            route: operation.route().cloned(),
            remaining: operation.remaining(),
            bound: operation.bound(),
            source: accepted.source.cloned(),
            clamped: accepted.clamped,
            skew_suspected: accepted.skew_suspected,
            malformed: accepted.malformed.map(|malformed| malformed.field.clone()),
        }
    }
}

// === Refusal ===

impl Refusal {
    /// A refusal. For layers.
    pub fn new(operation: Name, reason: Reason, remaining: Duration, field: Option<Name>) -> Self {
        Self {
            operation,
            route: None,
            reason,
            field,
            remaining,
            bound: None,
            skew_suspected: false,
            admission: None,
            slot: Slot::default(),
        }
    }

    /// The same, with what had made its deadline.
    #[must_use]
    pub fn bounded_by(mut self, bound: BoundBy) -> Self {
        self.bound = Some(bound);
        self
    }

    /// The same, where the clocks probably differ.
    #[must_use]
    pub fn suspecting_skew(mut self, skew_suspected: bool) -> Self {
        self.skew_suspected = skew_suspected;
        self
    }

    /// The same, with what the request was matched to.
    #[must_use]
    pub fn on_route(mut self, route: Option<Name>) -> Self {
        self.route = route;
        self
    }

    /// The same, of a request for which there was no place.
    #[must_use]
    pub fn by_admission(mut self, why: admission::Refusal) -> Self {
        self.admission = Some(why);
        self
    }

    /// The same, with what an observer keeps beside it.
    #[must_use]
    pub fn keeping(mut self, slot: Slot) -> Self {
        self.slot = slot;
        self
    }
}
