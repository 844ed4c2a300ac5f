//! What people on call end: a dead letter is put back or dropped, and what has expired ends as its contract says.
//!
//! Decides who is meant, and that what was done until something went wrong is told all the same.

use std::fmt;
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Judged, NotRedriven, Policy, Stamp, Why, Zone, judge, redrive as may_redrive};

use super::because;
use super::rounds::Rounds;
use crate::broker::{Broker, BrokerError, Dead, Delivery, Inspect, Lane, NotSettled, Settle};
use crate::{Message, Uncertainty};

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

/// Which dead letters are ended.
#[derive(Clone, Debug, Default)]
pub struct DropDead {
    /// Only these messages; all of them where it is empty, but for those that must be completed: they are ended by their names.
    pub ids: Vec<String>,
    /// Only those that are dead for this reason.
    pub because: Option<Why>,
    /// Why they are ended. It is logged with each.
    pub reason: String,
    /// At most so many are looked at.
    pub at_most: usize,
}

/// A dead letter is not ended. It stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotDropped {
    /// Its contract is that it is completed.
    #[error("it must be completed: to end it all the same, name it by its id")]
    MustComplete,
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

/// The broker did not answer any more, or refused. What is in `done` is done; what stays comes again by itself.
#[derive(Debug, thiserror::Error)]
#[error("it broke off, with {} done", done.len())]
pub struct BrokeOff<T: fmt::Debug> {
    /// What was done until then.
    pub done: Vec<T>,
    /// What went wrong.
    #[source]
    pub error: BrokerError,
}

/// What became of each message.
pub(super) type Each<T> = Result<Vec<(Message, T)>, BrokeOff<(Message, T)>>;

/// Puts dead letters back, with their expiry as it was (contract Q1). Returns what became of each that was looked at and meant.
///
/// `patience` is how long the dead lane may say nothing before it counts as empty.
///
/// # Errors
/// [`BrokeOff`], also where the broker does not answer.
///
/// # Cancel safety
/// Dropped, some may be back.
pub async fn redrive<B: Inspect>(
    broker: &B,
    uncertainty: &Uncertainty,
    wanted: &Redrive,
    patience: Duration,
) -> Each<Result<Stamp, NotRedriven>> {
    let mut told = Vec::new();
    let went = redriven(broker, uncertainty, wanted, patience, &mut told).await;
    told_of(went, told)
}

async fn redriven<B: Inspect>(
    broker: &B,
    uncertainty: &Uncertainty,
    wanted: &Redrive,
    patience: Duration,
    told: &mut Vec<(Message, Result<Stamp, NotRedriven>)>,
) -> Result<(), BrokerError> {
    let mut rounds = Rounds::begin(broker, Lane::Dead, wanted.at_most, patience).await?;
    while let Some(delivery) = rounds.next().await? {
        let message = delivery.message().clone();
        let Some(because) = meant(&message, &wanted.ids, wanted.because) else {
            rounds.stays(delivery);
            continue;
        };
        let (owner, now) = (wanted.owner.as_deref(), clock::wall());
        let stamp = may_redrive(&message.stamp, Some(because), owner, wanted.sure, now, uncertainty.get());
        let stamp = match stamp {
            Ok(stamp) => match delivery.settle(&Settle::Redrive(stamp.clone())).await {
                Err(NotSettled::TooLarge) => Err(NotRedriven::TooLarge),
                settled => or_broke(broker, settled).map(|()| Ok(stamp))?,
            },
            stays => stays,
        };
        if stamp.is_ok() {
            tracing::info!(queue = %broker.name(), message = %message.id, kind = %message.kind, %because, "a dead letter was put back by hand");
        } else {
            rounds.stays(delivery);
        }
        told.push((message, stamp));
    }
    Ok(())
}

/// Ends dead letters. Returns what became of each that was looked at and meant; each that ended is logged with its reason.
///
/// `patience` is how long the dead lane may say nothing before it counts as empty.
///
/// # Errors
/// [`BrokeOff`], also where the broker does not answer.
///
/// # Cancel safety
/// Dropped, some may be gone.
pub async fn drop_dead<B: Inspect>(broker: &B, wanted: &DropDead, patience: Duration) -> Each<Result<(), NotDropped>> {
    let mut told = Vec::new();
    let went = dropped(broker, wanted, patience, &mut told).await;
    told_of(went, told)
}

async fn dropped<B: Inspect>(
    broker: &B,
    wanted: &DropDead,
    patience: Duration,
    told: &mut Vec<(Message, Result<(), NotDropped>)>,
) -> Result<(), BrokerError> {
    let mut rounds = Rounds::begin(broker, Lane::Dead, wanted.at_most, patience).await?;
    while let Some(delivery) = rounds.next().await? {
        let message = delivery.message().clone();
        let Some(because) = meant(&message, &wanted.ids, wanted.because) else {
            rounds.stays(delivery);
            continue;
        };
        let may = may_drop(&message, wanted);
        if may.is_ok() {
            or_broke(broker, delivery.settle(&Settle::Gone).await)?;
            tracing::warn!(
                queue = %broker.name(), message = %message.id, kind = %message.kind, owner = message.stamp.owner.as_deref(),
                %because, reason = wanted.reason, "a dead letter was ended by hand"
            );
        } else {
            rounds.stays(delivery);
        }
        told.push((message, may));
    }
    Ok(())
}

