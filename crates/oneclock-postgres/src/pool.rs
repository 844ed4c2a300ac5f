//! The pool: which limits a call has, who gets a connection next, and where connections go afterwards.
//!
//! Decides that waiting for a connection is first come, first served, bounded, and part of the budget (contract D6). What
//! happens on the connection is `session`'s business, what happens after it was cut off `reaper`'s.

mod lending;
mod transact;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use oneclock::{Caps, Operation};
use oneclock_core::statement::PoolerSign;
use oneclock_core::{Name, Tick};
use tokio::sync::Semaphore;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use tokio_util::task::TaskTracker;

use crate::builder::PoolBuilder;
use crate::connect::Connector;
use crate::error::PgError;
use crate::link::{Link, Query};
use crate::session::Client;

/// Connections to one PostgreSQL database, each lent to one call at a time. Cheap to clone; all clones are the same pool.
///
/// Calls spend from the current operation's budget, or from that of the operation given. At its end, or when whoever waits
/// has left, the running statement is cancelled on the server, and its connection serves others only when that is settled.
///
/// # Differences from `deadpool_postgres::Pool` under `tokio::time::timeout`
/// There the wait ends and the statement runs on, and the next borrower of the connection waits behind it. Here the
/// statement ends too.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

/// How a pool stands at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Connections that are open, lent or not.
    pub open: usize,
    /// Of these, the ones that wait for a call.
    pub idle: usize,
    /// Places of the pool that are taken: by a call, or by what is left of one.
    pub busy: usize,
    /// Calls that wait for a place.
    pub waiting: usize,
    /// Tasks that make connections free again, or see a COMMIT through.
    pub settling: usize,
    /// Cancels sent since the pool was built.
    pub cancels_sent: usize,
    /// Connections given up since then.
    pub discarded: usize,
}

pub(crate) struct Shared {
    pub(crate) connector: Box<dyn Connector>,
    pub(crate) slack: Duration,
    pub(crate) grace: Duration,
    pub(crate) commit_bound: Duration,
    pub(crate) cancels: Semaphore,
    pub(crate) cancels_sent: AtomicUsize,
    pub(crate) pooler: OnceLock<PoolerSign>,
    size: usize,
    max_waiting: usize,
    caps: Caps,
    statements_kept: usize,
    refused_since: Mutex<Option<Tick>>, // nobody has listened there since then
    places: Arc<Semaphore>,             // fair: first come, first served
    idle: Mutex<Vec<Link>>,
    open: Arc<AtomicUsize>,
    waiting: AtomicUsize,
    discarded: AtomicUsize,
    tasks: TaskTracker,
}

/// One caller in the queue.
struct InQueue<'a>(&'a AtomicUsize);

// === Pool ===

impl Pool {
    /// Begins a pool for the database of a connection string: `postgres://user:password@host:5432/database`, or
    /// `host=… user=… dbname=…`. It is read by `build`.
    pub fn builder(dsn: impl Into<String>) -> PoolBuilder {
        let dsn = dsn.into();
        PoolBuilder::new(dsn.parse().map_err(|_| dsn))
    }

    /// The same, for a configuration that was put together by code.
    pub fn configured(config: tokio_postgres::Config) -> PoolBuilder {
        PoolBuilder::new(Ok(config))
    }

