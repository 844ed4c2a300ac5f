//! The client: what can be asked of it.
//!
//! Decides nothing: the order of a call's steps is `call`'s business, what a command needs `command`'s.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use oneclock::Operation;
use oneclock_core::Name;
use redis::{Cmd, FromRedisValue, IntoConnectionInfo, Pipeline};

use crate::builder::RedisBuilder;
use crate::call::Shared;
use crate::error::{Access, RedisError};
use crate::request::{Place, Request};

/// A Redis server, as a client under a budget sees it. Cheap to clone; all clones share their connections.
///
/// Calls spend from the current operation's budget, or from that of the operation given. Ordinary commands share one
/// connection; commands that the server holds back (`BLPOP`, `XREAD BLOCK`) get one of their own. Connections are opened when
/// they are needed.
///
/// # Differences from `redis::aio::MultiplexedConnection`
/// There each command has the connection's response timeout, 500 ms unless something else is set: less than some budgets, and
/// more than others. `BLPOP` on it keeps everybody waiting. A connection that has stalled stays in use. Here the budget decides,
/// and nothing that is left behind delays the next command.
#[derive(Clone)]
pub struct Redis(pub(crate) Arc<Shared>);

/// How a client stands at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Whether the shared connection is open.
    pub connected: bool,
    /// Shared connections opened since the client was built: the first one, and each that replaced one.
    pub opened: usize,
    /// How many of them were given up because they had stalled.
    pub stalled: usize,
    /// Commands on the shared connection that somebody waits for.
    pub in_flight: usize,
    /// Connections of their own that a call or a subscription has.
    pub own: usize,
    /// Connections of their own that wait for a call.
    pub own_idle: usize,
    /// Calls that wait for a place.
    pub waiting: usize,
}

// === Redis ===

impl Redis {
    /// Begins a client of the server at `address`: `redis://[user][:password@]host[:port][/db]`, or `redis+unix:///path`.
    pub fn builder(address: impl IntoConnectionInfo) -> RedisBuilder {
        RedisBuilder::new(address.into_connection_info())
    }

    /// Sends one command, as a call named `name` of the current operation, and waits for its answer.
    ///
    /// The call is one entry of the operation's ledger, with the stages `pool` (waiting for a place, if there is none),
    /// `connect` (if a connection must be opened), and `wait`; and one event. It ends when the operation does, or at the
    /// deadline. What was cut off while it waited for the answer is [`Unknown`](oneclock_core::Outcome::Unknown): the server may do it all
    /// the same. Its late answer is read by nobody, and never by somebody else.
    ///
    /// A command that the server holds back goes over a connection of its own. Its timeout becomes what is left of the
    /// budget, less the way home, if it asks for more or for ever (invariant I2); then the server answers that nothing came.
    /// If the caller leaves before, the server is asked to let go. What `BLPOP`, `BRPOP`, `BZPOPMIN` and `BZPOPMAX` popped at
    /// that moment is put back; the call's event says what is known. Where the server cannot be reached any more, the
    /// connection is closed and the outcome unknown: move what must never be lost (`BLMOVE`, `XREADGROUP`) instead of popping it.
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_redis::{Redis, redis::cmd}; use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let address = oneclock_redis::doc_address();
    /// let redis = Redis::builder(address).cap("lookup", Duration::from_millis(500)).build()?;
    /// let op = Operation::begin("order", Duration::from_secs(5));
    /// let answer = op.run(async { redis.query("lookup", cmd("GET").arg("oneclock-doc:none")).await });
    /// let stock: Option<i64> = answer.await??;
    /// assert_eq!(stock, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RedisError`]; its [`outcome`](RedisError::outcome) says what is known of the server, and
    /// [`may_repeat`](RedisError::may_repeat) whether the call may be repeated. An answer that is there is delivered, also when
    /// it comes a little late.
    ///
    /// # Cancel safety
    /// Not begun until first polled. Dropping it gives up its place; a command that was handed over may still be done, which
    /// the call's event tells as unknown. One that the server holds back is let go, as said above.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn query<T: FromRedisValue>(&self, name: impl Into<Name>, command: &Cmd) -> Result<T, RedisError> {
        let name = name.into();
        let operation = self.0.operation(&name, Access::Writes)?;
        self.query_in(&operation, name, command).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_in<T: FromRedisValue>(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        command: &Cmd,
    ) -> Result<T, RedisError> {
        self.ask(operation, name.into(), Request::one(command)).await
    }

    /// Sends several commands together, as one call of the current operation, and waits for all their answers.
    ///
    /// An [`atomic`](Pipeline::atomic) one is done as a whole or not at all. Of another one that was cut off, or of which a
    /// command failed, a part may have been done: its outcome is unknown, unless all its commands only read.
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_redis::{Redis, redis::pipe}; use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let address = oneclock_redis::doc_address();
    /// let redis = Redis::builder(address).build()?;
    /// let op = Operation::begin("order", Duration::from_secs(5));
    /// let key = "oneclock-doc:pipeline";
    /// let both = pipe().atomic().incr(key, 1).del(key).ignore().to_owned();
    /// let (n,): (i64,) = redis.pipeline_in(&op, "count", &both).await?;
    /// assert_eq!(n, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`query`](Self::query).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn pipeline<T: FromRedisValue>(
        &self,
        name: impl Into<Name>,
        pipeline: &Pipeline,
    ) -> Result<T, RedisError> {
        let name = name.into();
        let operation = self.0.operation(&name, Access::Writes)?;
        self.pipeline_in(&operation, name, pipeline).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn pipeline_in<T: FromRedisValue>(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        pipeline: &Pipeline,
    ) -> Result<T, RedisError> {
        self.ask(operation, name.into(), Request::many(pipeline)).await
    }

    /// How it stands now.
    pub fn status(&self) -> Status {
        let shared = &self.0;
        let (opened, stalled) = shared.common.counts();
        Status {
            connected: shared.common.current().is_some(),
            opened,
            stalled,
            in_flight: shared.max_in_flight - shared.in_flight.available_permits().min(shared.max_in_flight),
            own: shared.own.size - shared.own.places.available_permits().min(shared.own.size),
            own_idle: shared.own.idle_count(),
            waiting: shared.waiting.load(Ordering::Acquire),
        }
    }

    async fn ask<T: FromRedisValue>(
        &self,
        operation: &Operation,
        name: Name,
        request: Request<'_>,
    ) -> Result<T, RedisError> {
        let access = request.access();
        let place = request.needs().map_err(|not| RedisError::NotShared {
            operation: operation.name().clone(),
            call: name.clone(),
            command: not.command,
            instead: not.instead,
        })?;
        let call = self.0.begin(operation, name, access)?;
        // Boxed: what is awaited in there is large, and the futures of callers should not be.
        let value = match place {
            Place::Shared => Box::pin(self.0.on_the_shared(call, request, access)).await?,
            Place::Own => Box::pin(self.0.on_its_own(call, request, access)).await?,
        };
        let (operation, call, value) = value;
        redis::from_redis_value(value).map_err(|source| RedisError::Answer { operation, call, source })
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("place", &self.0.place).field("status", &self.status()).finish_non_exhaustive()
    }
}
