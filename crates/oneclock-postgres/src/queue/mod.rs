//! Durable work in a PostgreSQL database: a queue that is a table, and an outbox.
//!
//! Two ways to use it. As a queue (the `Broker` trait) consumers take its jobs; as an outbox a [`Relay`] moves them to another
//! broker. Either way a job is published with the transaction of the business write ([`publish_with`](PgQueue::publish_with)), or
//! by itself.
//!
//! Decides when it is looked for jobs, what is worth another try, and whose budget is spent: publishing spends its caller's, all
//! the rest has its own. How rows look is decided in `table`, who is woken in `wakes`, what is counted in `counts`.

mod builder;
mod counts;
mod delivery;
mod relay;
mod stats;
mod table;
mod wakes;

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::wire::Wall;
use oneclock_core::{Cause, Name, Outcome, Tick};
use oneclock_queue::{Broker, BrokerError, Lane, Message, Uncertainty};
use tokio_postgres::error::DbError;

use self::counts::Counts;
use self::table::{Order, Taken};
use self::wakes::Wakes;
use crate::error::{ConnectError, PgError};
use crate::{Client, Pool, Transaction};

pub use builder::{BadQueue, PgQueueBuilder};
pub use delivery::PgDelivery;
pub use relay::{BadRelay, Relay, Relayed};
pub use stats::{LaneStats, Listed, QueueStats, Rates};

/// One queue of a PostgreSQL database, with its lanes. Cheap to clone; all clones are the same queue.
///
/// Jobs are rows of one table. A consumer takes some for as long as its lease holds, by the server's clock, which all share; each
/// time the job has a higher fence, and whoever has an older one changes nothing any more. What is settled as gone is deleted.
///
/// Waiting consumers listen on one connection beside the places of the [`Pool`], and look again each second anyhow. Taking and
/// settling jobs have budgets of their own ([`within`](PgQueueBuilder::within)) and do not depend on whose operation is current.
/// A job is on the server's disk when its publishing is answered: a session whose `synchronous_commit` is `off` publishes none.
///
/// ```no_run
/// # use oneclock_postgres::{PgError, PgQueue, Pool}; use oneclock_queue::{Producer, Work}; use std::time::Duration;
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder("postgres://shop@localhost/shop").build()?;
/// let mails = PgQueue::builder("mails", pool.clone()).build()?;
/// mails.create().await?; // or PgQueue::SCHEMA among the migrations
///
/// let producer = Producer::new("order-service", mails.clone());
/// let mail = producer.prepare(Work::new("confirm-order", "order 7").expires_in(Duration::from_secs(86_400)).discard())?;
/// pool.transaction("order", async |tx| {
///     tx.execute("INSERT INTO orders VALUES (7)", &[]).await?;
///     mails.publish_with(tx, &mail).await // with the order, or not at all
/// }).await?;
/// # Ok(()) }
/// ```
///
/// # Differences from a queue of `DELETE … FOR UPDATE SKIP LOCKED`
/// There a job is a lock of an open transaction: its consumer holds a connection as long as it works, and the oldest of them
/// holds up the server's vacuum. Here it is a lease, and no transaction is open while a job is worked on.
#[derive(Clone)]
pub struct PgQueue(Arc<Queue>);

/// The session's commits are not on the disk when they are answered.
#[derive(Debug, thiserror::Error)]
#[error(
    "synchronous_commit is off, so work that was accepted could be lost: set it to on for the role or the database of the queue; \
     nothing was published"
)]
struct NotDurable;

struct Queue {
    name: Name,
    outbox_of: Option<Name>,
    pool: Pool,
    lease: Duration,
    poll: Duration,
    within: Duration,
    by: String,
    uncertainty: Uncertainty,
    notifies: bool,
    process: String,
    wakes: Wakes,
    counts: Counts,
}

/// The operation of the queue's own calls.
const NAME: Name = Name::literal("queue");

const PUBLISH: &str = "publish";

/// Nobody takes more in one statement.
const MOST_AT_ONCE: usize = 1 << 12;

/// The pause before a server that gave nothing is asked again, doubled each time.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_AT_MOST: Duration = Duration::from_secs(5);

// === PgQueue ===

impl PgQueue {
    /// The tables, for migrations: what [`create`](Self::create) runs. It may be run again.
    ///
    /// They stand in the first schema of the connection's `search_path`, for all queues together.
    pub const SCHEMA: &str = table::SCHEMA;

