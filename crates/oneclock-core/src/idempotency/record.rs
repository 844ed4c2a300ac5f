//! The record of one key, and the steps it can take.
//!
//! Decides who may run (contract M1, M3, M4), which late word still counts and which is fenced off (M5), and when a record
//! may go (M9). A record whose lease has lapsed is unknown from that moment on, whether or not somebody has written so.

use std::time::Duration;

use super::{Fence, Fingerprint, Owner};
use crate::wire::Wall;

/// What a store keeps for one scope, beside the answer of a completed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was asked for. Kept in every state, so that a replay can be told from a key used twice.
    pub fingerprint: Fingerprint,
    /// Who claimed it last.
    pub owner: Owner,
    /// The number of its last run.
    pub fence: Fence,
    /// How it stands.
    pub state: State,
    /// Since when it stands so, on the store's clock.
    pub since: Wall,
    /// When its key was first seen.
    pub first_seen: Wall,
    /// From when on it may be reaped, if it is settled.
    pub expires: Wall,
    /// For how long it is kept after its last step.
    pub retention: Duration,
}

/// How a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It was accepted, and nobody has begun. Whoever asks first runs it.
    Queued,
    /// A run is under way, and will have said what became of it by the end of its lease.
    InProgress {
        /// The end of the lease, on the store's clock.
        lease_until: Wall,
    },
    /// Done; its answer is replayed.
    Completed,
    /// Proven: nothing happened. The next request with this key runs.
    FailedRetryable,
    /// It may have happened, or not. Nobody runs it again unless that was declared safe.
    Unknown(Doubt),
}

/// Why it is not known what a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Doubt {
    /// Its lease passed and nobody said anything: its process is gone, or asleep.
    LeaseLapsed,
    /// It reached its own bound and was cut off.
    CutOff,
    /// It panicked.
    Panicked,
    /// It answered with a status that proves nothing, or with an error.
    Failed,
}

/// A request to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// Who asks.
    pub owner: Owner,
    /// When the key was made, if it says so.
    pub made: Option<Wall>,
    /// For how long the run may be silent: longer than it can take.
    pub lease: Duration,
    /// For how long the record is kept.
    pub retention: Duration,
    /// Whether a run of which nothing is known may be repeated.
    pub takeover: Takeover,
}

/// Whether a run of which nothing is known may be repeated (contract M3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Takeover {
    /// No: it stays unknown until somebody finds out.
    #[default]
    Never,
    /// Yes: the work was declared safe to repeat. Its effect can then happen twice.
    DeclaredSafe,
}

/// What a claim came to, and what the store has to write for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the record must be durable before the answer is given"]
pub struct Claiming {
    /// The record to write, if it changes.
    pub write: Option<Record>,
    /// The answer, once that is durable (contract M1).
    pub claimed: Claimed,
}

/// What a claim came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claimed {
    /// Yours: run, and say what became of it under this fence.
    Run {
        /// The number of this run.
        fence: Fence,
        /// Whether this repeats a run of which nothing is known.
        taken_over: bool,
    },
    /// Somebody else is at it.
    InProgress {
        /// What is left of its lease.
        lease_left: Duration,
    },
    /// It is done.
    Completed,
    /// It was begun, and nobody knows what became of it.
    Unknown {
        /// Why not.
        doubt: Doubt,
    },
    /// The key belongs to another request.
    OtherFingerprint,
    /// There is no record, and the key is so old that one may have been reaped.
    KeyTooOld,
    /// The key claims to come from further in the future than records are kept.
    KeyFromTheFuture,
}

/// What somebody says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// It is done.
    Complete,
    /// Proven: nothing happened (contract M4).
    Release,
    /// The same, and nobody is about to try again by itself; why not is kept with it.
    SetAside,
    /// Not known.
    Doubt(Doubt),
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the record must be written"]
pub enum Stepped {
    /// Write this.
    Done(Record),
    /// It stood so already: the same was said before, or more. Nothing to write.
    Already,
    /// Another run has begun since: this one has no say any more. Counted (contract M5).
    Fenced {
        /// The number of the last run.
        current: Fence,
    },
    /// It is settled otherwise. Nothing to write.
    Settled(State),
}

/// Decides a claim for a scope whose record is `found`, on the store's clock.
///
/// `floor` is the highest fence of any record that the store has reaped, so that fences grow over that, too.
///
/// A claim by the owner of the run in progress is the same claim again, and gets the same answer: that of the first may
/// have been lost.
pub fn claim(found: Option<&Record>, floor: Fence, claim: &Claim, now: Wall) -> Claiming {
    let nothing = |claimed| Claiming { write: None, claimed };
    let before = match found_for(found, floor, claim.made, claim.retention, now) {
        Found::Free(fence) => return Claiming::run(Record::claimed(claim, fence, now, now), false),
        Found::KeyTooOld => return nothing(Claimed::KeyTooOld),
        Found::KeyFromTheFuture => return nothing(Claimed::KeyFromTheFuture),
        Found::Kept(before) => before,
    };
    let record = before.at(now);
    let write = (record != *before).then_some(record); // it has lapsed, and nobody had written so
    let found = |claimed| Claiming { write, claimed };
    if record.fingerprint != claim.fingerprint {
        return found(Claimed::OtherFingerprint);
    }
    match record.state {
        State::InProgress { .. } if record.owner == claim.owner => {
            nothing(Claimed::Run { fence: record.fence, taken_over: false })
        }
        State::InProgress { lease_until } => nothing(Claimed::InProgress { lease_left: lease_until.since(now) }),
        State::Completed => nothing(Claimed::Completed),
        State::Queued | State::FailedRetryable => Claiming::run(record.next_run(claim, now), false),
        State::Unknown(doubt) => match claim.takeover {
            Takeover::Never => found(Claimed::Unknown { doubt }),
            Takeover::DeclaredSafe => Claiming::run(record.next_run(claim, now), true),
        },
    }
}

