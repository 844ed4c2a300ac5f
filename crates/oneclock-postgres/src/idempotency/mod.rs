//! The durable store of `oneclock-idempotency` in a PostgreSQL database.
//!
//! Two ways to use it. With leases (the `Store` trait) the record and the effect live in different places, and a crash
//! between them leaves an unknown. In one transaction (`once`) the record, the business write and the completion commit
//! together, and there is nothing between them.
//!
//! Decides how a step is written: look, ask the core, and write in one statement that compares state and fence; if somebody
//! else was in between, look again. What a record may do is decided in `oneclock_core::idempotency`; how rows look in `table`.

mod once;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oneclock::Operation;
use oneclock_core::Name;
use oneclock_core::idempotency::{
    Claim, Claiming, Enqueue, Enqueued, Enqueueing, Fence, Record, Scope, Stepped, claim, enqueue,
};
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Changes, Found, Kept, Settle, Settled, Store, StoreError, Which};

use self::table::Reads;
use crate::{Client, Pool};

pub use once::{NotOnce, Once};

/// Keeps idempotency records in a PostgreSQL database: the durable store for services on several machines.
///
/// A claim that is answered was committed, by a session whose `synchronous_commit` is not `off`; one whose is gets no claim.
/// What the server makes of a commit is the server's: with `fsync = off`, or after a failover to a replica that was not
/// waited for, an acknowledged record may be gone. Leases are measured by the server's clock, one for all who share it.
///
/// Each call has a budget of its own ([`within`](IdempotencyStoreBuilder::within)) and does not depend on whose operation is
/// current: what became of a run is written whoever has left. Give it a [`Pool`] of its own, so that claims do not queue up
/// behind the queries of handlers. Cheap to clone; all clones are the same store.
///
/// ```no_run
/// # use oneclock_postgres::{IdempotencyStore, Pool}; use oneclock_idempotency::Idempotency;
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let records = Pool::builder("postgres://shop@localhost/shop").size(4).build()?;
/// let store = IdempotencyStore::builder(records).build()?;
/// store.create().await?; // or IdempotencyStore::SCHEMA among the migrations
/// let once = Idempotency::builder("charge", store).one_principal().required().build()?;
/// # drop(once);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct IdempotencyStore {
    pool: Pool,
    within: Duration,
    wait_at_most: Duration,
    clock: Option<Clock>,
    changes: Changes,
}

type Clock = Arc<dyn Fn() -> Wall + Send + Sync>;

/// Builds an [`IdempotencyStore`].
#[must_use = "a store is made by `build`"]
pub struct IdempotencyStoreBuilder(IdempotencyStore);

/// A store cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadStore {
    /// Without time nothing is ever claimed.
    #[error("calls of the idempotency store that may take 0s would never be made: give it a `within`")]
    NoTime,
}

/// The session's commits are not on the disk when they are answered (contract M1).
#[derive(Debug, thiserror::Error)]
#[error(
    "synchronous_commit is off, so a claim that was answered could be lost: set it to on for the role or the database of the \
     idempotency store"
)]
struct NotDurable;

/// The operation of the store's own calls.
const NAME: Name = Name::literal("idempotency");

/// How long one call may take unless said otherwise: what the layer gives a claim.
const DEFAULT_WITHIN: Duration = Duration::from_secs(2);

/// How long a duplicate waits for somebody else's transaction unless said otherwise, if its caller has as much.
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

// === IdempotencyStore ===

impl IdempotencyStore {
    /// The tables, for migrations: what [`create`](Self::create) runs. It may be run again.
    ///
    /// They stand in the first schema of the connection's `search_path`.
    pub const SCHEMA: &str = table::SCHEMA;

    /// Begins a store on the database of `pool`.
    pub fn builder(pool: Pool) -> IdempotencyStoreBuilder {
        let (within, wait_at_most, changes) = (DEFAULT_WITHIN, DEFAULT_WAIT, Changes::new());
        IdempotencyStoreBuilder(Self { pool, within, wait_at_most, clock: None, changes })
    }

    /// Makes the tables, where they are not there yet. Several processes may do so at the same time.
    ///
    /// # Errors
    /// [`StoreError`].
    ///
    /// # Cancel safety
    /// Dropped, they may have been made.
    pub async fn create(&self) -> Result<(), StoreError> {
        let mut client = self.client("create").await?;
        let mut transaction = client.begin().await.map_err(StoreError::failed)?;
        transaction.query_one(table::TAKE_TURNS, &[]).await.map_err(StoreError::failed)?;
        transaction.batch_execute(table::SCHEMA).await.map_err(StoreError::failed)?;
        transaction.commit().await.map_err(StoreError::failed)
    }

