//! Accepting work: from an operation that somebody waits for to work that lives by its own end.
//!
//! Decides what is refused before it is published, asking `oneclock_core::expiry`, and that publishing itself is a call of the
//! operation that asks for it: it spends that budget, and when it is cut off nobody knows whether the work is there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oneclock::events::{Downstream, Event, Fields};
use oneclock::{Caps, HasOutcome, Operation, Outcome, Stage, Stopped, clock};
use oneclock_core::Name;
use oneclock_core::expiry::{NotAccepted, accept};
use oneclock_core::wire::Wall;

use crate::work::Life;
use crate::{BadField, Broker, BrokerError, Message, Uncertainty, Work};

/// Puts work into a queue. Cheap to clone.
///
/// ```
/// use oneclock_queue::{MemoryBroker, Producer, Work};
/// use oneclock::Operation;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mails = Producer::new("order-service", MemoryBroker::new("mails")); // or NATS, RabbitMQ, PostgreSQL
///
/// let order = Operation::begin("order", Duration::from_millis(800)); // somebody waits for this
/// let mail = Work::new("confirm-order", "order 7").expires_in(Duration::from_secs(86_400)).discard();
/// let accepted = order.run(mails.accept(mail)).await??; // nobody waits for that
/// assert!(accepted.expires.is_some());
///
/// // A deadline is no expiry:
/// let copied = Work::new("confirm-order", "order 7").expires_in(order.remaining());
/// let refused = order.run(mails.accept(copied)).await?.unwrap_err();
/// assert!(refused.to_string().contains("a caller's deadline is no expiry"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Producer<B> {
    broker: B,
    source: Name,
    caps: Arc<Caps>,
    uncertainty: Uncertainty,
}

/// Work that is in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// Its message's id.
    pub id: Arc<str>,
    /// When it expires.
    pub expires: Option<Wall>,
}

