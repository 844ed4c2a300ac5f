//! What people on call do with a queue: look, put dead letters back, end what has expired.
//!
//! Decides what is counted as what, and that nothing is guessed: whether a dead letter may be put back and whether work has expired is
//! `oneclock_core::expiry`'s to say. What is not put back stays where it was.

use std::collections::BTreeMap;
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Judged, NotRedriven, Policy, Stamp, Why, Zone, judge, names, redrive as may_redrive};
use oneclock_core::wire::{Wall, utc};

use crate::broker::{Broker, BrokerError, Dead, Delivery, Depth, Inspect, Lane, Settle};
use crate::{Message, Uncertainty};

/// How a queue stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// Each lane, in the order main, late, dead.
    pub lanes: Vec<LaneStanding>,
    /// By how much the clocks may be wrong that expiries were looked at with, producers' own not included.
    pub uncertainty: Duration,
}

/// How a lane stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LaneStanding {
    /// Which.
    pub lane: Lane,
    /// How much is in it.
    pub depth: Depth,
    /// What came in and went out in a second, where the broker counts that.
    pub rates: Option<Rates>,
    /// The messages that were looked at.
    pub looked_at: Vec<Seen>,
}

/// What comes and goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Messages a second that come in.
    pub inflow: f64,
    /// Messages a second that go.
    pub drain: f64,
}

/// One message that was looked at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Seen {
    /// The message.
    pub message: Message,
    /// How its expiry stands.
    pub zone: Zone,
    /// Of a dead letter: why it is one.
    pub because: Option<Why>,
}

/// Looks at a queue: at most `at_most` messages of each lane, and how much comes and goes `over` a while.
///
/// # Errors
/// [`BrokerError`].
///
/// # Cancel safety
/// Reads only.
pub async fn inspect<B: Inspect>(
    broker: &B,
    uncertainty: &Uncertainty,
    at_most: usize,
    over: Duration,
) -> Result<Standing, BrokerError> {
    let (ours, now) = (uncertainty.get(), clock::wall());
    let mut lanes = Vec::new();
    for lane in Lane::ALL {
        let depth = broker.depth(lane).await?;
        let looked_at =
            broker.peek(lane, at_most).await?.into_iter().map(|message| Seen::at(message, now, ours)).collect();
        lanes.push(LaneStanding { lane, depth, rates: None, looked_at });
    }
    if !over.is_zero() {
        let began = clock::now();
        tokio::time::sleep(over).await;
        for standing in &mut lanes {
            let later = broker.depth(standing.lane).await?;
            standing.rates = Rates::between(standing.depth, later, clock::now().since(began));
            standing.depth = later;
        }
    }
    Ok(Standing { lanes, uncertainty: ours })
}

/// Which dead letters are put back.
#[derive(Clone, Debug, Default)]
pub struct Redrive {
    /// Only these messages; all of them where it is empty.
    pub ids: Vec<String>,
    /// Only those that are dead for this reason.
    pub because: Option<Why>,
    /// Who answers for those that have to be completed and have no owner.
    pub owner: Option<String>,
    /// Whoever asks knows that those of which nobody knows what they did, did nothing, or that they stand under a key.
    pub sure: bool,
    /// At most so many are looked at.
    pub at_most: usize,
}

/// Puts dead letters back, with their expiry as it was (contract Q1). Returns what became of each that was looked at and meant.
///
/// `patience` is how long the dead lane may say nothing before it counts as empty.
///
/// # Errors
/// [`BrokerError`]: what was put back until then is back.
///
/// # Cancel safety
/// Dropped, some may be back.
pub async fn redrive<B: Broker>(
    broker: &B,
    uncertainty: &Uncertainty,
    wanted: &Redrive,
    patience: Duration,
) -> Result<Vec<(Message, Result<Stamp, NotRedriven>)>, BrokerError> {
    let (mut told, mut stay) = (Vec::new(), Vec::new());
    each(broker, Lane::Dead, wanted.at_most, patience, async |delivery| {
        let message = delivery.message().clone();
        // One that does not say why may have been done.
        let because = because(&message).or(Some(Why::OutcomeUnknown));
        let is_meant = (wanted.ids.is_empty() || wanted.ids.iter().any(|id| **id == *message.id))
            && (wanted.because.is_none() || wanted.because == because);
        if !is_meant {
            stay.push(delivery);
            return Ok(());
        }
        let (owner, now) = (wanted.owner.as_deref(), clock::wall());
        let stamp = may_redrive(&message.stamp, because, owner, wanted.sure, now, uncertainty.get());
        match &stamp {
            Ok(stamp) => settled(broker, &delivery, &Settle::Redrive(stamp.clone())).await?,
            Err(_) => stay.push(delivery),
        }
        told.push((message, stamp));
        Ok(())
    })
    .await?;
    give_back(broker, stay).await?;
    Ok(told)
}

