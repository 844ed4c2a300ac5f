//! One attempt of several.
//!
//! Decides that it is a part of its operation, ends with it, and is marked as the attempt that it is (contract R3, R9).

use std::future::Future;
use std::pin::Pin;

use oneclock_core::Stage;
use oneclock_core::retry::Attempt;

use super::{AttemptFailed, Retries};
use crate::Operation;
use crate::grant::NotBegun;
use crate::operation::{Driver, Spending};

/// An attempt that is a part of its operation: one entry in the ledger, one event at its end.
pub(crate) struct Trying<F> {
    driver: Driver,
    _spending: Spending,
    work: Pin<Box<F>>, // attempts are few, and futures that hold futures of others grow with each level
}

// === Trying ===

impl<F> Trying<F> {
    pub(crate) fn begin(
        retries: &Retries,
        parent: &Operation,
        attempt: Attempt,
        work: &mut impl FnMut(Attempt) -> F,
    ) -> Result<Self, NotBegun> {
        let driver = parent.grant(retries.name().clone()).ask(retries.ask()).attempt(attempt).driven()?;
        // What it calls is marked as what it is, and retries nothing itself (contract R9).
        let driver = driver.serving_attempt(parent.attempt().saturating_add(attempt.number.saturating_sub(1)));
        let spending = parent.spend(retries.name().clone(), Stage::Work);
        let work = driver.operation().sync_scope(|| Box::pin(work(attempt))); // made in the attempt's scope, too
        Ok(Self { driver, _spending: spending, work })
    }

    pub(crate) fn operation(&self) -> &Operation {
        self.driver.operation()
    }

    pub(crate) async fn run<T, E>(self) -> Result<T, AttemptFailed<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let operation = self.driver.operation().clone();
        match operation.run(self.work).await {
            Ok(result) => {
                self.driver.finish();
                result.map_err(AttemptFailed::Failed)
            }
            Err(ended) => Err(AttemptFailed::stopped(ended)),
        }
    }
}
