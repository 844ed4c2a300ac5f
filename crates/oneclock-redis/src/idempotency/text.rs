//! Records and scopes as what Redis keeps: text, and bytes.
//!
//! Decides that a record which cannot be read is an error and never an absent one, and that names are ordered as scopes are.

use std::time::Duration;

use oneclock_core::idempotency::{Doubt, Fence, Fingerprint, Key, Owner, Record, Scope, State};
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Answer, StoreError};

/// The fields of a record, in the order in which scripts give them.
pub(super) const FIELDS: [&str; 11] = [
    "fingerprint",
    "owner",
    "fence",
    "state",
    "doubt",
    "lease_until",
    "since",
    "first_seen",
    "expires",
    "retention",
    "answer",
];

/// The record that these fields are, with its answer; `None` if there is none.
pub(super) fn record(fields: &[Option<Vec<u8>>]) -> Result<Option<(Record, Option<Answer>)>, StoreError> {
    let field = |name: &'static str| {
        let at = FIELDS.iter().position(|field| *field == name);
        at.and_then(|at| fields.get(at)).and_then(Option::as_deref)
    };
    let Some(state) = field("state") else { return Ok(None) };
    let nanos = |name| number(field(name), name);
    let wall = |name| nanos(name).map(Wall::from_nanos);
    let state = match state {
        b"queued" => State::Queued,
        b"in_progress" => State::InProgress { lease_until: wall("lease_until")? },
        b"completed" => State::Completed,
        b"failed_retryable" => State::FailedRetryable,
        b"unknown" => {
            let doubt = field("doubt").and_then(|word| Doubt::parse(std::str::from_utf8(word).ok()?));
            State::Unknown(doubt.ok_or_else(|| unreadable("doubt"))?)
        }
        _ => return Err(unreadable("state")),
    };
    let fingerprint = field("fingerprint").and_then(|bytes| bytes.try_into().ok());
    let owner = field("owner").and_then(|bytes| bytes.try_into().ok());
    let record = Record {
        fingerprint: Fingerprint(fingerprint.ok_or_else(|| unreadable("fingerprint"))?),
        owner: Owner(u128::from_be_bytes(owner.ok_or_else(|| unreadable("owner"))?)),
        fence: Fence(nanos("fence")?),
        state,
        since: wall("since")?,
        first_seen: wall("first_seen")?,
        expires: wall("expires")?,
        retention: Duration::from_nanos(nanos("retention")?),
    };
    let answer = field("answer").map(|bytes| Answer::from_bytes(bytes).ok_or_else(|| unreadable("answer")));
    Ok(Some((record, answer.transpose()?)))
}

pub(super) fn number(text: Option<&[u8]>, what: &'static str) -> Result<u64, StoreError> {
    let number = text.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    number.ok_or_else(|| unreadable(what))
}

pub(super) fn server_clock(told: &[Option<Vec<u8>>]) -> Result<Wall, StoreError> {
    let part = |at: usize| number(told.get(at).and_then(Option::as_deref), "clock of the server");
    Ok(Wall::from_nanos(0) + Duration::from_secs(part(0)?) + Duration::from_micros(part(1)?))
}

pub(super) fn unreadable(what: &str) -> StoreError {
    StoreError::failed(format!("the {what} is nothing that this version of the store wrote"))
}

/// Whole milliseconds, rounded up.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A scope as bytes that are ordered as scopes are: each part ends with `00 01`, and a zero in it is `00 FF`.
pub(super) fn member(scope: &Scope) -> Vec<u8> {
    let mut member = Vec::new();
    for part in [&*scope.principal, scope.method.as_str(), scope.route.as_str(), scope.key.as_str()] {
        for byte in part.bytes() {
            member.push(byte);
            if byte == 0 {
                member.push(0xFF);
            }
        }
        member.extend([0, 1]);
    }
    member
}

/// The scope that [`member`] wrote. `None` for anything else.
pub(super) fn scope_of(member: &[u8]) -> Option<Scope> {
    let mut parts = vec![Vec::new()];
    let mut bytes = member.iter();
    while let Some(byte) = bytes.next() {
        match (byte, *byte == 0) {
            (_, true) if *bytes.next()? == 1 => parts.push(Vec::new()),
            (byte, _) => parts.last_mut()?.push(*byte),
        }
    }
    let mut parts = parts.into_iter().map(|part| String::from_utf8(part).ok());
    let mut next = || parts.next().flatten();
    let (principal, method, route, key) = (next()?, next()?, next()?, next()?);
    Some(Scope { principal: principal.into(), method: method.into(), route: route.into(), key: Key::new(&key).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_ordered_as_scopes_are_and_read_back() {
        let scope = |principal: &str, route: &str| Scope {
            principal: principal.into(),
            method: "POST".into(),
            route: route.to_owned().into(),
            key: Key::new("k").unwrap(),
        };
        let mut scopes = Vec::new();
        for principal in ["", "\0", "\0\u{1}", "a", "a\0", "a\0b", "ab", "\u{e9}"] {
            scopes.extend(["", "/a", "/a\0"].map(|route| scope(principal, route)));
        }
        scopes.sort();
        let mut members: Vec<_> = scopes.iter().map(member).collect();
        assert_eq!(members.iter().map(|member| scope_of(member).unwrap()).collect::<Vec<_>>(), scopes);
        let as_they_were = members.clone();
        members.sort();
        assert_eq!(members, as_they_were);
        assert_eq!(scope_of(b"\0"), None);
    }
}
