//! The rows: what is sent, what is right, by which rule of docs/contract.md, and how both are measured.
//!
//! A row judges every proxy with the same lines. Bounds lie between what is right and what a proxy does that is not, far from
//! both: a busy machine is late, and never early.

mod budgets;
mod ending;
mod leaving;
mod retries;
mod uploads;

use std::pin::Pin;
use std::time::Duration;

use crate::cell::Cell;
use crate::under::Under;

/// One row.
#[derive(Debug)]
pub(crate) struct Case {
    /// For `--case`.
    pub(crate) name: &'static str,
    pub(crate) sent: &'static str,
    pub(crate) right: &'static str,
    /// Of the contract.
    pub(crate) rules: &'static str,
    pub(crate) measure: fn(Under<'_>) -> Measuring<'_>,
}

/// A measurement under way. An error says why there is none.
pub(crate) type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Cell, String>> + Send + 'a>>;

/// In the order of the table.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    [leaving::CASES, ending::CASES, uploads::CASES, retries::CASES, budgets::CASES].into_iter().flatten()
}

/// Within what every route answers.
const LIMIT: Duration = ms(1000);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
