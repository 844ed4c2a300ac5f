//! What is known of the far side after a call, and whether the call may be repeated.
//!
//! Decides only: which answer means what is contract R8, what may be repeated is contract R7. A timeout is never proof
//! that nothing happened.

use std::fmt;

use crate::{Name, Reason, Stage};

/// What repeating a call would do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// Reads only: repeating is free of consequences.
    ReadOnly,
    /// Doing it twice is the same as doing it once, by its nature.
    Idempotent,
    /// Carries an idempotency key; repeating is safe only at a destination that enforces keys.
    Keyed(Name),
    /// Doing it twice is doing it twice. What nobody declared is this.
    Once,
}

/// What is known of the far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Proven: the request never left.
    NotSent,
    /// Proven: the far side refused it before any effect.
    Rejected,
    /// The far side answered that it did its work.
    Applied,
    /// The far side answered with a definite error: it did not do it, and would not the next time.
    Failed,
    /// It may have happened, or not.
    Unknown {
        /// Where the call was cut off.
        stage: Stage,
    },
}

/// How a call came to its end, as its driver saw it. Turned into an [`Outcome`] by [`outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// We refused it ourselves before anything was sent.
    RefusedHere,
    /// No connection was ever captured for it, or the connect failed: proof that nothing was sent.
    NoConnection,
    /// An answer with this HTTP status and, from a trusted peer of ours, the reason it gave.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The reason of one of ours. Pass `None` for one from outside the trust boundary.
        reason: Option<Reason>,
    },
    /// A gRPC answer with this status and, from a trusted peer of ours, the reason it gave.
    GrpcAnswer {
        /// The gRPC status.
        status: u8,
        /// The reason of one of ours. Pass `None` for one from outside the trust boundary.
        reason: Option<Reason>,
    },
    /// HTTP/2 `REFUSED_STREAM`, or `GOAWAY` with a last stream below ours.
    RefusedStream,
    /// A reset, a closed connection, or our own cut-off after the request may have left.
    CutOff {
        /// Where the call was.
        stage: Stage,
    },
}

/// What is known of the far side, from what was seen (contract R8).
///
/// `reads_only` is whether the call is [`Effect::ReadOnly`]: its status 500 is a definite error, since nothing could
/// have been half done.
///
/// ```
/// # use oneclock_core::{effect::*, Reason, Stage};
/// let ours = Seen::Answer { status: 503, reason: Some(Reason::Shed) };
/// let foreign = Seen::Answer { status: 503, reason: None };
/// assert_eq!(outcome(ours, false), Outcome::Rejected);
/// assert_eq!(outcome(foreign, false), Outcome::Unknown { stage: Stage::Wait });
/// ```
pub const fn outcome(seen: Seen, reads_only: bool) -> Outcome {
    match seen {
        Seen::RefusedHere | Seen::NoConnection => Outcome::NotSent,
        Seen::RefusedStream => Outcome::Rejected,
        Seen::CutOff { stage } => cut_off_at(stage),
        Seen::Answer { status, reason } => answered(status, reason, reads_only),
        Seen::GrpcAnswer { status, reason } => grpc_answered(status, reason, reads_only),
    }
}

/// What is known of the far side, from what was seen of a call with this effect.
///
/// One difference to [`outcome`]: to a call with a key, 409 says that its first attempt is still at work, or that nobody
/// knows what became of that (contract M7). Neither is a definite error.
///
/// ```
/// # use oneclock_core::{effect::*, Stage};
/// let conflict = Seen::Answer { status: 409, reason: None };
/// assert_eq!(outcome_of(&Effect::Keyed("tap-7".into()), conflict), Outcome::Unknown { stage: Stage::Wait });
/// assert_eq!(outcome_of(&Effect::Once, conflict), Outcome::Failed);
/// ```
pub const fn outcome_of(effect: &Effect, seen: Seen) -> Outcome {
    match (effect, seen) {
        (Effect::Keyed(_), Seen::Answer { status: 409, .. }) => Outcome::Unknown { stage: Stage::Wait },
        _ => outcome(seen, matches!(effect, Effect::ReadOnly)),
    }
}

/// What is known of a whole operation that was cut off, whose last known place was `stage`: that it may have happened.
///
/// The stage of one call is proof, see [`outcome`]; that of an operation is only where one of its parts was, and says
/// nothing of the parts before it and beside it (contract R8: not sent needs proof).
///
/// ```
/// # use oneclock_core::{effect::*, Stage};
/// // The charge was answered, and the mail was waiting for a connection:
/// assert_eq!(outcome_of_the_whole(Stage::Pool), Outcome::Unknown { stage: Stage::Pool });
/// assert_eq!(outcome(Seen::CutOff { stage: Stage::Pool }, false), Outcome::NotSent, "the mail by itself");
/// ```
pub const fn outcome_of_the_whole(stage: Stage) -> Outcome {
    Outcome::Unknown { stage }
}

