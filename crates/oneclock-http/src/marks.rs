//! What hops tell each other on a message beside the deadline: which attempt it is, why there is no proper answer, and that a
//! hop below has tried often enough.
//!
//! Decides which of these fields are read, written and taken away, by trust. What follows from them is decided in
//! `oneclock_core::effect` and `oneclock_core::retry`. Contract C3, R8, R9.
//!
//! | field | on | says | read from | written to |
//! |---|---|---|---|---|
//! | `x-envoy-attempt-count` | requests | this is attempt n | trusted callers | destinations inside, on retries |
//! | `grpc-previous-rpc-attempts` | requests | n attempts were made before | trusted callers | whoever speaks gRPC, on retries |
//! | `oneclock-importance` | requests | whoever waits can do without | everybody: it only lowers | destinations inside |
//! | `oneclock-reason` | answers | why there is no proper one | destinations inside | everybody |
//! | `oneclock-retried` | answers | n attempts were made below; no more | destinations inside | trusted callers, on failures |
//! | `grpc-retry-pushback-ms` | answers | not before then, or not at all | everybody (`retry::judge`) | trusted gRPC callers: -1, as above |

use http::{HeaderMap, HeaderName, HeaderValue};
use oneclock::Call;
use oneclock_core::effect::{self, Seen};
use oneclock_core::wire::names as wire;
use oneclock_core::{Importance, Outcome, Reason, Trust};

use crate::{grpc, names};

const ATTEMPT_COUNT: HeaderName = HeaderName::from_static(wire::X_ENVOY_ATTEMPT_COUNT);
const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static(wire::GRPC_PREVIOUS_RPC_ATTEMPTS);
const IMPORTANCE: HeaderName = HeaderName::from_static(wire::ONECLOCK_IMPORTANCE);
const RETRIED: HeaderName = HeaderName::from_static(wire::ONECLOCK_RETRIED);

// === On requests ===

/// Whether a field can be one of those below, by its length: a look that costs nothing.
pub(crate) fn may_be_one(name: &str) -> bool {
    const LENGTHS: [usize; 3] =
        [wire::X_ENVOY_ATTEMPT_COUNT.len(), wire::GRPC_PREVIOUS_RPC_ATTEMPTS.len(), wire::ONECLOCK_IMPORTANCE.len()];
    LENGTHS.contains(&name.len())
}

/// Which attempt a request of a trusted caller is. What cannot be read is no first one.
pub(crate) fn attempt_said_by(name: &str, value: &HeaderValue) -> Option<u32> {
    match name {
        wire::X_ENVOY_ATTEMPT_COUNT => Some(number(value).unwrap_or(2).max(1)),
        wire::GRPC_PREVIOUS_RPC_ATTEMPTS => Some(number(value).map_or(2, |before| before.saturating_add(1))),
        _ => None,
    }
}

/// How much a caller says that it needs an answer. What cannot be read says nothing.
pub(crate) fn importance_said_by(name: &str, value: &HeaderValue) -> Option<Importance> {
    (name == wire::ONECLOCK_IMPORTANCE).then(|| Importance::from_word(value.to_str().ok()?)).flatten()
}

/// Tells a destination inside that whoever waits for `call` can do without (contract C7). Copies that were there are gone.
pub(crate) fn mark_importance(call: &Call, headers: &mut HeaderMap, trust: Trust) {
    let importance = call.operation().importance();
    if trust == Trust::Inside && importance == Importance::Optional {
        headers.insert(IMPORTANCE, HeaderValue::from_static(importance.as_str()));
    }
}

/// Marks what `call` sends as the attempt that it is, if it is not the first (contract R9). Copies that were there are gone.
pub(crate) fn mark_attempt(call: &Call, headers: &mut HeaderMap, trust: Trust) {
    let attempt = call.attempt();
    if attempt <= 1 {
        return;
    }
    if grpc::is_grpc(headers) {
        headers.insert(PREVIOUS_ATTEMPTS, HeaderValue::from(attempt - 1));
    } else if trust == Trust::Inside {
        headers.insert(ATTEMPT_COUNT, HeaderValue::from(attempt));
    }
}

// === On answers to us ===

/// The reason that the far side gave, if it is one of ours: what an outsider says is not believed (contract R8).
pub fn reason(headers: &HeaderMap, trust: Trust) -> Option<Reason> {
    match trust {
        Trust::Inside => Reason::from_word(headers.get(names::REASON)?.to_str().ok()?),
        Trust::Outside => None,
    }
}

/// How often a hop below tried before it gave up. What cannot be read says that much, too.
pub(crate) fn gave_up_below(headers: &HeaderMap) -> Option<u32> {
    // Going through a few names costs less than to hash one for every answer.
    let (_, value) = headers.iter().find(|(name, _)| name.as_str() == wire::ONECLOCK_RETRIED)?;
    Some(number(value).unwrap_or(1))
}

/// Removes what only those inside may say.
pub(crate) fn strip(headers: &mut HeaderMap) {
    if headers.keys().any(|name| wire::OURS_TO_SAY.contains(&name.as_str())) {
        for name in wire::OURS_TO_SAY {
            headers.remove(name);
        }
    }
}

/// What the trailers of an answer say of the far side, if they say something. From outsiders they lose what is not theirs to
/// give, whatever they say.
pub(crate) fn hear_trailers(trailers: &mut HeaderMap, trust: Trust) -> Option<Outcome> {
    let (status, reason) = (grpc::status(trailers), reason(trailers, trust));
    if trust == Trust::Outside {
        strip(trailers);
    }
    Some(effect::outcome(Seen::GrpcAnswer { status: status?, reason }, false))
}

// === On answers of ours ===

/// Tells a trusted caller not to try again, in its own words, on an answer that is a failure (contract R9); removes from
/// every other what was copied from an answer below.
pub(crate) fn mark_answer(headers: &mut HeaderMap, status: u16, gave_up_after: Option<u32>, trust: Trust) {
    if trust == Trust::Outside {
        if gave_up_below(headers).is_some() {
            headers.remove(RETRIED);
        }
        return;
    }
    let Some(attempts) = gave_up_after else { return };
    if grpc::is_failure(headers) {
        headers.insert(grpc::PUSHBACK, HeaderValue::from_static("-1"));
        headers.insert(RETRIED, HeaderValue::from(attempts));
    } else if (status >= 500 || status == 429) && !headers.contains_key(grpc::STATUS) {
        headers.insert(RETRIED, HeaderValue::from(attempts));
    }
}

/// Removes from the trailers of a response what is not the handler's to give: copied from an answer below, it would say what is
/// not so.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap, trust: Trust) {
    match trust {
        Trust::Outside => strip(trailers),
        Trust::Inside => {
            trailers.remove(names::REASON);
        }
    }
}

fn number(value: &HeaderValue) -> Option<u32> {
    let digits = value.as_bytes();
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| value.to_str().ok()?.parse().ok()).flatten()
}
