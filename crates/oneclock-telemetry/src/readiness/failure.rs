//! What a self-test says of its failure: whether a promise is broken, or a dependency is not there.

use std::error::Error;
use std::fmt;

/// Why a self-test failed. Any error becomes one by `?` or `into`, as [`unavailable`](Self::unavailable).
pub struct Failure {
    pub(super) broken: bool,
    error: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// The test could not be done: the dependency is not there, or does not answer. Before the first pass the process is not
    /// ready; later it stays ready, and `/status` shows it: a process that cannot reach its database still knows what to answer,
    /// and all of them would leave together.
    pub fn unavailable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { broken: false, error: error.into() }
    }

    /// The test shows that a promise is broken: a transaction pooler stands in between, a statement is not cut off. The process
    /// is not ready until the test passes.
    ///
    /// ```
    /// use oneclock_postgres::{PgError, Pool, SelfTestFailed};
    /// use oneclock_telemetry::{Readiness, readiness::Failure};
    ///
    /// # fn with(pool: Pool) {
    /// let builder = Readiness::builder().self_test("postgres", move || {
    ///     let pool = pool.clone();
    ///     async move {
    ///         pool.self_test().await.map_err(|error| match error {
    ///             SelfTestFailed::NotCutOff { .. } | SelfTestFailed::Postgres(PgError::Pooler { .. }) => {
    ///                 Failure::broken_promise(error)
    ///             }
    ///             other => Failure::unavailable(other),
    ///         })
    ///     }
    /// });
    /// # drop(builder); }
    /// ```
    pub fn broken_promise(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { broken: true, error: error.into() }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::unavailable(error)
    }
}

/// The error and its causes.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        let mut cause = self.error.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("broken", &self.broken).field("error", &self.error).finish()
    }
}