    /// A connection, for one call under its own budget.
    async fn client(&self, call: &'static str) -> Result<Client, StoreError> {
        let operation = Operation::begin(NAME, self.within);
        self.pool.get_in(&operation, call).await.map_err(StoreError::failed)
    }

    fn now(&self) -> Option<Wall> {
        self.clock.as_ref().map(|clock| clock())
    }
}

// Between the look and the write of one call less time passes than any record is kept, since no statement begins after the
// call's budget: a record that was not there cannot have come, been settled and been reaped meanwhile.
impl Store for IdempotencyStore {
    async fn claim(&self, scope: &Scope, asked: &Claim) -> Result<Found, StoreError> {
        let mut client = self.client("claim").await?;
        loop {
            let seen = table::read(&mut client, scope, Reads::WithAnswer, self.now()).await?;
            if !seen.is_durable {
                return Err(StoreError::failed(NotDurable));
            }
            let Claiming { write, claimed } = claim(seen.found.as_ref(), seen.floor, asked, seen.now);
            let Some(record) = write else { return Ok(Found { claimed, answer: seen.answer }) };
            if table::write(&mut client, scope, seen.found.as_ref(), &record, None).await? {
                self.changes.changed(scope);
                return Ok(Found { claimed, answer: None });
            }
        }
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        let mut client = self.client("enqueue").await?;
        loop {
            let seen = table::read(&mut client, scope, Reads::Record, self.now()).await?;
            if !seen.is_durable {
                return Err(StoreError::failed(NotDurable));
            }
            let Enqueueing { write, enqueued } = enqueue(seen.found.as_ref(), seen.floor, ask, seen.now);
            let Some(record) = write else { return Ok(enqueued) };
            if table::write(&mut client, scope, seen.found.as_ref(), &record, None).await? {
                self.changes.changed(scope);
                return Ok(enqueued);
            }
        }
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        let mut client = self.client("settle").await?;
        loop {
            let seen = table::read(&mut client, scope, Reads::Record, self.now()).await?;
            let Some(before) = seen.found else { return Ok(Settled::Absent) };
            let stepped = before.step(fence, settle.step(), seen.now);
            let Stepped::Done(record) = stepped else { return Ok(stepped.into()) };
            if !seen.is_durable {
                return Err(StoreError::failed(NotDurable));
            }
            if table::write(&mut client, scope, Some(&before), &record, settle.answer()).await? {
                self.changes.changed(scope);
                return Ok(stepped.into());
            }
        }
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        let mut client = self.client("read").await?;
        let seen = table::read(&mut client, scope, Reads::WithAnswer, self.now()).await?;
        Ok(seen.found.map(|record| Kept { record: record.at(seen.now), answer: seen.answer }))
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        let mut client = self.client("list").await?;
        table::list(&mut client, which, after, limit, self.now()).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        let mut client = self.client("reap").await?;
        table::reap(&mut client, limit, self.now()).await
    }

    fn changes(&self) -> Option<&Changes> {
        Some(&self.changes)
    }
}

impl fmt::Debug for IdempotencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyStore")
            .field("pool", &self.pool)
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

// === IdempotencyStoreBuilder ===

impl IdempotencyStoreBuilder {
    /// How long one call may take, waiting for a connection included; 2 s unless said otherwise.
    pub fn within(mut self, within: Duration) -> Self {
        self.0.within = within;
        self
    }

    /// How long a duplicate waits for the transaction of another at most ([`once`](IdempotencyStore::once)), within what
    /// its caller has left; 10 s unless said otherwise.
    pub fn wait_at_most(mut self, wait: Duration) -> Self {
        self.0.wait_at_most = wait;
        self
    }

    /// Another clock than the server's, by which leases lapse and records expire. For tests; all who share the tables must
    /// agree on it.
    pub fn clock(mut self, clock: impl Fn() -> Wall + Send + Sync + 'static) -> Self {
        self.0.clock = Some(Arc::new(clock));
        self
    }

    /// The store. It asks the server nothing yet.
    ///
    /// # Errors
    /// [`BadStore`].
    pub fn build(self) -> Result<IdempotencyStore, BadStore> {
        if self.0.within.is_zero() { Err(BadStore::NoTime) } else { Ok(self.0) }
    }
}

impl fmt::Debug for IdempotencyStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdempotencyStoreBuilder").field(&self.0).finish()
    }
}
