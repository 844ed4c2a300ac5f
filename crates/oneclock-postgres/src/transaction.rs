//! Transactions: begun, nested by savepoints, rolled back in every case but one.
//!
//! Decides that a COMMIT is sent only while its call lives and no statement has failed, and that from then on it is left
//! alone (contract D5): see `commit`.

use std::ops::{Deref, DerefMut};

use oneclock::clock;
use oneclock_core::Outcome;

use crate::commit;
use crate::error::PgError;
use crate::link::Facts;
use crate::session::{Change, Session};

/// A transaction, or a part of one that can be rolled back by itself.
///
/// Dropped without [`commit`](Self::commit) it is rolled back: at once in front of the next statement, or when the connection
/// goes back. A rollback is always sent, whatever is left of the budget.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction<'s> {
    session: &'s mut Session,
    depth: u32,
    over: bool,
}

/// What the work of a transaction decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<T> {
    /// Commit, and give this to the caller once that went through.
    Commit(T),
    /// Roll back, and give this to the caller: nothing was sold, for example, because nothing was in stock.
    RollBack(T),
}

// === Transaction ===

impl<'s> Transaction<'s> {
    pub(crate) fn new(session: &'s mut Session, depth: u32) -> Self {
        Self { session, depth, over: false }
    }

    /// Begins a part of it that can be rolled back by itself. Dropped without [`commit`](Self::commit), only that part is.
    ///
    /// # Errors
    /// [`PgError`].
    ///
    /// # Cancel safety
    /// Dropping it rolls back the whole transaction, and the connection goes with it.
    pub async fn savepoint(&mut self) -> Result<Transaction<'_>, PgError> {
        let depth = self.depth + 1;
        self.session.control(&format!("SAVEPOINT s{depth}"), Change::Savepoint).await?;
        Ok(Transaction::new(self.session, depth))
    }

    /// Commits it; of a savepoint, keeps what it did in the transaction around it.
    ///
    /// From COMMIT on it is not cancelled, neither by the deadline nor by the caller's leaving; it has a bound of its own
    /// ([`commit_bound`](crate::PoolBuilder::commit_bound)). If its answer is lost, the server is asked on another connection
    /// what became of the transaction. A caller whose deadline comes first is told that the outcome is unknown, and the
    /// call's event, later, what it was.
    ///
    /// # Errors
    /// [`PgError`]: [`TransactionLost`](PgError::TransactionLost) if a statement of it had failed, whose error was not passed
    /// on; else its [`outcome`](PgError::outcome) says what is known of the transaction.
    ///
    /// # Cancel safety
    /// Not sent until first polled, and rolled back then if dropped before. After that it goes through.
    pub async fn commit(mut self) -> Result<(), PgError> {
        let Some(open) = self.session.open() else { return Err(self.session.gone()) };
        if open.failed {
            let _ = self.roll_back().await;
            return Err(self.session.transaction_lost(open.undone(Outcome::Failed)));
        }
        if self.depth > 0 {
            let result = self.session.control(&format!("RELEASE s{}", self.depth), Change::Release).await;
            self.over = result.is_ok();
            return result;
        }
        // Not begun after the end (contract X6); this also says whether the connection is still here.
        if let Err(error) = self.session.begin_statement(Facts::CONTROL, clock::now()) {
            return Err(match error {
                PgError::Stopped { stopped, connecting, .. } => {
                    let outcome = open.undone(Outcome::Rejected);
                    self.session.came_to(outcome);
                    PgError::Stopped { stopped: Box::new(stopped.knowing(outcome)), outcome, connecting }
                }
                other => other,
            });
        }
        self.over = true;
        commit::commit(self.session, open).await
    }

    /// Rolls it back; of a savepoint, only what was done since.
    ///
    /// # Errors
    /// [`PgError`] if its answer did not come in time. It is rolled back all the same.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing: the rollback is sent.
    pub async fn rollback(mut self) -> Result<(), PgError> {
        self.roll_back().await
    }

    async fn roll_back(&mut self) -> Result<(), PgError> {
        let depth = self.depth;
        let result = if depth == 0 {
            self.session.control("ROLLBACK", Change::RollBack).await
        } else {
            let sql = format!("ROLLBACK TO s{depth}; RELEASE s{depth}");
            self.session.control(&sql, Change::Back { depth: depth - 1 }).await
        };
        if result.is_ok() {
            self.over = true;
            if depth == 0 {
                self.session.rolled_back_by_decision();
            }
        }
        result
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.session.owe_rollback(self.depth);
        }
    }
}

impl Deref for Transaction<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}
