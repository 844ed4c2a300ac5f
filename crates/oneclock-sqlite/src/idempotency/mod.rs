//! The durable store of `oneclock-idempotency` in a file of its own.
//!
//! Decides how it is opened, and who waits for what: one thread writes, many requests share each of its commits, and nothing
//! is acknowledged before the commit that holds it was synced (contract M1). What a record may do is decided in
//! `oneclock_core::idempotency`; how rows look in `table`; how commits are grouped in `writer`.

mod table;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use oneclock::clock;
use oneclock_core::idempotency::{Claim, Claimed, Enqueue, Enqueued, Fence, Record, Scope};
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Changes, Found, Kept, Settle, Settled, Store, StoreError, Which};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use self::writer::{Command, Reply, Writer};

/// Keeps idempotency records in an SQLite file: the durable default for one machine.
///
/// A claim that is answered is on the disk (`synchronous = FULL`, write-ahead log). The disk's wait is shared: all that is
/// asked while one commit is being synced goes into the next. The file may be opened by several processes of one machine;
/// their claims and fences agree. Give it a file of its own: each commit of somebody else's tables would be one more that
/// claims wait for.
///
/// Cheap to clone; all clones are the same store. When the last one goes, what was asked is still written, and its drop waits
/// for that: some milliseconds.
///
/// ```
/// # use oneclock_sqlite::IdempotencyStore; use oneclock_idempotency::Idempotency; use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("oneclock-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("idempotency.sqlite");
/// let store = IdempotencyStore::builder(path).build()?;
/// let once = Idempotency::builder("charge", store).one_principal().required().build()?;
/// # drop(once);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct IdempotencyStore(Arc<Shared>);

/// Builds an [`IdempotencyStore`].
#[must_use = "a store is made by `build`"]
pub struct IdempotencyStoreBuilder {
    path: PathBuf,
    queue: usize,
    batch: usize,
    busy_for: Duration,
    clock: Box<dyn Fn() -> Wall + Send>,
}

/// A store cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadStore {
    /// A queue or a commit without places would take nothing.
    #[error("a queue of {queue} and commits of {batch} would take nothing: give each at least 1")]
    NoPlaces {
        /// The places of the queue.
        queue: usize,
        /// The most that one commit holds.
        batch: usize,
    },
    /// The file cannot be opened or set up.
    #[error("cannot open the idempotency store {}", path.display())]
    Open {
        /// Where it is.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// It has no write-ahead log: a database in memory, or a file system that cannot share memory. What it acknowledges
    /// would not be known to be on the disk (contract M1).
    #[error(
        "the idempotency store {} has journal mode {mode} instead of a write-ahead log, so its claims would not be durable: \
         give it a file on a local disk",
        path.display()
    )]
    NotDurable {
        /// Where it is.
        path: PathBuf,
        /// The journal mode that it has.
        mode: String,
    },
    /// The thread cannot be started, or the folder not synced.
    #[error("cannot start the idempotency store {}", path.display())]
    Start {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// What the writer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commits {
    /// Transactions that were synced.
    pub commits: u64,
    /// Claims, completions and so on that they held.
    pub held: u64,
}

struct Shared {
    queue: Option<mpsc::Sender<Command>>, // taken in drop, so that the writer comes to its end
    places: usize,
    writer: Option<JoinHandle<()>>,
    counts: Arc<Counts>,
    changes: Changes,
}

#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    held: AtomicU64,
}

/// How many requests may wait for the writer unless said otherwise.
const DEFAULT_QUEUE: usize = 4_096;

/// How many of them one commit holds at most, unless said otherwise.
const DEFAULT_BATCH: usize = 256;

/// How long the writer waits for another process's commit unless said otherwise.
const DEFAULT_BUSY: Duration = Duration::from_secs(1);

// === IdempotencyStore ===

impl IdempotencyStore {
    /// Begins a store in the file at `path`, which is made if it is not there.
    ///
    /// Unless said otherwise 4096 requests may wait, a commit holds up to 256 of them, and another process's commit is waited
    /// for up to 1 s.
    pub fn builder(path: impl AsRef<Path>) -> IdempotencyStoreBuilder {
        IdempotencyStoreBuilder {
            path: path.as_ref().to_owned(),
            queue: DEFAULT_QUEUE,
            batch: DEFAULT_BATCH,
            busy_for: DEFAULT_BUSY,
            clock: Box::new(clock::wall),
        }
    }

    /// What the writer has done so far.
    pub fn commits(&self) -> Commits {
        let counts = &self.0.counts;
        Commits { commits: counts.commits.load(Ordering::Relaxed), held: counts.held.load(Ordering::Relaxed) }
    }

