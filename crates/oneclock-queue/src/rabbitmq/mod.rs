//! RabbitMQ, over AMQP 0-9-1. For 3.10 and later.
//!
//! Decides how the lanes of a queue are laid out in a broker that has neither leases nor delays nor an absolute expiry, and says
//! what is exact there and what is not.
//!
//! # Queues
//! For `orders`, all durable:
//!
//! | queue | for | what its broker moves by itself goes to |
//! |---|---|---|
//! | `orders` | what is to be done | `orders.dead` |
//! | `orders.late` | what must be completed and has expired | `orders.dead` |
//! | `orders.dead` | what somebody has to look at | |
//! | `orders.wait`, `orders.late.wait` | what comes again after a while | `orders`, `orders.late` |
//!
//! What the broker moves into the dead lane by itself (its own time to live, its own limit of deliveries, 20 for quorum queues from
//! 4.0 on) has no `deadline-dead-reason`; its `x-death` says why.
//!
//! # What is exact
//! - **A message is published** when the broker has confirmed it: stored on disk, by a majority for a quorum queue. It is published
//!   as `mandatory`, so that one that no queue takes is refused and not lost.
//! - **A message that moves or comes again** is a copy with every header field as it came, typed. It is confirmed before the original
//!   is acknowledged: a crash in between makes two, with the same id. A few fields on which the broker acts are renamed on a copy:
//!   `CC` (to `deadline-was-cc`), and the properties `user_id` and `expiration` (to `deadline-was-user-id`,
//!   `deadline-was-expiration`); the steps in `x-death` that would make the broker take the copy's way for a circle, and drop it, are
//!   left out. Of a field that is there twice the last remains.
//! - **A delay is "at least"**: the broker looks only at the head of the waiting queue, so that a message waits for those before it,
//!   each of which comes out after its own delay. At most 49 days.
//! - **An attempt** is counted in `deadline-attempt` on copies, exactly. A delivery that ended without a word (a crash, a connection
//!   that broke) counts once more: each of them in a quorum queue, all of them once in a classic one, which has only `redelivered`.
//!   One that was on its way to a process that died counts as well; a [`Consumer`](crate::Consumer) has no more sent than it has places, and
//!   gives back what nobody has begun when it is stopped.
//! - **An acknowledgement has no answer** in AMQP: `settle` returns when it was sent. If the connection breaks on its way, the
//!   message is delivered again.
//! - **There is no lease**: a delivery is ours as long as its channel stands. The broker closes that if a delivery is not settled
//!   within its `consumer_timeout`, 30 minutes by default, and gives all deliveries of it to others: a handler's limit has to be
//!   shorter. From then on every settle says [`NotSettled::Lost`](crate::NotSettled::Lost), and so it is of a connection that is gone, once
//!   the client knows: at once where it was closed, after two heartbeats where nothing is heard any more.
//! - **A message without an id** gets one with its first copy. Until then each delivery of it has another, and none that anything could be
//!   recorded under ([`Delivery::id_lasts`](crate::Delivery::id_lasts)).
//! - **Time**: AMQP has timestamps in whole seconds. One in `expirytime` is a moment; a number there is not, and unreadable, since
//!   nobody knows its unit. `expiration` is relative, and no expiry. The broker cannot be asked for its clock, and what it writes of
//!   time into a message is in whole seconds: [`Broker::clock`] says nothing. Where clocks are not synchronised,
//!   [`uncertainty`](RabbitMqBuilder::uncertainty) is to be set.
//! - **A message that the client cannot read** (names that are not UTF-8, values nested more than 16 deep) is delivered all the same:
//!   its body, no header fields but `deadline-unreadable-head` with what they were as bytes, and an expiry that is unreadable.
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use oneclock_queue::rabbitmq::RabbitMq;
//! use oneclock_queue::{Broker, Delivery, Lane, Message, Settle};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let address = std::env::var("ONECLOCK_RABBITMQ_URL").unwrap_or("amqp://guest:guest@127.0.0.1:5672/%2f".to_owned());
//! # let unique = format!("oneclock-doc-{}-{:?}", std::process::id(), oneclock::clock::wall());
//! # let (address, name) = (address.as_str(), unique.as_str());
//! let orders = RabbitMq::builder(address, name).prefetch(16).build().await?; // "amqp://broker", "orders"
//!
//! orders.publish(&Message::new("order.placed", "shop", "7 apples")).await?;
//!
//! for delivery in orders.receive(Lane::Main, 10).await? {
//!     assert_eq!(delivery.message().body, "7 apples");
//!     delivery.settle(&Settle::Again { after: Duration::from_millis(20), counted: true }).await?; // not now
//! }
//! for delivery in orders.receive(Lane::Main, 10).await? {
//!     assert_eq!(delivery.attempt(), 2);
//!     delivery.settle(&Settle::Gone).await?;
//! }
//! # orders.delete().await?;
//! # Ok(()) }
//! ```

