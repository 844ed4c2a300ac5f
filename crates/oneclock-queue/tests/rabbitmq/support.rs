//! The broker that everybody uses with queues of one's own, a plain client beside ours, and a relay that can be cut.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oneclock_queue::rabbitmq::lapin::message::Delivery as Raw;
use oneclock_queue::rabbitmq::lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions};
use oneclock_queue::rabbitmq::lapin::types::{AMQPValue, FieldTable};
use oneclock_queue::rabbitmq::lapin::uri::AMQPUri;
use oneclock_queue::rabbitmq::lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use oneclock_queue::rabbitmq::{RabbitMq, RabbitMqBuilder, RabbitMqDelivery};
use oneclock_queue::{Broker as _, Dead, Lane, Message};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Far beyond what anything here takes when it works.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits, with a bound.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, what).await.expect("it did not happen in time")
}

/// The broker that all tests share.
pub(crate) fn address() -> String {
    std::env::var("ONECLOCK_RABBITMQ_URL").unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned())
}

/// A name that only this test has.
pub(crate) fn unique(what: &str) -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let wall = oneclock::clock::wall().as_nanos();
    format!("oneclock-test.{what}.{}.{}.{wall}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// A queue that only this test has, and a plain client beside it. Its queues go with it.
pub(crate) struct Own {
    pub(crate) name: String,
    pub(crate) queue: RabbitMq,
    pub(crate) plain: Channel,
    address: String,
}

impl Own {
    pub(crate) async fn new(what: &str) -> Self {
        Self::with(what, |builder| builder).await
    }

    pub(crate) async fn with(what: &str, of: impl FnOnce(RabbitMqBuilder) -> RabbitMqBuilder) -> Self {
        Self::at(&address(), &address(), what, of).await
    }

    /// Ours connects to `ours`, the plain client to `plain`.
    pub(crate) async fn at(
        ours: &str,
        plain: &str,
        what: &str,
        of: impl FnOnce(RabbitMqBuilder) -> RabbitMqBuilder,
    ) -> Self {
        let name = unique(what);
        let queue = soon(of(RabbitMq::builder(ours, name.clone())).build()).await.unwrap_or_else(|error| {
            panic!(
                "these tests need a RabbitMQ ({error}: {:?}): start one, or name one in ONECLOCK_RABBITMQ_URL",
                error.source
            )
        });
        Self { name, queue, plain: plain_channel(plain).await, address: plain.to_owned() }
    }

    /// The next delivery of a lane.
    pub(crate) async fn one(&self, lane: Lane) -> RabbitMqDelivery {
        let mut deliveries = soon(self.queue.receive(lane, 1)).await.unwrap();
        assert_eq!(deliveries.len(), 1);
        deliveries.remove(0)
    }

    /// Puts a message there as a stranger would.
    pub(crate) async fn stranger(&self, properties: BasicProperties, body: &[u8]) {
        plain_publish(&self.plain, &self.name, properties, body).await;
    }

    /// Takes a message out of one of its queues, as it is. `None`: there is none.
    pub(crate) async fn raw(&self, ending: &str) -> Option<Raw> {
        let options = BasicGetOptions { no_ack: true };
        let got = soon(self.plain.basic_get(format!("{}{ending}", self.name).into(), options)).await.unwrap();
        got.map(|got| got.delivery)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let (address, name) = (self.address.clone(), self.name.clone());
        let gone = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let gone = runtime.block_on(async {
                let deleted = async {
                    let connection = Connection::connect(&address, ConnectionProperties::default()).await?;
                    let channel = connection.create_channel().await?;
                    for ending in ["", ".late", ".dead", ".wait", ".late.wait"] {
                        channel.queue_delete(format!("{name}{ending}").into(), Default::default()).await?;
                    }
                    connection.close(200, "done".into()).await
                };
                tokio::time::timeout(Duration::from_secs(5), deleted).await
            });
            drop(gone); // a broker that is gone has none of them
        });
        let _ = gone.join();
    }
}

pub(crate) async fn plain_channel(address: &str) -> Channel {
    let connection = soon(Connection::connect(address, ConnectionProperties::default())).await.unwrap();
    let channel = soon(connection.create_channel()).await.unwrap();
    soon(channel.confirm_select(ConfirmSelectOptions::default())).await.unwrap();
    channel
}

pub(crate) async fn plain_publish(channel: &Channel, queue: &str, properties: BasicProperties, body: &[u8]) {
    let published = channel.basic_publish("".into(), queue.into(), BasicPublishOptions::default(), body, properties);
    let confirmed = soon(soon(published).await.unwrap()).await.unwrap();
    assert!(confirmed.is_ack());
}

pub(crate) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

pub(crate) fn table(fields: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        table.insert((*name).into(), value.clone());
    }
    table
}

/// The header fields of a message, typed.
pub(crate) fn fields(properties: &BasicProperties) -> std::collections::BTreeMap<String, AMQPValue> {
    let table = properties.headers().clone().unwrap_or_default();
    table.into_iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
}

pub(crate) fn dead() -> Dead {
    let at = oneclock_core::wire::Wall::from_nanos(1_700_000_000_000_000_000);
    Dead { why: oneclock_core::expiry::Why::Rejected, detail: Some("no such customer".into()), at, attempts: 3 }
}

pub(crate) fn order(body: &str) -> Message {
    Message::new("order.placed", "shop", body.to_owned())
}

// === A relay ===

/// Stands between ours and the broker. Cut, it closes every connection and takes none, until it is mended.
pub(crate) struct Relay {
    addr: SocketAddr,
    cut: watch::Sender<bool>,
    _accepts: Aborted,
}

struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Relay {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (cut, is_cut) = watch::channel(false);
        let accepts = tokio::spawn(async move {
            let mut relayed = tokio::task::JoinSet::new();
            while let Ok((mut ours, _)) = listener.accept().await {
                let mut is_cut = is_cut.clone();
                if *is_cut.borrow() {
                    continue;
                }
                relayed.spawn(async move {
                    let mut theirs = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs) => {}
                        _ = is_cut.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { addr, cut, _accepts: Aborted(accepts) }
    }

    /// The address of ours.
    pub(crate) fn address(&self) -> String {
        format!("amqp://guest:guest@{}/%2f", self.addr)
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.cut.send_replace(false);
    }
}

/// The port of the broker that all tests share.
pub(crate) fn port() -> u16 {
    let address: AMQPUri = address().parse().unwrap();
    address.authority.port
}

/// Whether something is so in the end.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let seen = tokio::time::timeout(BOUND, async {
        while !is_so().await {
            tokio::time::sleep(ms(5)).await;
        }
    });
    assert!(seen.await.is_ok(), "not seen within {BOUND:?}: {what}");
}
