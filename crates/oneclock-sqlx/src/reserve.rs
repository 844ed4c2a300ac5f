//! The reserved connections: what is said about others' backends is said here, and never waits for a place in the pool.
//!
//! Decides how cancels travel. All that wait are one statement, so a burst costs one round trip, no new connection and no
//! new process on the server; and when it is answered, all its signals have been sent.
//!
//! The address may lead to another server by now, where the same numbers belong to others. So a backend is named by its
//! number and its start, and a transaction is asked about only where it is proven to be meant.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::Tick;
use oneclock_core::statement::{Action, Event, Fence, XactStatus};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::conn::{Backend, STARTED};
use crate::error::is_usable_after;
use crate::work::Xact;

/// How many there are. Batches make one enough; the second is there while the first is being opened anew.
const SIZE: usize = 2;

/// How long one round trip of theirs may take, or the opening of one.
const BOUND: Duration = Duration::from_secs(1);

/// How many cancels travel in one statement.
const BATCH: usize = 64;

/// One that was silent for longer is asked before it is relied on.
const HEARD_OF: Duration = Duration::from_secs(1);

/// How often an idle one is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The fence of a statement in flight, which the sender of its cancel asks at the last moment.
pub(crate) type Gate = Arc<Mutex<Fence>>;

/// A handful of connections, opened before the first one of the pool.
pub(crate) struct Reserve {
    options: PgConnectOptions,
    most: usize,
    open: Mutex<Option<Open>>,
}

struct Open {
    jobs: mpsc::Sender<Job>,
    workers: Vec<AbortHandle>,
}

enum Job {
    /// Be there.
    Stand {
        reply: oneshot::Sender<Result<(), sqlx::Error>>,
    },
    Cancel {
        backend: Backend,
        gate: Gate,
        reply: oneshot::Sender<Event>,
    },
    Terminate {
        backend: Backend,
        reply: oneshot::Sender<()>,
    },
    Status {
        xact: Xact,
        reply: oneshot::Sender<Asked>,
    },
}

/// What came of asking about a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Its own server answers, which has not crashed since.
    Status(XactStatus),
    /// Another server answers, or one that may have crashed: asking again says no more.
    Useless,
    /// Nobody answers.
    Nobody,
}

struct Worker {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
    answered: Tick,
}

// === Reserve ===

impl Reserve {
    /// For a pool of this many connections.
    pub(crate) fn new(options: PgConnectOptions, pool: usize) -> Self {
        // Each connection of the pool has one statement in flight, and so at most a few jobs here.
        Self { options, most: pool.saturating_mul(4).saturating_add(16), open: Mutex::new(None) }
    }

    /// Opens one if none is there.
    pub(crate) async fn stand(&self) -> Result<(), sqlx::Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Stand { reply });
        answer.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// Cancels what runs on `backend`, if its gate is still open at the last moment. Answers what became of the cancel.
    pub(crate) async fn cancel(&self, backend: Backend, gate: Gate) -> Event {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Cancel { backend, gate: Arc::clone(&gate), reply });
        answer.await.unwrap_or_else(|_| if begun(&gate) { Event::CancelLost } else { Event::CancelNotSent })
    }

    /// Ends the session of `backend`.
    pub(crate) async fn terminate(&self, backend: Backend) {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Terminate { backend, reply });
        let _ = answer.await;
    }

    /// What the server knows of a transaction.
    pub(crate) async fn status(&self, xact: Xact) -> Asked {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Status { xact, reply });
        answer.await.unwrap_or(Asked::Nobody)
    }

    /// A job that finds no place is dropped, and so answered.
    fn send(&self, job: Job) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // They live on the runtime of whoever needed them first, and are begun anew if that has ended.
        if open.as_ref().is_none_or(|open| open.jobs.is_closed()) {
            *open = Some(self.begin());
        }
        if let Some(open) = open.as_ref() {
            let _ = open.jobs.try_send(job);
        }
    }

    fn begin(&self) -> Open {
        let (jobs, queue) = mpsc::channel(self.most);
        let queue = Arc::new(tokio::sync::Mutex::new(queue));
        let worker = || {
            let worker = Worker { options: self.options.clone(), connection: None, answered: Tick::default() };
            tokio::spawn(worker.run(Arc::clone(&queue))).abort_handle()
        };
        Open { jobs, workers: std::iter::repeat_with(worker).take(SIZE).collect() }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.workers.iter().for_each(AbortHandle::abort);
    }
}

// === Worker ===

impl Worker {
    async fn run(mut self, queue: Arc<tokio::sync::Mutex<mpsc::Receiver<Job>>>) {
        let mut batch = Vec::new();
        let _ = self.stand().await; // all of them now: opening one takes longer than a cancel should
        loop {
            let next = async { queue.lock().await.recv_many(&mut batch, BATCH).await };
            match tokio::time::timeout(KEEP_ALIVE, next).await {
                Ok(0) => return, // the pool is gone
                Ok(_) => self.serve(batch.drain(..)).await,
                Err(_) => {
                    let _ = self.bounded(async |connection| connection.ping().await).await;
                }
            }
        }
    }

