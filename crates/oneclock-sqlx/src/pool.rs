//! The pool: which limits a call has, and who gets a connection next.
//!
//! Decides that waiting for a connection is first come, first served, bounded, and part of the budget (contract D6), and
//! that nothing is lent where a transaction pooler stands in front of the server (D8). What happens on a connection is
//! `session`'s business.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use oneclock::events::Downstream;
use oneclock::{Call, Caps, NotConnected, Operation, Stopped, clock};
use oneclock_core::statement::PoolerSign;
use oneclock_core::{Cause, Ending, Name, Stage, Tick};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::builder::PoolBuilder;
use crate::conn::{Conn, Counted};
use crate::error::SqlxError;
use crate::guard::{Guard, Named};
use crate::pooler;
use crate::reserve::Reserve;
use crate::session::Session;
use crate::transaction::Transaction;

/// How long opening a connection may take. It goes on when its caller has left: the next one finds it.
const CONNECT_BOUND: Duration = Duration::from_secs(10);

/// A connection that nobody used for so long is asked whether it is still there before it is lent.
const FRESH_FOR: Duration = Duration::from_secs(30);

/// Connections to one PostgreSQL database, each lent to one call at a time. Cheap to clone; all clones are the same pool.
///
/// Calls spend from the current operation's budget, or from that of the operation given. Besides its own connections a
/// pool opens two more, on which it cancels; count them when you set the server's `max_connections`.
///
/// # Differences from `sqlx::PgPool`
/// There, a statement whose caller has gone runs on, and its connection is lost for as long. Here it is cancelled, and its
/// connection serves the next call. There, a connection keeps what its borrower set; here that is taken back.
#[derive(Clone)]
pub struct Pool(pub(crate) Arc<Shared>);

/// How a pool stands at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Connections that are open, lent or not. The reserved ones are not among them.
    pub open: usize,
    /// Of these, the ones that wait for a call.
    pub idle: usize,
    /// Places of the pool that are taken: by a call, or by a connection that is being cancelled, cleaned or opened.
    pub busy: usize,
    /// Calls that wait for a place.
    pub waiting: usize,
    /// Connections given up since the pool was built, because they could not be made whole.
    pub discarded: usize,
}

/// What was configured.
pub(crate) struct Limits {
    pub(crate) size: usize,
    pub(crate) max_waiting: usize,
    pub(crate) caps: Caps,
}

pub(crate) struct Shared {
    pub(crate) reserve: Reserve,
    options: PgConnectOptions,
    limits: Limits,
    looked: OnceLock<Option<PoolerSign>>,
    places: Arc<Semaphore>,                 // fair: first come, first served
    idle: Mutex<Vec<(Conn, Option<Tick>)>>, // each with when it was last seen to be well; `None` is in doubt
    open: Arc<AtomicUsize>,
    waiting: AtomicUsize,
    discarded: AtomicUsize,
}

/// One caller in the queue.
struct InQueue<'a>(&'a AtomicUsize);

/// A connection on its way to whoever asked for it. Not fetched, it goes into the pool.
struct OnItsWay {
    shared: Arc<Shared>,
    conn: Option<Conn>,
}

// === Pool ===

impl Pool {
    /// Begins a pool for the database at `url`, as in `postgres://user:password@host/database`.
    pub fn builder(url: &str) -> PoolBuilder {
        PoolBuilder::new(url.parse())
    }

    /// The same with sqlx's options, for those that a URL cannot say.
    pub fn with_options(options: PgConnectOptions) -> PoolBuilder {
        PoolBuilder::new(Ok(options))
    }

    /// A connection for the statements of one call, within the current operation's budget.
    ///
    /// `&mut guard` is an [`Executor`](sqlx::Executor). All that is done with it, and the time between, is one entry of the
    /// ledger and one event, and ends together.
    ///
    /// # Errors
    /// [`SqlxError`], of outcome [`NotSent`](oneclock_core::Outcome::NotSent).
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue; a connection handed over at that moment goes back unused.
    pub async fn get(&self, name: impl Into<Name>) -> Result<Guard, SqlxError> {
        let name = name.into();
        let operation = self.0.operation(&name)?;
        self.get_in(&operation, name).await
    }