/// Whether a call with this effect may be repeated after this outcome (contract R7, invariant I10).
///
/// `enforces_keys` is what the destination was declared to do; a key alone proves nothing. Whether a repetition still
/// fits the budget is a different question, which `retry` answers.
///
/// ```
/// # use oneclock_core::{effect::*, Stage};
/// let cut_off = Outcome::Unknown { stage: Stage::Wait };
/// assert!(may_repeat(&Effect::ReadOnly, cut_off, false));
/// assert!(!may_repeat(&Effect::Once, cut_off, true));
/// assert!(!may_repeat(&Effect::Keyed("tap-7".into()), cut_off, false));
/// assert!(may_repeat(&Effect::Keyed("tap-7".into()), cut_off, true));
/// ```
pub const fn may_repeat(effect: &Effect, outcome: Outcome, enforces_keys: bool) -> bool {
    match outcome {
        Outcome::NotSent | Outcome::Rejected => true,
        Outcome::Applied | Outcome::Failed => false,
        Outcome::Unknown { .. } => match effect {
            Effect::ReadOnly | Effect::Idempotent => true,
            Effect::Keyed(_) => enforces_keys,
            Effect::Once => false,
        },
    }
}

/// Whether a second attempt may run beside the first (contract R10). A key is not enough: the two would meet at the far
/// side, which lets one of them wait for the other.
///
/// ```
/// # use oneclock_core::effect::*;
/// assert!(may_hedge(&Effect::ReadOnly) && may_hedge(&Effect::Idempotent));
/// assert!(!may_hedge(&Effect::Keyed("tap-7".into())) && !may_hedge(&Effect::Once));
/// ```
pub const fn may_hedge(effect: &Effect) -> bool {
    match effect {
        Effect::ReadOnly | Effect::Idempotent => true,
        Effect::Keyed(_) | Effect::Once => false,
    }
}

