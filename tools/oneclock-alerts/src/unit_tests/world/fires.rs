//! Which alerts should fire: worked out from the shares and the windows alone, not from the rules' expressions.

use std::collections::BTreeSet;

use oneclock_core::BoundBy;

use super::{Phase, USUAL, World};
use crate::policy::{Burn, Policy, Span};
use crate::rules::Alert;

impl World<'_> {
    pub(super) fn thresholds(&self) -> Vec<f64> {
        let Policy { timeouts, calibration, objective, .. } = self.policy;
        let burns = objective.page.iter().chain(&objective.ticket).map(|burn| burn.times.of(objective.in_time.rest()));
        let shares = [timeouts.warn, timeouts.page, calibration.due].map(|share| share.fraction());
        burns.chain(shares).collect()
    }

    /// The share that ran out of time in the last `window`, and how many requests there were.
    fn over(&self, window: Span) -> (f64, f64) {
        let mut wanted = self.steps_in(window);
        let (mut late, mut all) = (0.0, 0.0);
        for phase in self.phases.iter().rev() {
            let steps = wanted.min(phase.steps as f64);
            all += steps * phase.requests;
            late += steps * phase.requests * phase.late;
            wanted -= steps;
        }
        if self.bound == BoundBy::Caller && self.late_budget < USUAL {
            (0.0, all - late) // nobody's fault
        } else {
            (late / all, all)
        }
    }

    pub(in crate::unit_tests) fn fires(&self) -> BTreeSet<Alert> {
        let Policy { timeouts, zombies, retries, propagation, deadline_missing, calibration, objective, .. } =
            self.policy;
        let mut fires = BTreeSet::new();
        let mut when = |holds: bool, alert: Alert| {
            if holds {
                fires.insert(alert);
            }
        };
        let minimum = f64::from(self.policy.minimum);
        let above = |share: f64, window: Span, minimum: f64| {
            let (late, all) = self.over(window);
            late > share && all >= minimum
        };
        when(above(timeouts.warn.fraction(), timeouts.window, minimum), Alert::Timeouts);
        when(above(timeouts.page.fraction(), timeouts.window, minimum), Alert::TimeoutsHigh);
        let due = calibration.due.fraction();
        when(above(due, calibration.window, f64::from(calibration.minimum)), Alert::CalibrationDue);
        let burns = |burns: &[Burn]| {
            burns.iter().any(|burn| {
                let share = burn.times.of(objective.in_time.rest());
                above(share, burn.long, minimum) && above(share, burn.short, 0.0)
            })
        };
        when(burns(&objective.page), Alert::ErrorBudgetFast);
        when(burns(&objective.ticket), Alert::ErrorBudgetSlow);
        if let Some((layer, count)) = self.zombies
            && let Some(size) = zombies.pools.get(&layer)
        {
            let share = f64::from(count) / f64::from(*size);
            when(share > zombies.page.fraction() && count >= zombies.minimum, Alert::Zombies);
        }
        let calls = self.phases.last().map_or(0.0, |phase| phase.requests) * self.steps_in(retries.window);
        when(self.attempts > retries.amplification.of_one() && calls >= minimum, Alert::Amplification);
        let ends = self.ends * (1.0 - self.in_body - self.left_in_body - self.must_finish);
        let ends = ends * self.steps_in(propagation.window);
        let expected = ends * self.share;
        let told = self.seen / self.share >= propagation.seen.fraction();
        when(expected >= f64::from(propagation.minimum) && !told, Alert::EndsNotPassedOn);
        let at_all = self.seen + self.seen_elsewhere >= propagation.seen.tenth() || self.attempts == 0.0;
        when(propagation.unmetered && ends >= f64::from(propagation.minimum) && !at_all, Alert::EndsNotPassedOn);
        let now = self.phases.last().copied().unwrap_or(Phase { steps: 0, requests: 0.0, late: 0.0 });
        let requests = now.requests * self.steps_in(deadline_missing.window);
        let above = self.missing * (1.0 - now.late) > deadline_missing.warn.fraction();
        let edge = deadline_missing.edges.iter().any(|edge| self.is_at(edge));
        when(deadline_missing.watched && !edge && above && requests >= minimum, Alert::DeadlineMissing);
        let grows = self.unnamed.is_some_and(|more| more > 0.0);
        when(self.policy.overflow.watched && grows, Alert::NamesOverflow);
        let shedding = &self.policy.shedding;
        let all = now.requests * (1.0 + self.shed_at_arrival) * self.steps_in(shedding.window);
        let needed = self.shed_at_arrival * self.shed_required + self.shed_in_queue;
        let share = needed / (1.0 + self.shed_at_arrival);
        when(share > shedding.warn.fraction() && all >= minimum, Alert::ShedsRequired);
        fires
    }
}
