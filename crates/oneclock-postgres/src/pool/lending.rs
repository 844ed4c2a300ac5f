//! Lending: a place, a connection for it, and the way back.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use oneclock::events::Downstream;
use oneclock::{Call, Ended, NotConnected, Operation, clock};
use oneclock_core::{Cause, Ending, Name, Outcome, Stage, Tick};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use super::{InQueue, Shared};
use crate::builder::PoolBuilder;
use crate::connect::Connector;
use crate::error::{ConnectError, PgError};
use crate::link::{Conn, Held, Link};

/// The pause before a server without room is asked again, doubled each time.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_AT_MOST: Duration = Duration::from_millis(200);

/// How long a server where nobody listens is taken to be starting again. Counted for the pool: its callers do not each find out
/// for themselves that it is down.
const REFUSED_AT_MOST: Duration = Duration::from_secs(1);

impl Shared {
    pub(crate) fn new(builder: PoolBuilder, connector: Box<dyn Connector>) -> Self {
        Self {
            connector,
            slack: builder.slack,
            grace: builder.grace,
            commit_bound: builder.commit_bound,
            cancels: Semaphore::new(builder.cancels_in_flight.min(Semaphore::MAX_PERMITS)),
            cancels_sent: AtomicUsize::new(0),
            pooler: OnceLock::new(),
            size: builder.size,
            max_waiting: builder.max_waiting,
            caps: builder.caps,
            statements_kept: builder.statements_kept,
            refused_since: Mutex::default(),
            places: Arc::new(Semaphore::new(builder.size)),
            idle: Mutex::default(),
            open: Arc::default(),
            waiting: AtomicUsize::new(0),
            discarded: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
        }
    }

    /// The current operation, else one of its own with the call's cap (contract C6).
    pub(crate) fn operation(&self, name: &Name) -> Result<Operation, PgError> {
        self.caps.operation(name).map_err(PgError::stopped)
    }

