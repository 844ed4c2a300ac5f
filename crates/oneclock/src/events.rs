//! What happened, told once, to one [`Observer`].
//!
//! Decides the words; `text` has the sentences. Every count, span and log line elsewhere comes from these events; they are sent from guards, so
//! that cancelled work is counted too (contract N1).

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use oneclock_core::idempotency::{self, Doubt};
use oneclock_core::ingress::Accepted;
use oneclock_core::retry::Stop;
use oneclock_core::wire::server_timing::Account;
use oneclock_core::{Bound, Budget, Deadline, Ending, Ledger, Name, Outcome, Reason};

use crate::Operation;

mod text;

/// One thing that happened. Printed, it is one line for the person on call: which operation, what it called, which bound,
/// where, after how long, and what is known of the far side.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request arrived and was accepted.
    Arrived(&'a Arrived),
    /// A request was refused before its work began.
    Refused(&'a Refusal),
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
    /// An answer was complete at or after its deadline and was delivered all the same (contract X1).
    Late {
        /// Whose.
        operation: &'a Name,
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
    /// Whether an absolute time was so far off that the clocks probably differ (contract P10).
    pub skew_suspected: bool,
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
    /// How long it took.
    pub elapsed: Duration,
    /// Where the time went.
    pub ledger: &'a Ledger,
    /// What an observer had put beside it.
    pub slot: &'a Slot,
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

/// The fields that a call is about to send, as an [`Observer`] sees and sets them.
pub trait Fields {
    /// The value of a field that is there, if it is text. Of several, the first.
    fn get(&self, name: &str) -> Option<&str>;

    /// Sets a field, in place of those of this name.
    fn set(&mut self, name: &'static str, value: &str);

    /// Removes a field.
    fn remove(&mut self, name: &'static str);
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

/// A place beside an operation or a call in which an observer keeps something of its own from the beginning to the end: a
/// span, for example. Empty unless an observer fills it, and then it owns an `Arc`.
///
/// ```
/// use oneclock::events::Slot;
///
/// let slot = Slot::of(std::time::Instant::now());
/// assert!(slot.get::<std::time::Instant>().is_some());
/// assert!(Slot::default().get::<std::time::Instant>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct Slot(Option<Arc<dyn Any + Send + Sync>>);

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

/// Receives events. Called from guards: it must be quick. A panic of its own is logged, and the event is lost to it. Closures that take an [`Event`] are observers.
pub trait Observer: Send + Sync + 'static {
    /// One event.
    fn on(&self, event: &Event<'_>);

    /// A call begins. What this returns is kept beside the call, and comes back in [`Called::slot`].
    fn begun(&self, call: &CallBegan<'_>) -> Slot {
        let _ = call;
        Slot::default()
    }

    /// A call is about to be sent: sets the fields that carry what is in its slot to the far side, `traceparent` for
    /// example. What the application had put there itself stands in `fields`, and so do copies of what arrived.
    fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
        let _ = (slot, fields);
    }
}

impl<F> Observer for F
where
    F: Fn(&Event<'_>) + Send + Sync + 'static,
{
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}

/// The process has a global observer already. That one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process has a global observer already, which stays: call observe_globally once, when the process starts")]
#[non_exhaustive]
pub struct AlreadyObserved;

/// Sends the events of every operation that has no observer of its own to `observer`, for the life of the process.
///
/// ```
/// use oneclock::events::{Event, observe_globally};
///
/// # fn main() -> Result<(), oneclock::events::AlreadyObserved> {
/// observe_globally(std::sync::Arc::new(|event: &Event<'_>| eprintln!("{event}")))?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`AlreadyObserved`], if there is one already.
pub fn observe_globally(observer: Arc<dyn Observer>) -> Result<(), AlreadyObserved> {
    GLOBAL.set(observer).map_err(|_| AlreadyObserved)
}

static GLOBAL: OnceLock<Arc<dyn Observer>> = OnceLock::new();

/// Sends one event to an operation's observer, or to the global one. For layers and drivers.
pub fn send(observer: Option<&Arc<dyn Observer>>, event: &Event<'_>) {
    if let Some(observer) = observer.or_else(|| GLOBAL.get()) {
        caught(|| observer.on(event));
    }
}

/// Events are sent from destructors, also while a panic unwinds: an observer that panics there would take the process down.
fn caught<T: Default>(observe: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(observe)).unwrap_or_else(|_| {
        tracing::error!("an observer of events panicked; the event is lost to it");
        T::default()
    })
}

/// Asks an operation's observer, or the global one, what to keep beside a call that begins.
pub(crate) fn begun(observer: Option<&Arc<dyn Observer>>, call: &CallBegan<'_>) -> Slot {
    observer.or_else(|| GLOBAL.get()).map_or_else(Slot::default, |observer| caught(|| observer.begun(call)))
}

/// Asks it what to send with a call.
pub(crate) fn carry(observer: Option<&Arc<dyn Observer>>, slot: &Slot, fields: &mut dyn Fields) {
    if let Some(observer) = observer.or_else(|| GLOBAL.get()) {
        caught(|| observer.carry(slot, fields));
    }
}

/// Whether anybody listens; events that are costly to make ask first. For layers and drivers.
pub fn is_observed(observer: Option<&Arc<dyn Observer>>) -> bool {
    observer.is_some() || GLOBAL.get().is_some()
}

/// Counts events, for tests and for small programs.
///
/// ```
/// # use oneclock::{Operation, events::Counting}; use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let counting = Arc::new(Counting::default());
/// let job = Operation::begin("reconcile", Duration::from_secs(1)).observed_by(counting.clone());
/// let late = job.run(tokio::time::sleep(Duration::from_secs(5))).await;
/// drop(job);
/// assert!(late.is_err());
/// assert_eq!(counting.count("ended deadline"), 1);
/// # }
/// ```
#[derive(Default)]
pub struct Counting {
    counts: Mutex<BTreeMap<String, u64>>,
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
        Self { operation, route: None, reason, field, remaining, skew_suspected: false }
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
}

// === Downstream ===

impl Downstream {
    /// The word for labels, which are called `layer`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Database => "database",
            Self::Queue => "queue",
        }
    }
}

// === TriedAgain ===

impl TriedAgain {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Hedge => "hedge",
        }
    }
}

// === RanOn ===

impl RanOn {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MustFinish => "must_finish",
            Self::Blocking => "blocking",
            Self::Statement => "statement",
        }
    }
}

