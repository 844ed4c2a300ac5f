//! What a broker has to do, and a delivery of it.
//!
//! Decides nothing: a binding maps these onto what its broker has, and the rules that surround them are written once, in
//! [`Producer`](crate::Producer) and [`Consumer`](crate::Consumer), which ask `oneclock_core::expiry`. Every queue has three lanes:
//! what is to be done, what is to be done late, and what somebody has to look at.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use oneclock_core::expiry::{Stamp, Why};
use oneclock_core::wire::Wall;
use oneclock_core::{Name, Outcome, Stage, Tick};

use crate::Message;

/// One queue of a broker, with its lanes. Cheap to clone; all clones are the same queue.
///
/// Time, connections and retries of the transport are the binding's; what may be waited for is bounded by whoever calls.
pub trait Broker: Clone + Send + Sync + 'static {
    /// What was delivered.
    type Delivery: Delivery;

    /// What the queue is called, in events and errors.
    fn name(&self) -> &Name;

    /// The queue whose consumers do what is published here: itself, unless it is an outbox, from which a relay moves its work to
    /// another. What becomes of work is recorded under this name.
    fn destination(&self) -> &Name {
        self.name()
    }

    /// Publishes a message, and waits until the broker has it as durably as it can.
    ///
    /// # Errors
    /// [`BrokerError`], with what is known: after an unknown outcome the same message may be published again, since its id and
    /// its key stay. [`Outcome::Failed`] is said of the message alone: it is never taken, however often it is published
    /// ([`BrokerError::impossible`]). Where the queue refuses whatever comes (it is full, it is missing, nobody may publish
    /// there), that is [`Outcome::Rejected`], and another try may be welcome; without a connection it is [`Outcome::NotSent`].
    ///
    /// # Cancel safety
    /// Dropped, it may have been published.
    fn publish(&self, message: &Message) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Waits for at least one message of this lane, and takes at most `at_most`. Connects again by itself, with a pause.
    ///
    /// # Errors
    /// [`BrokerError`]. It may be called again.
    ///
    /// # Cancel safety
    /// Dropped, nothing is lost: what was taken is delivered again.
    fn receive(
        &self,
        lane: Lane,
        at_most: usize,
    ) -> impl Future<Output = Result<Vec<Self::Delivery>, BrokerError>> + Send;

    /// The same until `stop`. From then on nothing is asked for, and what is on its way by then is still taken: all of it is returned,
    /// which may be more than `at_most`, and may be nothing. Whoever stops gives it back, since dropped without a word it would look
    /// as if somebody had died over it. Called with a `stop` that is over, it returns what was sent and nobody has taken.
    ///
    /// A binding whose dropped [`receive`](Self::receive) takes nothing, and whose broker sends nothing ahead, needs no other than
    /// this one, which drops it.
    ///
    /// # Errors
    /// [`BrokerError`].
    ///
    /// # Cancel safety
    /// As [`receive`](Self::receive); what was on its way comes again and may count as [run](Delivery::may_have_run).
    fn receive_until(
        &self,
        lane: Lane,
        at_most: usize,
        stop: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = Result<Vec<Self::Delivery>, BrokerError>> + Send {
        async move {
            tokio::select! {
                biased;
                () = stop => Ok(Vec::new()),
                received = self.receive(lane, at_most) => received,
            }
        }
    }

    /// A consumer is about to work on so many of this lane at a time. A broker that sends ahead is not to send more: what waits in
    /// this process is nobody else's to do, and counts as run if the process dies.
    fn expect(&self, lane: Lane, places: usize) {
        let _ = (lane, places);
    }

    /// What the broker's own clock says, where it has one that can be asked: producers and consumers share it, so whoever's
    /// clock differs from it knows (contract Q4). `None` where there is none.
    ///
    /// # Errors
    /// [`BrokerError`].
    ///
    /// # Cancel safety
    /// Reads only.
    fn clock(&self) -> impl Future<Output = Result<Option<Wall>, BrokerError>> + Send {
        async { Ok(None) }
    }

    /// Whether the broker answers at this moment, whatever it makes of one message: a message whose publication is never answered
    /// is told by it from a broker that is away. True where its [clock](Self::clock) could be asked, unless a binding knows
    /// better.
    ///
    /// # Cancel safety
    /// Reads only.
    fn answers(&self) -> impl Future<Output = bool> + Send {
        async { matches!(self.clock().await, Ok(Some(_))) }
    }
}

