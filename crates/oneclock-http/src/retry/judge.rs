//! What an answer or a failure says of another attempt.
//!
//! Decides what of it is handed to `oneclock_core::retry`, which decides what follows. How attempts are marked on the wire is
//! `marks`'s. Contract R2, R7, R8.

use http::{HeaderMap, HeaderName, header, request, response};
use oneclock::clock;
use oneclock_core::effect::{self, Effect, Seen};
use oneclock_core::retry::{Pushback, RetryPolicy, Status, Tried};
use oneclock_core::{Name, Outcome, Trust};

use crate::client::NotARequest;
use crate::destination::Destination;
use crate::error::CallError;
use crate::{grpc, marks};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(oneclock_core::idempotency::FIELD);

/// What repeating this request does: what was said of this one, else of all to its destination, else its method and key.
pub(super) fn effect_of(head: &request::Parts, policy: &RetryPolicy) -> Effect {
    let declared = head.extensions.get::<Effect>().or_else(|| policy.effect());
    if let Some(effect) = declared {
        return effect.clone();
    }
    let mut keys = head.headers.get_all(IDEMPOTENCY_KEY).iter();
    let key = match (keys.next(), keys.next()) {
        (Some(key), None) => key.to_str().ok().map(|key| Name::from(key.to_owned())),
        _ => None, // none, or several: no key that anybody could enforce
    };
    effect::of_method(head.method.as_str(), policy.idempotent_methods(), key)
}

/// What an answer says.
pub(super) fn answered(destination: &Destination, effect: &Effect, head: &response::Parts) -> Tried {
    let Some(seen) = destination.seen(head) else { return Tried::to_be_told() };
    let outcome = effect::outcome_of(effect, seen);
    let tried = match seen {
        Seen::Answer { status, reason } => Tried::new(outcome).status(Status::Http(status)).reason(reason),
        Seen::GrpcAnswer { status, reason } => Tried::new(outcome).status(Status::Grpc(status)).reason(reason),
        _ => Tried::new(outcome),
    };
    let below = if destination.trust() == Trust::Inside { marks::gave_up_below(&head.headers) } else { None };
    tried.pushback(pushback(&head.headers)).below(below)
}

/// What a failure says.
pub(crate) fn failed(error: &CallError) -> Tried {
    match error {
        CallError::Stopped(stopped) => stopped.tried(),
        // Addressed to somebody else: it would be so again.
        CallError::Failed(failed) if failed.source.is::<NotARequest>() => Tried::new(Outcome::Failed),
        CallError::Failed(failed) => Tried::new(failed.outcome),
        CallError::GaveUp(gave_up) => Tried::new(gave_up.last.outcome()).below(Some(gave_up.attempts)),
    }
}

/// What the far side says of when to come again: all that it says counts.
fn pushback(headers: &HeaderMap) -> Pushback {
    if headers.is_empty() {
        return Pushback::Unsaid;
    }
    let after = headers.get_all(header::RETRY_AFTER).iter();
    let after = after.map(|value| Pushback::of_retry_after(value.as_bytes(), clock::wall()));
    let grpc = headers.get_all(grpc::PUSHBACK).iter().map(|value| Pushback::of_grpc(value.as_bytes()));
    after.chain(grpc).fold(Pushback::Unsaid, Pushback::and)
}
