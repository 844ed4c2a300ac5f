//! Requests that are needed and get no place.
//!
//! Decides what is a part of the whole. Who is refused at arrival is no operation, so it is in no count of requests; who is
//! dropped from the queue had been accepted, and is. What is optional and makes room for others is left out: that is what it is
//! for.

use oneclock_core::Stage;
use oneclock_core::admission::Why;
use oneclock_telemetry::names::{BUDGET_AT_ARRIVAL, NOT_ADMITTED};

use super::{Alert, Rule, VALUE, a_second};
use crate::policy::Policy;
use crate::query::{Series, series};
use crate::rules::requests::Recorded;

pub(super) fn sheds_required(policy: &Policy, recorded: &Recorded) -> Rule {
    let by = &recorded.by_operation;
    let shedding = &policy.shedding;
    let window = shedding.window;
    let rate = |of: Series<'_>| format!("sum by ({by}) ({})", of.of(&policy.matching).rate(window));
    let needed = [Why::Doomed, Why::Full].map(Why::as_str);
    let refused = rate(series(&NOT_ADMITTED).with_any("why", &needed));
    let accepted = rate(series(&BUDGET_AT_ARRIVAL));
    let at_arrival = rate(series(&NOT_ADMITTED).with("stage", Stage::Arrival.as_str()));
    // Where nobody was refused at arrival yet there is no such series.
    let all =
        format!("(\n  {accepted}\n  + ({at_arrival} or 0 * {accepted})\n  >= {}\n)", a_second(policy.minimum, window));
    Alert::ShedsRequired.rule(
        policy,
        Some(shedding.for_),
        format!("{refused}\n/ {all}\n> {}", shedding.warn.fraction()),
        "{{ $labels.operation }}: requests that are needed get no place",
        format!(
            "{VALUE} of the requests of the last {window} were refused: no place would have been free in time, or more comes than \
             goes. Nothing of them was started. What is optional and made room for others is not among them."
        ),
    )
}
