//! How long a world lasts, and how finely it is told.

use super::{Millis, World};
use crate::policy::{Policy, Span};

impl World<'_> {
    /// A fifth of the window in which most is asked: enough for a rate.
    pub(in crate::unit_tests) fn step(&self) -> Millis {
        let shortest = self.windows().into_iter().fold(self.policy.timeouts.window, Span::min);
        Millis((shortest.duration().as_millis() as u64 / 5).max(1))
    }

    fn windows(&self) -> [Span; 6] {
        let Policy { timeouts, retries, propagation, deadline_missing, overflow, shedding, .. } = self.policy;
        [timeouts.window, retries.window, propagation.window, deadline_missing.window, overflow.window, shedding.window]
    }

    pub(super) fn steps_in(&self, span: Span) -> f64 {
        span.duration().as_millis() as f64 / self.step().0 as f64
    }

    pub(in crate::unit_tests) fn steps(&self) -> u64 {
        self.phases.iter().map(|phase| phase.steps).sum()
    }

    pub(in crate::unit_tests) fn end(&self) -> Millis {
        Millis(self.steps() * self.step().0)
    }

    /// Three times what the slowest alert waits for: so each third of it is enough, to fire and to stop.
    pub(super) fn whole(&self) -> u64 {
        let Policy {
            timeouts,
            zombies,
            retries,
            propagation,
            deadline_missing,
            overflow,
            shedding,
            calibration,
            objective,
            ..
        } = self.policy;
        let shortest = objective.page.iter().map(|burn| burn.short).max();
        let waits = [
            timeouts.for_,
            zombies.for_,
            retries.for_,
            propagation.for_,
            deadline_missing.for_,
            overflow.for_,
            shedding.for_,
            calibration.for_,
        ];
        let wait = waits.into_iter().chain(shortest).map(|span| self.steps_in(span)).fold(0.0, f64::max);
        let window = self.windows().into_iter().map(|span| self.steps_in(span)).fold(0.0, f64::max);
        3 * (wait + 2.0 * window + 5.0).ceil() as u64
    }
}
