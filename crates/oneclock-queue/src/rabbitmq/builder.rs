//! How a queue of RabbitMQ is set up.

use std::sync::Arc;
use std::time::Duration;

use lapin::types::ShortString;
use lapin::uri::{AMQPScheme, AMQPUri};
use oneclock_core::Name;

use super::consume::Lanes;
use super::link::{Link, Topology};
use super::names::Queues;
use super::publish::{Publisher, Target};
use super::{Inner, RabbitMq, Trouble};
use crate::{BrokerError, Uncertainty};

/// Sets up a [`RabbitMq`].
#[derive(Clone)]
#[must_use = "it does nothing until it is built"]
pub struct RabbitMqBuilder {
    address: String,
    queue: String,
    kind: QueueKind,
    declared: bool,
    target: Option<(String, String)>,
    prefetch: u16,
    at_once: usize,
    slack: Option<Duration>,
    uncertainty: Uncertainty,
}

/// What holds the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// Replicated, where the broker has several nodes. It counts deliveries exactly, and what it moves by itself (after a delay,
    /// after its own time to live) it moves safely.
    #[default]
    Quorum,
    /// On one node. It only knows whether a message was delivered before, and a node that fails while it moves a message by itself
    /// may lose it.
    Classic,
}

/// How many messages are delivered before the first of them is settled.
const PREFETCH: u16 = 32;
/// How many messages are published at once.
const AT_ONCE: usize = 64;
/// A connection of which nothing is heard for twice this is gone, in seconds.
const HEARTBEAT: u16 = 10;
/// How long a try to connect may take, in milliseconds.
const CONNECT_WITHIN: u64 = 10_000;

impl RabbitMqBuilder {
    pub(super) fn new(address: String, queue: String) -> Self {
        Self {
            address,
            queue,
            kind: QueueKind::default(),
            declared: true,
            target: None,
            prefetch: PREFETCH,
            at_once: AT_ONCE,
            slack: None,
            uncertainty: Uncertainty::of_this_machine(),
        }
    }

    /// What holds the messages. A queue that is there already has to be of the same kind.
    pub fn kind(mut self, kind: QueueKind) -> Self {
        self.kind = kind;
        self
    }

    /// The queues are there: nothing is declared. The waiting ones have to lead back to their lanes, by `x-dead-letter-exchange` (the
    /// empty one) and `x-dead-letter-routing-key`.
    pub fn declared_elsewhere(mut self) -> Self {
        self.declared = false;
        self
    }

    /// Publishes through this exchange, which is there already, under this routing key. What comes again or moves to another lane
    /// does not go through it: it would reach other queues a second time.
    pub fn publish_to(mut self, exchange: impl Into<String>, key: impl Into<String>) -> Self {
        self.target = Some((exchange.into(), key.into()));
        self
    }

    /// How many deliveries of each lane may be under way and not settled, in this process. 32 unless it is said; at least one. A
    /// consumer that works on more at once waits; one that has fewer places has no more sent than those, and consumers over clones of
    /// one queue share what is sent for the one with the most.
    pub fn prefetch(mut self, deliveries: u16) -> Self {
        self.prefetch = deliveries.max(1);
        self
    }

    /// How many messages are published at once, about; further ones wait. 64 unless it is said; at least one.
    pub fn publish_at_once(mut self, messages: usize) -> Self {
        self.at_once = messages.max(1);
        self
    }

    /// The broker removes messages `slack` after they have expired, where their contract allows it (contract Q2): those that may
    /// be discarded, and those for the dead lane, which the broker moves there without saying why. Off unless it is said. It only
    /// clears away what nobody consumes; with [`declared_elsewhere`](Self::declared_elsewhere) only what may be discarded.
    pub fn native_ttl(mut self, slack: Duration) -> Self {
        self.slack = Some(slack);
        self
    }

    /// By how much this machine's clock may be wrong.
    pub fn uncertainty(mut self, uncertainty: Uncertainty) -> Self {
        self.uncertainty = uncertainty;
        self
    }

    /// Connects, and declares the queues.
    ///
    /// # Errors
    /// [`BrokerError`] with a [`Trouble`]: an address or a name that is none, a broker that does not answer or refuses, a queue that
    /// is there already and not as it should be. Nothing is retried.
    ///
    /// # Cancel safety
    /// Dropped, some of the queues may have been declared.
    pub async fn build(self) -> Result<RabbitMq, BrokerError> {
        let name: Name = self.queue.clone().into();
        let failed = |trouble: Trouble| BrokerError::not_sent(&name, "connecting", trouble);
        let uri = self.uri().map_err(failed)?;
        let queues = Queues::of(&self.queue).map_err(failed)?;
        let target = self.target(&queues).map_err(failed)?;
        let topology = Arc::new(Topology { name: name.clone(), queues, kind: self.kind, declared: self.declared });
        let publishes = Link::new(uri.clone(), "publishes", Arc::clone(&topology));
        let publisher = Publisher::connect(publishes, self.at_once).await.map_err(failed)?;
        let lanes = Lanes::new(Link::new(uri, "receives", Arc::clone(&topology)), self.prefetch);
        let (slack, uncertainty) = (self.slack, self.uncertainty);
        Ok(RabbitMq(Arc::new(Inner { topology, target, publisher, lanes, slack, uncertainty })))
    }

    fn uri(&self) -> Result<AMQPUri, Trouble> {
        // What is said of an address that is none may repeat it, with its password.
        let is_none = |said: String| Trouble::Address(said.replace(&self.address, "…"));
        let mut uri: AMQPUri = self.address.parse().map_err(is_none)?;
        if uri.scheme == AMQPScheme::AMQPS && !cfg!(feature = "rabbitmq-tls") {
            return Err(Trouble::NoTls);
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        uri.query.connection_timeout.get_or_insert(CONNECT_WITHIN);
        Ok(uri)
    }

    fn target(&self, queues: &Queues) -> Result<Target, Trouble> {
        let short = |text: &str| ShortString::try_new(text).map_err(|_| Trouble::NameTooLong);
        Ok(match &self.target {
            Some((exchange, key)) => Target { exchange: short(exchange)?, key: short(key)? },
            None => Target { exchange: ShortString::default(), key: queues.lane(crate::Lane::Main).clone() },
        })
    }
}

impl QueueKind {
    /// The broker's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Classic => "classic",
        }
    }
}

impl std::fmt::Debug for RabbitMqBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its address has a password in it.
        f.debug_struct("RabbitMqBuilder").field("queue", &self.queue).field("kind", &self.kind).finish_non_exhaustive()
    }
}
