//! What surrounds the record: how long it is kept, how long a request waits, what it is told, and what a handler's answer
//! proves.
//!
//! Contract M4, M7, M9.

use std::time::Duration;

use super::{Doubt, Step};
use crate::effect::{Outcome, Seen, outcome};

/// How long something may still come back with the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Horizons {
    /// The longest timeout where requests are repeated.
    pub longest_timeout: Duration,
    /// For how long clients go on trying.
    pub client_retries: Duration,
    /// Until when a queue may deliver again: its messages' expiry, and how much later somebody may redrive them.
    pub redelivery: Duration,
}

/// Records would go before the last retry has come, which then would run again (contract M9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "records kept for {retention:?} would be gone before the last retry comes, {least:?} is the least (2 × the longest \
     timeout, the clients' retries, or the queue's redelivery): keep them longer, or shorten what repeats"
)]
pub struct RetentionTooShort {
    /// What was asked for.
    pub retention: Duration,
    /// The least that is right.
    pub least: Duration,
}

/// A request with a key that gets neither a run nor a replay (contract M7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// This route needs a key, and there was none.
    KeyMissing,
    /// What stands in the field is no key.
    KeyMalformed,
    /// The key was used for another request.
    OtherFingerprint,
    /// Somebody is at it, and the caller's time to wait is over.
    InProgress,
    /// It was begun, and nobody knows what became of it.
    OutcomeUnknown,
    /// It is done, and its answer was too large to be kept.
    AnswerNotKept,
    /// The key is older than records are kept.
    KeyTooOld,
    /// The store cannot be asked. Nothing was run.
    StoreUnreachable,
}

/// What the handler's answer says of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It did its work, or said definitely that it will not: the answer is kept and replayed.
    Keep,
    /// It refused before doing anything: the next request with the key runs.
    Nothing,
    /// It proves nothing.
    Doubtful,
}

/// The most that a caller is told to stay away. Nothing says that a run needs its whole lease.
const RETRY_AFTER_MOST: u64 = 5;

/// What the status of the handler's own answer says of its run (contract R8, M4).
///
/// `nothing_happened` is the handler's own word that it did nothing, a rolled back transaction for example.
///
/// ```
/// # use oneclock_core::idempotency::*;
/// assert_eq!(verdict(201, false), Verdict::Keep);
/// assert_eq!(verdict(422, false), Verdict::Keep); // it would say so again
/// assert_eq!(verdict(429, false), Verdict::Nothing);
/// assert_eq!(verdict(500, false), Verdict::Doubtful);
/// assert_eq!(verdict(500, true), Verdict::Nothing);
/// ```
pub const fn verdict(status: u16, nothing_happened: bool) -> Verdict {
    if nothing_happened {
        return Verdict::Nothing;
    }
    // Its own answer, so a redirect is what it decided.
    if status >= 300 && status < 400 {
        return Verdict::Keep;
    }
    match outcome(Seen::Answer { status, reason: None }, false) {
        Outcome::Applied | Outcome::Failed => Verdict::Keep,
        Outcome::NotSent | Outcome::Rejected => Verdict::Nothing,
        Outcome::Unknown { .. } => Verdict::Doubtful,
    }
}

/// How long a request waits for a run: within what its caller has left, less the way home, and no longer than `cap`.
/// `None` if that is nothing.
pub fn wait(remaining: Duration, reserve: Duration, cap: Duration) -> Option<Duration> {
    let most = remaining.saturating_sub(reserve).min(cap);
    (!most.is_zero()).then_some(most)
}

/// The seconds in `Retry-After` for a run in progress: until its lease is over, at least 1 and at most 5.
pub const fn retry_after(lease_left: Duration) -> u64 {
    let whole = lease_left.as_secs().saturating_add(1);
    if whole < RETRY_AFTER_MOST { whole } else { RETRY_AFTER_MOST }
}

// === Horizons ===

impl Horizons {
    /// The least time that records must be kept (contract M9).
    pub fn least_retention(&self) -> Duration {
        self.longest_timeout.saturating_mul(2).max(self.client_retries).max(self.redelivery)
    }

    /// Whether `retention` is enough.
    ///
    /// ```
    /// # use oneclock_core::idempotency::Horizons; use std::time::Duration;
    /// let hours = |n: u64| Duration::from_secs(n * 3600);
    /// let horizons = Horizons { client_retries: hours(24), redelivery: hours(72), ..Horizons::default() };
    /// assert!(horizons.check(hours(24)).is_err()); // a redrive on Monday of what failed on Friday
    /// assert!(horizons.check(hours(72)).is_ok());
    /// ```
    ///
    /// # Errors
    /// [`RetentionTooShort`].
    pub fn check(&self, retention: Duration) -> Result<(), RetentionTooShort> {
        let least = self.least_retention();
        if retention < least { Err(RetentionTooShort { retention, least }) } else { Ok(()) }
    }
}

