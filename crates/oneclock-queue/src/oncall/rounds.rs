//! Going through a lane: taking each message that stood there once, and giving back what stays.
//!
//! Decides how far is gone (what stood there at the beginning, and no further), what is held meanwhile, and that a lane in which nothing
//! comes is empty only if its broker answers. Where a delivery has a lease it is held and renewed, since given back it would be met
//! again before the rest; where it has none, its broker sends no more than a few at a time, and what is given back goes to the end.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use oneclock::clock;
use oneclock_core::{Deadline, Tick};

use crate::broker::{Broker, BrokerError, Delivery, Inspect, Lane, NotSettled, Settle};

/// How many are taken together.
const AT_ONCE: usize = 32;
/// How many deliveries without a lease are held before they are given back: fewer than a broker sends at a time.
const HELD: usize = 16;
/// How many leases are renewed at the same time.
const RENEWED_AT_ONCE: usize = 64;
/// How long a broker may take to say how much is in a lane.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// What was looked at and stays.
struct Held<D> {
    deliveries: Vec<(D, Tick)>, // and when its lease was asked for
    given_back: HashSet<Arc<str>>,
}

/// The broker is silent.
#[derive(Debug, thiserror::Error)]
#[error("the broker did not answer within {0:?}: whether anything is there is not known")]
struct Silent(Duration);

/// A way through a lane. Whoever goes it says of each delivery whether it [stays](Self::stays).
pub(super) struct Rounds<'a, B: Broker> {
    broker: &'a B,
    lane: Lane,
    patience: Duration,
    left: usize,
    stood: Stood,
    looked_at: usize,
    came: VecDeque<B::Delivery>,
    held: Held<B::Delivery>,
}

/// How many stood in a lane.
struct Stood {
    known: usize,
    with_in_flight: bool, // else some may have been sent to us already that are not counted
}

impl<'a, B: Inspect> Rounds<'a, B> {
    /// Through at most `at_most` of those that stand there.
    pub(super) async fn begin(
        broker: &'a B,
        lane: Lane,
        at_most: usize,
        patience: Duration,
    ) -> Result<Self, BrokerError> {
        let stood = stand(broker, lane).await?;
        let left = if stood.with_in_flight { at_most.min(stood.known) } else { at_most };
        let held = Held { deliveries: Vec::new(), given_back: HashSet::new() };
        Ok(Self { broker, lane, patience, left, stood, looked_at: 0, came: VecDeque::new(), held })
    }

    /// The next one. `None`: that was all, and what stays is back where it came from.
    pub(super) async fn next(&mut self) -> Result<Option<B::Delivery>, BrokerError> {
        loop {
            self.held.renew().await;
            if let Some(delivery) = self.came.pop_front() {
                if delivery.lease().is_some_and(|lease| clock::now() >= delivery.asked() + lease) {
                    continue; // somebody else may have it by now
                }
                if self.looked_at >= self.stood.known && self.held.given_back.contains(&delivery.message().id) {
                    self.left = 0; // once around
                    self.stays(delivery);
                    continue;
                }
                if self.left == 0 {
                    self.stays(delivery);
                    continue;
                }
                (self.left, self.looked_at) = (self.left - 1, self.looked_at + 1);
                return Ok(Some(delivery));
            }
            if self.left == 0 {
                self.held.give_back(self.broker).await?;
                return Ok(None);
            }
            if self.held.goes_to_the_end() && self.held.deliveries.len() >= HELD {
                self.held.give_back(self.broker).await?;
            }
            let at_most = self.left.min(AT_ONCE);
            match self.held.next(self.broker, self.lane, at_most, self.patience).await {
                Some(came) => self.came.extend(came?),
                None => {
                    stand(self.broker, self.lane).await?; // or it is silent
                    if self.held.goes_to_the_end() {
                        self.held.give_back(self.broker).await?; // its broker may send no more than is held
                    } else {
                        self.left = 0; // what else stands there, somebody else has
                    }
                }
            }
        }
    }

    /// It goes back in the end.
    pub(super) fn stays(&mut self, delivery: B::Delivery) {
        let asked = delivery.asked();
        self.held.deliveries.push((delivery, asked));
    }
}

/// How many stand in a lane, under way or not.
async fn stand<B: Inspect>(broker: &B, lane: Lane) -> Result<Stood, BrokerError> {
    let silent = |_| BrokerError::unknown(broker.name(), "asking how much is in it", Silent(ANSWERS_WITHIN));
    let depth = tokio::time::timeout(ANSWERS_WITHIN, broker.depth(lane)).await.map_err(silent)??;
    let known = depth.waiting.unwrap_or(0).saturating_add(depth.in_flight.unwrap_or(0));
    let with_in_flight = depth.waiting.is_some() && depth.in_flight.is_some();
    Ok(Stood { known: usize::try_from(known).unwrap_or(usize::MAX), with_in_flight })
}

impl<D: Delivery> Held<D> {
    /// Whether there is something, and given back it comes after all that was not looked at.
    fn goes_to_the_end(&self) -> bool {
        self.deliveries.iter().any(|(delivery, _)| delivery.lease().is_none())
    }

    /// What comes within `patience`. `None`: nothing.
    async fn next<B: Broker<Delivery = D>>(
        &mut self,
        broker: &B,
        lane: Lane,
        at_most: usize,
        patience: Duration,
    ) -> Option<Result<Vec<D>, BrokerError>> {
        let until = clock::now() + patience;
        loop {
            let look = self.due().map_or(until, |due| due.min(until));
            let waits = broker.receive(lane, at_most);
            match tokio::time::timeout_at(clock::instant(Deadline::at(look)), waits).await {
                Ok(received) => return Some(received),
                Err(_) if clock::now() >= until => return None,
                Err(_) => self.renew().await,
            }
        }
    }

    /// When the first lease is to be renewed.
    fn due(&self) -> Option<Tick> {
        let due = |(delivery, asked): &(D, Tick)| delivery.lease().map(|lease| *asked + lease / 3);
        self.deliveries.iter().filter_map(due).min()
    }

    /// Renews what is due. What is lost by then is let go: somebody else has it.
    async fn renew(&mut self) {
        let now = clock::now();
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        let each = self.deliveries.drain(..).map(|(delivery, asked)| async move {
            let Some(lease) = delivery.lease().filter(|lease| now >= asked + *lease / 3) else {
                return Some((delivery, asked));
            };
            match delivery.renew().await {
                Ok(()) => Some((delivery, now)),
                Err(NotSettled::Lost) => None,
                Err(_) => (clock::now() < asked + lease).then_some((delivery, asked)),
            }
        });
        let renewed = futures_util::stream::iter(each).buffered(RENEWED_AT_ONCE);
        self.deliveries = renewed.filter_map(std::future::ready).collect().await;
    }

    /// Back to where it came from.
    async fn give_back<B: Broker<Delivery = D>>(&mut self, broker: &B) -> Result<(), BrokerError> {
        for (delivery, _) in self.deliveries.drain(..) {
            self.given_back.insert(Arc::clone(&delivery.message().id));
            match delivery.settle(&Settle::Again { after: Duration::ZERO, counted: false }).await {
                // One that is too large for a copy comes again by itself, when its lease is over.
                Ok(()) | Err(NotSettled::Lost | NotSettled::TooLarge) => {}
                Err(error) => return Err(BrokerError::unknown(broker.name(), "giving a message back", error)),
            }
        }
        Ok(())
    }
}
