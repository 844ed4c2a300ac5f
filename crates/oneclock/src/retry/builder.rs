//! What retries are made of.
//!
//! Decides nothing but what is refused once, in place of each call.

use std::fmt;
use std::sync::Arc;

use oneclock_core::{Ask, Refused};

use super::{Retries, Shared};
use crate::caps::WithoutOperation;
use crate::health::Health;

/// Builds [`Retries`].
#[must_use = "retries are made by `build`"]
pub struct RetriesBuilder(pub(super) Shared);

// === RetriesBuilder ===

impl RetriesBuilder {
    /// What a whole call, all its attempts and waits together, asks of its operation: cap, reserve, and the least that is
    /// useful for one attempt.
    pub fn ask(mut self, ask: Ask) -> Self {
        self.0.ask = ask;
        self
    }

    /// What becomes of a call outside of any operation: unless said otherwise it has the cap, or
    /// [`DEFAULT_CAP`](crate::DEFAULT_CAP), and the log says so once (contract C6).
    pub fn without_operation(mut self, without: WithoutOperation) -> Self {
        self.0.without_operation = without;
        self
    }

    /// The destination's health: there is no hedge unless it [is well](Health::is_well). Whoever makes the calls asks it and
    /// tells it; adapters do.
    pub fn health(mut self, health: Health) -> Self {
        self.0.health = Some(health);
        self
    }

    /// Where the random bits of the jitter come from, for tests and simulations.
    pub fn random(mut self, bits: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.0.random = Box::new(bits);
        self
    }

    /// The retries.
    ///
    /// # Errors
    /// [`Refused::CapBelowMinimum`], if no attempt could ever be made (contract C1).
    pub fn build(self) -> Result<Retries, Refused> {
        let ask = self.0.ask.check()?;
        self.0.policy.per_try().map_or(ask, |limit| ask.cap(limit)).check()?;
        Ok(Retries(Arc::new(self.0)))
    }
}

impl fmt::Debug for RetriesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetriesBuilder").field("name", &self.0.name).finish_non_exhaustive()
    }
}