/// One delivery of a message. Dropped without a word, it comes again when its lease or its connection is over.
pub trait Delivery: Send + Sync + 'static {
    /// What was delivered.
    fn message(&self) -> &Message;

    /// Which delivery of it this is, counted from one.
    fn attempt(&self) -> u32;

    /// Whether an earlier delivery may have ended without a word, because its process died or its lease lapsed: what it did then
    /// is not known. A broker that cannot tell that from one that was given back says so of every further one.
    fn may_have_run(&self) -> bool {
        self.attempt() > 1
    }

    /// When it was asked for, at the latest: its lease counts from here.
    fn asked(&self) -> Tick;

    /// For how long it is ours unless it is [renewed](Self::renew). `None`: as long as its connection stands.
    fn lease(&self) -> Option<Duration>;

    /// Whether it is somebody else's by now although no lease says so: its connection is gone. Asked before each effect, so it only
    /// looks, and asks nobody.
    fn is_lost(&self) -> bool {
        false
    }

    /// Whether its message's id is its own, and the same in every delivery. False where it came without one and its broker has no
    /// name for it that lasts: then the id is of this delivery, and nothing can be recorded under it.
    fn id_lasts(&self) -> bool {
        true
    }

    /// Renews its lease.
    ///
    /// # Errors
    /// [`NotSettled::Lost`] if it is somebody else's by now, [`NotSettled::Failed`] if that is not known.
    ///
    /// # Cancel safety
    /// Dropped, it may have been renewed.
    fn renew(&self) -> impl Future<Output = Result<(), NotSettled>> + Send;

    /// Says what becomes of it, and waits until the broker knows.
    ///
    /// Moving it to another lane leaves nobody without it: it is there before it is gone here, so that a crash in between makes
    /// two of it, with the same id, and never none.
    ///
    /// # Errors
    /// [`NotSettled`]. It may be said again, but for [`NotSettled::TooLarge`].
    ///
    /// # Cancel safety
    /// Dropped, it may have been said.
    fn settle(&self, settle: &Settle) -> impl Future<Output = Result<(), NotSettled>> + Send;
}

/// A lane of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// What is to be done.
    Main,
    /// What must be completed and has expired.
    Late,
    /// What somebody has to look at.
    Dead,
}

/// What becomes of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It is done, or of no use: it goes.
    Gone,
    /// It comes again after a while in its own lane, with its expiry as it was.
    Again {
        /// After this.
        after: Duration,
        /// Whether that counts as an attempt.
        counted: bool,
    },
    /// It goes to the late lane.
    Late,
    /// It goes where somebody looks at it, with every field that it came with and these reasons.
    Dead(Dead),
    /// Of a dead letter: it goes back to the main lane under this stamp, with every other field that it came with, without the
    /// reasons, and as if it had never been delivered.
    Redrive(Stamp),
}

/// What people on call ask of a queue. Reads only; nothing is taken.
pub trait Inspect: Broker {
    /// How much is in a lane.
    ///
    /// # Errors
    /// [`BrokerError`].
    ///
    /// # Cancel safety
    /// Reads only.
    fn depth(&self, lane: Lane) -> impl Future<Output = Result<Depth, BrokerError>> + Send;

    /// The first messages of a lane as they stand there, at most `at_most`, the oldest first where the broker can tell. Those of dead
    /// letters have their reasons among their fields. Where a broker has no way to look without taking (RabbitMQ), only the dead lane
    /// shows something.
    ///
    /// # Errors
    /// [`BrokerError`].
    ///
    /// # Cancel safety
    /// Reads only.
    fn peek(&self, lane: Lane, at_most: usize) -> impl Future<Output = Result<Vec<Message>, BrokerError>> + Send;
}

