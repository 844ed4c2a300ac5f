//! Where the queues are, and how a plain one behaves: it has what brokers have, a time to live for each message that counts from when
//! it was published, and perhaps a queue for what is dead, into which it goes without that.
//!
//! In memory it is made by hand; that a real broker does the same, and the demo's figures are those of a real broker, is a test.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::Tick;
use oneclock_queue::{Inspect, MemoryBroker};
use tokio::sync::Notify;

use super::Outage;
use crate::{BoxError, ShopClosed};

/// Where queues are. Each process opens them again.
pub(super) trait Place: Clone + Send + Sync + 'static {
    /// What it is called in the figures.
    const NAME: &'static str;

    /// A queue with a time to live.
    type Plain: PlainQueue;

    /// One whose work lives by its own expiry.
    type Ours: Inspect;

    /// Opens one of the plain queues.
    fn plain(&self, of: Plain) -> impl Future<Output = Result<Self::Plain, ShopClosed>> + Send;

    /// Opens ours.
    fn ours(&self) -> impl Future<Output = Result<Self::Ours, ShopClosed>> + Send;
}

/// The plain queues. Both have a time to live for the same reason: somebody wants them not to grow for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    /// What is dead goes into a queue of its own.
    Confirmations,
    /// What is dead is dropped: nobody thought of it.
    Cards,
}

/// A queue as brokers have it.
pub(super) trait PlainQueue: Clone + Send + Sync + 'static {
    type Delivery: PlainDelivery;

    fn publish(&self, order: usize) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Waits for one.
    fn take(&self) -> impl Future<Output = Result<Self::Delivery, BoxError>> + Send;

    /// Publishes again what is dead. How many.
    fn redrive(&self) -> impl Future<Output = Result<usize, BoxError>> + Send;
}

/// One message of it. Dropped without a word it is delivered again.
pub(super) trait PlainDelivery: Send + Sync + 'static {
    fn order(&self) -> usize;
    fn is_again(&self) -> bool;
    fn settle(self, said: Said) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// What a consumer says of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It is done.
    Ack,
    /// It comes again, at once.
    Requeue,
    /// It is dead.
    Reject,
}

/// In this process.
#[derive(Clone)]
pub(super) struct Here {
    confirmations: PlainHere,
    cards: PlainHere,
    ours: MemoryBroker,
}

/// A plain queue in this process.
#[derive(Clone)]
pub(super) struct PlainHere(Arc<Shared>);

struct Shared {
    to_live: Duration,
    dead_letters: bool,
    lanes: Mutex<Lanes>,
    arrived: Notify,
}

#[derive(Default)]
struct Lanes {
    main: VecDeque<Message>,
    dead: VecDeque<usize>,
}

#[derive(Clone, Copy)]
struct Message {
    order: usize,
    expires: Option<Tick>,
    is_again: bool,
}

pub(super) struct Taken {
    queue: PlainHere,
    message: Option<Message>,
    order: usize,
    is_again: bool,
}

/// How long a delivery of ours is its consumer's in memory, so that what a dead one had comes again soon.
const LEASE: Duration = Duration::from_millis(200);

// === Here ===

impl Here {
    pub(super) fn new(outage: &Outage) -> Self {
        let plain = |dead_letters| {
            let (lanes, arrived, to_live) = (Mutex::default(), Notify::new(), outage.hours(outage.useful));
            PlainHere(Arc::new(Shared { to_live, dead_letters, lanes, arrived }))
        };
        let ours = MemoryBroker::with_lease(super::propagated::QUEUE, LEASE);
        Self { confirmations: plain(true), cards: plain(false), ours }
    }
}

impl Place for Here {
    const NAME: &'static str = "memory";

    type Plain = PlainHere;
    type Ours = MemoryBroker;

    async fn plain(&self, of: Plain) -> Result<PlainHere, ShopClosed> {
        Ok(match of {
            Plain::Confirmations => self.confirmations.clone(),
            Plain::Cards => self.cards.clone(),
        })
    }

    async fn ours(&self) -> Result<MemoryBroker, ShopClosed> {
        Ok(self.ours.clone())
    }
}

// === PlainHere ===

impl PlainHere {
    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first that has not expired.
    fn first(&self) -> Option<Message> {
        let mut lanes = self.lanes();
        self.expire(&mut lanes);
        lanes.main.pop_front()
    }

    /// A broker looks at the head only: that one expires first, since all live equally long.
    fn expire(&self, lanes: &mut Lanes) {
        let now = clock::now();
        while let Some(Message { order, expires: Some(at), .. }) = lanes.main.front().copied()
            && at <= now
        {
            lanes.main.pop_front();
            self.dies(lanes, order);
        }
    }

    fn dies(&self, lanes: &mut Lanes, order: usize) {
        if self.0.dead_letters {
            lanes.dead.push_back(order); // its time to live stays behind
        }
    }

    fn back(&self, message: Message) {
        self.lanes().main.push_front(Message { is_again: true, ..message });
        self.0.arrived.notify_one();
    }
}

impl PlainQueue for PlainHere {
    type Delivery = Taken;

    async fn publish(&self, order: usize) -> Result<(), BoxError> {
        let expires = Some(clock::now() + self.0.to_live);
        self.lanes().main.push_back(Message { order, expires, is_again: false });
        self.0.arrived.notify_one();
        Ok(())
    }

    async fn take(&self) -> Result<Taken, BoxError> {
        loop {
            if let Some(message) = self.first() {
                self.0.arrived.notify_one(); // there may be more, and only one was woken
                let Message { order, is_again, .. } = message;
                return Ok(Taken { queue: self.clone(), message: Some(message), order, is_again });
            }
            self.0.arrived.notified().await;
        }
    }

    async fn redrive(&self) -> Result<usize, BoxError> {
        let mut lanes = self.lanes();
        self.expire(&mut lanes);
        let dead = std::mem::take(&mut lanes.dead);
        let count = dead.len();
        lanes.main.extend(dead.into_iter().map(|order| Message { order, expires: None, is_again: false }));
        drop(lanes);
        self.0.arrived.notify_one();
        Ok(count)
    }
}

impl PlainDelivery for Taken {
    fn order(&self) -> usize {
        self.order
    }

    fn is_again(&self) -> bool {
        self.is_again
    }

    async fn settle(mut self, said: Said) -> Result<(), BoxError> {
        let Some(message) = self.message.take() else { return Ok(()) };
        match said {
            Said::Ack => {}
            Said::Requeue => self.queue.back(message),
            Said::Reject => {
                let mut lanes = self.queue.lanes();
                self.queue.dies(&mut lanes, message.order);
            }
        }
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.queue.back(message);
        }
    }
}
