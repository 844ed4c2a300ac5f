//! What a caller is told when it does not get its result, and what is known of the database then.

use std::fmt;
use std::time::Duration;

use oneclock::{Stopped, reason_in};
use oneclock_core::time::Legible;
use oneclock_core::{Name, Outcome, Reason, Refused, Stage};

/// A pool cannot be built. Each is a mistake in the configuration, or a database that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadPool {
    /// A pool without connections would refuse everything.
    #[error("a pool of 0 connections would serve nobody: give it a size of at least 1")]
    NoConnections,
    /// A queue without places would refuse whoever finds all connections busy; that is `max_waiting(1)` at least.
    #[error("a queue of 0 places: give max_waiting at least 1")]
    NoPlaces,
    /// A cap that no call could keep (contract C1).
    #[error("the cap of calls named {call}")]
    Cap {
        /// The calls.
        call: Name,
        /// What is wrong with it.
        source: Refused,
    },
    /// The database cannot be opened or set up.
    #[error("cannot open the database {place}")]
    Open {
        /// Where it is.
        place: String,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

/// A call gave no result. Its [`outcome`](Self::outcome) says what is known of the database.
#[derive(Debug)]
#[non_exhaustive]
pub enum SqliteError {
    /// Not begun, or cut off: by the deadline, the caller's leaving, a shutdown, or load. Carries the ledger.
    Stopped {
        /// By what, where, and where the time went.
        stopped: Stopped,
        /// What is known of the database. After a cut-off that knows more than `stopped` does.
        outcome: Outcome,
    },
    /// SQLite refused a statement, or the connection could not be opened.
    Database {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// Where: `connect` while opening a connection, else `work`.
        stage: Stage,
        /// What is known of the database.
        outcome: Outcome,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// The work came back and its transaction was gone: SQLite had rolled it back at an error that the work did not pass
    /// on. Nothing of it was committed.
    TransactionLost {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
    },
    /// The work panicked. The panic was printed where it happened.
    Panicked {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What is known of the database.
        outcome: Outcome,
    },
}

// === SqliteError ===

impl SqliteError {
    /// What is known of the database.
    ///
    /// - [`NotSent`](Outcome::NotSent): the work was not begun.
    /// - [`Rejected`](Outcome::Rejected): it was begun, and it is proven that nothing of it was committed; it may go
    ///   through another time (it was cut off, or a lock was not to be had).
    /// - [`Failed`](Outcome::Failed): proven as well, and it would fail again (a constraint, a syntax error).
    /// - [`Applied`](Outcome::Applied): its commit went through, and the error came after it.
    /// - [`Unknown`](Outcome::Unknown): something of it may have been committed.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Stopped { outcome, .. } | Self::Database { outcome, .. } | Self::Panicked { outcome, .. } => *outcome,
            Self::TransactionLost { .. } => Outcome::Failed,
        }
    }

    /// What a caller is told, if something stopped the call (contract section 5).
    pub fn reason(&self) -> Option<Reason> {
        reason_in(self)
    }

    /// SQLite's own error, if it is one.
    pub fn database(&self) -> Option<&rusqlite::Error> {
        match self {
            Self::Database { source, .. } => Some(source),
            Self::Stopped { .. } | Self::TransactionLost { .. } | Self::Panicked { .. } => None,
        }
    }

    pub(crate) fn stopped(stopped: impl Into<Stopped>) -> Self {
        let stopped = stopped.into();
        Self::Stopped { outcome: stopped.outcome(), stopped }
    }
}

impl fmt::Display for SqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped { stopped: Stopped::NotBegun(not_begun), .. } => not_begun.fmt(f),
            // As `Ended` says it, but with the outcome that was found out.
            Self::Stopped { stopped: Stopped::Ended(ended), outcome } => {
                write!(f, "{}", ended.operation)?;
                if let Some(call) = &ended.call {
                    write!(f, " → {call}")?;
                }
                let (elapsed, limit) = (Legible(ended.elapsed), Legible(ended.bound.limit));
                write!(f, ": {} after {elapsed} of {limit}, outcome: {outcome}", ended.ending)?;
                if ended.ledger.entries().is_empty() { Ok(()) } else { write!(f, "; spent: {}", ended.ledger) }
            }
            Self::Database { operation, call, stage, outcome, .. } => {
                write!(f, "{operation} → {call}: sqlite failed in stage {stage}, outcome: {outcome}")
            }
            Self::TransactionLost { operation, call } => write!(
                f,
                "{operation} → {call}: the transaction was rolled back at an error that the work did not return, \
                 outcome: {}",
                self.outcome()
            ),
            Self::Panicked { operation, call, outcome } => {
                write!(f, "{operation} → {call} panicked, outcome: {outcome}")
            }
        }
    }
}

impl std::error::Error for SqliteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stopped { stopped, .. } => Some(stopped),
            Self::Database { source, .. } => Some(source),
            Self::TransactionLost { .. } | Self::Panicked { .. } => None,
        }
    }
}

/// What an error of SQLite's proves, where nothing was committed before it.
pub(crate) fn outcome_of(error: &rusqlite::Error) -> Outcome {
    use rusqlite::ErrorCode as Code;
    match error.sqlite_error_code() {
        Some(
            Code::DatabaseBusy | Code::DatabaseLocked | Code::OperationInterrupted | Code::FileLockingProtocolFailed,
        ) => Outcome::Rejected,
        // A commit whose frames were written and not confirmed can come back when the database is recovered.
        Some(Code::SystemIoFailure) => Outcome::Unknown { stage: Stage::Work },
        _ => Outcome::Failed,
    }
}

/// The most that a call may spend where neither its cap nor an operation says how much.
pub(crate) const DEFAULT_CAP: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(error: &dyn std::error::Error, want: &str) {
        assert_eq!(error.to_string(), want);
    }

    #[test]
    fn messages_say_what_where_and_what_is_known() {
        let (operation, call) = (Name::literal("order"), Name::literal("charge"));
        let source = rusqlite::Error::InvalidQuery;
        let outcome = Outcome::Failed;
        says(
            &SqliteError::Database {
                operation: operation.clone(),
                call: call.clone(),
                stage: Stage::Work,
                outcome,
                source,
            },
            "order → charge: sqlite failed in stage work, outcome: failed",
        );
        says(
            &SqliteError::TransactionLost { operation: operation.clone(), call: call.clone() },
            "order → charge: the transaction was rolled back at an error that the work did not return, outcome: failed",
        );
        says(&SqliteError::Panicked { operation, call, outcome }, "order → charge panicked, outcome: failed");
        says(&BadPool::NoConnections, "a pool of 0 connections would serve nobody: give it a size of at least 1");
        let source = rusqlite::Error::InvalidQuery;
        says(&BadPool::Open { place: "/db".to_owned(), source }, "cannot open the database /db");
    }
}
