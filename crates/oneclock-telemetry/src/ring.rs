//! The last ledgers of operations that ran out of time, in memory, for whoever has to find out why.
//!
//! Decides what is kept: operations that ended by their deadline, and those whose answer said so, the newest of them, whatever
//! a trace sampler threw away. It holds names, spans of time and words of ours, nothing that a caller sent.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use oneclock::events::{Event, Observer, OperationEnded, Slot};
use oneclock_core::time::Legible;
use oneclock_core::{Bound, Cause, Ending, Ledger, Name, Reason, Tick};
use oneclock_http::ledger_json;
use serde_json::{Value, json};

use crate::logs::kind;
use crate::trace;
use crate::trace::words::{is_about_time, millis};

/// How many are kept unless said otherwise.
pub const ROOM: usize = 64;

/// Keeps the last operations that ran out of time. Clones share what they keep: give one to
/// [`observe_globally`](oneclock::events::observe_globally), and read another out behind an endpoint that only operators
/// reach.
///
/// ```
/// use oneclock::{Operation, events::Observer};
/// use oneclock_telemetry::Ring;
/// use std::{sync::Arc, time::Duration};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let ring = Ring::new();
/// let job = Operation::begin("reconcile", Duration::from_millis(300)).observed_by(Arc::new(ring.clone()));
/// let _ = job.run(tokio::time::sleep(Duration::from_secs(5))).await;
/// drop(job);
/// assert!(ring.to_string().contains("reconcile: out of time in stage work"));
/// assert_eq!(ring.to_json()["operations"][0]["cause"], "deadline");
/// # }
/// ```
#[derive(Clone)]
pub struct Ring(Arc<Mutex<Kept>>);

/// What is told of one beside what the ring knows: its name, and what it is.
pub type More = Vec<(&'static str, Value)>;

struct Kept {
    room: usize,
    more: Option<fn(&Slot) -> More>,
    operations: VecDeque<OutOfTime>, // the oldest first
    seen: u64,
}

/// One operation that ran out of time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfTime {
    /// When it was over, by the wall clock.
    pub at: SystemTime,
    /// Which.
    pub operation: Name,
    /// What sort: `request`, `stream`, `begun`, `child`, `detached` or `must_finish`.
    pub kind: &'static str,
    /// What the request that all this was for was matched to.
    pub route: Option<Name>,
    /// The operation it was a part of.
    pub parent: Option<Name>,
    /// What had made its deadline.
    pub bound: Bound,
    /// Why it ended early; `None` if it was done, and its answer said that time had run out.
    pub ending: Option<Ending>,
    /// The reason that its answer gave.
    pub answered: Option<Reason>,
    /// How long it took.
    pub elapsed: Duration,
    /// Where the time went.
    pub ledger: Ledger,
    /// The trace it belongs to.
    pub trace: Option<String>,
    /// What else is told of it.
    pub more: More,
}

// === Ring ===

impl Ring {
    /// Keeps the last [`ROOM`].
    pub fn new() -> Self {
        Self::with_room(ROOM)
    }

    /// Keeps the last `room`. Each is a few kilobytes at most.
    pub fn with_room(room: usize) -> Self {
        Self(Arc::new(Mutex::new(Kept { room, more: None, operations: VecDeque::new(), seen: 0 })))
    }

    /// Tells of each operation from now on what this finds in what observers keep beside it, else beside the request that it is
    /// for. That may be a caller's words, which the ring itself does not keep: see to it that they are few.
    ///
    /// ```
    /// # use oneclock_telemetry::Ring;
    /// struct Tenant(&'static str); // which an observer puts there when a request begins
    ///
    /// let ring = Ring::new().telling(|slot| {
    ///     let tenant = slot.get::<Tenant>();
    ///     tenant.map(|tenant| ("tenant", tenant.0.into())).into_iter().collect()
    /// });
    /// # drop(ring);
    /// ```
    #[must_use]
    pub fn telling(self, more: fn(&Slot) -> More) -> Self {
        self.lock().more = Some(more);
        self
    }

    /// What it keeps, the newest first.
    pub fn recent(&self) -> Vec<OutOfTime> {
        self.lock().operations.iter().rev().cloned().collect()
    }

