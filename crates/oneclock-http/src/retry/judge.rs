//! What an answer or a failure says of another attempt, and how attempts are marked on the wire.
//!
//! Decides which fields are read and written; what follows is `oneclock_core::retry`'s decision. Contract R2, R7, R8, R9.
//!
//! | field | on | says | read from | written to |
//! |---|---|---|---|---|
//! | `x-envoy-attempt-count` | requests | this is attempt n | trusted callers | destinations inside, on retries |
//! | `grpc-previous-rpc-attempts` | requests | n attempts were made before | trusted callers | whoever speaks gRPC, on retries |
//! | `oneclock-retried` | answers | n attempts were made below; no more | destinations inside | trusted callers, on failures |
//! | `retry-after` | answers | not before then | everybody | - |
//! | `grpc-retry-pushback-ms` | answers | not before then, or not at all | everybody | trusted gRPC callers: -1, as above |

use http::{HeaderMap, HeaderName, HeaderValue, header, request, response};
use oneclock::{Call, clock};
use oneclock_core::effect::{self, Effect, Seen};
use oneclock_core::retry::{Pushback, RetryPolicy, Status, Tried};
use oneclock_core::wire::names as wire;
use oneclock_core::{Name, Outcome, Trust};

use crate::client::NotARequest;
use crate::destination::Destination;
use crate::error::CallError;

const ATTEMPT_COUNT: HeaderName = HeaderName::from_static(wire::X_ENVOY_ATTEMPT_COUNT);
const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static(wire::GRPC_PREVIOUS_RPC_ATTEMPTS);
const PUSHBACK: HeaderName = HeaderName::from_static(wire::GRPC_RETRY_PUSHBACK_MS);
const RETRIED: HeaderName = HeaderName::from_static(wire::ONECLOCK_RETRIED);
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

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
    let seen = destination.seen(head);
    let outcome = effect::outcome_of(effect, seen);
    let tried = match seen {
        Seen::Answer { status, reason } => Tried::new(outcome).status(Status::Http(status)).reason(reason),
        Seen::GrpcAnswer { status, reason } => Tried::new(outcome).status(Status::Grpc(status)).reason(reason),
        _ => Tried::new(outcome),
    };
    let below = if destination.trust() == Trust::Inside { gave_up_below(&head.headers) } else { None };
    tried.pushback(pushback(&head.headers)).below(below)
}

/// What a failure says.
pub(crate) fn failed(error: &CallError) -> Tried {
    match error {
        CallError::Stopped(stopped) => Tried::new(stopped.outcome()),
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
    let grpc = headers.get_all(PUSHBACK).iter().map(|value| Pushback::of_grpc(value.as_bytes()));
    after.chain(grpc).fold(Pushback::Unsaid, Pushback::and)
}

/// How often a hop below tried before it gave up. What cannot be read says that much, too.
pub(crate) fn gave_up_below(headers: &HeaderMap) -> Option<u32> {
    // Going through a few names costs less than to hash one for every answer.
    let (_, value) = headers.iter().find(|(name, _)| name.as_str() == wire::ONECLOCK_RETRIED)?;
    Some(number(value).unwrap_or(1))
}

/// Which attempt a request of a trusted caller is. What cannot be read is no first one.
pub(crate) fn attempt_said_by(name: &HeaderName, value: &HeaderValue) -> Option<u32> {
    match name.as_str() {
        wire::X_ENVOY_ATTEMPT_COUNT => Some(number(value).unwrap_or(2).max(1)),
        wire::GRPC_PREVIOUS_RPC_ATTEMPTS => Some(number(value).map_or(2, |before| before.saturating_add(1))),
        _ => None,
    }
}

/// Marks what `call` sends as the attempt that it is, if it is not the first (contract R9). Copies that were there are gone.
pub(crate) fn mark_attempt(call: &Call, headers: &mut HeaderMap, trust: Trust) {
    let attempt = call.attempt();
    if attempt <= 1 {
        return;
    }
    let content_type = headers.get(header::CONTENT_TYPE);
    if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
        headers.insert(PREVIOUS_ATTEMPTS, HeaderValue::from(attempt - 1));
    } else if trust == Trust::Inside {
        headers.insert(ATTEMPT_COUNT, HeaderValue::from(attempt));
    }
}

/// Tells a trusted caller not to try again, in its own words, on an answer that is a failure (contract R9); removes from
/// every other what was copied from an answer below.
pub(crate) fn mark_answer(headers: &mut HeaderMap, status: u16, gave_up_after: Option<u32>, trust: Trust) {
    if trust == Trust::Outside {
        return strip_answer(headers);
    }
    let Some(attempts) = gave_up_after else { return };
    match headers.get("grpc-status").map(HeaderValue::as_bytes) {
        Some(b"0") => {}
        Some(_) => {
            headers.insert(PUSHBACK, HeaderValue::from_static("-1"));
            headers.insert(RETRIED, HeaderValue::from(attempts));
        }
        None if status >= 500 || status == 429 => {
            headers.insert(RETRIED, HeaderValue::from(attempts));
        }
        None => {}
    }
}

/// Removes what only those inside may say.
pub(crate) fn strip_answer(headers: &mut HeaderMap) {
    if gave_up_below(headers).is_some() {
        headers.remove(RETRIED);
    }
}

fn number(value: &HeaderValue) -> Option<u32> {
    let digits = value.as_bytes();
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| value.to_str().ok()?.parse().ok()).flatten()
}