    /// Begins a queue called `name` in the database of `pool`.
    pub fn builder(name: impl Into<Name>, pool: Pool) -> PgQueueBuilder {
        PgQueueBuilder::new(name.into(), pool)
    }

    /// Makes the tables, where they are not there yet. Several processes may do so at the same time.
    ///
    /// # Errors
    /// [`BrokerError`].
    ///
    /// # Cancel safety
    /// Dropped, they may have been made.
    pub async fn create(&self) -> Result<(), BrokerError> {
        let made = async {
            let mut client = self.client("create").await?;
            let mut transaction = client.begin().await?;
            transaction.query_one(table::TAKE_TURNS, &[]).await?;
            transaction.batch_execute(table::SCHEMA).await?;
            transaction.commit().await
        };
        made.await.map_err(self.failed("create its tables"))
    }

    /// Publishes a message with a transaction: it is there if that is committed, and never was if it is rolled back. Whoever waits
    /// for jobs is told at the COMMIT.
    ///
    /// Without one [`Producer::accept`](oneclock_queue::Producer::accept) publishes it by itself. The message comes from [`Producer::prepare`](oneclock_queue::Producer::prepare), which refuses what would be dead on
    /// arrival. What is known after an error is known of the whole transaction, as of every other statement of it.
    ///
    /// NOTIFY lets the COMMITs of a whole database wait for each other, so it is left out while consumers are behind. Where each
    /// COMMIT counts, build the queue [`without_notify`](PgQueueBuilder::without_notify).
    ///
    /// # Errors
    /// [`PgError`].
    ///
    /// # Cancel safety
    /// Dropped, the transaction is rolled back.
    pub async fn publish_with(&self, transaction: &mut Transaction<'_>, message: &Message) -> Result<(), PgError> {
        let wakes = self.0.notifies && !self.0.wakes.are_behind();
        table::publish_with(transaction, self.0.name.as_str(), message, wakes).await
    }

    /// Waits for jobs in this order, and takes some. `None`: `stop` came first. It ends waiting, and never a look: what that took
    /// would be nobody's until its lease is over.
    async fn wait(
        &self,
        lane: Lane,
        at_most: usize,
        order: Order<'_>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<(Tick, Vec<Taken>)>, BrokerError> {
        let queue = &self.0;
        let mut pause = PAUSE;
        loop {
            let mut woken = pin!(queue.wakes.woken.notified());
            woken.as_mut().enable(); // before the look: what comes while it is made counts
            queue.wakes.forget();
            let asked = clock::now();
            let failed = match Box::pin(self.take(lane, at_most, order)).await {
                Ok(taken) if !taken.is_empty() => return Ok(Some((asked, taken))),
                Ok(_) => None,
                Err(error) if may_pass(&error) => Some(error),
                Err(error) => return Err(self.failed("take jobs")(error)),
            };
            if let Some(error) = failed {
                tracing::warn!(queue = %queue.name, %lane, again_in = ?pause, "no jobs could be taken: {error}");
                if tokio::time::timeout(pause, stop.as_mut()).await.is_ok() {
                    return Ok(None);
                }
                pause = (pause * 2).min(PAUSE_AT_MOST);
                continue;
            }
            pause = PAUSE;
            if queue.notifies && queue.wakes.begin(&queue.pool, queue.name.as_str(), queue.within).await {
                continue;
            }
            tokio::select! {
                biased;
                () = stop.as_mut() => return Ok(None),
                () = woken => {}
                () = queue.wakes.next(), if queue.notifies => {}
                () = tokio::time::sleep(queue.poll) => {}
            }
        }
    }

    async fn take(&self, lane: Lane, at_most: usize, order: Order<'_>) -> Result<Vec<Taken>, PgError> {
        let queue = &self.0;
        let mut client = self.client("take").await?;
        let (name, ours) = (queue.name.as_str(), queue.uncertainty.get());
        // One of few numbers, since each is a statement of its own: it may always be fewer.
        let at_most = 1 << at_most.clamp(1, MOST_AT_ONCE).ilog2();
        let taken = table::take(&mut client, name, lane, at_most, order, queue.lease, &queue.by, ours).await?;
        if taken.is_empty() {
            self.flush_if_due(&mut client).await;
        }
        Ok(taken)
    }

    async fn flush_if_due(&self, client: &mut Client) {
        let queue = &self.0;
        if queue.counts.are_due()
            && let Err(error) = queue.counts.flush(client, queue.name.as_str(), &queue.process).await
        {
            tracing::debug!(queue = %queue.name, "what left the queue is not counted yet: {error}");
        }
    }

