//! oneclock for durable work: messages that live by their own expiry, whatever queue they are in.
//!
//! A short HTTP deadline must not kill an order that was accepted, and a queue must not make expired work fresh again. A
//! [`Producer`] accepts [`Work`] with an end of its own; a [`Consumer`] looks at that end when it receives a message, at every
//! redelivery and before each step that cannot be taken back, and gives every delivery one end with a reason. The brokers are those
//! that are there: NATS JetStream (feature `nats`), RabbitMQ (`rabbitmq`), a table in PostgreSQL (`oneclock_postgres::PgQueue`); what each
//! has to do is in [`Broker`] and [`Delivery`].
//!
//! The rules are those of the contract's section 11 (Q1 to Q6), decided in `oneclock_core::expiry`. Feature `idempotency`: work under a key
//! has one effect, however often it is delivered. The guide is docs/guide/durable.md.

mod broker;
mod consumer;
#[cfg(feature = "http")]
mod jobs;
mod memory;
mod message;
#[cfg(feature = "nats")]
pub mod nats;
pub mod oncall;
mod producer;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
mod uncertainty;
mod work;

pub use broker::{Broker, BrokerError, Dead, Delivery, Depth, Inspect, Lane, NotSettled, Settle};
#[cfg(feature = "idempotency")]
pub use consumer::scope_of;
pub use consumer::{BadConsumer, Consumed, Consumer, ConsumerBuilder, Job, JobError};
#[cfg(feature = "http")]
pub use jobs::{Jobs, NoMonitor};
pub use memory::{Kept, MemoryBroker, MemoryDelivery};
pub use message::{BadField, Incoming, Message};
pub use producer::{Accepted, NotPublished, Producer};
pub use uncertainty::Uncertainty;
pub use work::Work;

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/durable.md")]
struct Guide;
