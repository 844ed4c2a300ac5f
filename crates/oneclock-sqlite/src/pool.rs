//! The pool: which limits a call has, and who gets a connection next.
//!
//! Decides that waiting for a connection is first come, first served, bounded, and part of the budget (contract D6). What
//! happens on the connection is `errand`'s business.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::events::Downstream;
use oneclock::{Call, Caps, Operation, Stopped, WithoutOperation};
use oneclock_core::{Cause, Ending, Name, Stage};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::{Place, Settings, Slot, Synchronous};
use crate::errand::Errand;
use crate::error::{BadPool, SqliteError};
use crate::transaction::{self, Decision};

/// How many connections a pool has unless said otherwise. SQLite has one writer at a time whatever the size; the others
/// read.
const DEFAULT_SIZE: usize = 4;

/// How many callers may wait for a connection unless said otherwise.
const DEFAULT_MAX_WAITING: usize = 1_024;

/// How long building a pool waits for a lock on the database.
const BUILD_WAITS: Duration = Duration::from_secs(5);

/// Connections to one SQLite database, each lent to one call at a time. Cheap to clone; all clones are the same pool.
///
/// Calls spend from the current operation's budget, or from that of the operation given. They run on tokio's blocking
/// threads, of which a pool takes at most as many as it has connections.
///
/// # Differences from `spawn_blocking` under `tokio::time::timeout`
/// There the wait ends and the statement runs on, with its lock, for nobody. Here the statement ends too, and its
/// connection serves the next call.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

/// Builds a [`Pool`].
#[derive(Clone, Debug)]
#[must_use = "a pool is made by `build`"]
pub struct PoolBuilder {
    place: Place,
    size: usize,
    max_waiting: usize,
    caps: Caps,
    settings: Settings,
}

/// How a pool stands at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Connections that are open, lent or not.
    pub open: usize,
    /// Of these, the ones that wait for a call.
    pub idle: usize,
    /// Places of the pool that are taken by a call: on a thread, or on its way to one.
    pub busy: usize,
    /// Calls that wait for a place.
    pub waiting: usize,
    /// Connections given up since the pool was built, because they could not be made whole.
    pub discarded: usize,
}

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    place: Place,
    size: usize,
    max_waiting: usize,
    caps: Caps,
    places: Arc<Semaphore>, // fair: first come, first served
    idle: Mutex<Vec<Slot>>,
    open: AtomicUsize,
    waiting: AtomicUsize,
    discarded: AtomicUsize,
    _keeper: Option<Mutex<Connection>>, // a database in memory lives as long as a connection to it
}

/// One caller in the queue.
struct InQueue<'a>(&'a AtomicUsize);

// === Pool ===

impl Pool {
    /// Begins a pool for the database file at `path`, which is made if it is not there. `":memory:"` is a new database in
    /// memory, shared by the connections of this pool and gone with it.
    pub fn builder(path: impl AsRef<Path>) -> PoolBuilder {
        let path = path.as_ref();
        let place = if path == Path::new(":memory:") { Place::memory() } else { Place::File(PathBuf::from(path)) };
        PoolBuilder {
            place,
            size: DEFAULT_SIZE,
            max_waiting: DEFAULT_MAX_WAITING,
            caps: Caps::new(),
            settings: Settings {
                synchronous: Synchronous::default(),
                foreign_keys: true,
                write_ahead_log: true,
                statements_kept: 64,
            },
        }
    }