    /// Begins a call and finds it a connection: both spend the budget (contract D6, invariant I4).
    pub(super) async fn lend(&self, operation: &Operation, name: Name) -> Result<(Call, Held), PgError> {
        if let Some(sign) = self.pooler.get() {
            return Err(PgError::Pooler { sign: *sign });
        }
        let ask = self.caps.ask(&name);
        let mut call = operation.grant(name).ask(ask).to(Downstream::Database).call().map_err(PgError::stopped)?;
        call.enter(Stage::Pool);
        let place = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => place, // it overtakes nobody: a place that becomes free goes to who waits
            Err(_) => self.wait_for_a_place(&mut call).await?,
        };
        let link = match self.take_idle() {
            Some(link) => link,
            None => match self.connect(&mut call).await {
                Ok(link) => link,
                Err(error) => {
                    call.close(Outcome::NotSent); // the server's doing: nothing called it off
                    return Err(error);
                }
            },
        };
        call.enter(Stage::Work);
        Ok((call, Held { link, place, runtime: Handle::current() }))
    }

    async fn wait_for_a_place(&self, call: &mut Call) -> Result<OwnedSemaphorePermit, PgError> {
        if self.places.is_closed() {
            return Err(PgError::stopped(refused(call, Cause::Shutdown)));
        }
        let Some(_in_queue) = self.join_queue() else {
            return Err(PgError::stopped(refused(call, Cause::Shed)));
        };
        match call.run(Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_closed)) => Err(PgError::stopped(refused(call, Cause::Shutdown))),
            Err(ended) => Err(PgError::stopped(ended)),
        }
    }

    fn join_queue(&self) -> Option<InQueue<'_>> {
        let in_queue = InQueue(&self.waiting);
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        (before < self.max_waiting).then_some(in_queue) // one that finds no place is counted out as it goes
    }

    fn take_idle(&self) -> Option<Link> {
        loop {
            let link = self.idle().pop()?;
            if !link.conn.is_closed() {
                return Some(link);
            }
            self.discarded.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Opens a session. A server that has no room, or is just starting, is asked again until the end; one where nobody listens
    /// not for long, so that a caller learns of it while there is time for something else.
    async fn connect(&self, call: &mut Call) -> Result<Link, PgError> {
        call.enter(Stage::Connect);
        let patience = call.remaining() / 2;
        let began = clock::now();
        let mut pause = PAUSE;
        let mut last = None;
        loop {
            let refused = match call.run(self.connector.connect()).await {
                Ok(Ok(fresh)) => {
                    *self.refused_since() = None;
                    return Ok(Link::new(Conn::new(fresh, &self.open, self.statements_kept)));
                }
                Ok(Err(error)) if error.is_refused() => {
                    let now = clock::now();
                    let since = *self.refused_since().get_or_insert(now);
                    if now.since(since) >= REFUSED_AT_MOST || now.since(began) >= patience {
                        return Err(not_connected(call, error));
                    }
                    error
                }
                Ok(Err(error)) if error.may_pass() => error,
                Ok(Err(source)) => return Err(not_connected(call, source)),
                Err(ended) => return Err(never_connected(ended, last)),
            };
            last = Some(refused);
            if let Err(ended) = call.run(tokio::time::sleep(pause)).await {
                return Err(never_connected(ended, last));
            }
            pause = (pause * 2).min(PAUSE_AT_MOST);
            if let Some(link) = self.take_idle() {
                return Ok(link);
            }
        }
    }

    /// A connection outside of the pool's places: for questions, which must not wait for those who wait for the answer.
    pub(crate) async fn aside(&self) -> Result<Conn, ConnectError> {
        Ok(Conn::new(self.connector.connect().await?, &self.open, self.statements_kept))
    }

    /// Runs a task of this pool, which its close waits for, and the shutdown of the operation.
    pub(crate) fn spawn<F>(&self, operation: &Operation, runtime: &Handle, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let _entered = runtime.enter(); // a guard may be dropped anywhere
        drop(operation.shutdown().spawn(self.tasks.track_future(task)));
    }

    /// Takes a connection back after a borrow whose statements are all over.
    pub(crate) fn give_back(self: &Arc<Self>, held: Held, operation: &Operation) {
        if held.link.conn.is_closed() {
            self.discard(Some(held));
        } else if held.link.is_clean() {
            self.put(held);
        } else {
            let runtime = held.runtime.clone();
            let pool = Arc::clone(self);
            self.spawn(operation, &runtime, async move { pool.settle(held).await });
        }
    }

    /// Makes a free connection whole and puts it back; one that does not become whole in time is closed.
    pub(crate) async fn settle(&self, mut held: Held) {
        if !held.link.is_clean() && !tokio::time::timeout(self.grace, held.link.clean()).await.unwrap_or(false) {
            return self.discard(Some(held));
        }
        self.put(held);
    }

    fn put(&self, held: Held) {
        let Held { link, place, .. } = held;
        {
            let mut idle = self.idle();
            // Asked under the lock: a close clears it after it has closed the places.
            if self.places.is_closed() {
                return;
            }
            idle.push(link);
        }
        drop(place); // after the connection is back: who comes next finds it
    }

    /// Gives a connection up: the next call that finds none opens another.
    pub(crate) fn discard(&self, held: Option<Held>) {
        drop(held); // closes it, which rolls back
        self.discarded.fetch_add(1, Ordering::AcqRel);
    }

    fn refused_since(&self) -> MutexGuard<'_, Option<Tick>> {
        self.refused_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a call that got no place.
fn refused(call: &mut Call, cause: Cause) -> Ended {
    let at = clock::now();
    call.cut_off(Ending { cause, bound: call.budget().bound.by, stage: call.stage(), at })
}

fn not_connected(call: &Call, source: ConnectError) -> PgError {
    let source = NotConnected::because(source);
    PgError::Connect { operation: call.operation().name().clone(), call: call.name().clone(), source }
}

fn never_connected(ended: Ended, last: Option<ConnectError>) -> PgError {
    match PgError::stopped(ended) {
        PgError::Stopped { stopped, outcome, .. } => {
            PgError::Stopped { stopped, outcome, connecting: last.map(Box::new) }
        }
        other => other,
    }
}
