//! The one event at the end of each delivery.
//!
//! Decides that it is sent whichever way the delivery ends, from a guard (contract N1), and that a delivery that was dropped is told
//! as one that comes again. Counts the ends of one [`run`](super::Consumer::run), too.

use std::sync::{Arc, Mutex, PoisonError};

use oneclock::clock;
use oneclock::events::{Delivered, Delivery as End, Event, Observer, send};
use oneclock_core::Tick;
use oneclock_core::expiry::Fault;

use super::Shared;
use crate::broker::{Broker, Delivery};

/// Tells the end of one delivery when it is dropped.
pub(super) struct Telling {
    delivered: Delivered,
    began: Tick,
    observer: Option<Arc<dyn Observer>>,
    counts: Arc<Counts>,
}

/// What became of the deliveries of one [`run`](super::Consumer::run), each of which is one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumed {
    /// Their work was done, late or not.
    pub done: u64,
    /// Their work had been done by an earlier one, under the same key.
    pub duplicates: u64,
    /// They were given back, or held until it is certain whether they have expired: they come again.
    pub given_back: u64,
    /// They went to the late lane.
    pub moved_late: u64,
    /// They had expired, and were of no use.
    pub discarded: u64,
    /// Somebody has to look at them.
    pub dead_lettered: u64,
    /// Nothing, or nothing that was heard, was said of them: somebody else had them, the broker could not be told, they were dropped.
    pub lost: u64,
}

/// Counts them.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Consumed>);

impl Telling {
    pub(super) fn new<B: Broker, D: Delivery>(shared: &Shared<B>, delivery: &D, counts: &Arc<Counts>) -> Self {
        let message = delivery.message();
        let (queue, policy) = (shared.broker.name().clone(), message.stamp.policy);
        let mut delivered = Delivered::new(queue, message.kind.clone(), &*message.id, policy, delivery.attempt());
        delivered.owner = message.stamp.owner.as_deref().map(Into::into);
        delivered.faults = message.faults.clone();
        delivered.waited = message.stamp.first_enqueued.map(|first| clock::wall().since(first));
        delivered.uncertainty = message.stamp.uncertainty(shared.uncertainty.get());
        Self { delivered, began: clock::now(), observer: shared.observer.clone(), counts: Arc::clone(counts) }
    }

    /// Something more is wrong with it.
    pub(super) fn fault(&mut self, fault: Fault) {
        self.delivered.faults.push(fault);
    }

    pub(super) fn ended(mut self, end: End) {
        self.delivered.end = end;
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.counts.count(self.delivered.end);
        self.delivered.elapsed = clock::now().since(self.began);
        send(self.observer.as_ref(), &Event::Delivered(&self.delivered));
    }
}

impl Counts {
    fn count(&self, end: End) {
        let mut consumed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *match end {
            End::Done { .. } => &mut consumed.done,
            End::Duplicate => &mut consumed.duplicates,
            End::GivenBack | End::Held => &mut consumed.given_back,
            End::MovedLate => &mut consumed.moved_late,
            End::Discarded(_) => &mut consumed.discarded,
            End::DeadLettered(_) => &mut consumed.dead_lettered,
            _ => &mut consumed.lost,
        } += 1;
    }

    pub(super) fn so_far(&self) -> Consumed {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