/// Ends the work of the main lane that has certainly expired, as its contract says, without a consumer (contract Q5): discarded, or
/// moved to the dead or the late lane. The rest is given back, which may change its order. Returns what became of each that ended.
///
/// # Errors
/// [`BrokerError`]: what was ended until then is.
///
/// # Cancel safety
/// Dropped, some may be ended.
pub async fn expire<B: Broker>(
    broker: &B,
    uncertainty: &Uncertainty,
    at_most: usize,
    patience: Duration,
) -> Result<Vec<(Message, Ended)>, BrokerError> {
    let (mut ended, mut stay) = (Vec::new(), Vec::new());
    each(broker, Lane::Main, at_most, patience, async |delivery| {
        let message = delivery.message().clone();
        let (now, attempts) = (clock::wall(), delivery.attempt());
        let what = match judge(&message.stamp, now, uncertainty.get(), Duration::ZERO) {
            Judged::Discard(why) => Some((Settle::Gone, Ended::Discarded(why))),
            Judged::DeadLetter(why @ Why::Expired) => {
                let dead = Dead { why, detail: None, at: now, attempts };
                Some((Settle::Dead(dead), Ended::DeadLettered(why)))
            }
            Judged::Run(terms) if terms.late && message.stamp.zone(now, uncertainty.get()) == Zone::Expired => {
                Some((Settle::Late, Ended::MovedLate))
            }
            _ => None,
        };
        match what {
            Some((settle, what)) => {
                settled(broker, &delivery, &settle).await?;
                ended.push((message, what));
            }
            // Given back it would look as if nobody had had it: it comes again by itself when its lease is over.
            None if delivery.may_have_run() => drop(delivery),
            None => stay.push(delivery),
        }
        Ok(())
    })
    .await?;
    give_back(broker, stay).await?;
    Ok(ended)
}

/// What became of work that had expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is gone.
    Discarded(Why),
    /// Somebody looks at it.
    DeadLettered(Why),
    /// It is done late.
    MovedLate,
}

/// Takes at most `at_most` of a lane, until that has had nothing for `patience`.
async fn each<B: Broker>(
    broker: &B,
    lane: Lane,
    at_most: usize,
    patience: Duration,
    mut look: impl AsyncFnMut(B::Delivery) -> Result<(), BrokerError>,
) -> Result<(), BrokerError> {
    let mut left = at_most;
    while left > 0 {
        let Ok(received) = tokio::time::timeout(patience, broker.receive(lane, left.min(100))).await else { break };
        for delivery in received? {
            left = left.saturating_sub(1);
            look(delivery).await?;
        }
    }
    Ok(())
}

/// What was looked at and stays goes back at the end, so that it is not met again on the way.
async fn give_back<B: Broker>(broker: &B, deliveries: Vec<B::Delivery>) -> Result<(), BrokerError> {
    for delivery in deliveries {
        settled(broker, &delivery, &Settle::Again { after: Duration::ZERO, counted: false }).await?;
    }
    Ok(())
}

async fn settled<B: Broker>(broker: &B, delivery: &B::Delivery, settle: &Settle) -> Result<(), BrokerError> {
    delivery.settle(settle).await.map_err(|error| BrokerError::unknown(broker.name(), "settling a message", error))
}

/// Why a dead letter is one.
pub fn because(message: &Message) -> Option<Why> {
    message.field(names::DEAD_REASON).and_then(Why::parse)
}

// === Rates ===

impl Rates {
    fn between(before: Depth, later: Depth, took: Duration) -> Option<Self> {
        let seconds = took.as_secs_f64().max(f64::EPSILON);
        let rate = |before: Option<u64>, later: Option<u64>| Some(later?.saturating_sub(before?) as f64 / seconds);
        Some(Self { inflow: rate(before.came, later.came)?, drain: rate(before.went, later.went)? })
    }
}

impl LaneStanding {
    /// How long until the lane is empty at these rates. `None`: never, or not known.
    pub fn time_to_empty(&self) -> Option<Duration> {
        let (rates, waiting) = (self.rates?, self.depth.waiting?);
        let net = rates.drain - rates.inflow;
        if waiting == 0 {
            return Some(Duration::ZERO);
        }
        (net > 0.0).then(|| Duration::try_from_secs_f64(waiting as f64 / net).unwrap_or(Duration::MAX))
    }

    /// How many of those that were looked at stand so: by zone, policy, owner, and the reason of dead letters.
    pub fn grouped(&self) -> BTreeMap<(&'static str, Policy, String, &'static str), usize> {
        let mut groups = BTreeMap::new();
        for seen in &self.looked_at {
            let owner = seen.message.stamp.owner.as_deref().unwrap_or("-").to_owned();
            let because = seen.because.map_or("-", Why::as_str);
            *groups.entry((seen.zone.as_str(), seen.message.stamp.policy, owner, because)).or_default() += 1;
        }
        groups
    }
}

// === Seen ===

impl Seen {
    fn at(message: Message, now: Wall, ours: Duration) -> Self {
        let (zone, because) = (message.stamp.zone(now, ours), because(&message));
        Self { message, zone, because }
    }

    /// When it expires, as RFC 3339 writes it.
    pub fn expires(&self) -> Option<String> {
        self.message.stamp.expires.at().map(|at| utc(at.as_nanos() / 1_000_000).as_str().to_owned())
    }

    /// How long it has been in queues.
    pub fn age(&self) -> Option<Duration> {
        self.message.stamp.first_enqueued.map(|first| clock::wall().since(first))
    }
}
