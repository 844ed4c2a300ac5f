//! What a caller is told when it does not get its result, and what is known of the database then.

use std::fmt;
use std::io;

use oneclock::{HasOutcome, NotConnected, Stopped, reason_in};
use oneclock_core::statement::{PoolerSign, outcome_of_error};
use oneclock_core::{Ending, Name, Outcome, Reason, Refused, Stage};
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::types::WrongType;

/// A pool cannot be built. Each is a mistake in the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadPool {
    /// The connection string cannot be read.
    #[error(
        "the connection string cannot be read; it is a URL such as postgres://user@host/database, or key=value pairs"
    )]
    Dsn(#[source] tokio_postgres::Error),
    /// The connection string names no host.
    #[error("the connection string names no host: add host=… (a name, an address, or the folder of a socket)")]
    NoHost,
    /// It requires TLS, and no connector was given.
    #[error("sslmode=require and no TLS connector: use build_with(connector) instead of build()")]
    NoTls,
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
    /// A queue without places would refuse whoever finds all connections busy.
    #[error("a queue of 0 places: give max_waiting at least 1")]
    NoPlaces,
    /// Without a cancel nothing would stop.
    #[error("0 cancels in flight: nothing would stop; give cancels_in_flight at least 1")]
    NoCancels,
    /// A cap that no call could keep (contract C1).
    #[error("the cap of calls named {call}")]
    Cap {
        /// The calls.
        call: Name,
        /// What is wrong with it.
        source: Refused,
    },
}

/// No session could be opened. Nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The network, or the resolver.
    #[error("no way to the server")]
    Io(#[source] io::Error),
    /// TLS could not be prepared.
    #[error("TLS could not be prepared")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server refused, or the talk with it broke off.
    #[error("the server gave no session")]
    Postgres(#[from] tokio_postgres::Error),
    /// It is not the server that the configuration asks for.
    #[error("the server {} (target_session_attrs)", if *.read_only { "is read only" } else { "is not read only" })]
    WrongRole {
        /// Whether it is read only.
        read_only: bool,
    },
    /// The name of the server has no address.
    #[error("the name of the server has no address")]
    NoAddress,
}

/// A call gave no result. Its [`outcome`](Self::outcome) says what is known of the database.
#[derive(Debug)]
#[non_exhaustive]
pub enum PgError {
    /// Not begun, or cut off: by the deadline, the caller's leaving, a shutdown, or load. Carries the ledger.
    Stopped {
        /// By what, where, and where the time went.
        stopped: Box<Stopped>,
        /// What is known of the database, as `stopped` says too.
        outcome: Outcome,
        /// Why no session could be opened until then, if that was it.
        connecting: Option<Box<ConnectError>>,
    },
    /// The server refused a statement, or the connection broke.
    Database {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What is known of the database.
        outcome: Outcome,
        /// What the server says.
        source: tokio_postgres::Error,
    },
    /// No session could be opened.
    Connect {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// Why not: a [`ConnectError`], see [`connect_error`](Self::connect_error).
        source: NotConnected,
    },
    /// A query that must give one row gave none or more. The statement itself went through: by itself it is applied, and inside
    /// a transaction this error takes it back.
    Rows {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// How many it gave.
        rows: usize,
        /// What is known of the database.
        outcome: Outcome,
    },
    /// The transaction was to be committed, and a statement of it had failed. Nothing of it was committed, unless by words of
    /// its own.
    TransactionLost {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What is known of the database.
        outcome: Outcome,
    },
    /// COMMIT was sent and not answered within its bound.
    NoAnswer {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What the server says of the transaction, asked elsewhere.
        outcome: Outcome,
    },
    /// An earlier statement of this borrower was abandoned, or its commit, and the connection went with it.
    Gone {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
    },
    /// A transaction pooler stands in front of the server: neither a bound nor a cancel may be sent there (contract D8).
    Pooler {
        /// What told.
        sign: PoolerSign,
    },
}

// === PgError ===

impl PgError {
    /// What is known of the database.
    ///
    /// - [`NotSent`](Outcome::NotSent): the statement, or the transaction, was not begun.
    /// - [`Rejected`](Outcome::Rejected): it is proven that nothing of it was committed, and it may go through another
    ///   time (it was cut off, met a conflict, or a lock was not to be had).
    /// - [`Failed`](Outcome::Failed): proven as well, and it would fail again (a constraint, a syntax error).
    /// - [`Applied`](Outcome::Applied): it went through, and the error came after it.
    /// - [`Unknown`](Outcome::Unknown): it may have been committed.
    ///
    /// A statement inside a transaction whose COMMIT was not sent is never `Unknown`, also when its session dies: the server
    /// rolls back. One whose own words may have ended it (`batch_execute("…; COMMIT; …")`) always is.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Stopped { outcome, .. }
            | Self::Database { outcome, .. }
            | Self::Rows { outcome, .. }
            | Self::TransactionLost { outcome, .. }
            | Self::NoAnswer { outcome, .. } => *outcome,
            Self::Connect { .. } | Self::Gone { .. } | Self::Pooler { .. } => Outcome::NotSent,
        }
    }

    /// What a caller is told, if something stopped the call (contract section 5).
    pub fn reason(&self) -> Option<Reason> {
        reason_in(self)
    }

    /// What ended the call, if it was cut off: with its bound and its stage.
    pub fn ending(&self) -> Option<Ending> {
        match self {
            Self::Stopped { stopped, .. } => match &**stopped {
                Stopped::Ended(ended) => Some(ended.ending),
                Stopped::NotBegun(_) => None,
            },
            _ => None,
        }
    }

    /// Why no session could be opened, if that was it, or until the end came.
    pub fn connect_error(&self) -> Option<&ConnectError> {
        match self {
            Self::Connect { source, .. } => source.why().downcast_ref(),
            Self::Stopped { connecting, .. } => connecting.as_deref(),
            _ => None,
        }
    }

    /// The server's own error, if it sent one.
    pub fn database(&self) -> Option<&DbError> {
        match (self, self.connect_error()) {
            (Self::Database { source, .. }, _) | (Self::Connect { .. }, Some(ConnectError::Postgres(source))) => {
                source.as_db_error()
            }
            _ => None,
        }
    }

    pub(crate) fn stopped(stopped: impl Into<Stopped>) -> Self {
        let stopped = stopped.into();
        let outcome = stopped.outcome();
        Self::stopped_with(stopped, outcome)
    }

    pub(crate) fn stopped_with(stopped: impl Into<Stopped>, outcome: Outcome) -> Self {
        let stopped = Box::new(stopped.into().knowing(outcome)); // so that its source says the same
        Self::Stopped { stopped, outcome, connecting: None }
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.outcome();
        match self {
            Self::Stopped { stopped, connecting, .. } => {
                stopped.fmt(f)?;
                match connecting.as_deref() {
                    Some(ConnectError::Postgres(error)) => write!(f, "; {}", said(error)),
                    Some(error) => write!(f, "; {error}"),
                    None => Ok(()),
                }
            }
            Self::Database { operation, call, source, .. } => {
                write!(f, "{operation} → {call}: {}, outcome: {outcome}", said(source))
            }
            Self::Connect { operation, call, source } => {
                write!(f, "{operation} → {call}: {}, outcome: {outcome}", source.why())
            }
            Self::Rows { operation, call, rows, .. } => {
                let rows = if *rows == 0 { "no row" } else { "more than one row" };
                write!(f, "{operation} → {call}: {rows} where one was expected, outcome: {outcome}")
            }
            Self::TransactionLost { operation, call, .. } => write!(
                f,
                "{operation} → {call}: a statement of the transaction had failed, so it was rolled back, outcome: {outcome}"
            ),
            Self::NoAnswer { operation, call, .. } => {
                write!(f, "{operation} → {call}: COMMIT was not answered within its bound, outcome: {outcome}")
            }
            Self::Gone { operation, call } => write!(
                f,
                "{operation} → {call}: the connection went with an earlier statement that was abandoned; get another, \
                 outcome: {outcome}"
            ),
            Self::Pooler { sign } => write!(
                f,
                "a transaction pooler stands in front of the server ({sign}): connect to the server itself, or to a \
                 session pool, outcome: {outcome}"
            ),
        }
    }
}