    /// Asks the writer, if the queue has a place.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let queue = self.0.queue.as_ref().ok_or(StoreError::Closed)?;
        queue.try_send(command(reply)).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => StoreError::Full { places: self.0.places },
            mpsc::error::TrySendError::Closed(_) => StoreError::Closed,
        })?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Store for IdempotencyStore {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        let found = self.ask(|reply| Command::Claim { scope: scope.clone(), claim: *claim, reply }).await?;
        if matches!(found.claimed, Claimed::Run { .. }) {
            self.0.changes.changed(scope);
        }
        Ok(found)
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        let enqueued = self.ask(|reply| Command::Enqueue { scope: scope.clone(), ask: *ask, reply }).await?;
        if matches!(enqueued, Enqueued::Queued { is_new: true, .. }) {
            self.0.changes.changed(scope);
        }
        Ok(enqueued)
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        let settled = self.ask(|reply| Command::Settle { scope: scope.clone(), fence, settle, reply }).await?;
        if settled == Settled::Done {
            self.0.changes.changed(scope);
        }
        Ok(settled)
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        self.ask(|reply| Command::Read { scope: scope.clone(), reply }).await
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        self.ask(|reply| Command::List { which, after: after.cloned(), limit, reply }).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.ask(|reply| Command::Reap { limit, reply }).await
    }

    fn changes(&self) -> Option<&Changes> {
        Some(&self.0.changes)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join(); // a panic of it was printed where it happened
        }
    }
}

impl fmt::Debug for IdempotencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyStore").field("commits", &self.commits()).finish_non_exhaustive()
    }
}

// === IdempotencyStoreBuilder ===

impl IdempotencyStoreBuilder {
    /// How many requests may wait for the writer; what finds no place is refused (contract M6).
    pub fn queue(mut self, places: usize) -> Self {
        self.queue = places;
        self
    }

    /// How many requests one commit holds at most. With 1 each pays for a disk of its own.
    pub fn batch(mut self, most: usize) -> Self {
        self.batch = most;
        self
    }

    /// How long the writer waits for another process's commit.
    pub fn busy_for(mut self, busy_for: Duration) -> Self {
        self.busy_for = busy_for;
        self
    }

    /// The clock by which leases lapse and records expire: the wall clock unless said otherwise. For tests; all processes
    /// that share the file must agree on it.
    pub fn clock(mut self, clock: impl Fn() -> Wall + Send + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// The store. Blocks the thread for a moment.
    ///
    /// # Errors
    /// [`BadStore`].
    pub fn build(self) -> Result<IdempotencyStore, BadStore> {
        let Self { path, queue, batch, busy_for, clock } = self;
        if queue == 0 || queue > tokio::sync::Semaphore::MAX_PERMITS || batch == 0 {
            return Err(BadStore::NoPlaces { queue, batch });
        }
        let connection = open(&path, busy_for)
            .map_err(|source| BadStore::Open { path: path.clone(), source })?
            .map_err(|mode| BadStore::NotDurable { path: path.clone(), mode })?;
        // The file's own name must survive a crash as well.
        let synced = match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => sync_folder(Path::new(".")),
            Some(folder) => sync_folder(folder),
            None => Ok(()),
        };
        let start = |source| BadStore::Start { path: path.clone(), source };
        synced.map_err(start)?;
        let (sender, receiver) = mpsc::channel(queue);
        let counts = Arc::new(Counts::default());
        let writer = Writer { connection, batch, clock, counts: Arc::clone(&counts) };
        let thread = std::thread::Builder::new().name("idempotency".to_owned());
        let writer = thread.spawn(move || writer.run(receiver)).map_err(start)?;
        let (queue, places, writer, changes) = (Some(sender), queue, Some(writer), Changes::new());
        Ok(IdempotencyStore(Arc::new(Shared { queue, places, writer, counts, changes })))
    }
}

/// The connection, or the journal mode that it has instead of a write-ahead log.
fn open(path: &Path, busy_for: Duration) -> rusqlite::Result<Result<Connection, String>> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(busy_for)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Ok(Err(mode)); // a database in memory, or a file system that has no write-ahead log: not what M1 rests on
    }
    connection.pragma_update(None, "synchronous", "full")?; // also of a write-ahead log: each commit is synced
    connection.pragma_update(None, "fullfsync", true)?; // where a plain sync leaves it in the disk's own memory
    connection.set_prepared_statement_cache_capacity(16);
    table::create(&connection)?;
    Ok(Ok(connection))
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { std::fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

impl fmt::Debug for IdempotencyStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyStoreBuilder")
            .field("path", &self.path)
            .field("queue", &self.queue)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}
