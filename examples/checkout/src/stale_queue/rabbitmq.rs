//! The queues on a RabbitMQ. The plain ones as most have them: `expiration` at each message, and a dead-letter exchange where somebody
//! thought of it. A redrive takes what is dead and publishes it again, as the shovel and the management page do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use oneclock_queue::rabbitmq::RabbitMq;
use oneclock_queue::rabbitmq::lapin::message::Delivery;
use oneclock_queue::rabbitmq::lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use oneclock_queue::rabbitmq::lapin::types::{AMQPValue, FieldTable, ShortString};
use oneclock_queue::rabbitmq::lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use tokio::sync::Mutex;

use super::Outage;
use super::place::{Place, Plain, PlainDelivery, PlainQueue, Said};
use crate::{BoxError, ShopClosed};

/// Queues of one run on a broker.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct OnRabbitMq {
    url: Arc<str>,
    prefix: Arc<str>,
    to_live: Duration,
}

/// A plain queue, as one process has it: a connection of its own.
#[derive(Clone)]
pub(super) struct PlainQueueThere {
    name: ShortString,
    dead: ShortString,
    to_live: Duration,
    channel: Channel,
    consumer: Arc<Mutex<Option<Consumer>>>,
    _connection: Arc<Connection>,
}

pub(super) struct Taken {
    delivery: Delivery,
    order: usize,
}

/// How many messages are delivered before the first of them is acknowledged: those that a process has when it dies.
const PREFETCH: u16 = 4;

// === OnRabbitMq ===

impl OnRabbitMq {
    /// Looks whether there is a broker.
    pub(super) async fn new(url: &str, way: &str, outage: &Outage) -> Result<Self, ShopClosed> {
        Connection::connect(url, ConnectionProperties::default()).await.map_err(ShopClosed::no_broker)?;
        // Others may run a demo on this broker.
        let prefix = format!("oneclock-demo-{way}-{:08x}", rand::random::<u32>());
        Ok(Self { url: url.into(), prefix: prefix.into(), to_live: outage.hours(outage.useful) })
    }

    /// Removes its queues.
    pub(super) async fn remove(&self) -> Result<(), ShopClosed> {
        self.ours().await?.delete().await.map_err(ShopClosed::no_queue)?;
        for of in [Plain::Confirmations, Plain::Cards] {
            let queue = self.plain(of).await?;
            for name in [queue.name, queue.dead] {
                let gone = queue.channel.queue_delete(name, QueueDeleteOptions::default()).await;
                gone.map_err(ShopClosed::no_queue)?;
            }
        }
        Ok(())
    }

    fn name(&self, of: Plain) -> String {
        match of {
            Plain::Confirmations => format!("{}-confirmations", self.prefix),
            Plain::Cards => format!("{}-cards", self.prefix),
        }
    }

    async fn open(&self, of: Plain) -> Result<PlainQueueThere, BoxError> {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let (name, dead) = (self.name(of), format!("{}-dead", self.name(of)));
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut with = FieldTable::default();
        if of == Plain::Confirmations {
            channel.queue_declare(short(&dead)?, durable, FieldTable::default()).await?;
            with.insert(short("x-dead-letter-exchange")?, AMQPValue::LongString("".into()));
            with.insert(short("x-dead-letter-routing-key")?, AMQPValue::LongString(dead.as_str().into()));
        }
        channel.queue_declare(short(&name)?, durable, with).await?;
        Ok(PlainQueueThere {
            name: short(&name)?,
            dead: short(&dead)?,
            to_live: self.to_live,
            channel,
            consumer: Arc::default(),
            _connection: Arc::new(connection),
        })
    }
}

impl std::fmt::Debug for OnRabbitMq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnRabbitMq").field("prefix", &self.prefix).finish_non_exhaustive() // its address has a password
    }
}

impl Place for OnRabbitMq {
    const NAME: &'static str = "rabbitmq";

    type Plain = PlainQueueThere;
    type Ours = RabbitMq;

    async fn plain(&self, of: Plain) -> Result<PlainQueueThere, ShopClosed> {
        self.open(of).await.map_err(ShopClosed::no_queue)
    }

    async fn ours(&self) -> Result<RabbitMq, ShopClosed> {
        // What a consumer had prefetched when it died counts as an attempt of each.
        let ours = RabbitMq::builder(&*self.url, format!("{}-{}", self.prefix, super::propagated::QUEUE));
        ours.prefetch(PREFETCH).build().await.map_err(ShopClosed::no_queue)
    }
}

fn short(text: &str) -> Result<ShortString, BoxError> {
    Ok(ShortString::try_new(text)?)
}

// === PlainQueueThere ===

impl PlainQueueThere {
    async fn publish_with(&self, body: &[u8], properties: BasicProperties) -> Result<(), BoxError> {
        let (exchange, options) = (ShortString::default(), BasicPublishOptions::default());
        let sent = self.channel.basic_publish(exchange, self.name.clone(), options, body, properties).await?;
        if sent.await?.is_ack() { Ok(()) } else { Err("the broker did not take a message".into()) }
    }
}

impl PlainQueue for PlainQueueThere {
    type Delivery = Taken;

    async fn publish(&self, order: usize) -> Result<(), BoxError> {
        let expiration = self.to_live.as_millis().to_string();
        let properties = BasicProperties::default().with_delivery_mode(2).with_expiration(expiration.as_str().into());
        self.publish_with(order.to_string().as_bytes(), properties).await
    }

    async fn take(&self) -> Result<Taken, BoxError> {
        let mut consumer = self.consumer.lock().await;
        let consumer = match &mut *consumer {
            Some(consumer) => consumer,
            none => {
                let (tag, options) = (ShortString::default(), BasicConsumeOptions::default());
                let new = self.channel.basic_consume(self.name.clone(), tag, options, FieldTable::default()).await?;
                none.insert(new)
            }
        };
        let delivery = consumer.next().await.ok_or("the broker ended the consumer")??;
        let order = std::str::from_utf8(&delivery.data)?.parse()?;
        Ok(Taken { delivery, order })
    }

    async fn redrive(&self) -> Result<usize, BoxError> {
        let mut count = 0;
        while let Some(dead) = self.channel.basic_get(self.dead.clone(), BasicGetOptions::default()).await? {
            let dead = dead.delivery;
            self.publish_with(&dead.data, dead.properties.clone()).await?;
            dead.acker.ack(BasicAckOptions::default()).await?;
            count += 1;
        }
        Ok(count)
    }
}

impl PlainDelivery for Taken {
    fn order(&self) -> usize {
        self.order
    }

    fn is_again(&self) -> bool {
        self.delivery.redelivered
    }

    async fn settle(self, said: Said) -> Result<(), BoxError> {
        let acker = &self.delivery.acker;
        let nack = |requeue| BasicNackOptions { requeue, ..BasicNackOptions::default() };
        match said {
            Said::Ack => acker.ack(BasicAckOptions::default()).await?,
            Said::Requeue => acker.nack(nack(true)).await?,
            Said::Reject => acker.nack(nack(false)).await?,
        };
        Ok(())
    }
}
