//! What became of one delivery of durable work.

use std::fmt;
use std::time::Duration;

use oneclock_core::Name;
use oneclock_core::expiry::{Fault, Policy, Why};
use oneclock_core::time::Legible;

/// One delivery of durable work that is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivered {
    /// The queue.
    pub queue: Name,
    /// What was to be done.
    pub kind: Name,
    /// Its message's own id, for logs; no label.
    pub id: Box<str>,
    /// What becomes of it when it expires.
    pub policy: Policy,
    /// Who answers for it.
    pub owner: Option<Box<str>>,
    /// Which delivery of it, counted from one.
    pub attempt: u32,
    /// How long it had been in queues when it was received, where it says when it was first put into one.
    pub waited: Option<Duration>,
    /// How long this delivery took.
    pub elapsed: Duration,
    /// By how much the clocks may be wrong that its expiry was judged by.
    pub uncertainty: Duration,
    /// What is wrong with how it says when it ends.
    pub faults: Vec<Fault>,
    /// What became of it.
    pub end: Delivery,
}

/// What became of a delivery. One of them for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// Its work was done.
    Done {
        /// After its expiry, as its contract says.
        late: bool,
    },
    /// Its work had been done by an earlier one, under the same key.
    Duplicate,
    /// It was given back, and comes again.
    GivenBack,
    /// It may have expired: it comes again when that is certain.
    Held,
    /// It has expired and must be completed: it went to the late lane.
    MovedLate,
    /// It ended here.
    Discarded(Why),
    /// Somebody has to look at it.
    DeadLettered(Why),
    /// Somebody else had it by then: nothing was said of it.
    LeaseLost,
    /// What became of it could not be said to the broker: it comes again, although it was decided.
    NotSettled,
    /// It was dropped before its end, by a shutdown or a panic of ours: it comes again.
    Abandoned,
}

impl Delivered {
    /// Of this message. What is known at its end is filled in then.
    pub fn new(queue: Name, kind: Name, id: impl Into<Box<str>>, policy: Policy, attempt: u32) -> Self {
        Self {
            queue,
            kind,
            id: id.into(),
            policy,
            owner: None,
            attempt,
            waited: None,
            elapsed: Duration::ZERO,
            uncertainty: Duration::ZERO,
            faults: Vec::new(),
            end: Delivery::Abandoned,
        }
    }
}

impl Delivery {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done { late: false } => "done",
            Self::Done { late: true } => "done_late",
            Self::Duplicate => "duplicate",
            Self::GivenBack => "given_back",
            Self::Held => "held",
            Self::MovedLate => "moved_late",
            Self::Discarded(_) => "discarded",
            Self::DeadLettered(_) => "dead_lettered",
            Self::LeaseLost => "lease_lost",
            Self::NotSettled => "not_settled",
            Self::Abandoned => "abandoned",
        }
    }

    /// Why, for those that did not do their work.
    pub const fn why(self) -> Option<Why> {
        match self {
            Self::Discarded(why) | Self::DeadLettered(why) => Some(why),
            _ => None,
        }
    }

    /// Whether its message is through with this queue: done, or ended with a reason. The others come again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done { .. } | Self::Duplicate | Self::Discarded(_) | Self::DeadLettered(_))
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why() {
            Some(why) => write!(f, "{} {}", self.as_str(), why.as_str()),
            None => f.write_str(self.as_str()),
        }
    }
}

/// `orders: charge 0199… dead_lettered expired (dead-letter) on delivery 2 after 3ms, 4s in queues, owner: payments`
impl fmt::Display for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, kind, id, policy, owner, attempt, waited, elapsed, uncertainty: _, faults: _, end } = self;
        write!(f, "{queue}: {kind} {id} {end} ({policy}) on delivery {attempt} after {}", Legible(*elapsed))?;
        if let Some(waited) = waited {
            write!(f, ", {} in queues", Legible(*waited))?;
        }
        owner.as_ref().map_or(Ok(()), |owner| write!(f, ", owner: {owner}"))
    }
}
