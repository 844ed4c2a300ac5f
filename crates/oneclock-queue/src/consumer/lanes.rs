//! Receiving one lane.
//!
//! Decides how many deliveries are worked on at a time, that a shutdown stops receiving before anything else, that what is on its way by
//! then is given back as it came, since left alone it would look as if somebody had died over it, and that little is received
//! while a store of keys is down.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::{Shutdown, clock};
use oneclock_core::{Deadline, Tick};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use super::ends::Counts;
use super::{Keys, Shared, walk};
use crate::broker::{Broker, BrokerError, Lane};

/// How long it waits before it asks a broker again that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long what is on its way at a shutdown may take to come.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// One lane that is being received. Dropped, it is not any more.
pub(super) struct Receiving(AbortOnDropHandle<()>);

/// What it is received with.
struct Lot<B> {
    shared: Arc<Shared<B>>,
    lane: Lane,
    places: Arc<Semaphore>,
    looks: Arc<Semaphore>, // at a store of keys that was down: one at a time
    at_most: usize,
    shutdown: Shutdown,
    counts: Arc<Counts>,
    goes_back: Mutex<Vec<JoinHandle<()>>>,
}

/// Begins to receive a lane, in a task that the shutdown waits for: what is on its way is given back though nobody polls whoever began.
pub(super) fn begin<B: Broker>(
    shared: &Arc<Shared<B>>,
    lane: Lane,
    at_most: usize,
    shutdown: &Shutdown,
    counts: &Arc<Counts>,
) -> Receiving {
    let (places, looks) = (Arc::new(Semaphore::new(at_most)), Arc::new(Semaphore::new(1)));
    let (shared, counts) = (Arc::clone(shared), Arc::clone(counts));
    let (shutdown_, goes_back) = (shutdown.clone(), Mutex::default());
    let lot = Lot { shared, lane, places, looks, at_most, shutdown: shutdown_, counts, goes_back };
    Receiving(AbortOnDropHandle::new(shutdown.spawn(async move {
        lot.shared.broker.expect(lane, at_most);
        lot.receive().await;
        lot.give_back().await;
        lot.are_back().await;
        // What is being worked on holds its place until it is over.
        let all = u32::try_from(at_most).unwrap_or(u32::MAX);
        let _ = lot.places.acquire_many(all).await;
    })))
}

impl Receiving {
    /// Returns when nothing is received any more and nothing is being worked on.
    pub(super) async fn over(self) {
        let _ = self.0.await;
    }
}

impl<B: Broker> Lot<B> {
    /// Receives until the shutdown.
    async fn receive(&self) {
        let mut pause = FIRST_PAUSE;
        while let Some((mut free, mut look)) = self.free().await {
            match self.receive_until(free.num_permits(), self.shutdown.signalled()).await {
                Some(Ok(deliveries)) => {
                    pause = FIRST_PAUSE;
                    for delivery in deliveries {
                        match free.split(1).filter(|_| !self.shutdown.is_signalled()) {
                            Some(place) => self.work(delivery, place, look.take()),
                            None => self.gives_back(delivery),
                        }
                    }
                }
                Some(Err(error)) => {
                    let lane = self.lane;
                    tracing::warn!(error = &error as &dyn std::error::Error, %lane, again_in = ?pause, "cannot receive");
                    drop(free);
                    tokio::select! {
                        () = self.shutdown.signalled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                None => return,
            }
        }
    }

    /// All places that are free, once there is one. While the store of keys is down: one, to see whether it is back, when that may be
    /// asked and nobody is about to. `None`: the shutdown came first.
    async fn free(&self) -> Option<(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>)> {
        let waits = async {
            let mut free = Arc::clone(&self.places).acquire_owned().await.ok()?;
            while let Some(until) = self.keys_are_down_until() {
                if until > clock::now() {
                    tokio::time::sleep_until(clock::instant(Deadline::at(until))).await;
                    continue;
                }
                let look = Arc::clone(&self.looks).acquire_owned().await.ok()?;
                if self.keys_are_down_until() == Some(until) {
                    return Some((free, Some(look)));
                }
            }
            while let Ok(more) = Arc::clone(&self.places).try_acquire_owned() {
                free.merge(more);
            }
            Some((free, None))
        };
        tokio::select! {
            biased;
            () = self.shutdown.signalled() => None,
            free = waits => free,
        }
    }

    /// Until when the store of keys is not asked, if it is down.
    fn keys_are_down_until(&self) -> Option<Tick> {
        match &self.shared.keys {
            #[cfg(feature = "idempotency")]
            Keys::Store(store) => store.is_down_until(),
            Keys::Nobody | Keys::Handler => None,
        }
    }

    /// What was sent ahead, or is on its way, and has no place.
    async fn give_back(&self) {
        match self.receive_until(self.at_most, std::future::ready(())).await {
            Some(Ok(deliveries)) => deliveries.into_iter().for_each(|delivery| self.gives_back(delivery)),
            Some(Err(error)) => {
                let lane = self.lane;
                tracing::warn!(error = &error as &dyn std::error::Error, %lane, "what is on its way cannot be given back");
            }
            None => {}
        }
    }

    /// Receives until `stop`. `None`: what was on its way did not come in time.
    async fn receive_until(
        &self,
        at_most: usize,
        stop: impl Future<Output = ()> + Send,
    ) -> Option<Result<Vec<B::Delivery>, BrokerError>> {
        let too_late = async {
            self.shutdown.signalled().await;
            tokio::time::sleep(STOPS_WITHIN).await;
        };
        tokio::select! {
            biased;
            received = self.shared.broker.receive_until(self.lane, at_most, stop) => Some(received),
            () = too_late => {
                let (queue, lane) = (self.shared.broker.name(), self.lane);
                tracing::warn!(%queue, %lane, within = ?STOPS_WITHIN, "what is on its way did not come: it may count as run");
                None
            }
        }
    }

    fn work(&self, delivery: B::Delivery, place: OwnedSemaphorePermit, look: Option<OwnedSemaphorePermit>) {
        let (shared, lane, counts) = (Arc::clone(&self.shared), self.lane, Arc::clone(&self.counts));
        let shutdown = self.shutdown.clone();
        self.shutdown.spawn(async move {
            walk::walk(&shared, delivery, lane, &shutdown, &counts).await;
            drop((place, look));
        });
    }

    /// In a task, as work is: it is said by a bound of its own.
    fn gives_back(&self, delivery: B::Delivery) {
        let (shared, counts) = (Arc::clone(&self.shared), Arc::clone(&self.counts));
        let gone = self.shutdown.spawn(async move { walk::give_back(&shared, delivery, &counts).await });
        self.going_back().push(gone);
    }

    async fn are_back(&self) {
        let going = std::mem::take(&mut *self.going_back());
        for gone in going {
            let _ = gone.await;
        }
    }

    fn going_back(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.goes_back.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
