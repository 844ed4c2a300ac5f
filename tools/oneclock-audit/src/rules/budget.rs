//! Does an entry's budget cover what its calls may take?

use super::{Finding, Rule, Severity};
use crate::amount::shown;
use crate::graph::Graph;
use crate::inventory::Order;

/// What the calls may take is more than what there is.
pub(super) const BUDGET_OVERDRAWN: Rule = Rule {
    id: "budget-overdrawn",
    says: "the calls of a step may take more than its budget leaves",
    page: include_str!("../../rules/budget-overdrawn.md"),
    look: budget_overdrawn,
};

fn budget_overdrawn(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for entry in &graph.inventory.entries {
        for step in graph.budget(entry) {
            let rest = step.rest_millis();
            let (Some((callee, longest, at)), true) = (&step.longest, rest < 0) else { continue };
            let calls = match step.order {
                Some(Order::Serial) => "its calls, one after the other,".to_owned(),
                Some(Order::Parallel) | None => format!("its call to {callee}"),
            };
            let says = format!(
                "{} has {} of the budget of {} ({}), and {calls} may take {}: {} too much",
                step.name,
                shown(step.given),
                entry.name,
                shown(entry.budget),
                shown(step.calls),
                shown(std::time::Duration::from_millis(u64::try_from(-rest).unwrap_or(u64::MAX))),
            );
            let kept = step.reserve.saturating_add(step.own);
            let kept =
                if kept.is_zero() { String::new() } else { format!("; {} of it are for its own steps", shown(kept)) };
            let severity = if step.certain { Severity::Error } else { Severity::Warning };
            let finding = Finding::new(&BUDGET_OVERDRAWN, severity, at, says)
                .label(format!("up to {}", shown(*longest)))
                .related(&entry.place, format!("the budget: {} for {}{kept}", shown(entry.budget), entry.name))
                .between([step.name.clone(), callee.clone()])
                .consequence("the user has gone before the last of these calls has ended")
                .help("shorten the calls, make them at once, or hand on what is left (propagates: deadline)");
            findings.push(finding);
        }
    }
}
