//! What a caller is told when it does not get its result, and what is known of the database then.
//!
//! sqlx's own functions can only give `sqlx::Error`. So what stopped a statement travels in there, as its source, and
//! comes out again by [`SqlxError::from`].

use std::fmt;
use std::io;

use oneclock::{HasOutcome, NotConnected, Stopped, reason_in};
use oneclock_core::statement::{self, PoolerSign};
use oneclock_core::{Name, Outcome, Reason, Refused, Stage};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::proven::is_marked;

/// A pool cannot be built. Each is a mistake in the configuration.
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
    /// The address cannot be read.
    #[error("the address of the database cannot be read")]
    Address {
        /// What sqlx says.
        source: sqlx::Error,
    },
}

/// A call gave no result. Its [`outcome`](Self::outcome) says what is known of the database.
#[derive(Debug)]
#[non_exhaustive]
pub enum SqlxError {
    /// Not begun, or cut off: by the deadline, the caller's leaving, a shutdown, or load. Carries the ledger.
    Stopped {
        /// By what, where, and where the time went.
        stopped: Box<Stopped>,
        /// What is known of the database, as `stopped` says too.
        outcome: Outcome,
    },
    /// No connection could be opened.
    Connect {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What sqlx says: see [`sqlx`](Self::sqlx).
        source: NotConnected,
    },
    /// The connection was lost before this was sent on it. What was at work then has told.
    ConnectionLost {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
    },
    /// A transaction pooler stands in front of the server: a cancel there would hit somebody else (contract D8).
    Pooler {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What told.
        sign: PoolerSign,
    },
    /// The database refused a statement, or sqlx could not use its answer.
    Sql {
        /// What is known of the database.
        outcome: Outcome,
        /// What sqlx says.
        source: Box<sqlx::Error>,
    },
}

// === SqlxError ===

impl SqlxError {
    /// What is known of the database.
    ///
    /// - [`NotSent`](Outcome::NotSent): no statement of it was sent.
    /// - [`Rejected`](Outcome::Rejected): proven that nothing of it was committed; it may go through another time.
    /// - [`Failed`](Outcome::Failed): proven as well, and it would fail again (a constraint, a syntax error).
    /// - [`Applied`](Outcome::Applied): it was done, and the error came after it.
    /// - [`Unknown`](Outcome::Unknown): something of it may have been committed. So it is with a procedure, or a text of
    ///   several statements, that failed midway, and with a row that is missing or cannot be decoded
    ///   ([`RowNotFound`](sqlx::Error::RowNotFound)), since sqlx tells that to its caller alone.
    ///
    /// It is that of the one statement or commit that gave the error, not of those before it.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Stopped { outcome, .. } | Self::Sql { outcome, .. } => *outcome,
            Self::Connect { .. } | Self::ConnectionLost { .. } | Self::Pooler { .. } => Outcome::NotSent,
        }
    }

    /// What a caller is told, if something stopped the call (contract section 5).
    pub fn reason(&self) -> Option<Reason> {
        reason_in(self)
    }

    /// sqlx's own error, if it is one.
    pub fn sqlx(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Connect { source, .. } => source.why().downcast_ref(),
            Self::Sql { source, .. } => Some(source),
            Self::Stopped { .. } | Self::ConnectionLost { .. } | Self::Pooler { .. } => None,
        }
    }

    pub(crate) fn stopped(stopped: impl Into<Stopped>) -> Self {
        let stopped = Box::new(stopped.into());
        Self::Stopped { outcome: stopped.outcome(), stopped }
    }

    pub(crate) fn stopped_with(stopped: impl Into<Stopped>, outcome: Outcome) -> Self {
        let stopped = Box::new(stopped.into().knowing(outcome)); // so that its source says the same
        Self::Stopped { stopped, outcome }
    }

    pub(crate) fn sql(source: sqlx::Error, outcome: Outcome) -> Self {
        Self::Sql { outcome, source: Box::new(source) }
    }
}

/// As sqlx's functions give it, for functions that return `sqlx::Error`. Made an [`SqlxError`] again, it is what it was.
impl From<SqlxError> for sqlx::Error {
    fn from(error: SqlxError) -> Self {
        let kind = match error {
            SqlxError::Sql { source, .. } => return *source,
            SqlxError::Stopped { .. } => io::ErrorKind::TimedOut,
            SqlxError::Connect { .. } | SqlxError::ConnectionLost { .. } | SqlxError::Pooler { .. } => {
                io::ErrorKind::NotConnected
            }
        };
        Self::Io(io::Error::new(kind, error))
    }
}

impl HasOutcome for SqlxError {
    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}

/// Ours, if it is in there; else what the error itself proves of its one statement.
impl From<sqlx::Error> for SqlxError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<Self>()) => {
                match error.downcast::<Self>() {
                    Ok(ours) => ours,
                    Err(error) => Self::sql(sqlx::Error::Io(error), Outcome::Unknown { stage: Stage::Wait }),
                }
            }
            error => Self::Sql { outcome: outcome_of(&error), source: Box::new(error) },
        }
    }
}

