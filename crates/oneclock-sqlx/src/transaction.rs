//! Transactions: the deadline covers them as a whole, COMMIT is never cancelled once it was sent, ROLLBACK is always sent.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use oneclock::clock;
use oneclock_core::Outcome;
use oneclock_core::statement::{CommitSeen, outcome_of_transaction};

use crate::error::{SqlxError, is_usable_after, outcome_of};
use crate::guard::Guard;
use crate::reap;
use crate::session::{Counted, Session, SqlxFault};
use crate::turn::{SETTLE, Turn};
use crate::work::Kind;

/// A transaction, or a savepoint inside one. `&mut tx` is an [`Executor`](sqlx::Executor).
///
/// It spends from the call that it belongs to. Dropped, or not committed when the call ends, it is rolled back, and what
/// its statement was at is cancelled first.
///
/// ```no_run
/// # async fn f(pool: oneclock_sqlx::Pool) -> Result<(), oneclock_sqlx::SqlxError> {
/// let mut tx = pool.begin("charge").await?;
/// sqlx::query("INSERT INTO charges VALUES ($1)").bind(499).execute(&mut tx).await?;
/// tx.commit().await?; // `Ok`: it is committed, whatever became of the answer
/// # Ok(()) }
/// ```
#[must_use = "dropping the transaction rolls it back"]
pub struct Transaction<'g> {
    session: Arc<Session>,
    depth: usize,
    is_open: bool,
    counted: Counted,
    _guard: Option<Guard>, // after all else, so that it comes last
    _borrowed: PhantomData<&'g mut Guard>,
}

// === Transaction ===

impl<'g> Transaction<'g> {
    pub(crate) async fn start(session: Arc<Session>) -> Result<Self, SqlxError> {
        // Held from before it is begun, so that it is rolled back also if this is dropped halfway.
        let depth = session.depth() + 1;
        session.holds(depth);
        let begun = Self { session, depth, is_open: true, counted: Counted::Now, _guard: None, _borrowed: PhantomData };
        Turn::new(&begun.session, Kind::Begin).run().await.map_err(SqlxFault::into_ours)?;
        Ok(begun)
    }

    pub(crate) async fn start_owned(guard: Guard) -> Result<Transaction<'static>, SqlxError> {
        let mut begun = Transaction::start(Arc::clone(guard.session())).await?;
        begun._guard = Some(guard);
        Ok(begun)
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// A transaction inside this one: a savepoint.
    ///
    /// # Errors
    /// [`SqlxError`]; nothing was done.
    ///
    /// # Cancel safety
    /// What was begun is rolled back.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, SqlxError> {
        Transaction::start(Arc::clone(&self.session)).await
    }

    /// Commits.
    ///
    /// COMMIT is sent only before the end, is never cancelled, and has a bound of its own (contract D5). If its answer is
    /// lost the server is asked what became of the transaction, and `Ok` means that it went through.
    ///
    /// # Errors
    /// [`SqlxError`]. Its [`outcome`](SqlxError::outcome) is [`Unknown`](Outcome::Unknown) where neither the answer nor the
    /// server could tell in time; the event of the call, later, may know.
    ///
    /// # Cancel safety
    /// Dropped before COMMIT was sent, the transaction is rolled back. Dropped after that, COMMIT goes on and its outcome is
    /// told by the event of the call.
    pub async fn commit(mut self) -> Result<(), SqlxError> {
        let fault = match Turn::new(&self.session, Kind::Commit).run().await {
            Ok(()) => {
                self.settled();
                return Ok(());
            }
            Err(fault) => fault,
        };
        let error = match fault {
            SqlxFault::Ours(error) if error.outcome() == Outcome::Applied => {
                self.settled(); // its answer came while it was being given up
                return Ok(());
            }
            SqlxFault::Ours(error) => return Err(error),
            SqlxFault::Sqlx(error) => error,
        };
        let Some(hand) = self.session.committed() else { return Err(error.into()) }; // a savepoint
        let seen = match hand.is_sent() {
            false => CommitSeen::NotSent,
            true if is_usable_after(&error) => CommitSeen::Refused(outcome_of(&error)),
            true => {
                let asked = reap::asked(&self.session, hand.xact());
                let remaining = self.session.deadline().remaining(clock::now());
                tokio::time::timeout(remaining + SETTLE, asked).await.unwrap_or(CommitSeen::Sent)
            }
        };
        let outcome = outcome_of_transaction(seen);
        self.session.found_out(outcome);
        self.counted = Counted::Before;
        if outcome == Outcome::Applied {
            self.settled();
            return Ok(());
        }
        Err(SqlxError::sql(error, outcome))
    }

    /// Rolls back, and waits for it.
    ///
    /// # Errors
    /// [`SqlxError`]. It is rolled back all the same: at the latest when its connection closes.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn rollback(mut self) -> Result<(), SqlxError> {
        let result = Turn::new(&self.session, Kind::RollBack(self.depth - 1)).run().await;
        if result.is_ok() {
            if self.depth == 1 {
                self.session.found_out(Outcome::Failed); // by its own decision
            }
            self.settled();
        }
        result.map_err(SqlxFault::into_ours)
    }

    fn settled(&mut self) {
        self.session.is_settled(self.depth);
        self.is_open = false;
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.session.roll_back(self.depth, self.counted);
        }
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("depth", &self.depth).finish_non_exhaustive()
    }
}
