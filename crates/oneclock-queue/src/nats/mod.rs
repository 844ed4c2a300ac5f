//! NATS: JetStream as a broker, and request and reply with the caller's deadline.
//!
//! ```
//! use std::time::Duration;
//! use oneclock_queue::{Broker as _, Delivery as _, Lane, Message, Settle};
//! use oneclock_queue::nats::{Nats, async_nats};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (address, name) = (oneclock_queue::nats::doc_address(), oneclock_queue::nats::doc_queue());
//! let client = async_nats::connect(address).await?;   // "nats://127.0.0.1:4222"
//! # let jetstream = async_nats::jetstream::new(client.clone());
//! let orders = Nats::builder(client, &*name)          // "orders"
//!     .lease(Duration::from_secs(30))                 // a delivery is ours for so long unless it is renewed
//!     .build()
//!     .await?;
//!
//! orders.publish(&Message::new("confirm-order", "order-service", "order 7")).await?; // it is there, says the server
//!
//! for delivery in orders.receive(Lane::Main, 10).await? {
//!     assert_eq!(delivery.message().kind.as_str(), "confirm-order");
//!     delivery.settle(&Settle::Gone).await?;          // and so is this known
//! }
//! # jetstream.delete_stream(&name).await?;
//! # Ok(()) }
//! ```
//!
//! A [`Producer`](crate::Producer) and a consumer stand on it; nothing above has to be called by a service.
//!
//! # What is where
//!
//! One stream has all lanes: `<queue>.main`, `<queue>.late`, `<queue>.dead`, and `<queue>.wait` for what comes again later, each with
//! a durable pull consumer. Attributes of CloudEvents have the prefix `ce-`. The id of a message is its `Nats-Msg-Id`, so that one
//! that is published again within the stream's window for duplicates (two minutes, unless the stream says otherwise) is there once.
//! That window is one for all subjects of a stream; a copy that goes to another lane, and a redrive, therefore have a number of
//! their own, and `ce-id` stays. Fields that begin with `Nats-` steer the server, so none of those is copied.
//!
//! # Who makes it
//!
//! Whoever opens a queue first makes its stream and its consumers, with its lease and how many deliveries may be under way. Who opens it
//! later and says nothing of these takes what stands; who says something else is refused, since the others count by it, and
//! [`change_what_stands`](NatsBuilder::change_what_stands) is for who means it. A process that may make nothing says
//! [`declared_elsewhere`](NatsBuilder::declared_elsewhere), a producer that may only publish [`publish_only`](NatsBuilder::publish_only), a
//! tool that looks [`read_only`](NatsBuilder::read_only).
//!
//! # What an acknowledgement proves
//!
//! JetStream knows a message by its place in the stream, and not which delivery of it is meant. Measured with 2.9.10 and 2.14.0: an
//! acknowledgement, a negative one and a "still working" of a delivery whose lease is over all count, also when somebody else has the
//! message by then, and are confirmed like any other; of a message that is gone they are confirmed too. So the server cannot tell a
//! worker that it lost its lease. What stands before it are the lease that every consumer keeps by its own clock, which counts
//! from before the server was asked, and that nothing is said at all while the connection is gone, since the client would say it
//! later. One effect for each key comes from idempotency, not from here.
//!
//! [`NotSettled::Lost`](crate::NotSettled::Lost) tells that the stream or its consumer was removed. A server that is killed may
//! have forgotten the last acknowledgements that it had confirmed, and delivers those messages again (2.9.10 does).
//!
//! # What comes again
//!
//! A message that is given back is a copy with its count in `deadline-attempts`, which waits in `<queue>.wait` until it is due; each
//! process that receives work from the queue moves what is due. So the count is the same whoever gets it, a wait outlasts a restart of
//! the server, and [`may_have_run`](crate::Delivery::may_have_run) says of a first delivery that nobody had it; one that nobody
//! settled says so on every copy from then on (`deadline-may-have-run`). The price is two messages more for each time, and a new
//! place at the end of the queue.
//!
//! A copy says more than its message did. Where that would be more than the server takes (`max_payload`), there is no copy that comes
//! again or is done late ([`NotSettled::TooLarge`](crate::NotSettled::TooLarge)), and a dead letter leaves out what it can do without:
//! what its handler said first, then the rest of what was added, in the end fields that no rule reads.
//!
//! # What the client cannot read
//!
//! The client closes its connection when the fields of a message are no text, or no fields at all; one with a carriage return inside
//! a value ends it for good, and `receive` then says so. Such a message would do it again each time it is delivered. So after a
//! connection was lost, and when a queue is opened whose messages were delivered in vain, what is under way is looked at through
//! the server's API, and one that cannot be read is replaced by a copy that can: other characters become `?`, and its fields as
//! they were stand in `deadline-raw-fields`, in base64.
//!
//! # Request and reply
//!
//! What is left of the caller's time travels in the request, written when it goes out; whoever answers counts from the moment when
//! the request came off its connection, refuses what has no time left, also after it waited for a place, and ends what runs out of
//! time. So a reply that nobody waits for any more is not computed.
//!
//! ```
//! use std::time::Duration;
//! use oneclock::Operation;
//! use oneclock_core::{Policy, Trust};
//! use oneclock_queue::nats::{Declined, Requests, Responder, async_nats};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let subject = oneclock_queue::nats::doc_queue();
//! # let connect = async || async_nats::connect(oneclock_queue::nats::doc_address()).await;
//! // Who answers:
//! let policy = Policy::named("pricing").when_absent(Duration::from_millis(800)).min_useful(Duration::from_millis(20)).build()?;
//! let pricing = Responder::builder(connect().await?, &*subject, policy).trust(Trust::Inside).concurrency(64).build().await?;
//! let answering = tokio::spawn(pricing.run(|_op, question| async move {
//!     if question.body.is_empty() { return Err(Declined::new(400, "an empty cart has no price")) }
//!     Ok("12.50".into())
//! }));
//!
//! // Who asks:
//! let requests = Requests::builder(connect().await?).trust(Trust::Inside).cap("quote", Duration::from_millis(300)).build().await?;
//! let op = Operation::begin("order", Duration::from_secs(2));
//! let answer = requests.ask_in(&op, "quote", &*subject, "cart 7").await?;
//! assert_eq!(&*answer.body, b"12.50");
//! # answering.abort();
//! # Ok(()) }
//! ```
//!
//! ## What NATS cannot do
//!
//! A caller that leaves is not seen: there is no cancel, and a reply without anybody who waits for it looks like one with somebody.
//! What ends the work then is the deadline that came with it, so callers should not give more time than they will wait. A caller
//! that says nothing of time gets what [`when_absent`](oneclock_core::ingress::Limits::when_absent) says.
//!
//! ## On the wire
//!
//! Time is written as `x-remaining-ms` unless [`writes`](RequestsBuilder::writes) says otherwise, and read in all conventions that
//! HTTP has. An answer that is none has the fields of NATS' services, `Nats-Service-Error-Code` (a status of HTTP) and
//! `Nats-Service-Error`, and `oneclock-reason` where we refused or ended it.

