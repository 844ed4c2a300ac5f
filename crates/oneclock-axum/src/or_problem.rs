//! Anybody's error as the answer of a handler, with a word at the end of the call.

#![allow(clippy::result_large_err, reason = "a handler's error is its answer: made once for each request that fails")]

use oneclock_http::BoxError;

use crate::Problem;

/// Makes the error of any result a [`Problem`], for handlers.
///
/// The errors of databases and caches have no `From` of their own here, since this crate knows none of them; this is for
/// theirs, and for a service's own. What is found in the chain of an error decides: see [`oneclock_http::Problem::of`].
///
/// ```
/// use oneclock_axum::{OrProblem as _, Problem};
///
/// async fn price() -> Result<String, Problem> {
///     let price = tokio::fs::read_to_string("/no/such/price").await.or_problem()?;
///     Ok(price)
/// }
/// # #[tokio::main] async fn main() { assert_eq!(price().await.unwrap_err().0.status(), 500); }
/// ```
pub trait OrProblem<T> {
    /// The value, or the problem of the error.
    ///
    /// # Errors
    /// [`Problem`], if it was an error.
    fn or_problem(self) -> Result<T, Problem>;
}

// === OrProblem ===

impl<T, E: Into<BoxError>> OrProblem<T> for Result<T, E> {
    fn or_problem(self) -> Result<T, Problem> {
        self.map_err(Problem::of)
    }
}
