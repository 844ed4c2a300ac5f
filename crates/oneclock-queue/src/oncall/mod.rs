//! What people on call do with a queue: look, put dead letters back, end them, end what has expired.
//!
//! Decides what is counted as what, and that nothing is guessed: whether a dead letter may be put back and whether work has expired is
//! `oneclock_core::expiry`'s to say. What is not meant stays where it was, and a broker that does not answer is no empty queue.

mod ends;
mod rounds;

use std::collections::BTreeMap;
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Policy, Why, Zone, names};
use oneclock_core::wire::{Wall, utc};

use crate::broker::{BrokerError, Depth, Inspect, Lane};
use crate::{Message, Uncertainty};

pub use ends::{BrokeOff, DropDead, Ended, NotDropped, Redrive, drop_dead, expire, redrive, would_drop};

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

    /// Of a dead letter: what its handler said.
    pub fn detail(&self) -> Option<&str> {
        self.message.field(names::DEAD_DETAIL)
    }

    /// Of a dead letter: how many times it had been delivered.
    pub fn attempts(&self) -> Option<u32> {
        self.message.field(names::DEAD_ATTEMPTS)?.parse().ok()
    }

    /// Of a dead letter: when it became one, as RFC 3339 writes it.
    pub fn died_at(&self) -> Option<&str> {
        self.message.field(names::DEAD_AT)
    }

    /// How long it has been in queues.
    pub fn age(&self) -> Option<Duration> {
        self.message.stamp.first_enqueued.map(|first| clock::wall().since(first))
    }
}
