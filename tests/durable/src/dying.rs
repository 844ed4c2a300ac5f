//! A broker and a store that kill their process at a step.

use clap::ValueEnum;
use oneclock_core::idempotency::{Claim, Enqueue, Enqueued, Fence, Record, Scope};
use oneclock_core::wire::Wall;
use oneclock_core::{Name, Tick};
use oneclock_idempotency::{Found, Kept, Settle as Said, Settled, Store, StoreError, Which};
use oneclock_queue::{Broker, BrokerError, Delivery, Lane, Message, NotSettled, Settle};
use std::time::Duration;

/// A step of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    BeforeClaim,
    AfterClaim,
    BeforeEffect,
    AfterEffect,
    BeforeRecord,
    AfterRecord,
    BeforeSettle,
    AfterSettle,
}

impl Step {
    /// Dies here if that is where it dies.
    pub(crate) fn reached(self, dies: Option<Self>) {
        if dies == Some(self) {
            std::process::abort();
        }
    }
}

#[derive(Clone)]
pub(crate) struct DyingBroker<B>(pub(crate) B, pub(crate) Option<Step>);

pub(crate) struct DyingDelivery<D>(D, Option<Step>);

pub(crate) struct DyingStore<St>(pub(crate) St, pub(crate) Option<Step>);

impl<B: Broker> Broker for DyingBroker<B> {
    type Delivery = DyingDelivery<B::Delivery>;

    fn name(&self) -> &Name {
        self.0.name()
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        self.0.publish(message).await
    }

    async fn receive(&self, lane: Lane, at_most: usize) -> Result<Vec<Self::Delivery>, BrokerError> {
        let received = self.0.receive(lane, at_most).await?;
        Ok(received.into_iter().map(|delivery| DyingDelivery(delivery, self.1)).collect())
    }

    async fn receive_until(
        &self,
        lane: Lane,
        at_most: usize,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<Vec<Self::Delivery>, BrokerError> {
        let received = self.0.receive_until(lane, at_most, stop).await?;
        Ok(received.into_iter().map(|delivery| DyingDelivery(delivery, self.1)).collect())
    }

    fn expect(&self, lane: Lane, places: usize) {
        self.0.expect(lane, places);
    }

    async fn clock(&self) -> Result<Option<Wall>, BrokerError> {
        self.0.clock().await
    }
}

impl<D: Delivery> Delivery for DyingDelivery<D> {
    fn message(&self) -> &Message {
        self.0.message()
    }

    fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    fn may_have_run(&self) -> bool {
        self.0.may_have_run()
    }

    fn asked(&self) -> Tick {
        self.0.asked()
    }

    fn lease(&self) -> Option<Duration> {
        self.0.lease()
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn id_lasts(&self) -> bool {
        self.0.id_lasts()
    }

    async fn renew(&self) -> Result<(), NotSettled> {
        self.0.renew().await
    }

    async fn settle(&self, settle: &Settle) -> Result<(), NotSettled> {
        Step::BeforeSettle.reached(self.1);
        self.0.settle(settle).await?;
        Step::AfterSettle.reached(self.1);
        Ok(())
    }
}

impl<St: Store> Store for DyingStore<St> {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        Step::BeforeClaim.reached(self.1);
        let found = self.0.claim(scope, claim).await?;
        Step::AfterClaim.reached(self.1);
        Ok(found)
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        self.0.enqueue(scope, ask).await
    }

    async fn settle(&self, scope: &Scope, fence: Fence, said: Said) -> Result<Settled, StoreError> {
        Step::BeforeRecord.reached(self.1);
        let settled = self.0.settle(scope, fence, said).await?;
        Step::AfterRecord.reached(self.1);
        Ok(settled)
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        self.0.read(scope).await
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        self.0.list(which, after, limit).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.reap(limit).await
    }
}