/// What there is for a key.
pub(super) enum Found<'a> {
    /// A record.
    Kept(&'a Record),
    /// None, or one whose time is over: the next has this fence.
    Free(Fence),
    /// None, and whoever reaps keeps a record until its key is this old.
    KeyTooOld,
    /// None, for a key that is not made yet.
    KeyFromTheFuture,
}

pub(super) fn found_for(
    found: Option<&Record>,
    floor: Fence,
    made: Option<Wall>,
    retention: Duration,
    now: Wall,
) -> Found<'_> {
    if let Some(kept) = found.filter(|record| !record.may_be_reaped(now)) {
        return Found::Kept(kept);
    }
    match made {
        // Whoever reaps keeps a record until its key is this old, so a younger one had none.
        Some(made) if now.since(made) >= retention => Found::KeyTooOld,
        Some(made) if made.since(now) > retention => Found::KeyFromTheFuture,
        _ => Found::Free(found.map_or(floor, |record| record.fence.max(floor)).next()),
    }
}

// === Record ===

impl Record {
    /// How it stands at `now`: a run whose lease has lapsed is unknown (contract M3).
    #[must_use]
    pub fn at(self, now: Wall) -> Self {
        match self.state {
            State::InProgress { lease_until } if lease_until <= now => {
                Self { state: State::Unknown(Doubt::LeaseLapsed), since: lease_until, ..self }
            }
            _ => self,
        }
    }

    /// What comes of `step`, said by the run with this fence or by somebody who found out about it.
    ///
    /// The truth may come late: what is unknown becomes completed or retryable under its own fence, never the reverse. What
    /// is completed stays so.
    pub fn step(&self, fence: Fence, step: Step, now: Wall) -> Stepped {
        if fence != self.fence {
            return Stepped::Fenced { current: self.fence };
        }
        let state = self.at(now).state;
        let next = match (state, step) {
            (State::Completed, Step::Complete)
            | (State::FailedRetryable, Step::Release)
            | (State::Unknown(_), Step::Doubt(_)) => return Stepped::Already,
            // Of what was queued: it ended without a run, and will not have one. Also after a proof that nothing happened,
            // which was wrong then: what is done must not be done again.
            (State::Queued | State::InProgress { .. } | State::Unknown(_) | State::FailedRetryable, Step::Complete) => {
                State::Completed
            }
            (State::Queued | State::InProgress { .. } | State::Unknown(_), Step::Release | Step::SetAside)
            | (State::FailedRetryable, Step::SetAside) => State::FailedRetryable,
            // Of what was queued: it may have been done without its record.
            (State::Queued | State::InProgress { .. }, Step::Doubt(doubt)) => State::Unknown(doubt),
            (State::Completed, Step::Release | Step::SetAside | Step::Doubt(_))
            | (State::FailedRetryable, Step::Doubt(_)) => return Stepped::Settled(state),
        };
        let expires = self.expires.max(now + self.retention);
        Stepped::Done(Self { state: next, since: now, expires, ..*self })
    }

    /// Whether it may go: nobody is at it, and its time has passed. What is unknown never goes by itself.
    pub fn may_be_reaped(&self, now: Wall) -> bool {
        match self.state {
            State::Queued | State::Completed | State::FailedRetryable => self.expires <= now,
            State::InProgress { .. } | State::Unknown(_) => false,
        }
    }

    fn claimed(claim: &Claim, fence: Fence, first_seen: Wall, now: Wall) -> Self {
        Self {
            fingerprint: claim.fingerprint,
            owner: claim.owner,
            fence,
            state: State::InProgress { lease_until: now + claim.lease },
            since: now,
            first_seen,
            expires: kept_until(claim.made, claim.retention, now),
            retention: claim.retention,
        }
    }

    fn next_run(&self, claim: &Claim, now: Wall) -> Self {
        let next = Self::claimed(claim, self.fence.next(), self.first_seen, now);
        Self { expires: next.expires.max(self.expires), ..next }
    }
}

/// From when the key says it was made, if that is later: else the record could go while the key still seems young.
pub(super) fn kept_until(made: Option<Wall>, retention: Duration, now: Wall) -> Wall {
    made.map_or(now, |made| made.max(now)) + retention
}

// === Claiming ===

impl Claiming {
    fn run(record: Record, taken_over: bool) -> Self {
        Self { claimed: Claimed::Run { fence: record.fence, taken_over }, write: Some(record) }
    }
}

// === State ===

impl State {
    /// The word for logs, labels and monitors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress { .. } => "in_progress",
            Self::Completed => "completed",
            Self::FailedRetryable => "failed_retryable",
            Self::Unknown(_) => "unknown",
        }
    }
}

// === Doubt ===

impl Doubt {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::LeaseLapsed, Self::CutOff, Self::Panicked, Self::Failed];

    /// The word for logs and labels, and what stores write.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeaseLapsed => "lease_lapsed",
            Self::CutOff => "cut_off",
            Self::Panicked => "panicked",
            Self::Failed => "failed",
        }
    }

    /// Why, for whoever asks.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::LeaseLapsed => "its run went silent",
            Self::CutOff => "its run reached its own bound and was cut off",
            Self::Panicked => "its run panicked",
            Self::Failed => "its run failed in a way that proves nothing",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|doubt| doubt.as_str() == word)
    }
}
