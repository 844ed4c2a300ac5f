//! What one request does, on every hop, from its number alone: a run can be repeated, though not its interleaving.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The field that carries a request's number through the chain.
pub(super) const PLAN: &str = "x-plan";

/// One hop's dice.
pub(super) struct Plan(StdRng);

/// Who rolls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hop {
    Caller,
    Gateway,
    Inventory,
}

impl Plan {
    pub(super) fn of(plan: u64, hop: Hop) -> Self {
        Self(StdRng::seed_from_u64(plan ^ (hop as u64) << 56))
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0.random_range(0..u64::MAX >> 8)
    }

    /// True in so many of a hundred.
    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    pub(super) fn up_to(&mut self, most: usize) -> usize {
        self.0.random_range(0..=most)
    }

    /// A span of at most so many milliseconds: mostly short, sometimes long.
    pub(super) fn span(&mut self, most: u64) -> Duration {
        let part: f64 = self.0.random_range(0.0..1.0);
        Duration::from_millis(most).mul_f64(part * part)
    }
}
