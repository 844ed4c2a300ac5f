//! A subscription: a connection of its own on which the server speaks unasked, for as long as its operation lives.
//!
//! Decides that messages that nobody takes wait in a queue with a bound, and that one beyond it ends the subscription: a holder
//! that is too slow is told, instead of getting messages with a hole in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oneclock::{Call, Operation};
use oneclock_core::{Name, Outcome, Stage};
use redis::{PushInfo, PushKind};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::call::{NoLine, stopped};
use crate::client::Redis;
use crate::error::{Access, RedisError};
use crate::line::{Line, Pushes};

/// How many messages wait for the holder at most.
const WAITING_MESSAGES: usize = 1_024;

/// One message that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel it was published on.
    pub channel: String,
    /// The pattern that it came through, if it was one.
    pub pattern: Option<String>,
    /// What was published.
    pub payload: Vec<u8>,
}

/// Messages of some channels, until its operation ends. Dropping it closes its connection.
#[derive(Debug)]
pub struct Subscription {
    call: Option<Call>, // none once it has ended
    messages: mpsc::Receiver<Message>,
    overrun: Arc<AtomicBool>,
    line: Option<Line>,
    _place: OwnedSemaphorePermit,
}

// === Redis ===

impl Redis {
    /// Subscribes to channels, as a call named `name` of the current operation; else as [`subscribe_in`](Self::subscribe_in).
    ///
    /// # Errors
    /// [`RedisError`].
    ///
    /// # Cancel safety
    /// Dropping it closes the connection.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn subscribe(&self, name: impl Into<Name>, channels: &[&str]) -> Result<Subscription, RedisError> {
        let name = name.into();
        let operation = self.0.operation(&name, Access::Reads)?;
        self.subscribe_in(&operation, name, channels).await
    }

    /// Subscribes to channels, as a call named `name` of `operation`, and returns once the server has confirmed it.
    ///
    /// A name with one of the wildcards `*`, `?` and `[` is a pattern. The subscription is one call for all its life: it ends
    /// with the operation, or at the cap of its name. It needs RESP3 (Redis 6 or later), and takes one of the connections of
    /// [`own_connections`](crate::RedisBuilder::own_connections).
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_redis::{Redis, redis::cmd}; use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let address = oneclock_redis::doc_address();
    /// let redis = Redis::builder(address).build()?;
    /// let op = Operation::begin("follow-prices", Duration::from_secs(60));
    /// let mut prices = redis.subscribe_in(&op, "prices", &["oneclock-doc:prices"]).await?;
    /// redis.query_in::<i64>(&op, "publish", cmd("PUBLISH").arg("oneclock-doc:prices").arg("499")).await?;
    /// let message = prices.next().await?.ok_or("the server has gone")?;
    /// assert_eq!(message.payload, b"499");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RedisError`].
    ///
    /// # Cancel safety
    /// Dropping it closes the connection.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn subscribe_in(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        channels: &[&str],
    ) -> Result<Subscription, RedisError> {
        let (shared, access) = (&self.0, Access::Reads);
        let mut call = shared.begin(operation, name.into(), access)?;
        let place = shared.place(&mut call, &shared.own.places, access).await?;
        let (sender, messages) = mpsc::channel(WAITING_MESSAGES);
        let overrun = Arc::new(AtomicBool::new(false));
        let connect = shared.target.connect_for_pushes(pushes(sender, Arc::clone(&overrun)));
        let line = match Box::pin(shared.own_line(&mut call, connect)).await {
            Ok(line) => line,
            Err(none) => return Err(none.error(call, access)),
        };
        call.enter(Stage::Wait);
        let (patterns, channels): (Vec<&str>, Vec<&str>) =
            channels.iter().partition(|channel| channel.contains(['*', '?', '[']));
        match call.run(Box::pin(line.subscribe(&channels, &patterns))).await {
            Ok(Ok(())) => {
                call.enter(Stage::Body);
                Ok(Subscription { call: Some(call), messages, overrun, line: Some(line), _place: place })
            }
            Ok(Err(error)) => Err(NoLine::Failed(error).error(call, access)),
            Err(ended) => Err(stopped(ended, access)),
        }
    }
}

/// Sorts messages from the rest of what is pushed, and never waits: the connection would wait with it.
fn pushes(sender: mpsc::Sender<Message>, overrun: Arc<AtomicBool>) -> Pushes {
    let sender = std::sync::Mutex::new(Some(sender));
    Arc::new(move |push| {
        let mut sender = sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_over = match (push.kind.clone(), message(push)) {
            (PushKind::Disconnection, _) => true,
            (_, Some(message)) => match sender.as_ref().map(|sender| sender.try_send(message)) {
                Some(Err(mpsc::error::TrySendError::Full(_))) => {
                    overrun.store(true, Ordering::Release);
                    true
                }
                Some(Err(mpsc::error::TrySendError::Closed(_))) | None => true,
                Some(Ok(())) => false,
            },
            (_, None) => false,
        };
        if is_over {
            *sender = None; // what waits is still delivered, and then the end
        }
    })
}

fn message(push: PushInfo) -> Option<Message> {
    let mut data = push.data.into_iter();
    let mut text = || data.next().and_then(|value| redis::from_redis_value::<String>(value).ok());
    let (pattern, channel) = match push.kind {
        PushKind::Message => (None, text()?),
        PushKind::PMessage => (Some(text()?), text()?),
        _ => return None,
    };
    let payload = redis::from_redis_value(data.next()?).ok()?;
    Some(Message { channel, pattern, payload })
}

// === Subscription ===

impl Subscription {
    /// The next message; `None` once the server has closed the connection.
    ///
    /// # Errors
    /// [`RedisError::Stopped`] when the operation ends; [`RedisError::Overrun`] when more messages came than were taken, after
    /// those that waited.
    ///
    /// # Cancel safety
    /// No message is lost by dropping it.
    pub async fn next(&mut self) -> Result<Option<Message>, RedisError> {
        let Some(call) = &mut self.call else { return Ok(None) };
        match call.run(self.messages.recv()).await {
            Ok(Some(message)) => Ok(Some(message)),
            Ok(None) => {
                let (operation, name) = (call.operation().name().clone(), call.name().clone());
                self.end(Outcome::Applied);
                if self.overrun.load(Ordering::Acquire) {
                    return Err(RedisError::Overrun { operation, call: name, limit: WAITING_MESSAGES });
                }
                Ok(None)
            }
            Err(ended) => {
                self.call = None; // its event says that it was cut off
                self.line = None;
                Err(stopped(ended, Access::Reads))
            }
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.line = None;
        if let Some(call) = self.call.take() {
            call.close(outcome);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Given up by whoever held it, unless the operation has ended.
        if self.call.as_ref().is_some_and(|call| call.ending().is_none()) {
            self.end(Outcome::Applied);
        }
    }
}