impl fmt::Display for SqlxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped { stopped, .. } => stopped.fmt(f),
            Self::Connect { operation, call, .. } => {
                write!(f, "{operation} → {call}: no connection could be opened, outcome: {}", self.outcome())
            }
            Self::ConnectionLost { operation, call } => {
                write!(f, "{operation} → {call}: its connection was lost before, outcome: {}", self.outcome())
            }
            Self::Pooler { operation, call, sign } => write!(
                f,
                "{operation} → {call} refused: a transaction pooler stands in front of the server ({sign}), and a cancel \
                 would hit somebody else; connect to the server itself or to a pooler in session mode, outcome: {}",
                self.outcome()
            ),
            Self::Sql { outcome, .. } => write!(f, "the statement gave no result, outcome: {outcome}"),
        }
    }
}

impl std::error::Error for SqlxError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stopped { stopped, .. } => Some(&**stopped),
            Self::Connect { source, .. } => Some(source),
            Self::Sql { source, .. } => Some(&**source),
            Self::ConnectionLost { .. } | Self::Pooler { .. } => None,
        }
    }
}

/// What an error of sqlx's proves of the one statement that gave it.
pub(crate) fn outcome_of(error: &sqlx::Error) -> Outcome {
    use sqlx::Error as E;
    match error {
        E::Database(error) if is_marked(&**error) => Outcome::Unknown { stage: Stage::Wait },
        E::Database(error) => {
            let code = error.code();
            statement::outcome_of_error(code.as_deref().unwrap_or_default(), is_fatal(&**error))
        }
        E::Configuration(_)
        | E::InvalidArgument(_)
        | E::TypeNotFound { .. }
        | E::Encode(_)
        | E::PoolTimedOut
        | E::PoolClosed
        | E::InvalidSavePointStatement => Outcome::NotSent,
        // Also a row that is missing or that cannot be decoded: sqlx says so to its caller alone. Whether the statement had
        // run to its end, and whether a transaction is open that will be rolled back, is not to be seen there.
        _ => Outcome::Unknown { stage: Stage::Wait },
    }
}

/// Whether the connection that gave it can still be used.
pub(crate) fn is_usable_after(error: &sqlx::Error) -> bool {
    use sqlx::Error as E;
    match error {
        E::Database(error) => !is_fatal(&**error),
        E::Io(_) | E::Tls(_) | E::Protocol(_) | E::WorkerCrashed => false,
        _ => true,
    }
}

/// SQLSTATE of an error from the server.
pub(crate) fn code_of(error: &sqlx::Error) -> Option<&str> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    Some(error.code())
}

fn is_fatal(error: &dyn sqlx::error::DatabaseError) -> bool {
    let severity = error.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use oneclock::{NotBegun, Operation, WhyNot};

    #[track_caller]
    fn says(error: &dyn std::error::Error, want: &str) {
        assert_eq!(error.to_string(), want);
    }

    fn not_begun() -> SqlxError {
        let op = Operation::begin("order", Duration::from_millis(100));
        SqlxError::stopped(NotBegun::of(&op, Name::literal("lookup"), WhyNot::NoOperation))
    }

    #[test]
    fn ours_survives_the_way_through_sqlx() {
        let through = sqlx::Error::from(not_begun());
        assert_eq!(reason_in(&through), Some(Reason::CalledOff), "{through}");
        assert!(matches!(SqlxError::from(through), SqlxError::Stopped { outcome: Outcome::NotSent, .. }));
        let foreign = sqlx::Error::Io(io::Error::new(io::ErrorKind::BrokenPipe, "gone"));
        assert_eq!(SqlxError::from(foreign).outcome(), Outcome::Unknown { stage: Stage::Wait });
        assert_eq!(SqlxError::from(sqlx::Error::RowNotFound).outcome(), Outcome::Unknown { stage: Stage::Wait });
    }

    #[test]
    fn messages_say_what_where_and_what_is_known() {
        let (operation, call) = (Name::literal("order"), Name::literal("charge"));
        let source = NotConnected::because(sqlx::Error::WorkerCrashed);
        says(
            &SqlxError::Connect { operation: operation.clone(), call: call.clone(), source },
            "order → charge: no connection could be opened, outcome: not sent",
        );
        says(
            &SqlxError::Pooler { operation, call, sign: PoolerSign::BackendShared },
            "order → charge refused: a transaction pooler stands in front of the server (two open sessions had the same \
             backend), and a cancel would hit somebody else; connect to the server itself or to a pooler in session mode, \
             outcome: not sent",
        );
        says(
            &SqlxError::sql(sqlx::Error::RowNotFound, Outcome::Applied),
            "the statement gave no result, outcome: applied",
        );
        says(&BadPool::NoConnections, "a pool of 0 connections would serve nobody: give it a size of at least 1");
        says(&BadPool::TooManyConnections { size: 9, most: 8 }, "a pool of 9 connections: the most is 8");
    }
}
