//! Readiness: what the contract needs is asked of the live server, not believed.

use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::Name;

use crate::error::SqlxError;
use crate::guard::Guard;
use crate::pool::Pool;

/// What the statement of the test may take.
const BUDGET: Duration = Duration::from_millis(100);

/// How often the test begins anew, with four times as much, where that was not enough for a statement that does nothing.
const TRIES: u32 = 2;

/// What the test as a whole may take, connecting included.
const WHOLE: Duration = Duration::from_secs(10);

/// How long after its cut a statement may still be seen at work.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

const SELF_TEST: Name = Name::literal("self-test");

/// The live server does not do what the contract needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// No connection, too little time, or a transaction pooler in front of the server.
    #[error("the self-test could not be done")]
    NotDone {
        /// Why.
        source: SqlxError,
    },
    /// A statement went on beyond its budget.
    #[error("a statement of 30 s was not cut at its budget of {BUDGET:?}: cancels do not reach the server")]
    NotCut,
    /// After the cut the connection was not usable any more.
    #[error("the connection did not survive the cut of its statement")]
    NotUsable,
}

impl Pool {
    /// Proves against the live server that a statement is cut at its budget, that its connection stays usable, and that no
    /// transaction pooler stands in between (contract D8). For start-up, before a service says that it is ready: it
    /// takes a connection of the pool for a little more than 100 ms, and sends events of its own (a call that was cut off) to
    /// observers.
    ///
    /// # Errors
    /// [`NotReady`].
    ///
    /// # Cancel safety
    /// As that of any statement.
    pub async fn self_test(&self) -> Result<(), NotReady> {
        let operation = Operation::begin(SELF_TEST, WHOLE);
        let not_done = |source| NotReady::NotDone { source };
        // Opening a connection is no part of the budget that is tested.
        drop(self.get_in(&operation, SELF_TEST).await.map_err(not_done)?);
        let (mut budget, mut tries) = (BUDGET, 0);
        let (cut_one, cut) = loop {
            let short = operation.grant(SELF_TEST).cap(budget).operation();
            let short = short.map_err(|not_begun| not_done(SqlxError::stopped(not_begun)))?;
            let mut guard = self.get_in(&short, SELF_TEST).await.map_err(not_done)?;
            match backend(&mut guard).await {
                Ok(backend) => break (backend, sqlx::query("SELECT pg_sleep(30)").execute(&mut guard).await),
                // A server that is busy says nothing about cancels.
                Err(SqlxError::Stopped { .. }) if tries < TRIES => (budget, tries) = (budget * 4, tries + 1),
                Err(error) => return Err(not_done(error)),
            }
        };
        match cut.map_err(SqlxError::from) {
            Err(SqlxError::Stopped { .. }) => {}
            Err(other) => return Err(not_done(other)),
            Ok(_) => return Err(NotReady::NotCut),
        }
        let mut guard = self.get_in(&operation, SELF_TEST).await.map_err(not_done)?;
        if backend(&mut guard).await.map_err(not_done)? == cut_one {
            return Ok(()); // it serves on
        }
        let ends = clock::now() + ENDS_WITHIN;
        loop {
            match state_of(&mut guard, cut_one).await.map_err(not_done)?.as_deref() {
                None => return Err(NotReady::NotUsable),
                Some("active") if clock::now() < ends => tokio::time::sleep(BUDGET / 10).await,
                Some("active") => return Err(NotReady::NotCut),
                Some(_) => return Ok(()),
            }
        }
    }
}

async fn backend(guard: &mut Guard) -> Result<i32, SqlxError> {
    Ok(sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(guard).await?)
}

/// What a backend is at, as the server says; `None` if there is no such backend any more.
async fn state_of(guard: &mut Guard, backend: i32) -> Result<Option<String>, SqlxError> {
    let sql = "SELECT coalesce(state, '') FROM pg_stat_activity WHERE pid = $1";
    Ok(sqlx::query_scalar(sql).bind(backend).fetch_optional(guard).await?)
}
