//! oneclock for durable work: messages that live by their own expiry, whatever queue they are in.

mod broker;
mod consumer;
mod memory;
mod message;
#[cfg(feature = "nats")]
pub mod nats;
mod producer;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
mod uncertainty;
mod work;

pub use broker::{Broker, BrokerError, Dead, Delivery, Lane, NotSettled, Settle};
#[cfg(feature = "idempotency")]
pub use consumer::scope_of;
pub use consumer::{BadConsumer, Consumer, ConsumerBuilder, Job, JobError};
pub use memory::{Kept, MemoryBroker, MemoryDelivery};
pub use message::{BadField, Incoming, Message};
pub use producer::{Accepted, NotPublished, Producer};
pub use uncertainty::Uncertainty;
pub use work::Work;
