//! What a caller is told when it does not get its answer, and what is known of the server then.

use std::fmt;

use oneclock::{HasOutcome, NotConnected, Stopped, reason_in};
use oneclock_core::{Effect, Name, Outcome, Reason, Refused, Stage, effect};
use redis::ErrorKind;

/// A client cannot be built. Each is a mistake in the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadRedis {
    /// The address cannot be read.
    #[error("the address of the server cannot be read; it looks like redis://host:6379/0")]
    Address {
        /// What is wrong with it.
        source: redis::RedisError,
    },
    /// The address asks for TLS, which is not built in.
    #[error("the address of {place} asks for TLS, which this client does not speak yet")]
    Tls {
        /// The server.
        place: String,
    },
    /// A limit of zero would refuse everything.
    #[error("{limit} of 0 would refuse everything: give it at least 1")]
    Zero {
        /// Which one.
        limit: &'static str,
    },
    /// A cap that no call could keep (contract C1).
    #[error("the cap of calls named {call}")]
    Cap {
        /// The calls.
        call: Name,
        /// What is wrong with it.
        source: Refused,
    },
}

/// What the commands of a call do to the server, as far as their names tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All of them only read.
    Reads,
    /// One of them writes, or is not known not to.
    Writes,
}

/// A call gave no result. Its [`outcome`](Self::outcome) says what is known of the server.
#[derive(Debug)]
#[non_exhaustive]
pub enum RedisError {
    /// Not begun, or cut off: by the deadline, the caller's leaving, a shutdown, or load. Carries the ledger.
    Stopped {
        /// By what, where, and where the time went.
        stopped: Stopped,
        /// What its commands do to the server.
        access: Access,
    },
    /// No connection could be opened. Nothing was sent.
    NotConnected {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// Why not: see [`redis`](Self::redis).
        source: NotConnected,
    },
    /// The command would change the connection for everybody who uses it. A mistake in the code; nothing was sent.
    NotShared {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// The command.
        command: String,
        /// What to do.
        instead: &'static str,
    },
    /// The server answered with an error, or the connection broke.
    Redis {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What is known of the server.
        outcome: Outcome,
        /// What its commands do to the server.
        access: Access,
        /// What was answered, or why nothing was.
        source: redis::RedisError,
    },
    /// The server did its work, and its answer is not of the type that was asked for.
    Answer {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What does not fit.
        source: redis::ParsingError,
    },
    /// More messages came than the holder of a subscription took, and it was ended: some are lost.
    Overrun {
        /// The operation.
        operation: Name,
        /// The subscription.
        call: Name,
        /// How many wait at most.
        limit: usize,
    },
}

// === RedisError ===

impl RedisError {
    /// What is known of the server.
    ///
    /// - [`NotSent`](Outcome::NotSent): proven: nothing was sent. Not begun, or cut off while waiting for a connection.
    /// - [`Rejected`](Outcome::Rejected): the server did nothing, and may another time: it is loading, out of memory, read-only.
    /// - [`Failed`](Outcome::Failed): the server did nothing, and would not the next time: a wrong type, an unknown command.
    /// - [`Applied`](Outcome::Applied): it was done, and the answer is of another type than the one that was asked for.
    /// - [`Unknown`](Outcome::Unknown): it may have been done, as a whole or, in a pipeline or a script, in part.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Stopped { stopped, .. } => stopped.outcome(),
            Self::NotConnected { .. } | Self::NotShared { .. } => Outcome::NotSent,
            Self::Redis { outcome, .. } => *outcome,
            Self::Answer { .. } => Outcome::Applied,
            Self::Overrun { .. } => Outcome::Unknown { stage: Stage::Body },
        }
    }

    /// Whether the call may be repeated as far as its outcome and its commands tell (contract R7): whatever was not done, and
    /// whatever only reads. Whether a repetition fits the budget is another question.
    pub fn may_repeat(&self) -> bool {
        match self {
            Self::Stopped { access, .. } | Self::Redis { access, .. } => {
                effect::may_repeat(&access.effect(), self.outcome(), false)
            }
            Self::NotConnected { .. } | Self::Overrun { .. } => true,
            Self::NotShared { .. } | Self::Answer { .. } => false,
        }
    }

    /// What a caller is told, if something stopped the call (contract section 5).
    pub fn reason(&self) -> Option<Reason> {
        reason_in(self)
    }

    /// The client library's own error, if it is one.
    pub fn redis(&self) -> Option<&redis::RedisError> {
        match self {
            Self::Redis { source, .. } => Some(source),
            Self::NotConnected { source, .. } => source.why().downcast_ref(),
            Self::Stopped { .. } | Self::NotShared { .. } | Self::Answer { .. } | Self::Overrun { .. } => None,
        }
    }
}