impl HasOutcome for PgError {
    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}

/// What the server said, or that it said nothing.
fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("postgres says {} ({})", error.message(), error.code().code()),
        None => error.to_string(),
    }
}

impl std::error::Error for PgError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stopped { stopped, .. } => Some(&**stopped),
            Self::Database { source, .. } => Some(source),
            Self::Connect { source, .. } => Some(source),
            Self::Rows { .. }
            | Self::TransactionLost { .. }
            | Self::NoAnswer { .. }
            | Self::Gone { .. }
            | Self::Pooler { .. } => None,
        }
    }
}

/// What an error proves of the one statement that it answers.
pub(crate) fn outcome_of(error: &tokio_postgres::Error) -> Outcome {
    if let Some(error) = error.as_db_error() {
        return outcome_of_error(error.code().code(), is_fatal(error));
    }
    let source = std::error::Error::source(error);
    if source.is_some_and(|source| source.is::<WrongType>()) {
        return Outcome::NotSent; // a parameter of another type than the statement has
    }
    Outcome::Unknown { stage: Stage::Wait }
}

fn is_fatal(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || matches!(error.severity(), "FATAL" | "PANIC")
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
        says(
            &PgError::TransactionLost { operation: operation.clone(), call: call.clone(), outcome: Outcome::Failed },
            "order → charge: a statement of the transaction had failed, so it was rolled back, outcome: failed",
        );
        says(
            &PgError::Rows { operation: operation.clone(), call: call.clone(), rows: 0, outcome: Outcome::Applied },
            "order → charge: no row where one was expected, outcome: applied",
        );
        says(
            &PgError::Connect { operation, call, source: NotConnected::because(ConnectError::NoAddress) },
            "order → charge: the name of the server has no address, outcome: not sent",
        );
        says(
            &PgError::Pooler { sign: PoolerSign::BackendShared },
            "a transaction pooler stands in front of the server (two open sessions had the same backend): connect to the \
             server itself, or to a session pool, outcome: not sent",
        );
        says(&ConnectError::WrongRole { read_only: true }, "the server is read only (target_session_attrs)");
        says(&BadPool::TooManyConnections { size: 9, most: 8 }, "a pool of 9 connections: the most is 8");
        says(&BadPool::NoCancels, "0 cancels in flight: nothing would stop; give cancels_in_flight at least 1");
    }
}