/// What [`drop_dead`] would do. Reads only.
///
/// # Errors
/// [`BrokerError`].
///
/// # Cancel safety
/// Reads only.
pub async fn would_drop<B: Inspect>(
    broker: &B,
    wanted: &DropDead,
) -> Result<Vec<(Message, Result<(), NotDropped>)>, BrokerError> {
    let there = broker.peek(Lane::Dead, wanted.at_most).await?;
    let those = there.into_iter().filter(|message| meant(message, &wanted.ids, wanted.because).is_some());
    Ok(those
        .map(|message| {
            let may = may_drop(&message, wanted);
            (message, may)
        })
        .collect())
}

/// Ends the work of the main lane that has certainly expired, as its contract says, without a consumer (contract Q5): discarded, or
/// moved to the dead or the late lane. The rest is given back, which may change its order. Returns what became of each that ended.
///
/// `patience` is how long the lane may say nothing before it counts as empty.
///
/// # Errors
/// [`BrokeOff`], also where the broker does not answer.
///
/// # Cancel safety
/// Dropped, some may be ended.
pub async fn expire<B: Inspect>(
    broker: &B,
    uncertainty: &Uncertainty,
    at_most: usize,
    patience: Duration,
) -> Each<Ended> {
    let mut ended = Vec::new();
    let went = expired(broker, uncertainty, at_most, patience, &mut ended).await;
    told_of(went, ended)
}

async fn expired<B: Inspect>(
    broker: &B,
    uncertainty: &Uncertainty,
    at_most: usize,
    patience: Duration,
    ended: &mut Vec<(Message, Ended)>,
) -> Result<(), BrokerError> {
    let mut rounds = Rounds::begin(broker, Lane::Main, at_most, patience).await?;
    while let Some(delivery) = rounds.next().await? {
        let message = delivery.message().clone();
        let (now, attempts) = (clock::wall(), delivery.attempt());
        let dead = |why| (Settle::Dead(Dead { why, detail: None, at: now, attempts }), Ended::DeadLettered(why));
        let what = match judge(&message.stamp, now, uncertainty.get(), Duration::ZERO) {
            Judged::Discard(why) => Some((Settle::Gone, Ended::Discarded(why))),
            Judged::DeadLetter(why @ Why::Expired) => Some(dead(why)),
            Judged::Run(terms) if terms.late && message.stamp.zone(now, uncertainty.get()) == Zone::Expired => {
                Some((Settle::Late, Ended::MovedLate))
            }
            _ => None,
        };
        let Some((settle, mut what)) = what else {
            rounds.stays(delivery);
            continue;
        };
        let mut settled = delivery.settle(&settle).await;
        if matches!(settled, Err(NotSettled::TooLarge)) && settle == Settle::Late {
            let why = if delivery.may_have_run() { Why::OutcomeUnknown } else { Why::Expired };
            let instead = dead(why);
            (settled, what) = (delivery.settle(&instead.0).await, instead.1);
        }
        or_broke(broker, settled)?;
        tracing::info!(queue = %broker.name(), message = %message.id, kind = %message.kind, ?what, "what had expired was ended by hand");
        ended.push((message, what));
    }
    Ok(())
}

/// Why it is dead, if it is meant. One that does not say why may have been done.
fn meant(message: &Message, ids: &[String], wanted: Option<Why>) -> Option<Why> {
    let because = because(message).unwrap_or(Why::OutcomeUnknown);
    let is_named = ids.is_empty() || ids.iter().any(|id| **id == *message.id);
    (is_named && wanted.is_none_or(|wanted| wanted == because)).then_some(because)
}

fn may_drop(message: &Message, wanted: &DropDead) -> Result<(), NotDropped> {
    let is_owed = message.stamp.policy == Policy::MustComplete && wanted.ids.is_empty();
    if is_owed { Err(NotDropped::MustComplete) } else { Ok(()) }
}

fn or_broke<B: Broker>(broker: &B, settled: Result<(), NotSettled>) -> Result<(), BrokerError> {
    settled.map_err(|error| BrokerError::unknown(broker.name(), "settling a message", error))
}

fn told_of<T: fmt::Debug>(went: Result<(), BrokerError>, told: Vec<(Message, T)>) -> Each<T> {
    match went {
        Ok(()) => Ok(told),
        Err(error) => Err(BrokeOff { done: told, error }),
    }
}

// === NotDropped ===

impl NotDropped {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MustComplete => "must_complete",
        }
    }
}