    /// How many it has seen, those included that it keeps no longer.
    pub fn seen(&self) -> u64 {
        self.lock().seen
    }

    /// The same for programs: `{"seen": …, "operations": [{…}]}`, the newest first, times in milliseconds.
    pub fn to_json(&self) -> Value {
        let operations: Vec<Value> = self.recent().iter().map(OutOfTime::to_json).collect();
        json!({ "seen": self.seen(), "operations": operations })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Ring {
    fn on(&self, event: &Event<'_>) {
        let Event::Ended(ended) = event else { return };
        let out_of_time = ended.ending.is_some_and(|ending| ending.cause == Cause::Deadline);
        if !out_of_time && !ended.answered.is_some_and(is_about_time) {
            return;
        }
        let mut one = OutOfTime::of(ended);
        let mut kept = self.lock();
        one.more = kept.more.map(|more| more(ended.nearest_slot)).unwrap_or_default();
        kept.seen += 1;
        if kept.room == 0 {
            return;
        }
        while kept.operations.len() >= kept.room {
            kept.operations.pop_front();
        }
        kept.operations.push_back(one);
    }
}

/// For people: a line for each, the newest first.
impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.recent().iter().try_for_each(|one| writeln!(f, "{one}"))
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.lock();
        f.debug_struct("Ring").field("room", &kept.room).field("seen", &kept.seen).finish_non_exhaustive()
    }
}

// === OutOfTime ===

impl OutOfTime {
    fn of(ended: &OperationEnded<'_>) -> Self {
        Self {
            at: SystemTime::now(),
            operation: ended.operation.clone(),
            kind: kind(ended.kind),
            route: ended.route.cloned(),
            parent: ended.parent.cloned(),
            bound: ended.bound,
            ending: ended.ending,
            answered: ended.answered,
            elapsed: ended.elapsed,
            ledger: ended.ledger.clone(),
            trace: trace::trace_of(ended.nearest_slot),
            more: More::new(),
        }
    }

    fn until(&self) -> Tick {
        self.ledger.began() + self.elapsed
    }

    /// For programs: times in milliseconds, the ledger as in a problem document.
    pub fn to_json(&self) -> Value {
        let at = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut json = json!({
            "at_unix_ms": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            "operation": self.operation.as_str(),
            "kind": self.kind,
            "bound": self.bound.by.as_str(),
            "budget_ms": millis(self.bound.limit),
            "elapsed_ms": millis(self.elapsed),
            "ledger": ledger_json(&self.ledger, self.until()),
        });
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                json[name] = value;
            }
        };
        put("route", self.route.as_ref().map(|route| route.as_str().into()));
        put("parent", self.parent.as_ref().map(|parent| parent.as_str().into()));
        put("cause", self.ending.map(|ending| ending.cause.as_str().into()));
        put("stage", self.ending.map(|ending| ending.stage.as_str().into()));
        put("answered", self.answered.map(|reason| reason.as_str().into()));
        put("trace_id", self.trace.as_deref().map(Value::from));
        for (name, value) in &self.more {
            put(name, Some(value.clone()));
        }
        json
    }
}

/// `order: out of time in stage wait (bound: caller) after 801ms of 800ms; spent: inventory 620ms; unaccounted 1ms`
impl fmt::Display for OutOfTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(route) = &self.route {
            write!(f, " {route}")?;
        }
        match (self.ending, self.answered) {
            (Some(ending), _) => write!(f, ": {ending}")?,
            (None, Some(reason)) => write!(f, ": answered with {reason} (bound: {})", self.bound.by)?,
            (None, None) => write!(f, ": done (bound: {})", self.bound.by)?,
        }
        write!(f, " after {} of {}", Legible(self.elapsed), Legible(self.bound.limit))?;
        let unaccounted = Legible(self.ledger.unaccounted(self.until()));
        write!(f, "; spent: {}; unaccounted {unaccounted}", self.ledger)?;
        match &self.trace {
            Some(trace) => write!(f, "; trace {trace}"),
            None => Ok(()),
        }
    }
}