    /// Runs `work` with a connection, as a call named `name` of the current operation.
    ///
    /// The call is one entry of the operation's ledger, with the stages `pool` (waiting for a connection), `queue` (for a
    /// thread), now and then `connect` (opening one), and `work`; and one event. Its statements end when the operation
    /// does, or at the deadline: a running one is interrupted, one that waits for a lock waits no longer than what is left
    /// (contract D9), and after the end none commits (contract X6).
    ///
    /// Each statement commits by itself, unless `work` opens a transaction; what several must do together or not at all
    /// belongs into [`transaction`](Self::transaction). A transaction that `work` opens and leaves open is rolled back, and
    /// an error; one that it opens, changes rows in and rolls back is its own decision, which the call's event tells as
    /// [`Failed`](oneclock_core::Outcome::Failed) if nothing else was committed. `work` must not replace the connection's busy, progress, commit and rollback
    /// handlers, which the above rests on. Long steps of its own that use no SQL should ask
    /// [`checkpoint`](Operation::checkpoint) of the current operation, which is the one that calls: it knows the deadline,
    /// and not this call's cap.
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_sqlite::Pool; use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder(":memory:").cap("stock", Duration::from_millis(50)).build()?;
    /// let op = Operation::begin("order", Duration::from_millis(800));
    /// let answer = op.run(async { pool.run("stock", |conn| conn.query_row("SELECT 42", [], |row| row.get(0))).await });
    /// let stock: i64 = answer.await??;
    /// assert_eq!(stock, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SqliteError`]; its [`outcome`](SqliteError::outcome) says what is known of the database. A result that is there
    /// is delivered, also when it comes a little late.
    ///
    /// # Cancel safety
    /// Not begun until first polled. Dropping it calls the work off: its place in the queue is given up, a statement is
    /// interrupted, the connection goes back. What came of it is told by the call's event.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn run<T, F>(&self, name: impl Into<Name>, work: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let name = name.into();
        let operation = self.0.operation(&name)?;
        self.run_in(&operation, name, work).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_in<T, F>(&self, operation: &Operation, name: impl Into<Name>, work: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (call, permit) = self.0.admit(operation, name.into()).await?;
        let work = |connection: &mut Connection, armed: &_| transaction::plain(connection, armed, work);
        Errand::run(Arc::clone(&self.0), call, permit, work).await
    }

    /// Runs `work` in a transaction, as a call named `name` of the current operation, and commits it.
    ///
    /// It is rolled back in every other case: `work` failed, panicked, was cut off, or its end came before COMMIT. Then
    /// nothing of it is in the database, and the outcome is proven: [`Rejected`](oneclock_core::Outcome::Rejected), or
    /// [`Failed`](oneclock_core::Outcome::Failed) if it would fail again. From COMMIT on it is not cancelled (contract
    /// D5); one that went through is [`Applied`](oneclock_core::Outcome::Applied), also when its caller has left
    /// meanwhile, which the call's event tells.
    ///
    /// It begins as a writer (`BEGIN IMMEDIATE`), so that waiting for the other writer happens once, at the beginning: a
    /// transaction that reads first and then writes cannot wait, SQLite refuses it at once.
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_sqlite::Pool; use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::builder(":memory:").build()?;
    /// let op = Operation::begin("order", Duration::from_millis(800));
    /// pool.run_in(&op, "schema", |conn| conn.execute_batch("CREATE TABLE charges (cents INTEGER)")).await?;
    /// let charge = op.run(async {
    ///     pool.transaction("charge", |tx| tx.execute("INSERT INTO charges VALUES (?1)", [499])).await
    /// });
    /// assert_eq!(charge.await??, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SqliteError`]; its [`outcome`](SqliteError::outcome) says what is known of the database.
    ///
    /// # Cancel safety
    /// Not begun until first polled. Dropped before COMMIT, it is rolled back; after that it goes through. Which of the two
    /// is told by the call's event.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn transaction<T, F>(&self, name: impl Into<Name>, work: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let name = name.into();
        let operation = self.0.operation(&name)?;
        self.transaction_in(&operation, name, work).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    ///
    /// # Cancel safety
    /// As [`transaction`](Self::transaction).
    pub async fn transaction_in<T, F>(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        work: F,
    ) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.decide_in(operation, name, |tx| work(tx).map(Decision::Commit)).await
    }

    /// Runs a transaction whose work decides whether it is committed, as a call of `operation`. The event of one that was
    /// rolled back by that decision says [`Failed`](oneclock_core::Outcome::Failed): definitely not done.
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_sqlite::{Decision, Pool}; use std::time::Duration;
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = Pool::builder(":memory:").build()?;
    /// # let op = Operation::begin("order", Duration::from_millis(800));
    /// # pool.run_in(&op, "schema", |conn| conn.execute_batch("CREATE TABLE stock (n INTEGER); INSERT INTO stock VALUES (0)")).await?;
    /// let sold = pool.decide_in(&op, "sell", |tx| {
    ///     tx.execute("UPDATE stock SET n = n - 1", [])?;
    ///     let left: i64 = tx.query_row("SELECT n FROM stock", [], |row| row.get(0))?;
    ///     Ok(if left < 0 { Decision::RollBack(false) } else { Decision::Commit(true) })
    /// });
    /// assert!(!sold.await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    ///
    /// # Cancel safety
    /// As [`transaction`](Self::transaction).
    pub async fn decide_in<T, F>(&self, operation: &Operation, name: impl Into<Name>, work: F) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> rusqlite::Result<Decision<T>> + Send + 'static,
    {
        let (call, permit) = self.0.admit(operation, name.into()).await?;
        let work = |connection: &mut Connection, armed: &_| {
            transaction::transaction(connection, armed, TransactionBehavior::Immediate, work)
        };
        Errand::run(Arc::clone(&self.0), call, permit, work).await
    }

    /// How it stands now.
    pub fn status(&self) -> Status {
        let shared = &self.0;
        Status {
            open: shared.open.load(Ordering::Acquire),
            idle: shared.idle().len(),
            busy: shared.size - shared.places.available_permits().min(shared.size),
            waiting: shared.waiting.load(Ordering::Acquire),
            discarded: shared.discarded.load(Ordering::Acquire),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("place", &self.0.place).field("status", &self.status()).finish_non_exhaustive()
    }
}

