//! Opening a queue: its stream, its lanes, and what of them cannot work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::{self, RetentionPolicy};
use async_nats::{Client, Subject};
use oneclock_core::Name;

use super::error::BadNats;
use super::mover::Mover;
use super::names::{Subjects, check_name, takes};
use super::wires::{Line, Wires};
use super::{Nats, unreadable};
use crate::uncertainty::Uncertainty;

/// What a queue is opened on: a connection, or a context of JetStream (for a domain or a prefix of its own).
#[derive(Clone, Debug)]
pub struct JetStream(Context);

/// Opens a [`Nats`] queue. Made by [`Nats::builder`].
#[must_use = "a queue is opened by `build`"]
pub struct NatsBuilder {
    context: Context,
    name: String,
    stream: Option<String>,
    subjects: Option<Subjects>,
    lease: Duration,
    max_ack_pending: usize,
    replicas: usize,
    ttl: Option<Duration>,
    uncertainty: Uncertainty,
    declared: bool,
}

/// How long one delivery is somebody's unless it is renewed.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
/// How many may be under way in all processes together.
const DEFAULT_ACK_PENDING: usize = 10_000;
/// As many wait as there are.
const UNLIMITED: i64 = -1;

// === JetStream ===

impl From<Client> for JetStream {
    fn from(client: Client) -> Self {
        Self(jetstream::new(client))
    }
}

impl From<Context> for JetStream {
    fn from(context: Context) -> Self {
        Self(context)
    }
}

// === NatsBuilder ===

impl NatsBuilder {
    pub(super) fn new(on: JetStream, name: String) -> Self {
        Self {
            context: on.0,
            name,
            stream: None,
            subjects: None,
            lease: DEFAULT_LEASE,
            max_ack_pending: DEFAULT_ACK_PENDING,
            replicas: 1,
            ttl: None,
            uncertainty: Uncertainty::of_this_machine(),
            declared: true,
        }
    }