    async fn serve(&mut self, jobs: impl Iterator<Item = Job>) {
        let (mut cancels, mut others) = (Vec::new(), Vec::new());
        for job in jobs {
            match job {
                Job::Cancel { backend, gate, reply } => cancels.push((backend, gate, reply)),
                other => others.push(other),
            }
        }
        self.cancel(cancels).await; // first: somebody's deadline is past
        for job in others {
            match job {
                Job::Stand { reply } => {
                    let _ = reply.send(self.stand().await);
                }
                Job::Terminate { backend, reply } => {
                    let _ = self.stand().await;
                    let sql = signal("pg_terminate_backend", &[backend]);
                    let _ = self.bounded(async |connection| meets(connection, sql).await).await;
                    let _ = reply.send(());
                }
                Job::Status { xact, reply } => {
                    let _ = reply.send(self.status(xact).await);
                }
                Job::Cancel { .. } => {}
            }
        }
    }

    async fn cancel(&mut self, cancels: Vec<(Backend, Gate, oneshot::Sender<Event>)>) {
        if cancels.is_empty() {
            return;
        }
        if self.stand().await.is_err() {
            for (_, _, reply) in cancels {
                let _ = reply.send(Event::CancelNotSent);
            }
            return;
        }
        let (mut backends, mut replies) = (Vec::new(), Vec::new());
        for (backend, gate, reply) in cancels {
            // The last moment: its statement may have come to its end while this waited.
            if lock(&gate).on(Event::CancelBegins) == Action::Wait {
                backends.push(backend);
                replies.push(reply);
            }
        }
        if backends.is_empty() {
            return;
        }
        let sql = signal("pg_cancel_backend", &backends);
        let met = self.bounded(async |connection| meets(connection, sql.clone()).await).await;
        if met.is_err() && self.stand().await.is_ok() {
            // It may have arrived, or arrive later. For the statements' sake it is said again where it will be heard; it
            // names them so that it meets nobody else there.
            let _ = self.bounded(async |connection| meets(connection, sql).await).await;
        }
        let met = met.unwrap_or_default();
        for (backend, reply) in backends.iter().zip(replies) {
            // Not met: this is another server than its own, or it has gone. Either way its connection is of no use any more,
            // and the bound on its server is what is left.
            let _ = reply.send(if met.contains(&backend.pid) { Event::CancelClosed } else { Event::CancelLost });
        }
    }

    async fn status(&mut self, xact: Xact) -> Asked {
        if self.stand().await.is_err() {
            return Asked::Nobody;
        }
        match self.bounded(async |connection| status(connection, xact).await).await {
            Ok(Some(status)) => Asked::Status(status),
            // It does not know such a number, or has none: a standby, or a server that lost what was not yet on disk.
            Ok(None) => Asked::Useless,
            Err(error) if is_usable_after(&error) => Asked::Useless,
            Err(_) => Asked::Nobody,
        }
    }

    /// Is there, and was heard of a moment ago: a cancel that is lost with its connection costs that of its statement too.
    async fn stand(&mut self) -> Result<(), sqlx::Error> {
        if clock::now().since(self.answered) > HEARD_OF {
            let _ = self.bounded(async |connection| connection.ping().await).await;
        }
        if self.connection.is_none() {
            let opened = tokio::time::timeout(BOUND, self.options.connect()).await;
            self.connection = Some(opened.map_err(|_| too_slow())??);
            self.answered = clock::now();
        }
        Ok(())
    }

    /// One round trip. After any error the connection is given up.
    async fn bounded<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let Some(mut connection) = self.connection.take() else { return Err(sqlx::Error::WorkerCrashed) };
        let result = tokio::time::timeout(BOUND, work(&mut connection)).await.map_err(|_| too_slow())??;
        self.connection = Some(connection);
        self.answered = clock::now();
        Ok(result)
    }
}

/// Sends a signal to those of `backends` that are there.
fn signal(function: &str, backends: &[Backend]) -> String {
    let those: Vec<_> = backends.iter().map(|Backend { pid, started }| format!("({pid}, {started})")).collect();
    let those = those.join(", ");
    format!("SELECT pid, {function}(pid) FROM pg_stat_activity WHERE (pid, {STARTED}) IN ({those})")
}

/// Whom it met.
async fn meets(connection: &mut PgConnection, sql: String) -> Result<Vec<i32>, sqlx::Error> {
    let met = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?;
    met.iter().map(|row| row.try_get(0)).collect()
}

/// What this server knows of a transaction, if it is that transaction's own and has not crashed since: a crash ends every
/// process that can be seen here, so one that was there before the transaction's end is a witness. Most often that is this
/// session itself; whoever may see them (`pg_read_all_stats`) has the server's own processes.
async fn status(connection: &mut PgConnection, xact: Xact) -> Result<Option<XactStatus>, sqlx::Error> {
    let Xact { number, server, open_at } = xact;
    let sql = format!(
        "SELECT CASE WHEN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint = {server} \
         AND EXISTS (SELECT FROM pg_stat_activity WHERE {STARTED} < {open_at}) \
         THEN coalesce(txid_status({number}), 'forgotten') END"
    );
    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await?;
    Ok(row.try_get::<Option<String>, _>(0)?.map(|answer| XactStatus::from_answer(Some(&answer))))
}

fn too_slow() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer within {BOUND:?}")))
}

fn begun(gate: &Gate) -> bool {
    lock(gate).cancel_begun()
}

pub(crate) fn lock(gate: &Gate) -> MutexGuard<'_, Fence> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}
