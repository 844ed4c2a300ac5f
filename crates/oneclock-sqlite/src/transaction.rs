//! One transaction: committed when its work says so, rolled back in every other case.
//!
//! Decides what is known afterwards. Nothing is guessed: until the work is decided no commit passes, and after COMMIT the
//! connection itself says whether its transaction is still open (contract D5).

use oneclock_core::{Outcome, Stage};
use rusqlite::ffi::SQLITE_CONSTRAINT_COMMITHOOK;
use rusqlite::{Connection, DropBehavior, Transaction, TransactionBehavior};

use crate::error::outcome_of;
use crate::fence::{Armed, Commits};

/// What the work of a transaction decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<T> {
    /// Commit, and give this to the caller once that went through.
    Commit(T),
    /// Roll back, and give this to the caller: nothing was sold, for example, because nothing was in stock.
    RollBack(T),
}

/// What came of work on a connection, and what is known of the database.
pub(crate) struct Done<T> {
    pub(crate) result: Result<T, Failure>,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Failure {
    Database(rusqlite::Error),
    TransactionLost,
    TransactionLeftOpen,
}

impl<T> Done<T> {
    fn failed(error: rusqlite::Error) -> Self {
        let outcome = outcome_of(&error);
        Self { result: Err(Failure::Database(error)), outcome }
    }
}

/// Runs statements that commit for themselves, and transactions that the work opens and ends.
pub(crate) fn plain<T>(
    connection: &mut Connection,
    armed: &Armed,
    work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
) -> Done<T> {
    let changes = connection.total_changes();
    let result = work(connection);
    if result.is_ok() && !connection.is_autocommit() {
        armed.hold();
        // Should it fail, the connection is given up, which rolls back too.
        let _ = connection.execute_batch("ROLLBACK");
        let outcome = if armed.committed() == 0 { Outcome::Failed } else { Outcome::Unknown { stage: Stage::Work } };
        return Done { result: Err(Failure::TransactionLeftOpen), outcome };
    }
    match result {
        // By the work's own decision, so it is no error. A transaction that only read is rolled back with nothing lost.
        Ok(value) if armed.committed() == 0 && armed.rolled_back() > 0 && connection.total_changes() != changes => {
            Done { result: Ok(value), outcome: Outcome::Failed }
        }
        Ok(value) => Done { result: Ok(value), outcome: Outcome::Applied },
        Err(error) if armed.committed() == 0 => Done::failed(error),
        // A part of it was committed, and only the work knows what the rest would have been.
        Err(error) => Done { result: Err(Failure::Database(error)), outcome: Outcome::Unknown { stage: Stage::Work } },
    }
}

/// Runs one transaction.
pub(crate) fn transaction<T>(
    connection: &mut Connection,
    armed: &Armed,
    behavior: TransactionBehavior,
    work: impl FnOnce(&mut Transaction<'_>) -> rusqlite::Result<Decision<T>>,
) -> Done<T> {
    // Also against SQLite itself: after some errors it rolls back by itself, and the statements after that would commit one
    // by one.
    armed.set_commits(Commits::Denied);
    let mut transaction = match connection.transaction_with_behavior(behavior) {
        Ok(transaction) => transaction,
        Err(error) => return Done::failed(error),
    };
    let decided = work(&mut transaction);
    armed.hold();
    transaction.set_drop_behavior(DropBehavior::Ignore);
    let done = match decided {
        Ok(Decision::Commit(_) | Decision::RollBack(_)) if transaction.is_autocommit() => {
            Done { result: Err(Failure::TransactionLost), outcome: Outcome::Failed }
        }
        Ok(Decision::Commit(value)) => {
            armed.set_commits(Commits::Free);
            commit(&transaction, armed, value)
        }
        Ok(Decision::RollBack(value)) => Done { result: Ok(value), outcome: Outcome::Failed },
        Err(error) => Done::failed(error),
    };
    if !transaction.is_autocommit() {
        // Should it fail, the connection is given up, which rolls back too.
        let _ = transaction.execute_batch("ROLLBACK");
    }
    done
}

/// Sends COMMIT, and finds out from the connection what became of it: SQLite can report an error for a commit that went
/// through (of what followed it), and keeps a transaction open whose commit could not get its lock.
fn commit<T>(transaction: &Transaction<'_>, armed: &Armed, value: T) -> Done<T> {
    let before = armed.rolled_back();
    let Err(error) = transaction.execute_batch("COMMIT") else {
        return Done { result: Ok(value), outcome: Outcome::Applied };
    };
    let is_open = !transaction.is_autocommit();
    let outcome = if !is_open && armed.rolled_back() == before {
        Outcome::Applied
    } else if is_denied(&error) {
        Outcome::Rejected // by our own hook, which says nothing about another time
    } else {
        outcome_of(&error)
    };
    Done { result: Err(Failure::Database(error)), outcome }
}

fn is_denied(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == SQLITE_CONSTRAINT_COMMITHOOK)
}