    /// The same, within the budget of `operation`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    /// As [`get`](Self::get).
    pub async fn get_in(&self, operation: &Operation, name: impl Into<Name>) -> Result<Guard, SqlxError> {
        let name = name.into();
        if let Some(sign) = self.0.sign() {
            return Err(SqlxError::Pooler { operation: operation.name().clone(), call: name, sign });
        }
        let (mut call, permit) = self.0.admit(operation, name).await?;
        let (conn, call) = match self.0.take_idle() {
            Some((mut conn, Some(since))) if clock::now().since(since) < FRESH_FOR => {
                conn.permit = Some(permit);
                (conn, call)
            }
            stale => {
                call.enter(Stage::Connect);
                self.0.connected(call, permit, stale.map(|(conn, _)| conn)).await?
            }
        };
        Ok(Guard::new(Session::begin(Arc::clone(&self.0), call, conn)))
    }

    /// An executor for one statement, within the current operation's budget: for where sqlx's own code has `&pool`.
    ///
    /// ```no_run
    /// # async fn f(pool: oneclock_sqlx::Pool) -> Result<(), sqlx::Error> {
    /// let n: i64 = sqlx::query_scalar("SELECT count(*) FROM stock").fetch_one(pool.named("lookup")).await?;
    /// # Ok(()) }
    /// ```
    pub fn named(&self, name: impl Into<Name>) -> Named {
        Named::new(self.clone(), name.into(), None)
    }

    /// The same, within the budget of `operation`.
    pub fn named_in(&self, operation: &Operation, name: impl Into<Name>) -> Named {
        Named::new(self.clone(), name.into(), Some(operation.clone()))
    }