/// Work was not accepted, or it is not known whether it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotPublished {
    /// It does not say when it is of no use any more.
    #[error(
        "work of kind {kind} does not say when it is of no use any more: say expires_in, expires_at or never_expires"
    )]
    NoExpiry {
        /// What it is.
        kind: Name,
    },
    /// What it says of its end is refused.
    #[error("{queue}: {why}")]
    Refused {
        /// The queue.
        queue: Name,
        /// Why.
        #[source]
        why: NotAccepted,
    },
    /// It has a header field that no message may have.
    #[error(transparent)]
    BadField(#[from] BadField),
    /// The operation that asked for it had too little time, or ended meanwhile.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The broker did not take it, or did not say so.
    #[error(transparent)]
    Broker(#[from] BrokerError),
}

// === Producer ===

impl<B: Broker> Producer<B> {
    /// A producer called `source`, which its messages say they are from.
    pub fn new(source: impl Into<Name>, broker: B) -> Self {
        let (source, uncertainty) = (source.into(), Uncertainty::default());
        Self { broker, source, caps: Arc::new(Caps::new()), uncertainty }
    }

    /// The most that publishing may take of an operation's time.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        let mut caps = Caps::clone(&self.caps);
        caps.cap(self.broker.name().clone(), cap);
        self.caps = Arc::new(caps);
        self
    }

    /// By how much this process's clock may be wrong, which its messages say; what the machine says unless given.
    #[must_use]
    pub fn uncertainty(mut self, uncertainty: Uncertainty) -> Self {
        self.uncertainty = uncertainty;
        self
    }

    /// The queue.
    pub const fn broker(&self) -> &B {
        &self.broker
    }

    /// Turns work into a message that may be published: for a binding's own way of doing so, such as an outbox.
    ///
    /// # Errors
    /// [`NotPublished`], for what is refused before it is published.
    pub fn prepare(&self, work: Work) -> Result<Message, NotPublished> {
        if work.life == Life::Unsaid {
            return Err(NotPublished::NoExpiry { kind: work.kind });
        }
        let (now, ours) = (clock::wall(), self.uncertainty.get());
        let message = work.into_message(&self.source, now, ours);
        message.check_fields()?;
        let refused = |why| NotPublished::Refused { queue: self.broker.name().clone(), why };
        // Its own uncertainty is in the stamp already.
        accept(&message.stamp, now, Duration::ZERO, oneclock::remaining()).map_err(refused)?;
        Ok(message)
    }

    /// Puts work into the queue, within what the current operation has left, and waits until the broker has it (contract Q3, Q6).
    ///
    /// # Errors
    /// [`NotPublished`]. Its [`outcome`](NotPublished::outcome) says what is known. After an unknown one the same work may be
    /// accepted again, with the same [`id`](Work::id) and [`key`](Work::key); where it [is final](NotPublished::is_final) that is of
    /// no use.
    ///
    /// # Cancel safety
    /// Dropped, it may have been published.
    pub async fn accept(&self, work: Work) -> Result<Accepted, NotPublished> {
        let message = self.prepare(work)?; // before an operation is begun for the call: nobody waits for that one
        let operation = self.caps.operation(self.broker.name()).map_err(Stopped::from)?;
        self.published(&operation, message).await
    }

    /// The same in this operation.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    ///
    /// # Cancel safety
    /// As [`accept`](Self::accept).
    pub async fn accept_in(&self, operation: &Operation, work: Work) -> Result<Accepted, NotPublished> {
        let message = operation.sync_scope(|| self.prepare(work))?;
        self.published(operation, message).await
    }

    async fn published(&self, operation: &Operation, mut message: Message) -> Result<Accepted, NotPublished> {
        self.publish_in(operation, &mut message).await?;
        Ok(Accepted { id: message.id.clone(), expires: message.stamp.expires.at() })
    }

    /// Publishes a message that was [prepared](Self::prepare), as a call of this operation. The message gets the fields that the
    /// operation's observer wants to send, such as `traceparent`.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    ///
    /// # Cancel safety
    /// As [`accept`](Self::accept).
    pub async fn publish_in(&self, operation: &Operation, message: &mut Message) -> Result<(), NotPublished> {
        let name = self.broker.name();
        let grant = operation.grant(name.clone()).ask(self.caps.ask(name)).to(Downstream::Queue);
        let mut call = grant.call().map_err(Stopped::from)?;
        call.carry(&mut Carrying(message));
        call.enter(Stage::Wait);
        match call.run(self.broker.publish(message)).await {
            Ok(Ok(())) => {
                call.close(Outcome::Applied);
                let reason = "accepted as durable work, which lives by its own expiry";
                operation.tell(&Event::Detached { from: operation.name(), operation: &message.kind, reason });
                Ok(())
            }
            Ok(Err(error)) => {
                call.close(error.outcome);
                Err(error.into())
            }
            Err(ended) => Err(NotPublished::Stopped(ended.into())),
        }
    }
}

/// The header fields of a message, for whoever carries something in them.
struct Carrying<'a>(&'a mut Message);

impl Fields for Carrying<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.remove(name);
        self.0.fields.push((name.into(), value.into()));
    }

    fn remove(&mut self, name: &'static str) {
        self.0.fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }
}

impl<B: Broker> fmt::Debug for Producer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("source", &self.source)
            .field("queue", self.broker.name())
            .finish_non_exhaustive()
    }
}

// === NotPublished ===

impl NotPublished {
    /// What is known of the broker: whether the work may be there.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NoExpiry { .. } | Self::Refused { .. } | Self::BadField(_) => Outcome::NotSent,
            Self::Stopped(stopped) => stopped.outcome(),
            Self::Broker(error) => error.outcome,
        }
    }

    /// Whether the same work would be refused each time: what it says of its end or in its fields, or that it is larger than the
    /// broker takes. All else may pass: a broker that is away or full, an operation that had too little time.
    pub fn is_final(&self) -> bool {
        match self {
            Self::NoExpiry { .. } | Self::Refused { .. } | Self::BadField(_) => true,
            Self::Stopped(_) => false,
            Self::Broker(error) => error.outcome == Outcome::Failed,
        }
    }
}

impl HasOutcome for NotPublished {
    fn outcome(&self) -> Outcome {
        Self::outcome(self)
    }
}
