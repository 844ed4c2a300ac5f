//! Why there is no further attempt, and what a caller above may conclude from it (contract R9).

use std::fmt;
use std::time::Duration;

use super::RetryPolicy;
use crate::Reason;
use crate::effect::Outcome;
use crate::ending::Cause;
use crate::time::Legible;

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// HTTP's.
    Http(u16),
    /// gRPC's.
    Grpc(u8),
}

/// Why there is no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// It succeeded.
    Done,
    /// What is known of the far side and what the call does forbid it (contract R7).
    Effect {
        /// What is known of the far side.
        outcome: Outcome,
    },
    /// Its status is none that the policy finds worth another attempt.
    Status {
        /// The status.
        status: Status,
    },
    /// One of ours gave a reason that another attempt would not change.
    Reason {
        /// The reason.
        reason: Reason,
    },
    /// The far side had too little time, and would get no more.
    NoMoreThanBefore {
        /// What it had.
        had: Duration,
        /// What it would get.
        gets: Duration,
    },
    /// The far side asked not to be tried again.
    ToldNotTo,
    /// It was held back here, by the [throttle](crate::throttle) or the [breaker](crate::breaker) of what it calls: another
    /// attempt would ask the same.
    HeldBack,
    /// The far side asked for a longer wait than fits (contract R2).
    PushedBack {
        /// The wait that it asked for.
        wait: Duration,
        /// What is left.
        remaining: Duration,
    },
    /// A hop below has tried and given up (contract R9).
    HopBelow {
        /// How often it tried.
        attempts: u32,
    },
    /// The request that this call serves is a retry itself (contract R9).
    HopAbove {
        /// Which attempt it is.
        attempt: u32,
    },
    /// Retries to this destination are switched off.
    SwitchedOff,
    /// As many were made as the policy allows.
    AllMade {
        /// How many.
        attempts: u32,
    },
    /// The request cannot be sent again: its body was longer than what is kept (contract R6).
    NotReplayable,
    /// Another attempt does not fit what is left (contract R1, R5).
    OutOfTime {
        /// What is left, less the reserve.
        remaining: Duration,
        /// The wait before it.
        wait: Duration,
        /// The least that is useful after that.
        min_useful: Duration,
    },
    /// The destination's calls have used up what they may repeat together (contract R9).
    NoTokens,
    /// The operation ended early.
    Ended {
        /// Why.
        cause: Cause,
    },
}

// === Status ===

impl Status {
    pub(super) fn is_retried_by(self, policy: &RetryPolicy) -> bool {
        match self {
            Self::Http(status) => policy.retries_status(status),
            Self::Grpc(status) => policy.retries_grpc_status(status),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(status) => status.fmt(f),
            Self::Grpc(status) => write!(f, "{status} of gRPC"),
        }
    }
}

// === Stop ===

impl Stop {
    /// The word for logs and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Effect { .. } => "effect",
            Self::Status { .. } => "status",
            Self::Reason { .. } => "reason",
            Self::NoMoreThanBefore { .. } => "no_more_than_before",
            Self::ToldNotTo => "told_not_to",
            Self::HeldBack => "held_back",
            Self::PushedBack { .. } => "pushed_back",
            Self::HopBelow { .. } => "hop_below",
            Self::HopAbove { .. } => "hop_above",
            Self::SwitchedOff => "switched_off",
            Self::AllMade { .. } => "all_made",
            Self::NotReplayable => "not_replayable",
            Self::OutOfTime { .. } => "deadline",
            Self::NoTokens => "no_tokens",
            Self::Ended { .. } => "ended",
        }
    }

    /// Whether another attempt was allowed and wanted, and did not fit the time (contract R1, R2). Counted as
    /// `retry_skipped_due_to_deadline`.
    pub const fn is_for_time(self) -> bool {
        matches!(self, Self::OutOfTime { .. } | Self::PushedBack { .. } | Self::NoMoreThanBefore { .. })
    }

    /// Whether callers above would multiply by trying again: this hop or one below it has tried all that it may, or holds
    /// back what it would call (contract R9).
    pub const fn tells_callers_not_to(self, attempts: u32) -> bool {
        match self {
            Self::Done => false,
            Self::HopBelow { .. } | Self::NoTokens | Self::HeldBack => true,
            _ => attempts > 1,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Done => f.write_str("it succeeded"),
            Self::Effect { outcome } => write!(f, "what it does must not be repeated when its outcome is {outcome}"),
            Self::Status { status } => write!(f, "status {status} is none that is tried again"),
            Self::Reason { reason } => write!(f, "the far side's reason, {reason}, would be the same again"),
            Self::NoMoreThanBefore { had, gets } => {
                write!(f, "{} was too little for the far side, and now it would be {}", Legible(had), Legible(gets))
            }
            Self::ToldNotTo => f.write_str("the far side asked not to be tried again"),
            Self::HeldBack => f.write_str("calls to it are held back, and another one would be, too"),
            Self::PushedBack { wait, remaining } => {
                write!(f, "the far side asked for a wait of {}, and {} is left", Legible(wait), Legible(remaining))
            }
            Self::HopBelow { attempts: 1 } => {
                f.write_str("the far side asked not to be tried again, as one below it did")
            }
            Self::HopBelow { attempts } => write!(f, "the far side has made {attempts} attempts itself"),
            Self::HopAbove { attempt } => write!(f, "the caller is at attempt {attempt} of its own"),
            Self::SwitchedOff => f.write_str("retries to it are switched off"),
            Self::AllMade { attempts: 1 } => f.write_str("one attempt is all that it may make"),
            Self::AllMade { attempts } => write!(f, "all {attempts} attempts were made"),
            Self::NotReplayable => f.write_str("more of its body was sent than is kept"),
            Self::OutOfTime { remaining, wait, min_useful } => {
                let (remaining, min_useful) = (Legible(remaining), Legible(min_useful));
                match wait {
                    Duration::ZERO => write!(f, "{remaining} left, {min_useful} is the least that is useful"),
                    wait => write!(
                        f,
                        "{remaining} left, the wait before the next attempt is {} and {min_useful} is the least that is \
                         useful after it",
                        Legible(wait)
                    ),
                }
            }
            Self::NoTokens => f.write_str("the calls to it have used up their retries"),
            Self::Ended { cause } => write!(f, "the operation ended ({cause})"),
        }
    }
}