    /// A stream that is there already, with settings of your own. It has to take the queue's four subjects, and confirm. Unless this
    /// is said there is one for the queue, made if it is missing: its name is the queue's with `_` for each dot; it keeps a message
    /// until it is acknowledged.
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        self.stream = Some(name.into());
        self
    }

    /// Other subjects than `<queue>.main`, `.late`, `.dead` and `.wait`.
    pub fn subjects(mut self, subjects: Subjects) -> Self {
        self.subjects = Some(subjects);
        self
    }

    /// The stream and its consumers are there: nothing is made, and nothing of them is changed. For tools that look at a queue of
    /// somebody else's, and for processes that may not make any.
    pub fn declared_elsewhere(mut self) -> Self {
        self.declared = false;
        self
    }

    /// For how long a delivery is somebody's unless it is renewed (`ack_wait`); 30 s unless said otherwise, 1 s at least. All who
    /// open the queue should say the same: the last one that does changes it for all.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How many deliveries of a lane may be under way, in all processes together; 10 000 unless said otherwise. What waits to come
    /// again is not among them.
    pub fn max_ack_pending(mut self, deliveries: usize) -> Self {
        self.max_ack_pending = deliveries;
        self
    }

    /// How many servers of a cluster keep the stream, if it is made here; one unless said otherwise.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Lets the server remove what may be discarded so long after its expiry (`Nats-TTL`, servers of 2.11 and newer). Off unless
    /// this is said: the server removes without a word, also what is being worked on, and nobody counts it (contract Q2).
    pub fn native_ttl(mut self, slack: Duration) -> Self {
        self.ttl = Some(slack);
        self
    }

    /// By how much this machine's clock may be wrong; [`Uncertainty::of_this_machine`] unless said otherwise.
    pub fn uncertainty(mut self, uncertainty: Uncertainty) -> Self {
        self.uncertainty = uncertainty;
        self
    }

    /// Opens the queue: makes its stream if there is none, and the consumers of its lanes.
    ///
    /// # Errors
    /// [`BadNats`].
    ///
    /// # Cancel safety
    /// Dropped, a part of it may be there. It may be called again.
    pub async fn build(self) -> Result<Nats, BadNats> {
        check_name(&self.name)?;
        for (limit, value) in [("max_ack_pending", self.max_ack_pending), ("replicas", self.replicas)] {
            if value == 0 {
                return Err(BadNats::Zero { limit });
            }
        }
        if self.lease < SHORTEST_LEASE {
            return Err(BadNats::Lease { lease: self.lease });
        }
        let subjects = self.subjects.clone().unwrap_or_else(|| Subjects::of(&self.name));
        let config = self.open_stream(&subjects).await?;
        for subject in subjects.all() {
            if !config.subjects.iter().any(|pattern| takes(pattern, subject)) {
                return Err(BadNats::NotTaken { stream: config.name, subject: subject.to_owned() });
            }
        }
        if config.no_ack {
            return Err(BadNats::NoAck { stream: config.name });
        }
        if self.ttl.is_some() && !config.allow_message_ttl {
            return Err(BadNats::NoTtl { stream: config.name });
        }
        let at_once = i64::try_from(self.max_ack_pending).unwrap_or(i64::MAX);
        let wires = Arc::new(Wires {
            main: self.line(&config.name, "main", &subjects.main, at_once).await?,
            late: self.line(&config.name, "late", &subjects.late, at_once).await?,
            dead: self.line(&config.name, "dead", &subjects.dead, at_once).await?,
            wait: self.line(&config.name, "wait", &subjects.wait, UNLIMITED).await?,
            name: Name::from(self.name.clone()),
            client: self.context.client(),
            context: self.context,
            stream: config.name,
            ttl: self.ttl,
            uncertainty: self.uncertainty,
        });
        for line in [&wires.main, &wires.late, &wires.dead, &wires.wait] {
            if line.in_vain {
                unreadable::make_readable(&wires, line).await;
            }
        }
        let mover = Arc::new(Mover::start(Arc::clone(&wires)));
        Ok(Nats { wires, _mover: mover })
    }

    async fn open_stream(&self, subjects: &Subjects) -> Result<stream::Config, BadNats> {
        let name = self.stream.clone().unwrap_or_else(|| Subjects::without_dots(&self.name));
        let opened = match &self.stream {
            Some(name) => self.context.get_stream(name).await.map_err(Box::from),
            None if !self.declared => self.context.get_stream(&name).await.map_err(Box::from),
            None => {
                let config = stream::Config {
                    name: name.clone(),
                    subjects: subjects.all().map(str::to_owned).to_vec(),
                    retention: RetentionPolicy::WorkQueue,
                    num_replicas: self.replicas,
                    allow_message_ttl: self.ttl.is_some(),
                    description: Some(format!("the queue {}, by oneclock-queue", self.name)),
                    ..stream::Config::default()
                };
                self.context.get_or_create_stream(config).await.map_err(Box::from)
            }
        };
        match opened {
            Ok(stream) => Ok(stream.cached_info().config.clone()),
            Err(source) => Err(BadNats::Stream { stream: name, source }),
        }
    }

    async fn line(&self, stream: &str, lane: &str, subject: &str, at_once: i64) -> Result<Line, BadNats> {
        let consumer = format!("{}-{lane}", Subjects::without_dots(&self.name));
        let config = consumer::pull::Config {
            durable_name: Some(consumer.clone()),
            name: Some(consumer.clone()),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.lease,
            max_deliver: UNLIMITED, // attempts are counted by whoever works
            max_ack_pending: at_once,
            filter_subject: subject.to_owned(),
            ..consumer::pull::Config::default()
        };
        let opened = if self.declared {
            let made = self.context.create_consumer_on_stream(config, stream).await;
            made.map_err(|error| Box::new(error) as async_nats::Error)
        } else {
            let found = self.context.get_consumer_from_stream::<consumer::pull::Config, _, _>(&consumer, stream);
            found.await.map_err(|error| Box::new(error) as async_nats::Error)
        };
        match opened {
            Ok(opened) => {
                let info = opened.cached_info();
                let (lease, in_vain) = (info.config.ack_wait, info.num_redelivered > 0);
                Ok(Line {
                    subject: Subject::from(subject),
                    consumer,
                    lease,
                    in_vain,
                    pulls: tokio::sync::Mutex::default(),
                })
            }
            Err(source) => Err(BadNats::Consumer { stream: stream.to_owned(), consumer, source }),
        }
    }
}

impl fmt::Debug for NatsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBuilder")
            .field("name", &self.name)
            .field("stream", &self.stream)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