mod builder;
mod delivery;
mod error;
mod fields;
mod fit;
mod inspect;
mod mover;
mod names;
mod open;
mod pulls;
mod requests;
mod unreadable;
mod wires;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use async_nats;
use async_nats::HeaderValue;
use oneclock::clock;
use oneclock_core::Name;
use oneclock_core::expiry::{NativeTtl, native_ttl};
use oneclock_core::wire::{Wall, moment};
use serde_json::{Map, Value};

pub use builder::{JetStream, NatsBuilder};
pub use delivery::NatsDelivery;
pub use error::{BadNats, Setting};
pub use names::Subjects;
pub use requests::{
    Answer, BadRequests, BadResponder, Declined, Question, RequestError, Requests, RequestsBuilder, Responder,
    ResponderBuilder,
};

use crate::broker::{Broker, BrokerError, Lane};
use crate::message::Message;
use mover::Mover;
use pulls::{Pulls, Raw};
use wires::Wires;

/// A queue in JetStream, with its lanes. Cheap to clone; the last clone that is dropped ends what moves waiting messages.
#[derive(Clone)]
pub struct Nats {
    wires: Arc<Wires>,
    mover: Arc<OnceLock<Mover>>, // of whoever receives work
}

/// It was opened for something else.
#[derive(Debug, thiserror::Error)]
#[error("the queue was opened {0}")]
struct OpenedOtherwise(&'static str);

/// `Nats-TTL` counts in whole seconds, and what it removes is gone.
const TTL: NativeTtl = NativeTtl {
    unit: Duration::from_secs(1),
    least: Duration::from_secs(1),
    most: Duration::from_secs(100 * 366 * 86_400),
    dead_letters: false,
};

// === Nats ===

impl Nats {
    /// Opens a queue on a connection, or on a context of JetStream.
    pub fn builder(on: impl Into<JetStream>, name: impl Into<String>) -> NatsBuilder {
        NatsBuilder::new(on.into(), name.into())
    }

    fn new(wires: Arc<Wires>) -> Self {
        Self { wires, mover: Arc::default() }
    }

    fn delivered(&self, lane: Lane, taken: Vec<Raw>) -> Vec<NatsDelivery> {
        let ours = self.wires.uncertainty.get(); // once: it asks the kernel
        taken.into_iter().map(|raw| NatsDelivery::new(Arc::clone(&self.wires), lane, raw, ours)).collect()
    }

    /// The stream that it is in.
    pub fn stream(&self) -> &str {
        &self.wires.stream
    }
}

impl Broker for Nats {
    type Delivery = NatsDelivery;

    fn name(&self) -> &Name {
        &self.wires.name
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        const WHAT: &str = "a message could not be published";
        let wires = &self.wires;
        if !wires.opening.publishes() {
            return Err(BrokerError::not_sent(&wires.name, WHAT, OpenedOtherwise("to be looked at only")));
        }
        let headers = fields::of_message(message).map_err(|wrong| BrokerError::impossible(&wires.name, WHAT, wrong));
        let mut headers = headers?;
        if let Some(ttl) = wires.ttl.and_then(|slack| native_ttl(&message.stamp, clock::wall(), slack, TTL)) {
            headers.insert(async_nats::header::NATS_MESSAGE_TTL, HeaderValue::from(ttl.as_secs()));
        }
        wires.publish(&wires.main.subject, headers, message.body.clone(), WHAT).await
    }

    async fn receive(&self, lane: Lane, at_most: usize) -> Result<Vec<NatsDelivery>, BrokerError> {
        const WHAT: &str = "no message could be received";
        if !self.wires.opening.receives() {
            let otherwise = OpenedOtherwise("to publish, or to be looked at, only");
            return Err(BrokerError::not_sent(&self.wires.name, WHAT, otherwise));
        }
        if lane != Lane::Dead {
            self.mover.get_or_init(|| Mover::start(Arc::clone(&self.wires)));
        }
        let taken = Pulls::next(&self.wires, self.wires.line(lane), at_most).await?;
        Ok(self.delivered(lane, taken))
    }

    /// A question that stands is heard to its end, a tenth of the lease at most: nobody can take it back, and what the server sends
    /// for it is delivered.
    async fn receive_until(
        &self,
        lane: Lane,
        at_most: usize,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Vec<NatsDelivery>, BrokerError> {
        tokio::select! {
            biased;
            () = stop => {}
            received = self.receive(lane, at_most) => return received,
        }
        let rest = Pulls::rest(&self.wires, self.wires.line(lane)).await;
        Ok(self.delivered(lane, rest))
    }

    /// Newer servers say the time in their answers about a stream (2.14.0 does); older ones have no clock that can be asked (2.9.10).
    async fn clock(&self) -> Result<Option<Wall>, BrokerError> {
        let wires = &self.wires;
        let subject = format!("STREAM.INFO.{}", wires.stream);
        let answer: Result<Value, _> = wires.context.request(subject, &Map::new()).await;
        let answer = answer.map_err(|error| wires.unanswered("its clock could not be asked", error))?;
        let said = answer.get("ts").and_then(Value::as_str);
        Ok(said.and_then(|ts| moment(ts.as_bytes()).ok()))
    }

    /// An older server says no time, and answers all the same.
    async fn answers(&self) -> bool {
        self.clock().await.is_ok()
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nats").field(&self.wires).finish()
    }
}

/// Where the examples of the documentation find a server.
#[doc(hidden)]
pub fn doc_address() -> String {
    std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned())
}

/// A queue that no other example has.
#[doc(hidden)]
pub fn doc_queue() -> String {
    format!("oneclock-doc-{}", uuid::Uuid::now_v7().simple())
}
