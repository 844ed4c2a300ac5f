//! One delivery of a message, and what becomes of it.
//!
//! Decides how each end is said in NATS. What goes elsewhere is a copy that the server has before the original is acknowledged.
//! So is what comes again: a copy with its count, in a lane of its own until it is due. Given back by a negative acknowledgement
//! it would only have the number of its deliveries, which does not tell what counts as an attempt from what does not, nor either
//! from a crash; and it would take the place of one that is under way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use oneclock_core::Tick;

use super::fields::{self, ReadFields};
use super::pulls::Raw;
use super::wires::Wires;
use crate::broker::{Delivery, Lane, NotSettled, Settle};
use crate::message::Message;

/// A delivery of a [`Nats`](super::Nats) queue.
pub struct NatsDelivery {
    wires: Arc<Wires>,
    lane: Lane,
    message: Message,
    headers: HeaderMap, // as they came
    body: Bytes,
    reply: Subject,
    sequence: u64,
    delivered: u32,
    before: u32,
    asked: Tick,
}

/// What is given back for no longer than this goes to its lane at once.
const AT_ONCE: Duration = Duration::from_millis(1);

// === NatsDelivery ===

impl NatsDelivery {
    /// `ours` is by how much our clock may be wrong.
    pub(super) fn new(wires: Arc<Wires>, lane: Lane, raw: Raw, ours: Duration) -> Self {
        let Raw { headers, body, reply, sequence, delivered, asked } = raw;
        let fallback_id = format!("{}:{sequence}", wires.stream);
        let ReadFields { message, before } = fields::read(&headers, &fallback_id, body.clone(), ours);
        Self { wires, lane, message, headers, body, reply, sequence, delivered, before, asked }
    }

    /// A copy with a number that no other copy has, and the same one each time it is made for the same end.
    fn copy(&self, for_: &str) -> HeaderMap {
        let number = format!("{}:{}:{for_}", self.wires.stream, self.sequence);
        fields::copy(&self.headers, &self.message.id, &number)
    }

    async fn to(&self, subject: &Subject, headers: HeaderMap) -> Result<(), NotSettled> {
        let copied = self.wires.publish(subject, headers, self.body.clone(), "a copy could not be published").await;
        copied.map_err(|error| NotSettled::Failed(error.into()))?;
        self.wires.say(&self.reply, AckKind::Ack).await
    }

    async fn again(&self, after: Duration, counted: bool) -> Result<(), NotSettled> {
        if self.lane == Lane::Dead {
            return self.wires.say(&self.reply, AckKind::Nak((!after.is_zero()).then_some(after))).await;
        }
        let mut headers = self.copy(&format!("again:{}", self.delivered));
        fields::tried(&mut headers, self.attempt().saturating_sub(u32::from(!counted)));
        if after < AT_ONCE {
            return self.to(&self.wires.line(self.lane).subject, headers).await;
        }
        fields::waits(&mut headers, after, self.lane);
        self.to(&self.wires.wait.subject, headers).await
    }
}

impl Delivery for NatsDelivery {
    fn message(&self) -> &Message {
        &self.message
    }

    /// How often it was given back, where that counted, and how often it vanished with whoever had it; of one in the late or the
    /// dead lane, since it came there.
    fn attempt(&self) -> u32 {
        self.before.saturating_add(self.delivered.max(1))
    }

    /// What was given back is another copy, so that the server delivers a copy again only if nobody said a word.
    fn may_have_run(&self) -> bool {
        self.delivered > 1
    }

    fn asked(&self) -> Tick {
        self.asked
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.wires.line(self.lane).lease)
    }

    /// The server says that it knows also of a delivery that is somebody else's by now, whose lease it lengthens: [`NotSettled::Lost`]
    /// only tells that the queue is gone.
    async fn renew(&self) -> Result<(), NotSettled> {
        self.wires.say(&self.reply, AckKind::Progress).await
    }

    async fn settle(&self, settle: &Settle) -> Result<(), NotSettled> {
        match settle {
            Settle::Gone => self.wires.say(&self.reply, AckKind::Ack).await,
            Settle::Again { after, counted } => self.again(*after, *counted).await,
            Settle::Late => self.to(&self.wires.late.subject, self.copy("late")).await,
            Settle::Redrive(stamp) => {
                let mut headers = self.copy("redrive");
                fields::redriven(&mut headers, stamp);
                self.to(&self.wires.main.subject, headers).await
            }
            Settle::Dead(dead) => {
                let mut headers = self.copy("dead");
                dead.write(|name, value| fields::set(&mut headers, name, value));
                self.to(&self.wires.dead.subject, headers).await
            }
        }
    }
}

impl fmt::Debug for NatsDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsDelivery")
            .field("message", &self.message)
            .field("lane", &self.lane)
            .field("sequence", &self.sequence)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}