    /// A connection, for one call under its own budget.
    async fn client(&self, call: &'static str) -> Result<Client, PgError> {
        let operation = Operation::begin(NAME, self.0.within);
        self.0.pool.get_in(&operation, call).await
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(PgError) -> BrokerError {
        let queue = self.0.name.clone();
        move |error| BrokerError { queue, what, outcome: error.outcome(), source: Box::new(error) }
    }
}

impl Broker for PgQueue {
    type Delivery = PgDelivery;

    fn name(&self) -> &Name {
        &self.0.name
    }

    fn destination(&self) -> &Name {
        self.0.outbox_of.as_ref().unwrap_or(&self.0.name)
    }

    /// As a call named `publish` of the current operation, else with a budget of the queue's own.
    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        let queue = &self.0;
        let name = queue.name.as_str();
        // On the heap: it is large, and its callers' futures would be too.
        let published = Box::pin(async {
            let operation = Operation::current().unwrap_or_else(|| Operation::begin(NAME, queue.within));
            let mut client = queue.pool.get_in(&operation, PUBLISH).await?;
            let asks = queue.notifies && !queue.wakes.are_behind();
            let wakes = table::publish(&mut client, name, message, asks).await?;
            if wakes == Some(true) {
                // After its commit, in which whoever notifies waits for others who do. It is only a hint.
                queue.wakes.tell(async || drop(table::notify(&mut client, name).await)).await;
            } else if asks {
                queue.wakes.were_behind();
            }
            Ok(wakes.is_some())
        });
        match published.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(BrokerError::rejected(&queue.name, PUBLISH, NotDurable)),
            Err(error) => {
                let outcome = said_of_the_message(&error);
                Err(BrokerError { outcome, ..self.failed(PUBLISH)(error) })
            }
        }
    }

    /// Takes a power of two of jobs, at most `at_most`. Dropped while it takes some, rather than while it waits, they come again when
    /// the lease is over.
    async fn receive(&self, lane: Lane, at_most: usize) -> Result<Vec<PgDelivery>, BrokerError> {
        self.receive_until(lane, at_most, std::future::pending()).await
    }

    /// A look that was begun is waited for: what it takes is somebody's.
    async fn receive_until(
        &self,
        lane: Lane,
        at_most: usize,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Vec<PgDelivery>, BrokerError> {
        let mut stop = pin!(stop);
        if futures_util::FutureExt::now_or_never(stop.as_mut()).is_some() {
            return Ok(Vec::new()); // nothing is sent ahead
        }
        let taken = self.wait(lane, at_most, Order::Any, stop).await?;
        let (asked, taken) = taken.unwrap_or((clock::now(), Vec::new()));
        Ok(taken.into_iter().map(|taken| PgDelivery::new(self.clone(), asked, taken)).collect())
    }

    async fn clock(&self) -> Result<Option<Wall>, BrokerError> {
        let asked = async { table::now(&mut *self.client("clock").await?).await };
        asked.await.map(Some).map_err(self.failed("ask its clock"))
    }
}

impl fmt::Debug for PgQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PgQueue").field(&self.0.name).finish()
    }
}

/// What an error says of the message that was not published. What the server has against the queue, or against us, is nothing
/// against that.
fn said_of_the_message(error: &PgError) -> Outcome {
    // Data that are none, a constraint that they break, more than the server can hold.
    let is_about_it = |said: &DbError| matches!(said.code().code().get(..2), Some("22" | "23" | "54"));
    match error.outcome() {
        Outcome::Failed if !error.database().is_some_and(is_about_it) => Outcome::Rejected,
        outcome => outcome,
    }
}

/// Whether it is worth trying again: the server is away or busy, and not of another mind.
fn may_pass(error: &PgError) -> bool {
    let is_shutdown = error.ending().is_some_and(|ending| ending.cause == Cause::Shutdown);
    match error {
        PgError::Pooler { .. } => false,
        PgError::Connect { .. } => match error.connect_error() {
            Some(ConnectError::Postgres(refused)) if refused.as_db_error().is_some() => {
                error.connect_error().is_some_and(ConnectError::may_pass) // a wrong password does not
            }
            Some(ConnectError::Tls(_)) => false,
            _ => true,
        },
        error => error.outcome() != Outcome::Failed && !is_shutdown,
    }
}
