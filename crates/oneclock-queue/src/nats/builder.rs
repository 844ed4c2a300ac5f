//! Opening a queue: its stream, its lanes, and what of them cannot work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::{self, RetentionPolicy};
use oneclock_core::Name;

use super::error::BadNats;
use super::names::{Subjects, check_name, takes};
use super::open::{Consumers, Opening};
use super::wires::Wires;
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
    lease: Option<Duration>,
    max_ack_pending: Option<usize>,
    replicas: usize,
    ttl: Option<Duration>,
    uncertainty: Uncertainty,
    opening: Opening,
}

const SHORTEST_LEASE: Duration = Duration::from_secs(1);

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
            lease: None,
            max_ack_pending: None,
            replicas: 1,
            ttl: None,
            uncertainty: Uncertainty::of_this_machine(),
            opening: Opening::Makes,
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

    /// The stream and its consumers are there: nothing is made, and nothing of them is changed; what was said of lease and
    /// [`max_ack_pending`](Self::max_ack_pending) is not looked at. For processes that may not make any.
    pub fn declared_elsewhere(mut self) -> Self {
        self.opening = Opening::Finds;
        self
    }

    /// Messages go in, and none comes out: nothing is made, the server is asked nothing when it is opened, and nothing is moved. For a
    /// producer that may only publish to `<queue>.main`. That the stream is there is then somebody else's to see to: without it
    /// publishing says [`Outcome::Rejected`](oneclock_core::Outcome).
    pub fn publish_only(mut self) -> Self {
        self.opening = Opening::Publishes;
        self
    }

    /// The queue is looked at: nothing is made, moved, published or received. For tools; see [`Inspect`](crate::Inspect).
    pub fn read_only(mut self) -> Self {
        self.opening = Opening::Looks;
        self
    }

    /// For how long a delivery is somebody's unless it is renewed (`ack_wait`), 1 s at least. Whoever opens the queue first makes it
    /// so, 30 s unless said otherwise; who says nothing later takes what stands, and who says another one is refused
    /// ([`BadNats::Differs`]): the others count by it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How many deliveries of a lane may be under way, in all processes together. As with the [lease](Self::lease) the first one makes
    /// it so, 10 000 unless said otherwise. What waits to come again is not among them.
    pub fn max_ack_pending(mut self, deliveries: usize) -> Self {
        self.max_ack_pending = Some(deliveries);
        self
    }

    /// What is said here of [lease](Self::lease) and [`max_ack_pending`](Self::max_ack_pending) changes what stands, for everybody.
    /// A process that has the queue open already goes on counting by the lease that it found: before a shorter one is said, end them
    /// all, or two work on the same delivery. A longer one needs no more than that they are started anew some time.
    pub fn change_what_stands(mut self) -> Self {
        self.opening = Opening::Changes;
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

    /// Opens the queue: makes its stream and the consumers of its lanes, as far as they are missing. Servers before 2.10 cannot tell
    /// two that open a new queue at the same moment apart: there they have to say the same.
    ///
    /// # Errors
    /// [`BadNats`].
    ///
    /// # Cancel safety
    /// Dropped, a part of it may be there. It may be called again.
    pub async fn build(self) -> Result<Nats, BadNats> {
        check_name(&self.name)?;
        for (limit, value) in [("max_ack_pending", self.max_ack_pending), ("replicas", Some(self.replicas))] {
            if value == Some(0) {
                return Err(BadNats::Zero { limit });
            }
        }
        if let Some(lease) = self.lease.filter(|lease| *lease < SHORTEST_LEASE) {
            return Err(BadNats::Lease { lease });
        }
        let subjects = self.subjects.clone().unwrap_or_else(|| Subjects::of(&self.name));
        let stream = match self.opening {
            Opening::Publishes => self.stream_name(),
            _ => self.open_stream(&subjects).await?,
        };
        let [main, late, dead, wait] = Consumers {
            context: &self.context,
            queue: &self.name,
            stream: &stream,
            subjects: &subjects,
            lease: self.lease,
            at_once: self.max_ack_pending.map(|deliveries| i64::try_from(deliveries).unwrap_or(i64::MAX)),
            opening: self.opening,
        }
        .open()
        .await?;
        let wires = Arc::new(Wires {
            name: Name::from(self.name),
            client: self.context.client(),
            context: self.context,
            stream,
            main,
            late,
            dead,
            wait,
            ttl: self.ttl,
            opening: self.opening,
            uncertainty: self.uncertainty,
        });
        if self.opening.receives() {
            for line in [&wires.main, &wires.late, &wires.dead, &wires.wait] {
                if line.in_vain {
                    unreadable::make_readable(&wires, line).await;
                }
            }
        }
        Ok(Nats::new(wires))
    }

    fn stream_name(&self) -> String {
        self.stream.clone().unwrap_or_else(|| Subjects::without_dots(&self.name))
    }

    /// Its stream, which can hold a queue.
    async fn open_stream(&self, subjects: &Subjects) -> Result<String, BadNats> {
        let config = self.stream_of(subjects).await?;
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
        Ok(config.name)
    }

    async fn stream_of(&self, subjects: &Subjects) -> Result<stream::Config, BadNats> {
        let name = self.stream_name();
        let opened = if self.stream.is_some() || !self.opening.makes() {
            self.context.get_stream(&name).await.map_err(Box::from)
        } else {
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
        };
        match opened {
            Ok(stream) => Ok(stream.cached_info().config.clone()),
            Err(source) => Err(BadNats::Stream { stream: name, source }),
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
