//! From an outbox to another broker.
//!
//! Decides that one relay of an outbox works at a time, the others standing by until its lease is over; that it publishes in the
//! order of enqueueing and goes no further than what it could not publish; and that each job's expiry is looked at before it is
//! published (contract Q3): what is certainly of no use any more ends here, counted, and all else is published, since whoever
//! takes it looks again.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use oneclock::{Operation, Outcome, clock};
use oneclock_core::expiry::{Judged, Lease, Why, judge};
use oneclock_core::{Name, Tick};
use oneclock_queue::{Broker, BrokerError, Dead, Lane, Message, Settle, Uncertainty};

use super::table::{Mine, Order, Taken};
use super::{PAUSE, PgQueue, table};
use crate::error::PgError;

/// Moves what is in a [`PgQueue`], its outbox, to another broker.
///
/// What was published and whose end was not written, because its process died in between, is published again, with the same id:
/// the broker drops it if it drops duplicates, else a consumer's idempotency does. Two relays never publish the same job at the
/// same time: one stands by until the lease of the other is over, and that one begins nothing after it.
///
/// In order means: a job that was published after another was committed comes after it. Jobs of transactions that ran at the same
/// time have no order.
///
/// ```no_run
/// # use oneclock_postgres::{PgQueue, Relay}; use oneclock_queue::{BrokerError, Broker};
/// # async fn moves<B: Broker>(outbox: PgQueue, nats: B, shutdown: impl Future<Output = ()>) -> Result<(), BrokerError> {
/// let relay = Relay::new(outbox, nats);
/// let moved = relay.run(shutdown).await?; // until then
/// println!("{} published, {} of no use any more", moved.published, moved.discarded);
/// # Ok(()) }
/// ```
pub struct Relay<B> {
    from: PgQueue,
    to: B,
    batch: usize,
    within: Duration,
    uncertainty: Uncertainty,
    totals: Totals,
}

/// What a [`Relay`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relayed {
    /// The broker has it.
    pub published: u64,
    /// It had expired, and its contract says that it is of no use then.
    pub discarded: u64,
    /// It is in the dead lane of the outbox: it had expired, or the broker will never take it.
    pub dead: u64,
    /// Attempts to publish that the broker did not take, or did not answer. Each was made again.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Totals {
    published: AtomicU64,
    discarded: AtomicU64,
    dead: AtomicU64,
    failed: AtomicU64,
}

/// What was taken together, and how far it is.
struct Batch {
    lease: Lease,
    /// Not begun, in order.
    ahead: VecDeque<Taken>,
    /// Over, and not written yet.
    over: Vec<Mine>,
}

/// The batch cannot go on.
enum Halt {
    /// The broker did not take this one.
    Refused(Mine),
    /// Somebody else may have the jobs by now.
    Lost,
    /// The outbox could not be told.
    Outbox(PgError),
    /// It is to stop.
    Stopped,
}

/// The operation of one publication.
const NAME: Name = Name::literal("relay");

const PAUSE_AT_MOST: Duration = Duration::from_secs(30);

// === Relay ===

impl<B: Broker> Relay<B> {
    /// A relay from this outbox to this broker.
    pub fn new(from: PgQueue, to: B) -> Self {
        let uncertainty = Uncertainty::default();
        Self { from, to, batch: 128, within: Duration::from_secs(5), uncertainty, totals: Totals::default() }
    }

