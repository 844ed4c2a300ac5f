//! What all clones of a queue share, and what is said to the server through it.
//!
//! Decides what is known when the server does not answer. The client keeps what is said while its connection is gone and says it
//! when it is back: an acknowledgement that somebody else's delivery would take for its own. So without a connection nothing is
//! said at all.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_nats::client::Request;
use async_nats::connection::State;
use async_nats::jetstream::context::{Context, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, HeaderMap, Message, RequestErrorKind, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use oneclock_core::{Name, Outcome, Stage};
use tokio::runtime::Handle;

use super::open::Opening;
use super::pulls::Pulls;
use crate::broker::{BrokerError, Lane, NotSettled};
use crate::uncertainty::Uncertainty;

/// All clones of one queue.
pub(super) struct Wires {
    pub(super) name: Name,
    pub(super) context: Context,
    pub(super) client: Client,
    pub(super) stream: String,
    pub(super) main: Line,
    pub(super) late: Line,
    pub(super) dead: Line,
    pub(super) wait: Line,
    pub(super) ttl: Option<Duration>, // how long after the expiry
    pub(super) opening: Opening,
    pub(super) uncertainty: Uncertainty,
}

/// One subject, and who reads it.
pub(super) struct Line {
    pub(super) subject: Subject,
    pub(super) consumer: String,
    pub(super) lease: Duration,
    pub(super) in_vain: bool, // some were delivered more than once when it was opened
    pub(super) pulls: tokio::sync::Mutex<Pulls>,
}

/// A subscription that may be dropped anywhere: the client's own needs the runtime for that, and panics without one.
pub(super) struct Heard {
    messages: Option<Subscriber>, // until it is dropped
    runtime: Handle,
}

/// The connection is gone, and is being opened again.
#[derive(Debug, thiserror::Error)]
#[error("there is no connection to the server at the moment: nothing was said to it")]
pub(super) struct NoConnection;

/// How long the server may take to answer one word.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

// === Wires ===

impl Wires {
    pub(super) fn line(&self, lane: Lane) -> &Line {
        match lane {
            Lane::Main => &self.main,
            Lane::Late => &self.late,
            Lane::Dead => &self.dead,
        }
    }

    /// Whether something that is said now goes out now.
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// The most bytes of fields and body together that the server takes.
    pub(super) fn most(&self) -> usize {
        self.client.max_payload()
    }

    /// Publishes and waits until the server has it.
    pub(super) async fn publish(
        &self,
        subject: &Subject,
        headers: HeaderMap,
        body: Bytes,
        what: &'static str,
    ) -> Result<(), BrokerError> {
        if !self.is_connected() {
            return Err(BrokerError::not_sent(&self.name, what, NoConnection));
        }
        let message = PublishMessage::build().payload(body).headers(headers);
        let sent = self.context.send_publish(subject.clone(), message).await;
        let answer = sent.map_err(|error| match error.kind() {
            // It would not the next time, either.
            PublishErrorKind::MaxPayloadExceeded => BrokerError::impossible(&self.name, what, error),
            _ => BrokerError::not_sent(&self.name, what, error),
        })?;
        // A duplicate is what it was the first time: there.
        answer.await.map(|_| ()).map_err(|error| {
            let refused = error.source().is_some_and(|source| source.is::<jetstream::Error>());
            match error.kind() {
                PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => {
                    BrokerError::unknown(&self.name, what, error)
                }
                PublishErrorKind::Other if !refused => BrokerError::unknown(&self.name, what, error),
                _ => BrokerError::rejected(&self.name, what, error),
            }
        })
    }

    /// Says what becomes of a delivery, and waits until the server knows.
    pub(super) async fn say(&self, to: &Subject, what: AckKind) -> Result<(), NotSettled> {
        if !self.is_connected() {
            return Err(NotSettled::Failed(NoConnection.into()));
        }
        let request = Request::new().payload(what.into()).timeout(Some(ANSWERS_WITHIN));
        match self.client.send_request(to.clone(), request).await {
            Ok(_) => Ok(()),
            // Nobody listens there: the stream or its consumer is gone, and with it the delivery.
            Err(error) if error.kind() == RequestErrorKind::NoResponders => Err(NotSettled::Lost),
            Err(error) => Err(NotSettled::Failed(error.into())),
        }
    }

    /// Of something that only reads.
    pub(super) fn unanswered(
        &self,
        what: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> BrokerError {
        let outcome = Outcome::Unknown { stage: Stage::Wait };
        BrokerError { queue: self.name.clone(), what, outcome, source: source.into() }
    }
}

// === Line ===

impl Line {
    pub(super) fn new(subject: &str, consumer: String, lease: Duration, in_vain: bool) -> Self {
        Self { subject: Subject::from(subject), consumer, lease, in_vain, pulls: tokio::sync::Mutex::default() }
    }
}

// === Heard ===

impl Heard {
    /// Made where there is a runtime.
    pub(super) fn new(messages: Subscriber) -> Self {
        Self { messages: Some(messages), runtime: Handle::current() }
    }

    /// The next message; `None` when there will be none any more.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.messages.as_mut()?.next().await
    }

    /// No further one comes than those that came already.
    pub(super) async fn ends(&mut self) {
        if let Some(messages) = &mut self.messages {
            let _ = messages.unsubscribe().await; // fails where the client is closed: then none comes either
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let _runtime = self.runtime.enter();
        drop(self.messages.take());
    }
}

impl fmt::Debug for Wires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wires").field("name", &self.name).field("stream", &self.stream).finish_non_exhaustive()
    }
}
