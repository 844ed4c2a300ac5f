//! `Prefer: wait=10` (RFC 7240): for how long a caller would rather wait than be told that nothing has changed.
//!
//! Decides only what the field says. A preference may be ignored, so one that cannot be read is none.

use std::time::Duration;

/// For how long a caller prefers to wait, of the `Prefer` fields of its request. The first that says so counts.
///
/// ```
/// # use oneclock_core::idempotency::prefers_to_wait; use std::time::Duration;
/// let fields: [&[u8]; 2] = [b"respond-async; a=\"b,wait=1\", Wait = 10", b"wait=5"];
/// assert_eq!(prefers_to_wait(fields), Some(Duration::from_secs(10)));
/// assert_eq!(prefers_to_wait([&b"wait=soon"[..]]), None);
/// ```
pub fn prefers_to_wait<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<Duration> {
    let mut preferences = fields.into_iter().flat_map(|field| split(field, b','));
    let value = preferences.find_map(|preference| {
        let said = split(preference, b';').next()?; // what follows are its parameters
        let mut halves = said.splitn(2, |byte| *byte == b'=');
        let name = halves.next()?.trim_ascii();
        name.eq_ignore_ascii_case(b"wait").then(|| halves.next().unwrap_or_default().trim_ascii())
    })?;
    let digits = value.strip_prefix(b"\"").and_then(|quoted| quoted.strip_suffix(b"\"")).unwrap_or(value);
    let seconds = digits.iter().try_fold(0_u64, |seconds, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        Some(seconds.saturating_mul(10).saturating_add(digit.into()))
    })?;
    (!digits.is_empty()).then(|| Duration::from_secs(seconds))
}

/// The parts between separators that are not inside of quotes.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |byte| {
        is_quoted ^= *byte == b'"' && !is_escaped;
        is_escaped = is_quoted && *byte == b'\\' && !is_escaped;
        *byte == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::super::properties;
    use super::*;

    #[track_caller]
    fn reads(field: &str, seconds: Option<u64>) {
        properties::prefer(field.as_bytes());
        assert_eq!(prefers_to_wait([field.as_bytes()]), seconds.map(Duration::from_secs), "prefer: {field}");
    }

    #[test]
    fn what_says_for_how_long() {
        reads("wait=10", Some(10));
        reads("WAIT = 10 ; strict", Some(10));
        reads("wait=\"10\"", Some(10));
        reads("wait=0", Some(0));
        reads("return=minimal,wait=3, wait=9", Some(3));
        reads("wait=99999999999999999999999", Some(u64::MAX));
        reads("a=\"x\\\", wait=1\", wait=2", Some(2));
    }

    #[test]
    fn what_says_nothing() {
        for field in ["", ",", "wait", "wait=", "wait=\"\"", "wait=-1", "wait=1.5", "wait=1s", "await=1", "a=\"wait=1"]
        {
            reads(field, None);
        }
        reads("wait=soon, wait=5", None); // the first one counts
        assert_eq!(prefers_to_wait([&b"\xff, wait=2"[..], b"wait=1"]), Some(Duration::from_secs(2)));
        assert_eq!(prefers_to_wait([]), None);
    }
}
