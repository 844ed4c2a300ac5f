//! From an outbox to another broker.
//!
//! Decides that one relay of an outbox works at a time, the others standing by until its lease is over; whether it keeps the order
//! of enqueueing or lets others pass; and whose fault a failure is: what the broker can never take goes aside at once, what it
//! refuses goes aside after many attempts, and a broker that is away is nobody's fault. How a batch is moved is `moving`'s.

mod moving;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::{Name, Tick};
use oneclock_queue::{Broker, BrokerError, Lane, Uncertainty};

use self::moving::Halt;
use super::table::Order;
use super::{PAUSE, PgQueue, table};

/// Moves what is in a [`PgQueue`], its outbox, to another broker.
///
/// What was published and whose end was not written, because its process died in between, is published again, with the same id:
/// the broker drops it if it drops duplicates, else a consumer's idempotency does. Two relays never publish the same job at the
/// same time: one stands by until the lease of the other is over, and that one begins nothing after it.
///
/// # Order
/// One job at a time goes out, and nothing overtakes what the broker did not take: a job that was published after another was
/// committed comes after it. Jobs of transactions that ran at the same time have no order. Where order does not matter, say
/// [`at_a_time`](Self::at_a_time): several are under way together, and one that fails holds up no other.
///
/// # What can not be published
/// - What the broker can never take (its error says [`Outcome::Failed`](oneclock::Outcome::Failed): it is too large, or has a field
///   that the transport cannot carry) goes into the dead lane of the outbox at once, with the reason `rejected`.
/// - What the broker refuses, or does not answer while it answers [otherwise](Broker::answers), counts as an attempt, and goes there
///   after [many](Self::attempts), with the reason `attempts_exhausted`. Only where order is kept it holds up the others until then.
/// - A broker that is away is asked again, with a pause that grows to half a minute. That counts against no job, however long it
///   takes.
///
/// ```no_run
/// # use oneclock_postgres::{PgQueue, Relay}; use oneclock_queue::Broker;
/// # async fn moves<B: Broker>(outbox: PgQueue, nats: B, shutdown: impl Future<Output = ()>) -> Result<(), Box<dyn std::error::Error>> {
/// let relay = Relay::new(outbox, nats)?;
/// let moved = relay.run(shutdown).await?; // until then
/// println!("{} published, {} of no use any more", moved.published, moved.discarded);
/// # Ok(()) }
/// ```
pub struct Relay<B> {
    from: PgQueue,
    to: B,
    flow: Flow,
    batch: usize,
    within: Duration,
    attempts: u32,
    uncertainty: Uncertainty,
    totals: Totals,
}

/// A relay cannot move work from one to the other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRelay {
    /// What becomes of work is recorded under the name of the queue whose consumers do it.
    #[error(
        "{outbox} holds work for {of}, and would be moved to {to}: whoever asks what became of it would look under {of} for ever; \
         build it with `outbox_of(\"{to}\")`"
    )]
    NotItsOutbox {
        /// The outbox.
        outbox: Name,
        /// For which queue its work is.
        of: Name,
        /// Where it would be moved.
        to: Name,
    },
}

/// What a [`Relay`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relayed {
    /// The broker has it.
    pub published: u64,
    /// It had expired, and its contract says that it is of no use then.
    pub discarded: u64,
    /// It is in the dead lane of the outbox: it had expired, the broker can never take it, or has refused it often enough.
    pub dead: u64,
    /// Attempts to publish that the broker did not take, or did not answer. Each was made again, or was the last.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Totals {
    published: AtomicU64,
    discarded: AtomicU64,
    dead: AtomicU64,
    failed: AtomicU64,
    /// When the broker took something last, in nanoseconds of the monotonic clock. Zero: never.
    taken_at: AtomicU64,
}

/// How many are under way, and what a failure holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    InOrder,
    AtATime(usize),
}

/// The operation of one publication.
const NAME: Name = Name::literal("relay");

const PAUSE_AT_MOST: Duration = Duration::from_secs(30);

/// With the pauses between them two hours, at least.
const ATTEMPTS: u32 = 250;

// === Relay ===

impl<B: Broker> Relay<B> {
    /// A relay from this outbox to this broker.
    ///
    /// # Errors
    /// [`BadRelay::NotItsOutbox`] if the outbox is another queue's: it has its name, or was built as the
    /// [outbox of](super::PgQueueBuilder::outbox_of) it.
    pub fn new(from: PgQueue, to: B) -> Result<Self, BadRelay> {
        let of = from.destination();
        if of != to.destination() {
            let (outbox, of, to) = (from.0.name.clone(), of.clone(), to.destination().clone());
            return Err(BadRelay::NotItsOutbox { outbox, of, to });
        }
        let (uncertainty, totals) = (Uncertainty::default(), Totals::default());
        let within = Duration::from_secs(5);
        Ok(Self { from, to, flow: Flow::InOrder, batch: 128, within, attempts: ATTEMPTS, uncertainty, totals })
    }

