//! The one event at the end of each delivery.
//!
//! Decides that it is sent whichever way the delivery ends, from a guard (contract N1), and that a delivery that was dropped is told
//! as one that comes again.

use std::sync::Arc;

use oneclock::clock;
use oneclock::events::{Delivered, Delivery as End, Event, Observer, send};
use oneclock_core::Tick;

use super::Shared;
use crate::broker::{Broker, Delivery};

/// Tells the end of one delivery when it is dropped.
pub(super) struct Telling {
    delivered: Delivered,
    began: Tick,
    observer: Option<Arc<dyn Observer>>,
}

impl Telling {
    pub(super) fn new<B: Broker, D: Delivery>(shared: &Shared<B>, delivery: &D) -> Self {
        let message = delivery.message();
        let (queue, policy) = (shared.broker.name().clone(), message.stamp.policy);
        let mut delivered = Delivered::new(queue, message.kind.clone(), &*message.id, policy, delivery.attempt());
        delivered.owner = message.stamp.owner.as_deref().map(Into::into);
        delivered.faults = message.faults.clone();
        delivered.waited = message.stamp.first_enqueued.map(|first| clock::wall().since(first));
        delivered.uncertainty = message.stamp.uncertainty(shared.uncertainty.get());
        Self { delivered, began: clock::now(), observer: shared.observer.clone() }
    }

    pub(super) fn ended(mut self, end: End) {
        self.delivered.end = end;
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.delivered.elapsed = clock::now().since(self.began);
        send(self.observer.as_ref(), &Event::Delivered(&self.delivered));
    }
}