    /// Begins a transaction on a connection of its own, within the current operation's budget. See [`Transaction`].
    ///
    /// # Errors
    /// [`SqlxError`]; nothing was done.
    ///
    /// # Cancel safety
    /// As [`get`](Self::get); what was begun is rolled back.
    pub async fn begin(&self, name: impl Into<Name>) -> Result<Transaction<'static>, SqlxError> {
        Transaction::start_owned(self.get(name).await?).await
    }

    /// The same, within the budget of `operation`.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    ///
    /// # Cancel safety
    /// As [`begin`](Self::begin).
    pub async fn begin_in(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
    ) -> Result<Transaction<'static>, SqlxError> {
        Transaction::start_owned(self.get_in(operation, name).await?).await
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        let idle = self.0.idle().len();
        Status {
            open: self.0.open.load(Ordering::Acquire),
            idle,
            busy: self.0.limits.size.saturating_sub(self.0.places.available_permits()),
            waiting: self.0.waiting.load(Ordering::Acquire),
            discarded: self.0.discarded.load(Ordering::Acquire),
        }
    }

    pub(crate) fn operation(&self, name: &Name) -> Result<Operation, SqlxError> {
        self.0.operation(name)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("size", &self.0.limits.size)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

// === Shared ===

impl Shared {
    pub(crate) fn new(options: PgConnectOptions, limits: Limits) -> Self {
        Self {
            reserve: Reserve::new(options.clone(), limits.size),
            options,
            looked: OnceLock::new(),
            places: Arc::new(Semaphore::new(limits.size)),
            limits,
            idle: Mutex::new(Vec::new()),
            open: Arc::default(),
            waiting: AtomicUsize::new(0),
            discarded: AtomicUsize::new(0),
        }
    }

    /// The current operation, else one of its own with the call's cap (contract C6).
    fn operation(&self, name: &Name) -> Result<Operation, SqlxError> {
        self.limits.caps.operation(name).map_err(SqlxError::stopped)
    }

    /// Begins a call and waits for a place: both spend the budget (contract D6, invariant I4).
    async fn admit(&self, operation: &Operation, name: Name) -> Result<(Call, OwnedSemaphorePermit), SqlxError> {
        let ask = self.limits.caps.ask(&name);
        let mut call = operation.grant(name).ask(ask).to(Downstream::Database).call().map_err(SqlxError::stopped)?;
        call.enter(Stage::Pool);
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok((call, permit)); // it overtakes nobody: a place that becomes free goes to who waits
        }
        let Some(_in_queue) = self.join_queue() else {
            return Err(SqlxError::stopped(refused(call, Cause::Shed)));
        };
        match call.run(Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(permit)) => Ok((call, permit)),
            Ok(Err(_closed)) => Err(SqlxError::stopped(refused(call, Cause::Shutdown))),
            Err(ended) => Err(SqlxError::stopped(ended)),
        }
    }

    fn join_queue(&self) -> Option<InQueue<'_>> {
        let in_queue = InQueue(&self.waiting);
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        (before < self.limits.max_waiting).then_some(in_queue) // one that finds no place is counted out as it goes
    }

    /// A connection that was opened for this call, or an idle one that was found to be still there.
    ///
    /// Opening takes longer than many a budget. So it goes on when the call has ended, and what is opened goes into the
    /// pool: else calls with small budgets would open connections for ever and never have one.
    async fn connected(
        self: &Arc<Self>,
        mut call: Call,
        permit: OwnedSemaphorePermit,
        stale: Option<Conn>,
    ) -> Result<(Conn, Call), SqlxError> {
        let (reply, answer) = oneshot::channel();
        let shared = Arc::clone(self);
        call.operation().shutdown().spawn(async move {
            let opened = tokio::time::timeout(CONNECT_BOUND, shared.establish(permit, stale)).await;
            let opened = opened.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut));
            let _ = reply.send(opened.map(|conn| OnItsWay { shared, conn: Some(conn) }));
        });
        let opened = match call.run(answer).await {
            Ok(opened) => opened.unwrap_or(Err(sqlx::Error::WorkerCrashed)),
            Err(ended) => return Err(SqlxError::stopped(ended)),
        };
        let (operation, name) = (call.operation().name().clone(), call.name().clone());
        let failed = match (opened, self.looked.get()) {
            (Ok(_), Some(Some(sign))) => SqlxError::Pooler { operation, call: name, sign: *sign },
            (Ok(mut on_its_way), _) => match on_its_way.conn.take() {
                Some(conn) => return Ok((conn, call)),
                None => SqlxError::Connect {
                    operation,
                    call: name,
                    source: NotConnected::because(sqlx::Error::WorkerCrashed),
                },
            },
            (Err(source), _) => SqlxError::Connect { operation, call: name, source: NotConnected::because(source) },
        };
        call.close(failed.outcome());
        Err(failed)
    }

    async fn establish(&self, permit: OwnedSemaphorePermit, stale: Option<Conn>) -> Result<Conn, sqlx::Error> {
        let permit = match stale {
            Some(mut conn) => {
                conn.permit = Some(permit);
                match conn.is_there().await {
                    true => return Ok(conn),
                    false => {
                        self.close_the_doubted();
                        self.discard(conn)
                    }
                }
            }
            None => Some(permit),
        };
        // No statement is sent that could not be cancelled.
        self.reserve.stand().await?;
        let mut conn = Conn::open(&self.options, permit, Counted::new(&self.open)).await?;
        if self.looked.get().is_none() {
            let sign = pooler::look(&mut conn.raw, &self.options).await?;
            self.looked.get_or_init(|| sign);
        }
        Ok(conn)
    }

    /// What was found in front of the server, if it was looked for.
    pub(crate) fn sign(&self) -> Option<PoolerSign> {
        self.looked.get().copied().flatten()
    }

    fn take_idle(&self) -> Option<(Conn, Option<Tick>)> {
        self.idle().pop()
    }

    /// Takes a clean connection back.
    pub(crate) fn give_back(&self, mut conn: Conn) {
        let permit = conn.permit.take();
        self.idle().push((conn, Some(clock::now())));
        drop(permit); // after the connection is back: who comes next finds it
    }

    /// Closes one that could not be made whole. The next call that finds none opens another in its place.
    pub(crate) fn discard(&self, mut conn: Conn) -> Option<OwnedSemaphorePermit> {
        self.count_discarded();
        conn.permit.take()
    }

    /// One was closed where it was.
    pub(crate) fn count_discarded(&self) {
        self.discarded.fetch_add(1, Ordering::AcqRel);
    }

    /// A connection broke or stopped answering: those that lie idle may be no better. Each is asked before it is lent, and
    /// the first that does not answer speaks for all: closing them at once would let one call, whose statement does not
    /// listen to cancels, cost all others theirs.
    pub(crate) fn doubt_the_idle(&self) {
        self.idle().iter_mut().for_each(|(_, well)| *well = None);
    }

    fn close_the_doubted(&self) {
        let mut idle = self.idle();
        let doubted: Vec<_> = idle.extract_if(.., |(_, well)| well.is_none()).collect();
        drop(idle);
        self.discarded.fetch_add(doubted.len(), Ordering::AcqRel);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Conn, Option<Tick>)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a call that got no place.
fn refused(mut call: Call, cause: Cause) -> Stopped {
    let at = clock::now();
    let ending = Ending { cause, bound: call.budget().bound.by, stage: call.stage(), at };
    call.cut_off(ending).into()
}

// === InQueue ===

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

// === OnItsWay ===

impl Drop for OnItsWay {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.shared.give_back(conn);
        }
    }
}
