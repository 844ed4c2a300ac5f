//! Work that is accepted under a key, for somebody who will begin it later.
//!
//! Decides whether it is queued, under which fence, and from when its life counts: from the first time that it was asked for, so
//! that asking again makes nothing fresh (contract Q1, Q6). Whoever begins it [claims](super::claim) it.

use std::time::Duration;

use super::record::{Found, found_for, kept_until};
use super::{Fence, Fingerprint, Owner, Record, State};
use crate::wire::Wall;

/// Work that is accepted, for somebody who will begin it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueue {
    /// What is asked for. Whoever claims it asks for the same.
    pub fingerprint: Fingerprint,
    /// Who asks.
    pub owner: Owner,
    /// When the key was made, if it says so.
    pub made: Option<Wall>,
    /// For how long the record is kept.
    pub retention: Duration,
}

/// What accepting work came to, and what the store has to write for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the record must be durable before the work is put into a queue"]
pub struct Enqueueing {
    /// The record to write, if it changes.
    pub write: Option<Record>,
    /// The answer, once that is durable.
    pub enqueued: Enqueued,
}

/// What accepting work came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// It stands as queued: put it into the queue. Also again, since whether an earlier request did is not known.
    Queued {
        /// The number under which it was accepted.
        fence: Fence,
        /// When its key was first seen, on the store's clock: what its end is counted from, so that asking again makes it no
        /// later.
        first_seen: Wall,
        /// What the store's clock says now.
        now: Wall,
        /// Whether this request made it so.
        is_new: bool,
    },
    /// It was begun, or is settled. There is nothing to put into a queue.
    Stands {
        /// How it stands.
        state: State,
        /// When its key was first seen, likewise.
        first_seen: Wall,
    },
    /// The key belongs to other work.
    OtherFingerprint,
    /// There is no record, and the key is so old that one may have been reaped.
    KeyTooOld,
    /// The key claims to come from further in the future than records are kept.
    KeyFromTheFuture,
}

/// Decides whether work is accepted for a scope whose record is `found`, on the store's clock, without beginning it.
///
/// What was begun is not queued again. What was proven not to have happened is, under the next fence.
///
/// ```
/// # use oneclock_core::{idempotency::*, wire::Wall}; use std::time::Duration;
/// # let (now, hour) = (Wall::from_nanos(1_000_000_000), Duration::from_secs(3600));
/// let ask = Enqueue { fingerprint: Fingerprint([7; 32]), owner: Owner(1), made: None, retention: hour };
/// let accepted = enqueue(None, Fence::NONE, &ask, now);
/// let record = accepted.write.unwrap(); // made durable, and only then is the work put into its queue
/// assert_eq!(record.state, State::Queued);
///
/// // Asked again it is the same work, and its end is counted from the same moment.
/// let again = enqueue(Some(&record), Fence::NONE, &Enqueue { owner: Owner(2), ..ask }, now + hour / 2);
/// assert!(matches!(again.enqueued, Enqueued::Queued { first_seen, is_new: false, .. } if first_seen == now));
/// ```
pub fn enqueue(found: Option<&Record>, floor: Fence, ask: &Enqueue, now: Wall) -> Enqueueing {
    let nothing = |enqueued| Enqueueing { write: None, enqueued };
    let queued = |record: Record| {
        let (fence, first_seen) = (record.fence, record.first_seen);
        Enqueueing { write: Some(record), enqueued: Enqueued::Queued { fence, first_seen, now, is_new: true } }
    };
    let before = match found_for(found, floor, ask.made, ask.retention, now) {
        Found::Free(fence) => return queued(record_of(ask, fence, now, now)),
        Found::KeyTooOld => return nothing(Enqueued::KeyTooOld),
        Found::KeyFromTheFuture => return nothing(Enqueued::KeyFromTheFuture),
        Found::Kept(before) => before.at(now), // one that has lapsed is written so by whoever claims it
    };
    if before.fingerprint != ask.fingerprint {
        return nothing(Enqueued::OtherFingerprint);
    }
    match before.state {
        State::Queued => nothing(Enqueued::Queued {
            fence: before.fence,
            first_seen: before.first_seen,
            now,
            is_new: before.owner == ask.owner,
        }),
        State::FailedRetryable => {
            let next = record_of(ask, before.fence.next(), before.first_seen, now);
            queued(Record { expires: next.expires.max(before.expires), ..next })
        }
        State::InProgress { .. } | State::Completed | State::Unknown(_) => {
            nothing(Enqueued::Stands { state: before.state, first_seen: before.first_seen })
        }
    }
}

fn record_of(ask: &Enqueue, fence: Fence, first_seen: Wall, now: Wall) -> Record {
    Record {
        fingerprint: ask.fingerprint,
        owner: ask.owner,
        fence,
        state: State::Queued,
        since: now,
        first_seen,
        expires: kept_until(ask.made, ask.retention, now),
        retention: ask.retention,
    }
}
