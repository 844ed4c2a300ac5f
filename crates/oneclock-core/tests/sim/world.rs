//! What a simulated system consists of, before anything happens: who calls, over which tiers, and how they try again.

use std::ops::Range;
use std::time::Duration;

use oneclock_core::Importance;
use oneclock_core::retry::Backoff;

use crate::chance::Service;
use crate::control::Control;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// Makes the control of one replica of a tier with so many slots.
pub(crate) type Make<'a> = &'a dyn Fn(usize) -> Box<dyn Control>;

/// A chain of tiers and those who call the first of them. No network: what is sent is there.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) tiers: Vec<Tier>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) tries: Tries,
    /// Whether a caller that goes takes its work with it, at every tier.
    pub(crate) cancels: bool,
    /// Whether the deadline travels.
    pub(crate) tells: bool,
    /// Whether a slot is kept while its work waits for the next tier.
    pub(crate) holds: bool,
    /// When nobody new comes any more; what is under way still comes to its end.
    pub(crate) until: u64,
}

/// Slots, and how long their own work takes.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) slots: usize,
    pub(crate) replicas: usize,
    /// By class.
    pub(crate) service: Vec<Service>,
    pub(crate) slow: Option<Slow>,
}

/// All work that starts in this time takes that many times as long.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    pub(crate) during: Range<u64>,
    pub(crate) times: u64,
    /// Only there, else everywhere.
    pub(crate) replica: Option<usize>,
}

/// Callers of one kind: open loop, Poisson.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) class: usize,
    /// 0 where nobody knows whose it is.
    pub(crate) peer: u64,
    pub(crate) importance: Importance,
    /// What is said: the deadline.
    pub(crate) budget: u64,
    /// What is done: when the caller goes. An answer after that is none.
    pub(crate) patience: u64,
    /// Arrivals per second until a moment, one after the other.
    pub(crate) shape: Vec<(u64, f64)>,
}

/// How a caller, at every hop, tries again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tries {
    pub(crate) most: u32,
    /// Whether `retry::Tokens` has to allow it.
    pub(crate) tokens: bool,
    /// How long one attempt is waited for.
    pub(crate) each: Option<u64>,
    pub(crate) backoff: Backoff,
}

impl Tries {
    pub(crate) fn one() -> Self {
        Self {
            most: 1,
            tokens: false,
            each: None,
            backoff: Backoff::new(Duration::from_millis(5), Duration::from_millis(20)),
        }
    }

    pub(crate) fn three() -> Self {
        Self { most: 3, ..Self::one() }
    }

    pub(crate) fn three_with_tokens() -> Self {
        Self { tokens: true, ..Self::three() }
    }

    pub(crate) fn each(self, millis: u64) -> Self {
        Self { each: Some(millis * MS), ..self }
    }
}

impl Tier {
    pub(crate) fn new(slots: usize, service: &[Service]) -> Self {
        Self { slots, replicas: 1, service: service.to_vec(), slow: None }
    }
}

impl Stream {
    pub(crate) fn new(budget_ms: u64, shape: &[(u64, f64)]) -> Self {
        let (budget, importance) = (budget_ms * MS, Importance::Required);
        Self { class: 0, peer: 0, importance, budget, patience: budget, shape: shape.to_vec() }
    }
}
