//! Doing work that was accepted: who receives how much, and when no more.
//!
//! Decides how many deliveries are worked on at a time, that late work has places of its own so that what is not late goes first,
//! and that a shutdown stops receiving before anything else. What is done with one delivery is [`walk`]'s.

mod builder;
mod ends;
mod job;
#[cfg(feature = "idempotency")]
mod keys;
mod tenure;
mod walk;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oneclock::Shutdown;
use oneclock::events::Observer;
use oneclock_core::Effect;
use oneclock_core::expiry::Attempts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Uncertainty;
use crate::broker::{Broker, Lane};

pub use builder::{BadConsumer, ConsumerBuilder};
pub use job::{Job, JobError};
#[cfg(feature = "http")]
pub(crate) use keys::fingerprint_of;
#[cfg(feature = "idempotency")]
pub use keys::scope_of;

type Handling = Pin<Box<dyn Future<Output = Result<(), JobError>> + Send>>;
type Handler = Box<dyn Fn(Job) -> Handling + Send + Sync>;

/// Receives work from a queue and has it done, one operation for each delivery.
///
/// ```
/// use oneclock_queue::{Consumer, Job, MemoryBroker, Producer, Work};
/// use oneclock::Shutdown;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mails = MemoryBroker::new("mails");
/// let work = Work::new("confirm-order", "order 7").expires_in(Duration::from_secs(86_400)).discard();
/// Producer::new("order-service", mails.clone()).accept(work).await?;
///
/// let shutdown = Shutdown::new();
/// let stop = shutdown.clone();
/// let consumer = Consumer::builder(mails)
///     .limit(Duration::from_secs(30))           // for one delivery, whenever its work expires
///     .build(move |job: Job| {
///         let stop = stop.clone();
///         async move {
///             job.before_effect()?;             // before each step that cannot be taken back
///             // … send the mail
///             stop.signal();
///             Ok(())
///         }
///     })?;
/// consumer.run(&shutdown).await; // until the shutdown
/// # Ok(()) }
/// ```
pub struct Consumer<B>(Arc<Shared<B>>);

struct Shared<B> {
    broker: B,
    handler: Handler,
    limit: Duration,
    min_useful: Duration,
    attempts: Attempts,
    effect: Effect,
    keys: Keys,
    places: usize,
    late_places: usize,
    uncertainty: Uncertainty,
    observer: Option<Arc<dyn Observer>>,
}

/// Who sees to it that work has one effect for a key.
#[derive(Clone)]
enum Keys {
    /// Nobody.
    Nobody,
    /// The handler itself, in the transaction of its effect.
    Handler,
    /// An idempotency store before the handler.
    #[cfg(feature = "idempotency")]
    Store(Arc<keys::Store>),
}

/// How often the broker's clock is asked, and how long that may take.
const MEASURE_EVERY: Duration = Duration::from_secs(60);
const MEASURE_WITHIN: Duration = Duration::from_secs(2);

/// How long it waits before it asks a broker again that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl<B: Broker> Consumer<B> {
    /// A consumer of this queue.
    pub fn builder(broker: B) -> ConsumerBuilder<B> {
        ConsumerBuilder::new(broker)
    }

    /// Receives and has work done until `shutdown` is signalled, then waits for what is being worked on, until its grace is over.
    ///
    /// # Cancel safety
    /// Dropped, it receives no more. Deliveries that are being worked on are tasks of `shutdown`, which waits for them.
    pub async fn run(&self, shutdown: &Shutdown) {
        self.0.uncertainty.measure(&self.0.broker, MEASURE_WITHIN).await;
        let main = self.receive(Lane::Main, self.0.places, shutdown);
        let late = self.receive(Lane::Late, self.0.late_places, shutdown);
        let clock = async {
            loop {
                tokio::select! {
                    () = shutdown.signalled() => return,
                    () = tokio::time::sleep(MEASURE_EVERY) => {}
                }
                self.0.uncertainty.measure(&self.0.broker, MEASURE_WITHIN).await;
            }
        };
        tokio::join!(main, late, clock);
    }

    async fn receive(&self, lane: Lane, at_most: usize, shutdown: &Shutdown) {
        let places = Arc::new(Semaphore::new(at_most));
        let mut pause = FIRST_PAUSE;
        loop {
            let Ok(mut free) = Arc::clone(&places).acquire_owned().await else { return };
            while let Ok(more) = Arc::clone(&places).try_acquire_owned() {
                free.merge(more);
            }
            let received = tokio::select! {
                biased;
                () = shutdown.signalled() => break,
                received = self.0.broker.receive(lane, free.num_permits()) => received,
            };
            match received {
                Ok(deliveries) => {
                    pause = FIRST_PAUSE;
                    for delivery in deliveries {
                        let place = free.split(1);
                        self.begin(delivery, lane, place, shutdown);
                    }
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, %lane, again_in = ?pause, "cannot receive");
                    drop(free);
                    tokio::select! {
                        () = shutdown.signalled() => break,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        // What is being worked on holds its place until it is over.
        let all = u32::try_from(at_most).unwrap_or(u32::MAX);
        let _ = places.acquire_many(all).await;
    }

    fn begin(&self, delivery: B::Delivery, lane: Lane, place: Option<OwnedSemaphorePermit>, shutdown: &Shutdown) {
        let (shared, ends) = (Arc::clone(&self.0), shutdown.clone());
        shutdown.spawn(async move {
            walk::walk(&shared, delivery, lane, &ends).await;
            drop(place);
        });
    }
}

impl<B: Broker> fmt::Debug for Consumer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("queue", self.0.broker.name()).finish_non_exhaustive()
    }
}
