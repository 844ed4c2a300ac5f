//! RabbitMQ: lapin alone, and oneclock-queue over it.
//!
//! All publish persistent, mandatory messages into quorum queues, wait for the broker's confirmation, and acknowledge each message.
//! The bare client has all of them on one channel; ours shares them among four.

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use oneclock_bench::Failed;
use oneclock_queue::rabbitmq::RabbitMq;
use oneclock_queue::rabbitmq::lapin::options::{BasicPublishOptions, BasicQosOptions, QueueDeclareOptions};
use oneclock_queue::rabbitmq::lapin::types::{AMQPValue, FieldTable};
use oneclock_queue::rabbitmq::lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::side::{self, AT_ONCE, BODY, Pair, Rates, Side, rate};

pub(crate) struct OfRabbitMq {
    name: String,
    publishes: Channel,
    receives: Connection,
    queue: RabbitMq,
}

const PREFETCH: u16 = 256;

pub(crate) async fn pair() -> Result<OfRabbitMq, Failed> {
    let address =
        std::env::var("ONECLOCK_RABBITMQ_URL").unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned());
    let name = format!("bench-{}", std::process::id());
    let publishes = Connection::connect(&address, ConnectionProperties::default()).await?.create_channel().await?;
    publishes.confirm_select(Default::default()).await?;
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    publishes.queue_declare(format!("{name}-bare").into(), QueueDeclareOptions::durable(), quorum).await?;
    let receives = Connection::connect(&address, ConnectionProperties::default()).await?;
    let queue =
        RabbitMq::builder(address, format!("{name}-ours")).prefetch(PREFETCH).publish_at_once(AT_ONCE).build().await?;
    Ok(OfRabbitMq { name, publishes, receives, queue })
}

impl OfRabbitMq {
    pub(crate) async fn remove(&self) -> Result<(), Failed> {
        self.publishes.queue_delete(format!("{}-bare", self.name).into(), Default::default()).await?;
        self.queue.delete().await?;
        Ok(())
    }

    async fn bare(&self, side: Side, messages: usize) -> Result<Rates, Failed> {
        let queue = format!("{}-bare", self.name);
        let dress = (side == Side::Dressed).then(|| side::fields("cloudEvents:").0);
        let published = rate(messages, async {
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let each = stream::iter(0..messages).map(|_| async {
                let persistent = BasicProperties::default().with_delivery_mode(2);
                let persistent = dress.iter().fold(persistent, |plain, fields| dressed(plain, fields));
                let sent = self.publishes.basic_publish("".into(), queue.as_str().into(), options, &BODY, persistent);
                if sent.await?.await?.is_ack() { Ok(()) } else { Err(Failed::from("not confirmed")) }
            });
            each.buffer_unordered(AT_ONCE).try_collect::<()>().await
        });
        let published = published.await?;
        let channel = self.receives.create_channel().await?;
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let consumer =
            channel.basic_consume(queue.as_str().into(), "".into(), Default::default(), FieldTable::default());
        let mut consumer = consumer.await?;
        let settled = rate(messages, async {
            let mut left = messages;
            while left > 0 {
                let mut got = Vec::new();
                let mut next = Some(consumer.next().await);
                while let Some(Some(delivery)) = next {
                    got.push(delivery?);
                    next = if got.len() < AT_ONCE.min(left) { consumer.next().now_or_never() } else { None };
                }
                left -= got.len();
                futures_util::future::try_join_all(got.iter().map(|delivery| delivery.ack(Default::default()))).await?;
            }
            Ok(())
        });
        Ok(Rates { published, settled: settled.await? })
    }
}

/// With the fields that ours has, as whoever uses the bare client would write them.
fn dressed(properties: BasicProperties, fields: &[(String, String)]) -> BasicProperties {
    let id = side::id();
    let mut table = FieldTable::default();
    for (name, value) in fields {
        table.insert(name.as_str().into(), AMQPValue::LongString(value.as_str().into()));
    }
    table.insert("cloudEvents:id".into(), AMQPValue::LongString(id.as_str().into()));
    let sent = oneclock::clock::wall().as_nanos() / 1_000_000_000;
    properties.with_message_id(id.into()).with_timestamp(sent).with_headers(table)
}

impl Pair for OfRabbitMq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    async fn turn(&self, side: Side, messages: usize) -> Result<Rates, Failed> {
        match side {
            Side::Bare | Side::Dressed => self.bare(side, messages).await,
            Side::Ours => side::ours(&self.queue, messages).await,
        }
    }
}