/// Whether a request with this method only reads, by the method's definition (RFC 9110 section 9.2.1).
pub fn reads_only(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// What repeating a request does, from its method and its key (contract R7).
///
/// `idempotent_methods` is whether PUT and DELETE were declared to be idempotent at the destination: HTTP asks it of them,
/// services do not always keep to it. What nobody declared is [`Effect::Once`], until it has a key.
///
/// ```
/// # use oneclock_core::effect::*;
/// assert_eq!(of_method("GET", false, None), Effect::ReadOnly);
/// assert_eq!(of_method("PUT", false, None), Effect::Once);
/// assert_eq!(of_method("PUT", true, None), Effect::Idempotent);
/// assert_eq!(of_method("POST", true, None), Effect::Once);
/// assert_eq!(of_method("POST", true, Some("tap-7".into())), Effect::Keyed("tap-7".into()));
/// ```
pub fn of_method(method: &str, idempotent_methods: bool, key: Option<Name>) -> Effect {
    match (method, key) {
        _ if reads_only(method) => Effect::ReadOnly,
        ("PUT" | "DELETE", _) if idempotent_methods => Effect::Idempotent,
        (_, Some(key)) => Effect::Keyed(key),
        (_, None) => Effect::Once,
    }
}

/// Before the request is being written nothing can have happened; from then on it may have.
const fn cut_off_at(stage: Stage) -> Outcome {
    match stage {
        Stage::Arrival | Stage::Queue | Stage::Pool | Stage::Resolve | Stage::Connect | Stage::Tls => Outcome::NotSent,
        // While backing off, an earlier attempt may have had its effect.
        Stage::Send | Stage::Wait | Stage::Body | Stage::Backoff | Stage::Work => Outcome::Unknown { stage },
    }
}

/// What one of ours says by its reason.
const fn reasoned(reason: Reason) -> Outcome {
    match reason {
        Reason::Shed | Reason::ExpiredBeforeStart | Reason::InsufficientBudget | Reason::Shutdown => Outcome::Rejected,
        Reason::Malformed => Outcome::Failed,
        Reason::Deadline
        | Reason::Cap
        | Reason::ShutdownMidway
        | Reason::CallerGone
        | Reason::RequestBody
        | Reason::CalledOff => Outcome::Unknown { stage: Stage::Wait },
    }
}

/// As [`answered`], in gRPC's words: what is definite was decided before any effect.
const fn grpc_answered(status: u8, reason: Option<Reason>, reads_only: bool) -> Outcome {
    if let Some(reason) = reason
        && reason.grpc_status() == status
    {
        return reasoned(reason);
    }
    match status {
        0 => Outcome::Applied,
        // INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE,
        // UNIMPLEMENTED, UNAUTHENTICATED
        3 | 5 | 6 | 7 | 9 | 11 | 12 | 16 => Outcome::Failed,
        13 if reads_only => Outcome::Failed,
        _ => Outcome::Unknown { stage: Stage::Wait },
    }
}

const fn answered(status: u16, reason: Option<Reason>, reads_only: bool) -> Outcome {
    let unknown = Outcome::Unknown { stage: Stage::Wait };
    // A reason that does not come with its own status was copied from somewhere, and says nothing about this answer.
    if let Some(reason) = reason
        && reason.http_status() == status
    {
        return reasoned(reason);
    }
    match status {
        429 => Outcome::Rejected,
        500 => {
            if reads_only {
                Outcome::Failed
            } else {
                unknown
            }
        }
        501.. => unknown,
        400..=499 => Outcome::Failed,
        // 303 tells of something done, 304 of something read; 307 and 308 ask for it to be sent elsewhere, undone.
        303 | 304 => Outcome::Applied,
        307 | 308 => Outcome::Failed,
        300..=399 => unknown,
        _ => Outcome::Applied,
    }
}

impl Outcome {
    /// The word for logs and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Rejected => "rejected",
            Self::Applied => "applied",
            Self::Failed => "failed",
            Self::Unknown { .. } => "unknown",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent => f.write_str("not sent"),
            Self::Unknown { stage } => write!(f, "unknown (cut off in stage {stage})"),
            Self::Rejected | Self::Applied | Self::Failed => f.write_str(self.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Outcome = Outcome::Unknown { stage: Stage::Wait };

    #[track_caller]
    fn answers(status: u16, reason: Option<Reason>, want: Outcome) {
        assert_eq!(outcome(Seen::Answer { status, reason }, false), want, "{status} {reason:?}");
    }

    #[test]
    fn r8_ours_that_did_not_start_are_rejected() {
        for reason in [Reason::Shed, Reason::ExpiredBeforeStart, Reason::InsufficientBudget, Reason::Shutdown] {
            answers(reason.http_status(), Some(reason), Outcome::Rejected);
        }
        answers(504, Some(Reason::Deadline), UNKNOWN);
        answers(504, Some(Reason::Cap), UNKNOWN);
        answers(503, Some(Reason::ShutdownMidway), UNKNOWN);
        answers(200, Some(Reason::Shed), Outcome::Applied); // a reason copied from another answer
        answers(502, Some(Reason::Shed), UNKNOWN);
    }

    #[test]
    fn r8_foreign_answers() {
        answers(429, None, Outcome::Rejected);
        for status in [500, 502, 503, 504] {
            answers(status, None, UNKNOWN);
        }
        for status in [400, 404, 409, 422] {
            answers(status, None, Outcome::Failed);
        }
        answers(200, None, Outcome::Applied);
        for (status, want) in [(301, UNKNOWN), (303, Outcome::Applied), (304, Outcome::Applied), (307, Outcome::Failed)]
        {
            answers(status, None, want);
        }
        let read = outcome(Seen::Answer { status: 500, reason: None }, true);
        assert_eq!(read, Outcome::Failed, "a read that failed did nothing");
    }

    #[test]
    fn r8_grpc_answers() {
        let seen = |status, reason| outcome(Seen::GrpcAnswer { status, reason }, false);
        assert_eq!(seen(4, Some(Reason::ExpiredBeforeStart)), Outcome::Rejected);
        assert_eq!(seen(14, Some(Reason::ExpiredBeforeStart)), UNKNOWN, "a reason copied from another answer");
        assert_eq!((seen(0, None), seen(5, None)), (Outcome::Applied, Outcome::Failed));
        for status in [1, 2, 4, 8, 10, 13, 14, 15, 99] {
            assert_eq!(seen(status, None), UNKNOWN, "{status}");
        }
    }

    #[test]
    fn r8_not_sent_needs_proof() {
        assert_eq!(outcome(Seen::RefusedHere, false), Outcome::NotSent);
        assert_eq!(outcome(Seen::NoConnection, false), Outcome::NotSent);
        assert_eq!(outcome(Seen::RefusedStream, false), Outcome::Rejected);
        for stage in [Stage::Queue, Stage::Pool, Stage::Resolve, Stage::Connect, Stage::Tls] {
            assert_eq!(outcome(Seen::CutOff { stage }, false), Outcome::NotSent, "{stage}");
        }
        for stage in [Stage::Send, Stage::Wait, Stage::Body, Stage::Backoff] {
            assert_eq!(outcome(Seen::CutOff { stage }, false), Outcome::Unknown { stage }, "{stage}");
        }
    }

    #[test]
    fn r8_a_whole_never_claims_that_nothing_was_sent() {
        for stage in Stage::ALL {
            assert_eq!(outcome_of_the_whole(stage), Outcome::Unknown { stage });
        }
    }

    #[test]
    fn r7_effect_times_outcome() {
        let keyed = Effect::Keyed("k".into());
        for effect in [&Effect::ReadOnly, &Effect::Idempotent, &keyed, &Effect::Once] {
            for enforces in [false, true] {
                assert!(may_repeat(effect, Outcome::NotSent, enforces));
                assert!(may_repeat(effect, Outcome::Rejected, enforces));
                assert!(!may_repeat(effect, Outcome::Applied, enforces));
                assert!(!may_repeat(effect, Outcome::Failed, enforces));
            }
        }
        assert!(may_repeat(&keyed, UNKNOWN, true));
        assert!(!may_repeat(&keyed, UNKNOWN, false));
        assert!(!may_repeat(&Effect::Once, UNKNOWN, true));
    }
}