impl HasOutcome for RedisError {
    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}

impl Access {
    /// What repeating the call would do (contract R7).
    pub const fn effect(self) -> Effect {
        match self {
            Self::Reads => Effect::ReadOnly,
            Self::Writes => Effect::Once,
        }
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped { stopped, .. } => stopped.fmt(f),
            Self::NotConnected { operation, call, .. } => {
                write!(f, "{operation} → {call}: no connection to redis, outcome: {}", self.outcome())
            }
            Self::NotShared { operation, call, command, instead } => write!(
                f,
                "{operation} → {call}: {command} is not for a connection that others use: {instead}; outcome: {}",
                self.outcome()
            ),
            Self::Redis { operation, call, outcome, .. } => {
                write!(f, "{operation} → {call}: redis failed, outcome: {outcome}")
            }
            Self::Answer { operation, call, .. } => write!(
                f,
                "{operation} → {call}: the answer is of another type than the one asked for, outcome: {}",
                self.outcome()
            ),
            Self::Overrun { operation, call, limit } => write!(
                f,
                "{operation} → {call}: more than {limit} messages waited to be taken, so the subscription was ended"
            ),
        }
    }
}

impl std::error::Error for RedisError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stopped { stopped, .. } => Some(stopped),
            Self::NotConnected { source, .. } => Some(source),
            Self::Redis { source, .. } => Some(source),
            Self::Answer { source, .. } => Some(source),
            Self::NotShared { .. } | Self::Overrun { .. } => None,
        }
    }
}

/// The server refuses these before it does anything, for a reason that passes.
const PASSING: &[&str] = &[
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
];

/// What an error proves that came back for a request.
pub(crate) fn outcome_of(error: &redis::RedisError, may_be_half_done: bool, never_written: bool) -> Outcome {
    let broken = if never_written { Outcome::NotSent } else { Outcome::Unknown { stage: Stage::Wait } };
    match error.kind() {
        ErrorKind::Client | ErrorKind::InvalidClientConfig => Outcome::NotSent,
        // The whole of a transaction was refused, or the script was not there: nothing was begun.
        ErrorKind::Server(redis::ServerErrorKind::ExecAbort | redis::ServerErrorKind::NoScript) => Outcome::Failed,
        ErrorKind::Server(_) | ErrorKind::Extension if may_be_half_done => Outcome::Unknown { stage: Stage::Work },
        ErrorKind::Server(_) | ErrorKind::Extension => {
            if error.code().is_some_and(|code| PASSING.contains(&code)) {
                Outcome::Rejected
            } else {
                Outcome::Failed
            }
        }
        _ => broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io_error() -> redis::RedisError {
        std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
    }

    #[test]
    fn r8_not_sent_needs_proof() {
        assert_eq!(outcome_of(&io_error(), false, false), Outcome::Unknown { stage: Stage::Wait });
        assert_eq!(outcome_of(&io_error(), false, true), Outcome::NotSent);
    }

    #[test]
    fn messages_say_what_where_and_what_is_known() {
        let (operation, call) = (Name::literal("order"), Name::literal("lookup"));
        let says = |error: &RedisError, want: &str| assert_eq!(error.to_string(), want);
        says(
            &RedisError::NotConnected {
                operation: operation.clone(),
                call: call.clone(),
                source: NotConnected::because(io_error()),
            },
            "order → lookup: no connection to redis, outcome: not sent",
        );
        says(
            &RedisError::NotShared {
                operation: operation.clone(),
                call: call.clone(),
                command: "MULTI".to_owned(),
                instead: "use an atomic pipeline",
            },
            "order → lookup: MULTI is not for a connection that others use: use an atomic pipeline; outcome: not sent",
        );
        let (outcome, access) = (Outcome::Failed, Access::Writes);
        says(
            &RedisError::Redis {
                operation: operation.clone(),
                call: call.clone(),
                outcome,
                access,
                source: io_error(),
            },
            "order → lookup: redis failed, outcome: failed",
        );
        says(
            &RedisError::Overrun { operation, call, limit: 9 },
            "order → lookup: more than 9 messages waited to be taken, so the subscription was ended",
        );
        assert_eq!(
            BadRedis::Zero { limit: "max_in_flight" }.to_string(),
            "max_in_flight of 0 would refuse everything: give it at least 1"
        );
    }
}