    /// How many jobs it takes at a time, rounded down to a power of two; 128 unless said otherwise. So many are published twice at most after a crash.
    #[must_use]
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch.max(1);
        self
    }

    /// How long the broker may take for one job; 5 s unless said otherwise, and never longer than the lease of the outbox holds.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// By how much this process's clock may be wrong; what the machine says unless given.
    #[must_use]
    pub fn uncertainty(mut self, uncertainty: Uncertainty) -> Self {
        self.uncertainty = uncertainty;
        self
    }

    /// What it has done until now.
    pub fn so_far(&self) -> Relayed {
        let of = |total: &AtomicU64| total.load(Ordering::Relaxed);
        let Totals { published, discarded, dead, failed } = &self.totals;
        Relayed { published: of(published), discarded: of(discarded), dead: of(dead), failed: of(failed) }
    }

    /// Moves jobs until `stop`, and lets another relay begin then. What it was publishing at that moment it finishes.
    ///
    /// A broker that does not answer is asked again, with a pause that grows to half a minute; nothing overtakes what it did not
    /// take. Connections come back by themselves.
    ///
    /// # Errors
    /// [`BrokerError`] of the outbox, where trying again would not help: its tables are missing, or it may not write there.
    ///
    /// # Cancel safety
    /// Dropped, what was published and not written yet is published again, and other relays wait for the end of its lease.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<Relayed, BrokerError> {
        let mut stop = pin!(stop);
        let mut pause = PAUSE;
        let me = format!("{} of {}", self.from.0.process, clock::now().as_nanos()); // two of one process are two
        loop {
            let waited = self.from.wait(Lane::Main, self.batch, Order::Strict(&me), stop.as_mut()).await;
            let Some(taken) = waited? else { break };
            match self.move_all(&me, taken, stop.as_mut()).await {
                Ok(()) => pause = PAUSE,
                Err(Halt::Stopped) => break,
                Err(halt) => {
                    if let Halt::Outbox(error) = &halt {
                        tracing::warn!(outbox = %self.from.0.name, "what was published could not be written: {error}");
                    }
                    let paused = tokio::time::timeout(pause, stop.as_mut()).await;
                    if paused.is_ok() {
                        break;
                    }
                    pause = (pause * 2).min(PAUSE_AT_MOST);
                }
            }
        }
        let left =
            async { table::leave_relay(&mut *self.from.client("leave").await?, self.from.0.name.as_str(), &me).await };
        if let Err(error) = left.await {
            tracing::debug!(outbox = %self.from.0.name, "other relays wait for the end of this one's lease: {error}");
        }
        Ok(self.so_far())
    }

    /// Moves what was taken, as far as it goes, and says what became of it.
    async fn move_all(
        &self,
        me: &str,
        (asked, taken): (Tick, Vec<Taken>),
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Halt> {
        let lease = Lease::new(self.from.0.lease, asked);
        let mut batch = Batch { lease, ahead: taken.into(), over: Vec::new() };
        let halted = loop {
            if batch.ahead.is_empty() {
                break None;
            }
            if stop.as_mut().now_or_never().is_some() {
                break Some(Halt::Stopped);
            }
            if let Err(halt) = self.keep(me, &mut batch).await {
                break Some(halt);
            }
            let Some(next) = batch.ahead.pop_front() else { break None };
            match self.move_one(&next, &batch.lease).await {
                Ok(ControlFlow::Continue(())) => batch.over.push(next.mine),
                Ok(ControlFlow::Break(())) => {} // its end is written
                Err(halt) => {
                    batch.ahead.push_front(next);
                    break Some(halt);
                }
            }
        };
        if matches!(halted, Some(Halt::Lost)) {
            return Err(Halt::Lost); // nothing is said of what is not ours
        }
        self.write(&mut batch.over).await?;
        let Some(halt) = halted else { return Ok(()) };
        if let Halt::Refused(mine) = halt {
            batch.ahead.pop_front();
            self.give_back(&[mine], true).await?;
        }
        let rest: Vec<Mine> = batch.ahead.iter().map(|taken| taken.mine).collect();
        self.give_back(&rest, false).await?;
        Err(halt)
    }

    /// Renews the leases when that is due. What is over is written before, so that little is published twice after a crash.
    async fn keep(&self, me: &str, batch: &mut Batch) -> Result<(), Halt> {
        let now = clock::now();
        if !batch.lease.holds(now) {
            return Err(Halt::Lost);
        }
        if now < batch.lease.heartbeat_at() {
            return Ok(());
        }
        self.write(&mut batch.over).await?;
        let ahead: Vec<Mine> = batch.ahead.iter().map(|taken| taken.mine).collect();
        let (queue, lease) = (&self.from.0, self.from.0.lease);
        let renewed = async {
            let mut client = self.from.client("renew").await?;
            let is_ours = table::renew_relay(&mut client, queue.name.as_str(), me, lease).await?;
            Ok(is_ours && table::renew(&mut client, &ahead, lease).await? == ahead.len())
        };
        match renewed.await {
            Ok(true) => {
                batch.lease.renewed(now);
                Ok(())
            }
            Ok(false) => Err(Halt::Lost),
            Err(error) => Err(Halt::Outbox(error)),
        }
    }

    /// Publishes one job, or ends it. `Continue`: it is over, and that is to be written.
    async fn move_one(&self, taken: &Taken, lease: &Lease) -> Result<ControlFlow<()>, Halt> {
        let message = &taken.message;
        match judge(&message.stamp, clock::wall(), self.uncertainty.get(), Duration::ZERO) {
            Judged::Discard(why) => {
                add(&self.totals.discarded);
                self.told(message, why, "discarded");
                return Ok(ControlFlow::Continue(()));
            }
            // One that cannot be understood would be left out of the message, which then never expires.
            Judged::DeadLetter(why @ (Why::Expired | Why::ExpiryUnreadable)) => {
                return self.bury(taken, why, None).await;
            }
            // What may have expired is looked at again by whoever takes it: publishing it does nothing irreversible.
            Judged::Run(_) | Judged::Hold { .. } | Judged::DeadLetter(_) => {}
        }
        let within = self.within.min(lease.until().since(clock::now()));
        let published = Operation::begin(NAME, within).run(self.to.publish(message)).await;
        let error: Box<dyn std::error::Error + Send + Sync> = match published {
            Ok(Ok(())) => {
                add(&self.totals.published);
                return Ok(ControlFlow::Continue(()));
            }
            Ok(Err(error)) if error.outcome == Outcome::Failed => {
                return self.bury(taken, Why::Rejected, Some(Dead::detail_of(&error))).await;
            }
            Ok(Err(error)) => Box::new(error),
            Err(ended) => Box::new(ended),
        };
        add(&self.totals.failed);
        tracing::warn!(
            outbox = %self.from.0.name, to = %self.to.name(), message = %message.id, attempt = taken.attempt,
            "a job could not be published, trying again; those after it wait: {error}"
        );
        Err(Halt::Refused(taken.mine))
    }

    async fn bury(&self, taken: &Taken, why: Why, detail: Option<String>) -> Result<ControlFlow<()>, Halt> {
        let dead = Dead { why, detail, at: clock::wall(), attempts: taken.attempt };
        let buried = self.from.settle(&[taken.mine], &Settle::Dead(dead)).await.map_err(Halt::Outbox)?;
        if buried == 0 {
            return Err(Halt::Lost);
        }
        add(&self.totals.dead);
        self.told(&taken.message, why, "put into the dead lane");
        Ok(ControlFlow::Break(()))
    }

    async fn write(&self, over: &mut Vec<Mine>) -> Result<(), Halt> {
        if !over.is_empty() {
            self.from.settle(over, &Settle::Gone).await.map_err(Halt::Outbox)?;
            over.clear();
        }
        Ok(())
    }

    async fn give_back(&self, mine: &[Mine], counted: bool) -> Result<(), Halt> {
        if !mine.is_empty() {
            let again = Settle::Again { after: Duration::ZERO, counted }; // in their old places
            self.from.settle(mine, &again).await.map_err(Halt::Outbox)?;
        }
        Ok(())
    }

    fn told(&self, message: &Message, why: Why, end: &str) {
        tracing::info!(
            outbox = %self.from.0.name, message = %message.id, kind = %message.kind, reason = why.as_str(),
            owner = message.stamp.owner.as_deref(), "a job of the outbox was {end}: {why}"
        );
    }
}

fn add(total: &AtomicU64) {
    total.fetch_add(1, Ordering::Relaxed);
}

impl<B: Broker> fmt::Debug for Relay<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("from", &self.from.0.name)
            .field("to", self.to.name())
            .field("so_far", &self.so_far())
            .finish_non_exhaustive()
    }
}
