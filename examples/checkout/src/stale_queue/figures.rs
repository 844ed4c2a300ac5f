//! The figures of the stale queue, as they are printed. Counted from what those outside wrote down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oneclock_core::Tick;
use serde::Serialize;

use super::Outage;
use super::books::{Books, Kept, Late};
use super::propagated::CONFIRM;
use crate::report::rounded;

/// The stale queue, both ways.
#[derive(Clone, Debug, Serialize)]
pub struct StaleQueue {
    /// Its name.
    pub name: &'static str,
    /// Where the queues were: `memory` or `rabbitmq`.
    pub queues: &'static str,
    /// How long an hour behind the counter took.
    pub hour_ms: u64,
    /// For how many hours a confirmation is of use, and within how many a card is to be settled.
    pub useful_hours: f64,
    /// With a queue's own time to live.
    pub independent: Behind,
    /// With work that lives by its own expiry.
    pub propagated: Behind,
}

/// What was done behind the counter, one way.
#[derive(Clone, Debug, Serialize)]
pub struct Behind {
    /// How many were answered within the time that the user gives them.
    pub answers_in_time: usize,
    /// Confirmations, with the price in them.
    pub confirmations: Confirmations,
    /// Cards whose outcome was unknown.
    pub cards: Cards,
    /// How many dead letters were put back.
    pub redriven: usize,
}

/// What became of the confirmations.
#[derive(Clone, Debug, Serialize)]
pub struct Confirmations {
    /// How many were accepted, while their users waited.
    pub accepted: usize,
    /// How many of them were sent while their price held.
    pub in_time: usize,
    /// How many were sent after that.
    pub late: usize,
    /// How many hours after the order the last of those was sent; zero if there was none.
    pub latest_hours: f64,
    /// Mails beyond the first for one order.
    pub again: usize,
    /// How many were not sent, by the reason that was counted.
    pub ended: BTreeMap<String, usize>,
    /// Of how many there is neither a mail nor a reason.
    pub lost: usize,
}

/// What became of the cards whose outcome was unknown.
#[derive(Clone, Debug, Serialize)]
pub struct Cards {
    /// How many there were.
    pub unknown: usize,
    /// How many were settled within the time for it.
    pub in_time: usize,
    /// How many were settled later.
    pub late: usize,
    /// How many of those were said to be late to whoever settled them.
    pub flagged: usize,
    /// Who answers for those that were late, as the count says that was made of them.
    pub owner: Option<String>,
    /// Of how many nobody found out.
    pub lost: usize,
    /// How many of those were charged.
    pub lost_and_charged: usize,
}

/// A mail is in time if the consumer began it in time: it takes a little until it is there.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

// === StaleQueue ===

impl StaleQueue {
    pub(super) fn of(outage: &Outage, queues: &'static str, independent: Behind, propagated: Behind) -> Self {
        Self {
            name: Outage::NAME,
            queues,
            hour_ms: u64::try_from(outage.hour.as_millis()).unwrap_or(u64::MAX),
            useful_hours: outage.useful,
            independent,
            propagated,
        }
    }
}

// === Behind ===

impl Behind {
    pub(super) fn of(outage: &Outage, books: &Books, redriven: usize) -> Self {
        let kept = books.read();
        Self {
            answers_in_time: kept.answered,
            confirmations: Confirmations::of(outage, &kept),
            cards: Cards::of(outage, &kept),
            redriven,
        }
    }
}

/// How long after its order something was done, for the first time.
fn ages<'a>(since: &BTreeMap<usize, Tick>, done: impl Iterator<Item = &'a (usize, Tick)>) -> BTreeMap<usize, Duration> {
    let mut ages = BTreeMap::new();
    for (order, at) in done {
        if let Some(began) = since.get(order) {
            ages.entry(*order).or_insert(at.since(*began));
        }
    }
    ages
}

impl Confirmations {
    fn of(outage: &Outage, kept: &Kept) -> Self {
        let useful = outage.hours(outage.useful) + ON_ITS_WAY;
        let first = ages(&kept.promised, kept.mails.iter());
        let last = ages(&kept.promised, kept.mails.iter().rev());
        let late = first.values().filter(|age| **age > useful).count();
        let latest = last.values().filter(|age| **age > useful).max().copied().unwrap_or_default();
        let mut ended = BTreeMap::new();
        for ((kind, order), end) in &kept.ends {
            if kind == CONFIRM && !first.contains_key(order) {
                *ended.entry(end.said.clone()).or_default() += 1;
            }
        }
        let told: usize = ended.values().sum();
        Self {
            accepted: kept.promised.len(),
            in_time: first.len() - late,
            late,
            latest_hours: rounded(latest.div_duration_f64(outage.hour)),
            again: kept.mails.len() - first.len(),
            ended,
            lost: kept.promised.len().saturating_sub(first.len() + told),
        }
    }
}

impl Cards {
    fn of(outage: &Outage, kept: &Kept) -> Self {
        let within = outage.hours(outage.useful) + ON_ITS_WAY;
        let settled: Vec<(usize, Tick)> = kept.settled.iter().map(|(order, at, _)| (*order, *at)).collect();
        let first = ages(&kept.owed, settled.iter());
        let late: BTreeSet<usize> = first.iter().filter(|(_, age)| **age > within).map(|(order, _)| *order).collect();
        let told: BTreeSet<usize> =
            kept.settled.iter().filter(|(_, _, late)| *late == Late::Flagged).map(|(order, _, _)| *order).collect();
        let lost: Vec<usize> = kept.owed.keys().filter(|order| !first.contains_key(order)).copied().collect();
        Self {
            unknown: kept.owed.len(),
            in_time: first.len() - late.len(),
            late: late.len(),
            flagged: late.intersection(&told).count(),
            owner: kept.ends.values().find(|end| end.said == "done_late").and_then(|end| end.owner.clone()),
            lost: lost.len(),
            lost_and_charged: lost.iter().filter(|order| kept.charged.contains(order)).count(),
        }
    }
}
