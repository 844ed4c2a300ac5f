//! A connection to the broker, made when it is needed.
//!
//! Decides when a connection is made again (when one is asked for and the last is gone, never behind anybody's back), what is
//! declared on it, and how long a try may take. Acknowledgements and publishing have a connection each: a broker that is short of
//! memory stops reading from those who publish, and must still hear that work is done.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_rs::Runtime;
use lapin::options::QueueDeclareOptions;
use lapin::tcp::AMQPUriTcpExt as _;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::AMQPUri;
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties};
use oneclock_core::Name;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::names::Queues;
use super::sieve::{self, Sieve};
use super::{QueueKind, Trouble};
use crate::Lane;

/// How long a try to connect may take, with all that is declared.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// One connection, and how another is made.
pub(super) struct Link {
    uri: AMQPUri,
    purpose: &'static str,
    topology: Arc<Topology>,
    connection: Mutex<Option<Connection>>,
    frame_max: AtomicU32,
}

/// What is declared.
#[derive(Debug)]
pub(super) struct Topology {
    pub(super) name: Name,
    pub(super) queues: Queues,
    pub(super) kind: QueueKind,
    /// Whether it is: else whoever runs the broker did.
    pub(super) declared: bool,
}

// === Link ===

impl Link {
    pub(super) fn new(uri: AMQPUri, purpose: &'static str, topology: Arc<Topology>) -> Self {
        Self { uri, purpose, topology, connection: Mutex::new(None), frame_max: AtomicU32::new(0) }
    }

    /// A new channel, on a new connection if the last one is gone.
    pub(super) async fn channel(&self) -> Result<Channel, Trouble> {
        let mut connection = self.connection.lock().await;
        if let Some(standing) = connection.as_ref().filter(|connection| connection.status().connected()) {
            return Ok(standing.create_channel().await?);
        }
        *connection = None;
        let made =
            timeout(CONNECT_WITHIN, self.connect()).await.map_err(|_| Trouble::TookTooLong(CONNECT_WITHIN))??;
        self.frame_max.store(made.configuration().frame_max(), Ordering::Relaxed);
        let channel = made.create_channel().await?;
        *connection = Some(made);
        Ok(channel)
    }

    /// The most bytes of a frame, which all headers of one message have to fit into. Zero: nobody has connected yet.
    pub(super) fn frame_max(&self) -> u32 {
        self.frame_max.load(Ordering::Relaxed)
    }

    async fn connect(&self) -> Result<Connection, Trouble> {
        let shown = format!("oneclock {} ({})", self.topology.name, self.purpose);
        let properties = ConnectionProperties::default().with_connection_name(shown.into());
        // Sifted above TLS, where there is any.
        let tokio = Runtime::tokio_current();
        let connect = async move |uri: AMQPUri, _| {
            let plain = uri.connect_async(&tokio).await?;
            Ok(AsyncTcpStream::Plain(Sieve::new(plain)))
        };
        let made = Connection::connector(self.uri.clone(), sieve::runtime(), connect, properties).await?;
        self.topology.declare(&made.create_channel().await?).await?;
        Ok(made)
    }
}

// === Topology ===

impl Topology {
    /// Declares every queue. What is there already as it should be stays as it is.
    pub(super) async fn declare(&self, channel: &Channel) -> Result<(), Trouble> {
        if !self.declared {
            return Ok(());
        }
        let dead = self.queues.lane(Lane::Dead);
        self.queue(channel, dead, None).await?;
        for lane in [Lane::Main, Lane::Late] {
            self.queue(channel, self.queues.lane(lane), Some(dead)).await?;
            self.queue(channel, self.queues.wait(lane), Some(self.queues.lane(lane))).await?;
        }
        Ok(())
    }

    /// A durable queue, whose broker moves what it takes out of it by itself to `then`.
    async fn queue(&self, channel: &Channel, name: &ShortString, then: Option<&ShortString>) -> Result<(), Trouble> {
        let word = |word: &str| AMQPValue::LongString(word.into());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), word(self.kind.as_str()));
        if let Some(then) = then {
            arguments.insert("x-dead-letter-exchange".into(), word(""));
            arguments.insert("x-dead-letter-routing-key".into(), word(then.as_str()));
            if self.kind == QueueKind::Quorum {
                // It is there before it is gone here. Asks for a queue that refuses what it cannot take.
                arguments.insert("x-dead-letter-strategy".into(), word("at-least-once"));
                arguments.insert("x-overflow".into(), word("reject-publish"));
            }
        }
        channel.queue_declare(name.clone(), QueueDeclareOptions::durable(), arguments).await?;
        Ok(())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its address has a password in it.
        f.debug_struct("Link").field("queue", &self.topology.name).field("for", &self.purpose).finish_non_exhaustive()
    }
}