/// How much is in a lane. What a broker does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// How many wait, those that come again later included.
    pub waiting: Option<u64>,
    /// How many are being worked on.
    pub in_flight: Option<u64>,
    /// How many have ever come in. Asked twice it gives the inflow.
    pub came: Option<u64>,
    /// How many have ever gone, whichever way. Asked twice it gives the drain rate.
    pub went: Option<u64>,
}

/// Why something is a dead letter. Written into its fields by [`Dead::write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// Why.
    pub why: Why,
    /// What its handler said, cut to a line. Never a secret: it is stored and listed.
    pub detail: Option<String>,
    /// When.
    pub at: Wall,
    /// How many times it was delivered.
    pub attempts: u32,
}

/// A broker did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{queue}: {what} (outcome: {outcome})")]
pub struct BrokerError {
    /// The queue.
    pub queue: Name,
    /// What was asked.
    pub what: &'static str,
    /// What is known of the far side.
    pub outcome: Outcome,
    /// Its own error.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

/// What becomes of a delivery could not be said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotSettled {
    /// It is somebody else's by now. Nothing was changed.
    #[error("the delivery is somebody else's by now: its lease was over, or its connection is gone")]
    Lost,
    /// Whether it was said is not known.
    #[error("whether the broker knows what became of the delivery is not known")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// It would have to be copied for that, and the copy is larger than the broker takes. Nothing was changed, and it would be so the
    /// next time: let somebody look at it, since a [dead letter](Settle::Dead) leaves out what it can do without.
    #[error("a copy of the message, with what is kept of its way, is larger than the broker takes")]
    TooLarge,
}

/// The longest detail of a dead letter, in bytes.
const LONGEST_DETAIL: usize = 512;

// === Lane ===

impl Lane {
    /// Every lane.
    pub const ALL: [Self; 3] = [Self::Main, Self::Late, Self::Dead];

    /// The word for labels, and for the names of queues.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Late => "late",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === Dead ===

impl Dead {
    /// The fields that say so.
    pub fn write(&self, mut field: impl FnMut(&'static str, &str)) {
        use oneclock_core::expiry::names;
        field(names::DEAD_REASON, self.why.as_str());
        field(names::DEAD_AT, oneclock_core::wire::utc(self.at.as_nanos() / 1_000_000).as_str());
        field(names::DEAD_ATTEMPTS, &self.attempts.to_string());
        if let Some(detail) = &self.detail {
            field(names::DEAD_DETAIL, detail);
        }
    }

    /// What a handler said, on one line, cut where it gets long, and in characters that every header takes.
    pub fn detail_of(said: &dyn fmt::Display) -> String {
        let printable =
            |character: char| if character.is_ascii_graphic() || character == ' ' { character } else { '?' };
        said.to_string().chars().map(printable).take(LONGEST_DETAIL).collect()
    }
}

// === BrokerError ===

impl BrokerError {
    /// Proven: nothing was sent.
    pub fn not_sent(queue: &Name, what: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { queue: queue.clone(), what, outcome: Outcome::NotSent, source: source.into() }
    }

    /// Proven: this message is never taken, whoever publishes it and however often. It is too large, or it has a field that the
    /// transport cannot carry. Whoever moves messages puts it aside at once.
    pub fn impossible(queue: &Name, what: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { queue: queue.clone(), what, outcome: Outcome::Failed, source: source.into() }
    }

    /// The broker refused it, and did nothing.
    pub fn rejected(queue: &Name, what: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { queue: queue.clone(), what, outcome: Outcome::Rejected, source: source.into() }
    }

    /// It may have happened, or not.
    pub fn unknown(queue: &Name, what: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let outcome = Outcome::Unknown { stage: Stage::Wait };
        Self { queue: queue.clone(), what, outcome, source: source.into() }
    }
}
