//! One delivery, and what becomes of it.
//!
//! Decides that every way but the end is a copy that the broker has confirmed before the original is acknowledged, and how its
//! attempts are counted over copies.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::{Acker, BasicProperties};
use oneclock_core::Tick;
use uuid::Uuid;

use super::headers::{self, Copy};
use super::publish::Target;
use super::{RabbitMq, Trouble};
use crate::{Broker as _, Dead, Delivery, Incoming, Lane, Message, NotSettled, Settle};

/// One delivery of a message by RabbitMQ.
///
/// It is ours as long as its channel stands, and its broker waits no longer for its acknowledgement than it was told to
/// (`consumer_timeout`, 30 minutes by default): then it closes the channel, and all deliveries of it are somebody else's.
///
/// Dropped without a word, it goes back into its queue at once, and counts as an attempt.
pub struct RabbitMqDelivery {
    queue: RabbitMq,
    lane: Lane,
    message: Message,
    properties: BasicProperties,
    acker: Acker,
    attempt: u32,
    may_have_run: bool,
    asked: Tick,
}

impl RabbitMqDelivery {
    pub(super) fn new(queue: RabbitMq, lane: Lane, delivered: lapin::message::Delivery, asked: Tick) -> Self {
        let lapin::message::Delivery { redelivered, properties, data, acker, .. } = delivered;
        let message = message(&properties, data, queue.uncertainty());
        let before = headers::redelivered(&properties, redelivered);
        let attempt = headers::counted(&properties).saturating_add(before).saturating_add(1);
        let may_have_run = before > 0 || headers::may_have_run(&properties);
        Self { queue, lane, message, properties, acker, attempt, may_have_run, asked }
    }

    /// The properties and header fields as they came, typed.
    pub fn properties(&self) -> &BasicProperties {
        &self.properties
    }

    /// Whether it was said already what becomes of it.
    fn said(&self) -> Result<bool, NotSettled> {
        if self.acker.poisoned() { Err(NotSettled::Lost) } else { Ok(!self.acker.usable()) }
    }

    /// A copy for this lane, which is in it before this returns. With a delay it is in the queue that waits for it.
    async fn copy(&self, lane: Lane, after: Duration, edit: impl FnOnce(Copy) -> Copy) -> Result<(), NotSettled> {
        let queues = self.queue.queues();
        let mut copy = Copy::of(&self.properties, queues.lane(lane)).known_as(&self.message.id);
        if self.may_have_run {
            copy = copy.with(headers::MAY_HAVE_RUN, "true");
        }
        let copy = edit(copy);
        let (key, expiration) = if after.is_zero() || lane == Lane::Dead {
            (queues.lane(lane), self.queue.native_ttl(lane, &self.message.stamp))
        } else {
            // Rounded up: it does not come back too early.
            let millis = u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
            (queues.wait(lane), Some(millis.min(super::LONGEST_EXPIRATION)))
        };
        let to = Target { exchange: Default::default(), key: key.clone() };
        let properties = copy.finish(expiration);
        let published = self.queue.publisher().publish(&to, &self.message.body, properties).await;
        published.map_err(|not| NotSettled::Failed(Box::new(self.queue.error("moving a message", not))))
    }

    /// The copy that somebody looks at. What a handler said is left out where it would not fit.
    async fn bury(&self, dead: &Dead) -> Result<(), NotSettled> {
        let written = |dead: &Dead, mut copy: Copy| {
            dead.write(|name, value| copy.set(name, value));
            copy
        };
        let fits = {
            let copy = Copy::of(&self.properties, self.queue.queues().lane(Lane::Dead)).known_as(&self.message.id);
            self.queue.publisher().takes(&written(dead, copy).finish(None))
        };
        let short = Dead { detail: dead.detail.clone().filter(|_| fits), ..dead.clone() };
        self.copy(Lane::Dead, Duration::ZERO, |copy| written(&short, copy)).await
    }
}

/// What a message says.
pub(super) fn message(properties: &BasicProperties, body: Vec<u8>, uncertainty: Duration) -> Message {
    let mut incoming = Incoming::new();
    headers::read(properties, &mut incoming);
    // The broker knows it by no name that lasts, so it gets one, which its copies keep.
    let fallback = if properties.message_id().is_some() { String::new() } else { Uuid::now_v7().to_string() };
    incoming.finish(&fallback, Bytes::from(body), uncertainty)
}

impl Delivery for RabbitMqDelivery {
    fn message(&self) -> &Message {
        &self.message
    }

    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    fn asked(&self) -> Tick {
        self.asked
    }

    fn lease(&self) -> Option<Duration> {
        None
    }

    async fn renew(&self) -> Result<(), NotSettled> {
        self.said().map(drop)
    }

    async fn settle(&self, settle: &Settle) -> Result<(), NotSettled> {
        if self.said()? {
            return Ok(());
        }
        match settle {
            Settle::Gone => {}
            Settle::Again { after, counted } => {
                let counted = self.attempt.saturating_sub(u32::from(!counted));
                self.copy(self.lane, *after, |copy| copy.with(headers::ATTEMPT, &counted.to_string())).await?;
            }
            Settle::Late => {
                let before = self.attempt.saturating_sub(1);
                self.copy(Lane::Late, Duration::ZERO, |copy| copy.with(headers::ATTEMPT, &before.to_string())).await?;
            }
            Settle::Dead(dead) => self.bury(dead).await?,
            Settle::Redrive(stamp) => self.copy(Lane::Main, Duration::ZERO, |copy| copy.redriven(stamp)).await?,
        }
        match self.acker.ack(BasicAckOptions::default()).await {
            Ok(true) => Ok(()),
            Ok(false) => self.said().map(drop),
            Err(error) => Err(NotSettled::Failed(Box::new(Trouble::Amqp(error)))),
        }
    }
}

impl Drop for RabbitMqDelivery {
    fn drop(&mut self) {
        if self.acker.usable() {
            // Said in the first poll; that it was sent is nobody's to wait for.
            let again = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
            let _ = self.acker.nack(again).now_or_never();
        }
    }
}

impl fmt::Debug for RabbitMqDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RabbitMqDelivery");
        debug.field("queue", self.queue.name()).field("lane", &self.lane).field("message", &self.message.id);
        debug.field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