mod builder;
mod consume;
mod copy;
mod delivery;
mod headers;
mod link;
mod names;
mod publish;
mod sieve;
mod trouble;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicGetOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::protocol::constants::REPLY_SUCCESS;
use lapin::types::FieldTable;
use oneclock::clock;
use oneclock_core::Name;
use oneclock_core::expiry::{NativeTtl, Stamp, native_ttl};

use self::consume::Lanes;
use self::link::Topology;
use self::names::Queues;
use self::publish::{NotPublished, Publisher, Target};
use crate::{Broker, BrokerError, Depth, Inspect, Lane, Message, Uncertainty};

pub use self::builder::{QueueKind, RabbitMqBuilder};
pub use self::delivery::RabbitMqDelivery;
pub use self::trouble::Trouble;
pub use lapin;

/// A queue of RabbitMQ. Cheap to clone; all clones share its two connections, which are closed with the last of them.
#[derive(Clone)]
pub struct RabbitMq(Arc<Inner>);

struct Inner {
    topology: Arc<Topology>,
    target: Target,
    publisher: Publisher,
    lanes: Lanes,
    slack: Option<Duration>,
    uncertainty: Uncertainty,
}

/// The longest time to live that the broker takes, in milliseconds.
const LONGEST_EXPIRATION: u64 = u32::MAX as u64;

impl RabbitMq {
    /// The queue of this name, on the broker at this address (`amqp://user:password@host:port/vhost`; in the name of the vhost `/`
    /// is written `%2f`). `?heartbeat=` (seconds, 10 unless it is said) and `?connection_timeout=` (milliseconds) are read.
    pub fn builder(address: impl Into<String>, queue: impl Into<String>) -> RabbitMqBuilder {
        RabbitMqBuilder::new(address.into(), queue.into())
    }

    /// Removes all its queues, with everything in them.
    ///
    /// # Errors
    /// [`BrokerError`].
    ///
    /// # Cancel safety
    /// Dropped, some of them may be gone.
    pub async fn delete(&self) -> Result<(), BrokerError> {
        let failed = |trouble: Trouble| BrokerError::unknown(self.name(), "deleting the queues", trouble);
        let channel = self.0.publisher.channel().await.map_err(failed)?;
        let queues = &self.0.topology.queues;
        let waiting = [Lane::Main, Lane::Late].map(|lane| queues.wait(lane));
        for queue in Lane::ALL.map(|lane| queues.lane(lane)).into_iter().chain(waiting) {
            let gone = channel.queue_delete(queue.clone(), QueueDeleteOptions::default()).await;
            gone.map_err(|error| failed(error.into()))?;
        }
        Ok(())
    }

    fn queues(&self) -> &Queues {
        &self.0.topology.queues
    }

    fn publisher(&self) -> &Publisher {
        &self.0.publisher
    }

    /// Whether it declared its queues, so that it is known where the broker moves what it moves by itself.
    fn declares(&self) -> bool {
        self.0.topology.declared
    }

    fn uncertainty(&self) -> Duration {
        self.0.uncertainty.get()
    }

    fn error(&self, what: &'static str, not: NotPublished) -> BrokerError {
        BrokerError { queue: self.name().clone(), what, outcome: not.outcome, source: Box::new(not.trouble) }
    }

    /// The broker's own time to live for a message in this lane, in milliseconds.
    fn native_ttl(&self, lane: Lane, stamp: &Stamp) -> Option<u64> {
        let slack = self.0.slack.filter(|_| lane == Lane::Main)?;
        let takes = NativeTtl {
            unit: Duration::from_millis(1),
            least: Duration::from_millis(1),
            most: Duration::from_millis(LONGEST_EXPIRATION),
            dead_letters: self.0.topology.declared,
        };
        native_ttl(stamp, clock::wall(), slack, takes).and_then(|ttl| u64::try_from(ttl.as_millis()).ok())
    }
}