// === Keyed ===

impl Keyed {
    /// The word for labels: a refusal's is the refusal's own.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::TookOver => "took_over",
            Self::Replayed => "replayed",
            Self::Refused(refusal) => refusal.as_str(),
            Self::Unknown(_) => "unknown",
            Self::Fenced => "fenced",
            Self::NotRecorded => "not_recorded",
        }
    }
}

// === Slot ===

impl Slot {
    /// A slot that holds `value`.
    pub fn of(value: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(value)))
    }

    /// Whether nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What is in it, if it is one of these.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Slot(_)" } else { "Slot" })
    }
}

// === Counting ===

impl Counting {
    /// How often events of this kind came: `arrived`, `refused <reason>`, `ended ok`, `ended <cause>`,
    /// `called <outcome>`, `not called <reason>`, `keyed <what>`, `retried`, `hedged`, `gave up <why>`, `late`, `ran on`,
    /// `detached`, `panicked`.
    pub fn count(&self, kind: &str) -> u64 {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(kind).copied().unwrap_or(0)
    }

    /// The sum over all kinds that begin with `prefix`.
    pub fn sum(&self, prefix: &str) -> u64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().filter(|(kind, _)| kind.starts_with(prefix)).map(|(_, count)| count).sum()
    }
}

impl Observer for Counting {
    fn on(&self, event: &Event<'_>) {
        let kind = match event {
            Event::Arrived(_) => "arrived".to_owned(),
            Event::Refused(refusal) => format!("refused {}", refusal.reason),
            Event::Ended(ended) => match ended.ending {
                Some(ending) => format!("ended {}", ending.cause),
                None => "ended ok".to_owned(),
            },
            Event::Called(called) => format!("called {}", called.outcome.as_str()),
            Event::NotCalled { reason, .. } => format!("not called {reason}"),
            Event::TriedAgain { because: TriedAgain::Retry, .. } => "retried".to_owned(),
            Event::TriedAgain { because: TriedAgain::Hedge, .. } => "hedged".to_owned(),
            Event::GaveUp { why, .. } => format!("gave up {}", why.as_str()),
            Event::Late { .. } => "late".to_owned(),
            Event::RanOn { .. } => "ran on".to_owned(),
            Event::Detached { .. } => "detached".to_owned(),
            Event::Keyed { what, .. } => what.to_string(),
            Event::Panicked { .. } => "panicked".to_owned(),
        };
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
    }
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.counts.lock().unwrap_or_else(PoisonError::into_inner).iter()).finish()
    }
}