// === PoolBuilder ===

impl PoolBuilder {
    /// The most connections that are open at the same time; 4 unless said otherwise. They are opened when needed.
    pub fn size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// The most calls that may wait for a connection; 1024 unless said otherwise. One more is refused at once, as shed
    /// for load ([`Reason::Shed`](oneclock_core::Reason::Shed)).
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = max_waiting;
        self
    }

    /// The most that one call named `name` may spend, all its waiting included. It can shorten, never extend (invariant
    /// I3). Calls of other names get what their operation leaves.
    pub fn cap(mut self, name: impl Into<Name>, cap: Duration) -> Self {
        self.caps.cap(name, cap);
        self
    }

    /// What operations keep back from each call: for their later steps and for the way home.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.caps.reserve(reserve);
        self
    }

    /// The least that is useful for a call; 5 ms unless said otherwise. With less left it is not begun.
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.caps.min_useful(min_useful);
        self
    }

    /// How far commits wait for the disk; [`Synchronous::Normal`] unless said otherwise.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.settings.synchronous = synchronous;
        self
    }

    /// Whether foreign keys are enforced; they are unless said otherwise.
    pub fn foreign_keys(mut self, enforced: bool) -> Self {
        self.settings.foreign_keys = enforced;
        self
    }

    /// Keeps the database's own journal mode. Unless this is said a file gets a write-ahead log, where readers and the
    /// writer do not wait for each other.
    pub fn keep_journal_mode(mut self) -> Self {
        self.settings.write_ahead_log = false;
        self
    }

    /// How many prepared statements each connection keeps (`prepare_cached`); 64 unless said otherwise.
    pub fn statements_kept(mut self, statements: usize) -> Self {
        self.settings.statements_kept = statements;
        self
    }

    /// Refuses calls where no operation is current. Unless this is said they get their cap, or 10 s, and a warning is
    /// logged once (contract C6).
    pub fn require_operation(mut self) -> Self {
        self.caps.without_operation(WithoutOperation::Require);
        self
    }

    /// The pool. Opens one connection, so that a database that cannot be used shows when a service starts; that blocks
    /// the thread for a moment.
    ///
    /// # Errors
    /// [`BadPool`], which names what contradicts what, or why the database cannot be opened.
    pub fn build(mut self) -> Result<Pool, BadPool> {
        if self.size == 0 {
            return Err(BadPool::NoConnections);
        }
        if self.size > Semaphore::MAX_PERMITS {
            return Err(BadPool::TooManyConnections { size: self.size, most: Semaphore::MAX_PERMITS });
        }
        if self.max_waiting == 0 {
            return Err(BadPool::NoPlaces);
        }
        self.caps.check().map_err(|(call, source)| BadPool::Cap { call, source })?;
        if matches!(self.place, Place::Memory(_)) {
            self.place = Place::memory(); // each pool its own, also of builders that were cloned
        }
        let (first, keeper) = self.first().map_err(|source| BadPool::Open { place: self.place.to_string(), source })?;
        Ok(Pool(Arc::new(Shared {
            settings: self.settings,
            place: self.place,
            size: self.size,
            max_waiting: self.max_waiting,
            caps: self.caps,
            places: Arc::new(Semaphore::new(self.size)),
            idle: Mutex::new(vec![first]),
            open: AtomicUsize::new(1),
            waiting: AtomicUsize::new(0),
            discarded: AtomicUsize::new(0),
            _keeper: keeper.map(Mutex::new),
        })))
    }

    fn first(&self) -> rusqlite::Result<(Slot, Option<Connection>)> {
        let slot = self.place.open()?;
        slot.connection.busy_timeout(BUILD_WAITS)?;
        self.settings.apply(&slot.connection)?;
        slot.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        let keeper = match self.place {
            Place::File(_) => None,
            Place::Memory(_) => Some(self.place.open()?.connection),
        };
        Ok((slot, keeper))
    }
}

