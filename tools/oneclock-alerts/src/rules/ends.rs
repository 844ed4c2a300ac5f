//! Which early ends something below should have been told of: what the alerts on propagation are made of.
//!
//! Decides which ends of handlers are none of a layer's. An end in the body comes when the head is out and the work behind it
//! is done: there is nobody left to tell. A step that must finish is not told by declaration. Both would otherwise be taken
//! for a layer that is not told. A stream that reads from its database while it sends ends in the body, too: of such ends
//! nothing is said either way.

use oneclock::events::RanOn;
use oneclock_core::{Cause, Stage};
use oneclock_telemetry::names::{CANCELLATIONS, CANCELLED, DEADLINE_EXCEEDED, RAN_ON};

use super::Rule;
use super::requests::Recorded;
use crate::policy::Policy;
use crate::query::{Series, selector, series};

/// The layer of [`CANCELLATIONS`] that a request is.
pub(super) const HANDLER: &str = "handler";

const ENDS: &str = "oneclock:ends_to_pass_on";

/// The ends a second, as the alerts ask for them.
pub(super) fn to_pass_on(policy: &Policy) -> String {
    format!("{}{}", named(policy), selector(&policy.matching))
}

fn named(policy: &Policy) -> String {
    format!("{ENDS}:rate{}", policy.propagation.window)
}

pub(super) fn recorded(policy: &Policy) -> Rule {
    let by = Recorded::of(policy).by_service;
    let sum = |of: Series<'_>| format!("sum by ({by}) ({})", of.of(&policy.matching).rate(policy.propagation.window));
    let handlers = sum(series(&CANCELLATIONS).with("layer", HANDLER));
    let body = Stage::Body.as_str();
    // Of other causes handlers tell nobody, so they are not among theirs.
    let passed_on = [Cause::CallerGone, Cause::Shutdown].map(Cause::as_str);
    let nobody_to_tell = [
        series(&DEADLINE_EXCEEDED).with("stage", body),
        series(&CANCELLED).with_any("cause", &passed_on).with("stage", body),
        series(&RAN_ON).with("layer", RanOn::MustFinish.as_str()),
    ];
    // One request may have several such steps, so less than nothing may be left. That is below every minimum.
    let rest = nobody_to_tell.map(|of| format!("\n- ({} or 0 * {handlers})", sum(of)));
    Rule::Record { record: named(policy), expr: format!("{handlers}{}", rest.concat()) }
}