// === Refusal ===

impl Refusal {
    /// Every refusal, for tables and tests.
    pub const ALL: [Self; 8] = [
        Self::KeyMissing,
        Self::KeyMalformed,
        Self::OtherFingerprint,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::AnswerNotKept,
        Self::KeyTooOld,
        Self::StoreUnreachable,
    ];

    /// The word for labels and problem types.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeyMissing => "key_missing",
            Self::KeyMalformed => "key_malformed",
            Self::OtherFingerprint => "key_reused",
            Self::InProgress => "in_progress",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::AnswerNotKept => "answer_not_kept",
            Self::KeyTooOld => "key_too_old",
            Self::StoreUnreachable => "store_unreachable",
        }
    }

    /// What the caller reads.
    pub const fn title(self) -> &'static str {
        match self {
            Self::KeyMissing => "this needs an idempotency key",
            Self::KeyMalformed => "the idempotency key is malformed",
            Self::OtherFingerprint => "this idempotency key was used for another request",
            Self::InProgress => "a request with this idempotency key is still being worked on",
            Self::OutcomeUnknown => "a request with this idempotency key was begun, and what became of it is not known",
            Self::AnswerNotKept => "this is done, and its answer was too large to be kept",
            Self::KeyTooOld => "this idempotency key is older than records are kept",
            Self::StoreUnreachable => "it cannot be made sure that this happens once, so nothing was done",
        }
    }

    /// The HTTP status.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::KeyMissing | Self::KeyMalformed => 400,
            Self::InProgress | Self::OutcomeUnknown | Self::AnswerNotKept => 409,
            Self::KeyTooOld => 412,
            Self::OtherFingerprint => 422,
            Self::StoreUnreachable => 503,
        }
    }

    /// The gRPC status.
    pub const fn grpc_status(self) -> u8 {
        match self {
            Self::KeyMissing | Self::KeyMalformed => 3,
            Self::OtherFingerprint | Self::KeyTooOld => 9,
            Self::InProgress | Self::OutcomeUnknown | Self::AnswerNotKept => 10,
            Self::StoreUnreachable => 14,
        }
    }

    /// Whether the same request may be sent again unchanged, and is told when.
    pub const fn comes_again(self) -> bool {
        matches!(self, Self::InProgress | Self::StoreUnreachable)
    }
}

// === Verdict ===

impl Verdict {
    /// What is said of the run.
    pub const fn step(self) -> Step {
        match self {
            Self::Keep => Step::Complete,
            Self::Nothing => Step::Release,
            Self::Doubtful => Step::Doubt(Doubt::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn m9_retention_outlives_whatever_may_come_back() {
        let horizons = Horizons { longest_timeout: secs(30), client_retries: secs(50), redelivery: secs(40) };
        assert_eq!(horizons.least_retention(), secs(60));
        assert_eq!(horizons.check(secs(60)), Ok(()));
        assert_eq!(
            horizons.check(secs(59)).unwrap_err().to_string(),
            "records kept for 59s would be gone before the last retry comes, 60s is the least (2 × the longest timeout, the \
             clients' retries, or the queue's redelivery): keep them longer, or shorten what repeats"
        );
        let endless = Horizons { longest_timeout: Duration::MAX, ..horizons };
        assert!(endless.check(Duration::MAX).is_ok());
    }

    #[test]
    fn m4_only_proof_lets_it_run_again() {
        for status in [200, 201, 204, 301, 303, 307, 400, 404, 409, 422] {
            assert_eq!(verdict(status, false), Verdict::Keep, "{status}");
        }
        for status in [500, 502, 503, 504, 599] {
            assert_eq!(verdict(status, false), Verdict::Doubtful, "{status}");
            assert_eq!(verdict(status, true), Verdict::Nothing, "{status}");
        }
        assert_eq!(verdict(429, false), Verdict::Nothing);
    }

    #[test]
    fn m7_the_wait_spends_the_callers_budget() {
        assert_eq!(wait(secs(3), secs(1), secs(30)), Some(secs(2)));
        assert_eq!(wait(secs(60), secs(1), secs(30)), Some(secs(30)));
        assert_eq!(wait(secs(1), secs(1), secs(30)), None);
    }

    #[test]
    fn m7_what_the_caller_is_told() {
        for refusal in Refusal::ALL {
            assert_eq!(refusal.http_status() / 100, if refusal == Refusal::StoreUnreachable { 5 } else { 4 });
            assert!(!refusal.as_str().contains('-') && !refusal.title().ends_with('.'));
        }
        assert!(!Refusal::OutcomeUnknown.comes_again(), "no Retry-After: trying again finds out nothing");
        assert_eq!((retry_after(Duration::ZERO), retry_after(secs(2)), retry_after(secs(60))), (1, 3, 5));
    }
}
