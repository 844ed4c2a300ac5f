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
use super::fit::{self, TooLarge};
use super::pulls::Raw;
use super::wires::Wires;
use crate::broker::{Dead, Delivery, Lane, NotSettled, Settle};
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
    may_have_run: bool,
    asked: Tick,
}

/// What is given back for no longer than this goes to its lane at once.
const AT_ONCE: Duration = Duration::from_millis(1);

// === NatsDelivery ===

impl NatsDelivery {
    /// `ours` is by how much our clock may be wrong.
    pub(super) fn new(wires: Arc<Wires>, lane: Lane, raw: Raw, ours: Duration) -> Self {
        let Raw { headers, body, reply, sequence, delivered, asked } = raw;
        let fallback_id = format_args!("{}:{sequence}", wires.stream);
        let ReadFields { message, before, may_have_run } = fields::read(&headers, fallback_id, body.clone(), ours);
        let may_have_run = may_have_run || delivered > 1;
        Self { wires, lane, message, headers, body, reply, sequence, delivered, before, may_have_run, asked }
    }

    /// A copy with a number that no other copy has, and the same one each time it is made for the same end.
    fn copy(&self, for_: &str) -> HeaderMap {
        let number = format!("{}:{}:{for_}", self.wires.stream, self.sequence);
        fields::copy(&self.headers, &self.message.id, &number)
    }

    /// The same, which says what is known of earlier deliveries.
    fn copy_of_deliveries(&self, for_: &str) -> HeaderMap {
        let mut headers = self.copy(for_);
        if self.may_have_run {
            fields::may_have_run(&mut headers);
        }
        headers
    }

    /// Moves it there. What the copy cannot do without has to fit.
    async fn to(&self, subject: &Subject, mut headers: HeaderMap, spare: &[&'static str]) -> Result<(), NotSettled> {
        let fitted = fit::fit(&mut headers, self.body.len(), self.wires.most(), spare);
        fitted.map_err(|TooLarge| NotSettled::TooLarge)?;
        self.moved(subject, headers).await
    }

    async fn moved(&self, subject: &Subject, headers: HeaderMap) -> Result<(), NotSettled> {
        let copied = self.wires.publish(subject, headers, self.body.clone(), "a copy could not be published").await;
        copied.map_err(|error| NotSettled::Failed(error.into()))?;
        self.wires.say(&self.reply, AckKind::Ack).await
    }

    /// The copy that somebody looks at, which leaves out what would not fit.
    async fn bury(&self, dead: &Dead) -> Result<(), NotSettled> {
        let mut headers = self.copy_of_deliveries("dead");
        dead.write(|name, value| fields::set(&mut headers, name, value));
        let (most, had_id) = (self.wires.most(), fields::has_id(&self.headers));
        let left_out = fit::fit_at_any_price(&mut headers, self.body.len(), most, had_id);
        let left_out = left_out.map_err(|TooLarge| NotSettled::TooLarge)?;
        if !left_out.is_empty() {
            tracing::warn!(
                queue = %self.wires.name, message = %self.message.id, reason = dead.why.as_str(), detail = dead.detail, ?left_out,
                "a dead letter is as large as the server takes: these fields are not on it"
            );
        }
        self.moved(&self.wires.dead.subject, headers).await
    }

    async fn again(&self, after: Duration, counted: bool) -> Result<(), NotSettled> {
        if self.lane == Lane::Dead {
            return self.wires.say(&self.reply, AckKind::Nak((!after.is_zero()).then_some(after))).await;
        }
        let mut headers = self.copy_of_deliveries(&format!("again:{}", self.delivered));
        fields::tried(&mut headers, self.attempt().saturating_sub(u32::from(!counted)));
        if after < AT_ONCE {
            return self.to(&self.wires.line(self.lane).subject, headers, &fit::NUMBERS).await;
        }
        fields::waits(&mut headers, after, self.lane);
        self.to(&self.wires.wait.subject, headers, &fit::NUMBERS).await
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

    /// What was given back is another copy, so that the server delivers a copy again only if nobody said a word; the copies that
    /// are made of it then say so.
    fn may_have_run(&self) -> bool {
        self.may_have_run
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
            Settle::Late => self.to(&self.wires.late.subject, self.copy_of_deliveries("late"), &fit::NUMBERS).await,
            Settle::Redrive(stamp) => {
                let mut headers = self.copy("redrive");
                fields::redriven(&mut headers, stamp);
                self.to(&self.wires.main.subject, headers, &fit::OF_A_REDRIVE).await
            }
            Settle::Dead(dead) => self.bury(dead).await,
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