    pub(crate) fn of(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Borrows a connection for a call named `name` of the current operation. The wait spends its budget and ends with it
    /// (contract D6).
    ///
    /// The call is everything until the [`Client`] is dropped: one entry of the operation's ledger with the stages `pool`
    /// (waiting for a connection), now and then `connect` (opening one), `work`, and `wait` from the first statement on; and
    /// one event. A cap for `name` counts from here.
    ///
    /// # Errors
    /// [`PgError::Stopped`] when the end comes first, [`PgError::Connect`] when no session can be opened. A server that has no
    /// room or is starting is asked again as long as the budget lasts; one where nobody listens for half of it, and for a second
    /// in all, after which everybody is told at once. Nothing was sent:
    /// [`Outcome::NotSent`](oneclock_core::Outcome::NotSent).
    ///
    /// # Cancel safety
    /// Dropping it gives up the place in the queue; a connection handed over at that moment goes back unused.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn get(&self, name: impl Into<Name>) -> Result<Client, PgError> {
        let name = name.into();
        let operation = self.0.operation(&name)?;
        self.get_in(&operation, name).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    /// As [`get`](Self::get).
    pub async fn get_in(&self, operation: &Operation, name: impl Into<Name>) -> Result<Client, PgError> {
        let (call, held) = self.0.lend(operation, name.into()).await?;
        Ok(Client::new(Arc::clone(&self.0), call, held))
    }

    /// Runs `work` with a connection, as a call named `name` of the current operation.
    ///
    /// ```no_run
    /// # use oneclock_postgres::{Pool, PgError};
    /// # async fn stock(pool: &Pool) -> Result<i64, PgError> {
    /// pool.run("stock", async |client| {
    ///     client.query_one("SELECT count(*) FROM stock", &[]).await.map(|row| row.get(0))
    /// }).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `work` returns, and those of [`get`](Self::get).
    ///
    /// # Cancel safety
    /// Dropping it calls the work off: its statement is cancelled, the connection goes back.
    pub async fn run<T, E>(
        &self,
        name: impl Into<Name>,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<PgError>,
    {
        work(&mut self.get(name).await?).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_in<T, E>(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<PgError>,
    {
        work(&mut self.get_in(operation, name).await?).await
    }

    /// All rows of one statement, as a call named `name` of the current operation.
    ///
    /// # Errors
    /// [`PgError`]; its [`outcome`](PgError::outcome) says what is known of the database.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server.
    pub async fn query<'a>(
        &self,
        name: impl Into<Name>,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        self.get(name).await?.query(sql, params).await
    }

    /// The one row of one statement, as a call named `name` of the current operation.
    ///
    /// # Errors
    /// As [`query`](Self::query), and [`PgError::Rows`].
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_one<'a>(
        &self,
        name: impl Into<Name>,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, PgError> {
        self.get(name).await?.query_one(sql, params).await
    }

    /// The one row of one statement, or none, as a call named `name` of the current operation.
    ///
    /// # Errors
    /// As [`query_one`](Self::query_one).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_opt<'a>(
        &self,
        name: impl Into<Name>,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, PgError> {
        self.get(name).await?.query_opt(sql, params).await
    }

    /// Runs one statement, as a call named `name` of the current operation. How many rows it touched.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn execute<'a>(
        &self,
        name: impl Into<Name>,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, PgError> {
        self.get(name).await?.execute(sql, params).await
    }

    /// How it stands now.
    pub fn status(&self) -> Status {
        let shared = &self.0;
        Status {
            open: shared.open.load(Ordering::Acquire),
            idle: shared.idle().len(),
            busy: shared.size - shared.places.available_permits().min(shared.size),
            waiting: shared.waiting.load(Ordering::Acquire),
            settling: shared.tasks.len(),
            cancels_sent: shared.cancels_sent.load(Ordering::Acquire),
            discarded: shared.discarded.load(Ordering::Acquire),
        }
    }

    /// Lends nothing any more, and waits until cancels and commits under way are settled; each has its bound. Calls that
    /// wait for a place end as at a shutdown; what is lent is closed when it comes back.
    ///
    /// The shutdown of the operations waits for the same tasks by itself, so a service that drains needs no close.
    ///
    /// # Cancel safety
    /// Dropped, the pool is closed all the same; only the wait is over.
    pub async fn close(&self) {
        self.0.places.close();
        self.0.idle().clear();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("status", &self.status()).finish_non_exhaustive()
    }
}

// === InQueue ===

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