// === Shared ===

impl Shared {
    /// The current operation, else one of its own with the call's cap (contract C6).
    fn operation(&self, name: &Name) -> Result<Operation, SqliteError> {
        self.caps.operation(name).map_err(SqliteError::stopped)
    }

    /// Begins a call and waits for a place: both spend the budget (contract D6, invariant I4).
    async fn admit(&self, operation: &Operation, name: Name) -> Result<(Call, OwnedSemaphorePermit), SqliteError> {
        let ask = self.caps.ask(&name);
        let mut call = operation.grant(name).ask(ask).to(Downstream::Database).call().map_err(SqliteError::stopped)?;
        call.enter(Stage::Pool);
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok((call, permit)); // it overtakes nobody: a place that becomes free goes to who waits
        }
        let Some(_in_queue) = self.join_queue() else {
            return Err(SqliteError::stopped(refused(call, Cause::Shed)));
        };
        match call.run(Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(permit)) => Ok((call, permit)),
            Ok(Err(_closed)) => Err(SqliteError::stopped(refused(call, Cause::Shutdown))),
            Err(ended) => Err(SqliteError::stopped(ended)),
        }
    }

    fn join_queue(&self) -> Option<InQueue<'_>> {
        let in_queue = InQueue(&self.waiting);
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        (before < self.max_waiting).then_some(in_queue) // one that finds no place is counted out as it goes
    }

    pub(crate) fn take_idle(&self) -> Option<Slot> {
        self.idle().pop()
    }

    pub(crate) fn open(&self) -> rusqlite::Result<Slot> {
        let slot = self.place.open()?;
        self.open.fetch_add(1, Ordering::AcqRel);
        Ok(slot)
    }

    /// Takes a connection back, whole, or gives it up: the next call that finds none opens another.
    pub(crate) fn give_back(&self, slot: Slot, disturbed: bool) {
        if self.settings.heal(&slot.connection, disturbed) {
            self.idle().push(slot);
        } else {
            self.discard(slot);
        }
    }

    pub(crate) fn discard(&self, slot: Slot) {
        drop(slot); // closes it, which rolls back
        self.open.fetch_sub(1, Ordering::AcqRel);
        self.discarded.fetch_add(1, Ordering::AcqRel);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a call that got no place.
fn refused(mut call: Call, cause: Cause) -> Stopped {
    let at = oneclock::clock::now();
    let ending = Ending { cause, bound: call.budget().bound.by, stage: call.stage(), at };
    call.cut_off(ending).into()
}

// === InQueue ===

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