    /// Keeps the order of enqueueing: one at a time, and nothing overtakes what the broker did not take. So unless said otherwise.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.flow = Flow::InOrder;
        self
    }

    /// Publishes as many at the same time, without an order: what fails comes again later by itself, and the others go on. At
    /// least one; 16 to 64 hide the way to the broker and back. More than a [`batch`](Self::batch) are never under way.
    #[must_use]
    pub fn at_a_time(mut self, publications: usize) -> Self {
        self.flow = Flow::AtATime(publications.max(1));
        self
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

    /// How many attempts a job gets while the broker answers and does not take it; 250 unless said otherwise, at least one. The
    /// pause after each is twice the last, from 0.1 s to half a minute, so that 250 take two hours at least. Deliveries that a
    /// relay died over count as well.
    ///
    /// [`at_a_time`](Self::at_a_time) none is given up unless the broker took another within the last minute: a queue that is full
    /// refuses all alike. In order, where no other is tried, such a queue costs one job each two hours.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
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
        let Totals { published, discarded, dead, failed, .. } = &self.totals;
        Relayed { published: of(published), discarded: of(discarded), dead: of(dead), failed: of(failed) }
    }

    /// Moves jobs until `stop`, and lets another relay begin then. What it was publishing at that moment it finishes.
    ///
    /// A broker that does not answer is asked again, with a pause that grows to half a minute. Connections come back by themselves.
    ///
    /// # Errors
    /// [`BrokerError`] of the outbox, where trying again would not help: its tables are missing, or it may not write there.
    ///
    /// # Cancel safety
    /// Dropped, what was published and not written yet is published again, and other relays wait for the end of its lease.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<Relayed, BrokerError> {
        let mut stop = pin!(stop);
        let mut away = PAUSE;
        let me = format!("{} of {}", self.from.0.process, clock::now().as_nanos()); // two of one process are two
        loop {
            let waited = self.from.wait(Lane::Main, self.batch, Order::Strict(&me), stop.as_mut()).await;
            let Some(taken) = waited? else { break };
            let pause = match self.move_all(&me, taken, stop.as_mut()).await {
                Ok(()) => {
                    away = PAUSE;
                    continue;
                }
                Err(Halt::Stopped) => break,
                // By what the row says, so that a relay that starts again does not begin with the short ones.
                Err(Halt::Refused { attempt, .. }) => pause_after(attempt),
                Err(halt) => {
                    if let Halt::Outbox(error) = &halt {
                        tracing::warn!(outbox = %self.from.0.name, "what was published could not be written: {error}");
                    }
                    let pause = away;
                    away = (away * 2).min(PAUSE_AT_MOST);
                    pause
                }
            };
            if tokio::time::timeout(pause, stop.as_mut()).await.is_ok() {
                break;
            }
        }
        let left =
            async { table::leave_relay(&mut *self.from.client("leave").await?, self.from.0.name.as_str(), &me).await };
        if let Err(error) = left.await {
            tracing::debug!(outbox = %self.from.0.name, "other relays wait for the end of this one's lease: {error}");
        }
        Ok(self.so_far())
    }

    /// Whether a job that has had its attempts may be given up: not while the broker takes nothing at all.
    fn gives_up(&self) -> bool {
        let taken_at = self.totals.taken_at.load(Ordering::Relaxed);
        self.flow == Flow::InOrder
            || (taken_at > 0 && clock::now().since(Tick::from_nanos(taken_at)) <= PAUSE_AT_MOST * 2)
    }
}

impl Totals {
    fn was_published(&self) {
        add(&self.published);
        self.taken_at.store(clock::now().as_nanos().max(1), Ordering::Relaxed);
    }
}

impl Flow {
    const fn at_most(self) -> usize {
        match self {
            Self::InOrder => 1,
            Self::AtATime(publications) => publications,
        }
    }
}

/// How long a job waits after it was refused so often.
fn pause_after(attempt: u32) -> Duration {
    let doubled = 2_u32.checked_pow(attempt.saturating_sub(1)).and_then(|times| PAUSE.checked_mul(times));
    doubled.unwrap_or(PAUSE_AT_MOST).min(PAUSE_AT_MOST)
}

fn add(total: &AtomicU64) {
    total.fetch_add(1, Ordering::Relaxed);
}

impl<B: Broker> fmt::Debug for Relay<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("from", &self.from.0.name)
            .field("to", self.to.name())
            .field("flow", &self.flow)
            .field("so_far", &self.so_far())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_refused_has_two_hours() {
        let secs: u64 = (1..ATTEMPTS).map(|attempt| pause_after(attempt).as_secs()).sum();
        assert!((7_200..8_000).contains(&secs), "{secs}");
        assert_eq!(pause_after(1), PAUSE);
        assert_eq!(pause_after(u32::MAX), PAUSE_AT_MOST);
    }
}
