//! One delivery, and what becomes of it.
//!
//! Decides that every way but the end is a copy that the broker has confirmed before the original is acknowledged, and how its
//! attempts are counted over copies.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use lapin::options::{BasicAckOptions, BasicNackOptions, BasicRejectOptions};
use lapin::{Acker, BasicProperties};
use oneclock_core::{Outcome, Tick};
use uuid::Uuid;

use super::consume::Held;
use super::copy::{self, Copy};
use super::headers;
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
    held: Held,
    attempt: u32,
    may_have_run: bool,
    id_lasts: bool,
    asked: Tick,
}

impl RabbitMqDelivery {
    pub(super) fn new(
        queue: RabbitMq,
        lane: Lane,
        (delivered, held): (lapin::message::Delivery, Held),
        asked: Tick,
    ) -> Self {
        let lapin::message::Delivery { redelivered, properties, data, acker, .. } = delivered;
        let (message, id_lasts) = message(&properties, data, queue.uncertainty());
        let before = headers::redelivered(&properties, redelivered);
        let attempt = headers::counted(&properties).saturating_add(before).saturating_add(1);
        let may_have_run = before > 0 || headers::may_have_run(&properties);
        Self { queue, lane, message, properties, acker, held, attempt, may_have_run, id_lasts, asked }
    }

    /// The properties and header fields as they came, typed.
    pub fn properties(&self) -> &BasicProperties {
        &self.properties
    }

    /// Whether it was said already what becomes of it.
    fn said(&self) -> Result<bool, NotSettled> {
        if self.acker.poisoned() { Err(NotSettled::Lost) } else { Ok(!self.acker.usable()) }
    }

    /// A copy for this lane, which is in it before this returns. With a delay it is in the queue that waits for it. What it cannot do
    /// without has to fit.
    async fn copy(
        &self,
        lane: Lane,
        after: Duration,
        spare: &[&str],
        edit: impl FnOnce(Copy) -> Copy,
    ) -> Result<(), NotSettled> {
        let mut copy = edit(self.begin(lane));
        let room = if after.is_zero() { 0 } else { copy::ROOM_TO_WAIT };
        let (fits, _) = copy.fit(self.queue.publisher().most().saturating_sub(room), spare);
        if !fits {
            return Err(NotSettled::TooLarge);
        }
        self.publish(lane, after, copy).await
    }

    fn begin(&self, lane: Lane) -> Copy {
        let copy = Copy::of(&self.properties, self.queue.queues().lane(lane)).known_as(&self.message.id);
        if self.may_have_run { copy.with(headers::MAY_HAVE_RUN, "true") } else { copy }
    }

    async fn publish(&self, lane: Lane, after: Duration, copy: Copy) -> Result<(), NotSettled> {
        let queues = self.queue.queues();
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
        published.map_err(|not| match not.outcome {
            Outcome::Failed => NotSettled::TooLarge,
            _ => NotSettled::Failed(Box::new(self.queue.error("moving a message", not))),
        })
    }

    /// The copy that somebody looks at, which leaves out what would not fit. Where the broker takes none of its size any more, it
    /// moves the message itself, and its `x-death` is all that says why. False: that is to be said yet.
    async fn bury(&self, dead: &Dead) -> Result<bool, NotSettled> {
        let mut copy = self.begin(Lane::Dead);
        dead.write(|name, value| copy.set(name, value));
        let (fits, left_out) = copy.fit_at_any_price(self.queue.publisher().most());
        let (queue, message, reason) = (self.queue.name(), &self.message.id, dead.why.as_str());
        if !left_out.is_empty() {
            tracing::warn!(
                %queue, %message, reason, detail = dead.detail, ?left_out,
                "the head of a dead letter is as large as the broker takes: these fields are not on it"
            );
        }
        let buried =
            if fits { self.publish(Lane::Dead, Duration::ZERO, copy).await } else { Err(NotSettled::TooLarge) };
        match buried {
            // Its own way leads to the dead lane only where that was declared here, and not out of it.
            Err(NotSettled::TooLarge) if self.queue.declares() && self.lane != Lane::Dead => {
                tracing::warn!(
                    %queue, %message, reason, detail = dead.detail,
                    "the broker takes no copy of a message of this size any more: it moves the message to the dead lane itself"
                );
                Ok(false)
            }
            buried => buried.map(|()| true),
        }
    }

    /// What the broker was told is told to it.
    fn told(&self, told: Result<bool, lapin::Error>) -> Result<(), NotSettled> {
        match told {
            Ok(true) => Ok(()),
            Ok(false) => self.said().map(drop),
            Err(error) => Err(NotSettled::Failed(Box::new(Trouble::Amqp(error)))),
        }
    }
}

/// What a message says, and whether its id is its own. The broker knows it by no name that lasts, so that one without an id gets one,
/// which its copies keep.
pub(super) fn message(properties: &BasicProperties, body: Vec<u8>, uncertainty: Duration) -> (Message, bool) {
    let mut incoming = Incoming::new();
    headers::read(properties, &mut incoming);
    let fallback = if properties.message_id().is_some() { String::new() } else { Uuid::now_v7().to_string() };
    let message = incoming.finish(fallback.as_str(), Bytes::from(body), uncertainty);
    let id_lasts = *message.id != *fallback;
    (message, id_lasts)
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

    fn is_lost(&self) -> bool {
        self.acker.poisoned()
    }

    /// Copies have one.
    fn id_lasts(&self) -> bool {
        self.id_lasts
    }

    async fn renew(&self) -> Result<(), NotSettled> {
        self.said().map(drop)
    }

    async fn settle(&self, settle: &Settle) -> Result<(), NotSettled> {
        if self.said()? {
            return Ok(());
        }
        let at_once = Duration::ZERO;
        match settle {
            Settle::Gone => {}
            Settle::Again { after, counted } => {
                let counted = self.attempt.saturating_sub(u32::from(!counted)).to_string();
                self.copy(self.lane, *after, &copy::WAY, |copy| copy.with(headers::ATTEMPT, &counted)).await?;
            }
            Settle::Late => {
                let before = self.attempt.saturating_sub(1).to_string();
                self.copy(Lane::Late, at_once, &copy::WAY, |copy| copy.with(headers::ATTEMPT, &before)).await?;
            }
            Settle::Dead(dead) => {
                if !self.bury(dead).await? {
                    let rejected = self.acker.reject(BasicRejectOptions { requeue: false });
                    return self.told(self.held.settling(rejected).await);
                }
            }
            Settle::Redrive(stamp) => {
                self.copy(Lane::Main, at_once, &copy::OF_A_REDRIVE, |copy| copy.redriven(stamp)).await?;
            }
        }
        self.told(self.held.settling(self.acker.ack(BasicAckOptions::default())).await)
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