impl Broker for RabbitMq {
    type Delivery = RabbitMqDelivery;

    fn name(&self) -> &Name {
        &self.0.topology.name
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        let never = |trouble: Trouble| BrokerError::impossible(self.name(), "publishing a message", trouble);
        let mut properties = headers::of(message, clock::wall()).map_err(never)?;
        if let Some(millis) = self.native_ttl(Lane::Main, &message.stamp) {
            properties = properties.with_expiration(millis.to_string().into());
        }
        let published = self.0.publisher.publish(&self.0.target, &message.body, properties).await;
        published.map_err(|not| self.error("publishing a message", not))
    }

    async fn receive(&self, lane: Lane, at_most: usize) -> Result<Vec<RabbitMqDelivery>, BrokerError> {
        self.receive_until(lane, at_most, std::future::pending()).await
    }

    /// What the broker has sent ahead is returned, at most the [prefetch](RabbitMqBuilder::prefetch).
    async fn receive_until(
        &self,
        lane: Lane,
        at_most: usize,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Vec<RabbitMqDelivery>, BrokerError> {
        let taken = self.0.lanes.receive(&self.0.topology, lane, at_most, stop).await;
        let taken = taken.map_err(|trouble| BrokerError::not_sent(self.name(), "receiving", trouble))?;
        // It has no lease: when it was asked for says nothing.
        let asked = clock::now();
        Ok(taken.into_iter().map(|taken| RabbitMqDelivery::new(self.clone(), lane, taken, asked)).collect())
    }

    /// Of several consumers over clones of one queue the one with the most places counts, and they share what is sent.
    fn expect(&self, lane: Lane, places: usize) {
        self.0.lanes.expect(lane, places);
    }

    /// It opens a channel, or does not.
    async fn answers(&self) -> bool {
        self.0.publisher.channel().await.is_ok()
    }
}

impl Inspect for RabbitMq {
    /// Those that wait, and those that come again later. The broker tells the rest only to its own tools.
    async fn depth(&self, lane: Lane) -> Result<Depth, BrokerError> {
        let failed = |trouble: Trouble| BrokerError::not_sent(self.name(), "asking for the depth", trouble);
        let channel = self.0.publisher.channel().await.map_err(failed)?;
        let mut waiting = 0;
        let queues = [self.queues().lane(lane), self.queues().wait(lane)];
        for queue in queues.iter().take(if lane == Lane::Dead { 1 } else { 2 }) {
            let asked = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let told = channel.queue_declare((*queue).clone(), asked, FieldTable::default()).await;
            waiting += u64::from(told.map_err(|error| failed(error.into()))?.message_count());
        }
        Ok(Depth { waiting: Some(waiting), ..Depth::default() })
    }

    /// Of the dead lane only; the others show nothing. AMQP has no way to look at a message without taking it: each is taken and given
    /// back at once, to where it stood, and the broker counts that as a delivery. What is dead is not hurt by it; live work would look
    /// from then on as if somebody had died over it, and what may not be done twice would not be done any more.
    async fn peek(&self, lane: Lane, at_most: usize) -> Result<Vec<Message>, BrokerError> {
        if lane != Lane::Dead {
            return Ok(Vec::new());
        }
        let failed = |trouble: Trouble| BrokerError::not_sent(self.name(), "looking at messages", trouble);
        let channel = self.0.publisher.channel().await.map_err(failed)?;
        let mut seen = Vec::new();
        while seen.len() < at_most {
            let taken = channel.basic_get(self.queues().lane(lane).clone(), BasicGetOptions::default()).await;
            let Some(taken) = taken.map_err(|error| failed(error.into()))? else { break };
            let taken = taken.delivery;
            seen.push(delivery::message(&taken.properties, taken.data, self.uncertainty()).0);
        }
        // All of them go back with it. Dropped before, it is closed as well.
        channel.close(REPLY_SUCCESS, "seen".into()).await.map_err(|error| failed(error.into()))?;
        Ok(seen)
    }
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq")
            .field("queue", self.name())
            .field("kind", &self.0.topology.kind)
            .finish_non_exhaustive()
    }
}
