//! What a caller is told when it does not get its result, and what is known of the database then.

use std::fmt;
use std::time::Duration;

use oneclock::{HasOutcome, Stopped, reason_in};
use oneclock_core::name::Hop;
use oneclock_core::time::Legible;
use oneclock_core::{Name, Outcome, Reason, Refused, Stage};

/// A pool cannot be built. Each is a mistake in the configuration, or a database that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadPool {
    /// A pool without connections would refuse everything.
    #[error("a pool of 0 connections would serve nobody: give it a size of at least 1")]
    NoConnections,
    /// A pool of more connections than can be counted.
    #[error("a pool of {size} connections: the most is {most}")]
    TooManyConnections {
        /// What was asked for.
        size: usize,
        /// What there can be.
        most: usize,
    },
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
        stopped: Box<Stopped>,
        /// What is known of the database, as `stopped` says too.
        outcome: Outcome,
        /// How much of the time its statements waited for locks that other connections held; zero if they did not.
        waited_for_lock: Duration,
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
    /// The work came back and left a transaction open, which was rolled back. If nothing had been committed before it, nothing
    /// is in the database. [`Pool::transaction`](crate::Pool::transaction) commits by itself.
    TransactionLeftOpen {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What is known of the database.
        outcome: Outcome,
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
            Self::Stopped { outcome, .. }
            | Self::Database { outcome, .. }
            | Self::TransactionLeftOpen { outcome, .. }
            | Self::Panicked { outcome, .. } => *outcome,
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
            Self::Stopped { .. }
            | Self::TransactionLost { .. }
            | Self::TransactionLeftOpen { .. }
            | Self::Panicked { .. } => None,
        }
    }

    pub(crate) fn stopped(stopped: impl Into<Stopped>) -> Self {
        let stopped = stopped.into();
        let outcome = stopped.outcome();
        Self::stopped_with(stopped, outcome, Duration::ZERO)
    }

    pub(crate) fn stopped_with(stopped: impl Into<Stopped>, outcome: Outcome, waited_for_lock: Duration) -> Self {
        // Found out here, and said by everything that asks the source.
        let stopped = Box::new(stopped.into().knowing(outcome));
        Self::Stopped { stopped, outcome, waited_for_lock }
    }
}

impl HasOutcome for SqliteError {
    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}

impl fmt::Display for SqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped { stopped, waited_for_lock, .. } => {
                stopped.fmt(f)?;
                if waited_for_lock.is_zero() {
                    return Ok(());
                }
                write!(f, "; of which waiting for a lock {}", Legible(*waited_for_lock))
            }
            Self::Database { operation, call, stage, outcome, .. } => {
                let hop = Hop(operation, Some(call));
                write!(f, "{hop}: sqlite failed in stage {stage}, outcome: {outcome}")
            }
            Self::TransactionLost { operation, call } => write!(
                f,
                "{}: the transaction was rolled back at an error that the work did not return, outcome: {}",
                Hop(operation, Some(call)),
                self.outcome()
            ),
            Self::TransactionLeftOpen { operation, call, outcome } => write!(
                f,
                "{}: the work left a transaction open, which was rolled back; commit it, or use `transaction`; outcome: \
                 {outcome}",
                Hop(operation, Some(call))
            ),
            Self::Panicked { operation, call, outcome } => {
                write!(f, "{} panicked, outcome: {outcome}", Hop(operation, Some(call)))
            }
        }
    }
}

impl std::error::Error for SqliteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stopped { stopped, .. } => Some(&**stopped),
            Self::Database { source, .. } => Some(source),
            Self::TransactionLost { .. } | Self::TransactionLeftOpen { .. } | Self::Panicked { .. } => None,
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
        says(
            &SqliteError::TransactionLeftOpen { operation: operation.clone(), call: call.clone(), outcome },
            "order → charge: the work left a transaction open, which was rolled back; commit it, or use `transaction`; \
             outcome: failed",
        );
        says(&SqliteError::Panicked { operation, call, outcome }, "order → charge panicked, outcome: failed");
        says(&BadPool::NoConnections, "a pool of 0 connections would serve nobody: give it a size of at least 1");
        says(&BadPool::TooManyConnections { size: 9, most: 8 }, "a pool of 9 connections: the most is 8");
        let source = rusqlite::Error::InvalidQuery;
        says(&BadPool::Open { place: "/db".to_owned(), source }, "cannot open the database /db");
    }
}
