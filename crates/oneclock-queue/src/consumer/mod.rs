//! Doing work that was accepted: who receives how much, and when no more.
//!
//! Decides who sees to it that work has one effect, and that late work has places of its own, so that what is not late goes first. How
//! a lane is received is [`lanes`]'s, what is done with one delivery [`walk`]'s.

mod builder;
mod ends;
mod handling;
mod job;
#[cfg(feature = "idempotency")]
mod keys;
mod lanes;
mod settling;
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

use crate::Uncertainty;
use crate::broker::{Broker, Lane};

use self::ends::Counts;

pub use builder::{BadConsumer, ConsumerBuilder};
pub use ends::Consumed;
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

impl<B: Broker> Consumer<B> {
    /// A consumer of this queue.
    pub fn builder(broker: B) -> ConsumerBuilder<B> {
        ConsumerBuilder::new(broker)
    }

    /// Receives and has work done until `shutdown` is signalled. Then it asks for nothing more, gives back what is on its way and nobody
    /// has begun (at once, uncounted, within ten seconds), and waits for what is being worked on, until the grace of the shutdown is
    /// over. Returns what became of the deliveries.
    ///
    /// A handler runs in a task of its own, and its lease is kept beside it. One that blocks its thread (a long computation, a call that
    /// does not await) holds up whatever else that thread was to do: on a runtime of one thread all heartbeats, on one of several a part
    /// of the service. It does not hear that its operation is over, either: a second later its delivery ends without it, as of one that
    /// was cut off, and it may begin no step any more. Such work belongs into
    /// [`Operation::spawn_blocking`](oneclock::Operation::spawn_blocking).
    ///
    /// # Cancel safety
    /// Dropped, it receives no more, and what is on its way is not waited for. Deliveries that are being worked on are tasks of
    /// `shutdown`, which waits for them.
    pub async fn run(&self, shutdown: &Shutdown) -> Consumed {
        self.0.uncertainty.measure(&self.0.broker, MEASURE_WITHIN).await;
        let counted = Arc::new(Counts::default());
        let main = lanes::begin(&self.0, Lane::Main, self.0.places, shutdown, &counted);
        let late = lanes::begin(&self.0, Lane::Late, self.0.late_places, shutdown, &counted);
        let clock = async {
            loop {
                tokio::select! {
                    () = shutdown.signalled() => return,
                    () = tokio::time::sleep(MEASURE_EVERY) => {}
                }
                self.0.uncertainty.measure(&self.0.broker, MEASURE_WITHIN).await;
            }
        };
        tokio::join!(main.over(), late.over(), clock);
        counted.so_far()
    }
}

impl<B: Broker> fmt::Debug for Consumer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("queue", self.0.broker.name()).finish_non_exhaustive()
    }
}
