//! Whole transactions as one call: begun, worked on, and committed or rolled back.
//!
//! Decides that nothing but the word of the work commits one.

use oneclock::Operation;
use oneclock_core::Name;

use super::Pool;
use crate::error::PgError;
use crate::transaction::{Decision, Transaction};

impl Pool {
    /// Runs `work` in a transaction, as a call named `name` of the current operation, and commits it if that succeeds.
    ///
    /// It is rolled back in every other case. From COMMIT on it is not cancelled (contract D5), also when its caller leaves;
    /// what became of it is told by the call's event.
    ///
    /// ```no_run
    /// # use oneclock_postgres::{Pool, PgError};
    /// # async fn charge(pool: &Pool) -> Result<u64, PgError> {
    /// pool.transaction("charge", async |tx| {
    ///     tx.execute("UPDATE stock SET n = n - 1 WHERE item = $1", &[&7_i32]).await?;
    ///     tx.execute("INSERT INTO charges VALUES ($1)", &[&499_i32]).await
    /// }).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `work` returns, those of [`get`](Self::get), and of [`Transaction::commit`].
    ///
    /// # Cancel safety
    /// Dropped before COMMIT, it is rolled back; after that it goes through. Which of the two is told by the call's event.
    pub async fn transaction<T, E>(
        &self,
        name: impl Into<Name>,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<PgError>,
    {
        let mut client = self.get(name).await?;
        let mut transaction = client.begin().await?;
        let decided = work(&mut transaction).await.map(Decision::Commit);
        end(transaction, decided).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    ///
    /// # Cancel safety
    /// As [`transaction`](Self::transaction).
    pub async fn transaction_in<T, E>(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<PgError>,
    {
        let mut client = self.get_in(operation, name).await?;
        let mut transaction = client.begin().await?;
        let decided = work(&mut transaction).await.map(Decision::Commit);
        end(transaction, decided).await
    }

    /// Runs a transaction whose work decides whether it is committed, as a call named `name` of the current operation. The event
    /// of one that was rolled back by that decision says [`Failed`](oneclock_core::Outcome::Failed): definitely not done.
    ///
    /// ```no_run
    /// # use oneclock_postgres::{Decision, Pool, PgError};
    /// # async fn sell(pool: &Pool) -> Result<(), PgError> {
    /// let is_sold = pool.decide("sell", async |tx| {
    ///     let sold = tx.execute("UPDATE stock SET n = n - 1 WHERE item = $1 AND n > 0", &[&7_i32]).await?;
    ///     tx.execute("INSERT INTO orders VALUES ($1)", &[&7_i32]).await?;
    ///     Ok::<_, PgError>(if sold == 0 { Decision::RollBack(false) } else { Decision::Commit(true) })
    /// }).await?;
    /// # let _ = is_sold; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    ///
    /// # Cancel safety
    /// As [`transaction`](Self::transaction).
    pub async fn decide<T, E>(
        &self,
        name: impl Into<Name>,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<Decision<T>, E>,
    ) -> Result<T, E>
    where
        E: From<PgError>,
    {
        let mut client = self.get(name).await?;
        let mut transaction = client.begin().await?;
        let decided = work(&mut transaction).await;
        end(transaction, decided).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    ///
    /// # Cancel safety
    /// As [`transaction`](Self::transaction).
    pub async fn decide_in<T, E>(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<Decision<T>, E>,
    ) -> Result<T, E>
    where
        E: From<PgError>,
    {
        let mut client = self.get_in(operation, name).await?;
        let mut transaction = client.begin().await?;
        let decided = work(&mut transaction).await;
        end(transaction, decided).await
    }
}

async fn end<T, E>(transaction: Transaction<'_>, decided: Result<Decision<T>, E>) -> Result<T, E>
where
    E: From<PgError>,
{
    let not_committed = match decided {
        Ok(Decision::Commit(value)) => {
            transaction.commit().await?;
            return Ok(value);
        }
        Ok(Decision::RollBack(value)) => Ok(value),
        Err(error) => Err(error),
    };
    // It is rolled back whether or not this wait sees the end of it.
    let _ = transaction.rollback().await;
    not_committed
}
