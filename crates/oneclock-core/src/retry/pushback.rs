//! What the far side says of when to come again: `retry-after` (RFC 9110 section 10.2.3, both forms) and
//! `grpc-retry-pushback-ms` (gRFC A6).
//!
//! What cannot be read is no permission: somebody asked for something, so it is not repeated. Whether a wait fits is
//! [`RetryPlan`](super::RetryPlan)'s decision (contract R2).

use std::time::Duration;

use crate::wire::{Wall, http_date};

/// What the far side says of when to come again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pushback {
    /// Nothing.
    #[default]
    Unsaid,
    /// Not before so much time has passed.
    After(Duration),
    /// Not at all.
    Never,
}

// === Pushback ===

impl Pushback {
    /// Reads `retry-after`: whole seconds, or a date, which needs the wall clock. A date that is past is now.
    ///
    /// ```
    /// # use oneclock_core::{retry::Pushback, wire::Wall}; use std::time::Duration;
    /// let noon = Wall::from_nanos(1_769_860_800_000_000_000); // Sat, 31 Jan 2026 12:00:00 GMT
    /// let reads = |value: &str| Pushback::of_retry_after(value.as_bytes(), noon);
    /// assert_eq!(reads("2"), Pushback::After(Duration::from_secs(2)));
    /// assert_eq!(reads("Sat, 31 Jan 2026 12:00:03 GMT"), Pushback::After(Duration::from_secs(3)));
    /// assert_eq!(reads("soon"), Pushback::Never);
    /// ```
    pub fn of_retry_after(value: &[u8], wall: Wall) -> Self {
        if let Some(secs) = digits(value) {
            return Self::After(Duration::from_secs(secs));
        }
        match http_date::parse(value, wall) {
            Some(at) => {
                let left = (at - i128::from(wall.as_nanos())).max(0); // what is past is now
                Self::After(Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX)))
            }
            None => Self::Never,
        }
    }

    /// Reads `grpc-retry-pushback-ms`: whole milliseconds. Negative or malformed means not at all.
    ///
    /// ```
    /// # use oneclock_core::retry::Pushback; use std::time::Duration;
    /// assert_eq!(Pushback::of_grpc(b"250"), Pushback::After(Duration::from_millis(250)));
    /// assert_eq!(Pushback::of_grpc(b"-1"), Pushback::Never);
    /// assert_eq!(Pushback::of_grpc(b"1s"), Pushback::Never);
    /// ```
    pub fn of_grpc(value: &[u8]) -> Self {
        digits(value).map_or(Self::Never, |millis| Self::After(Duration::from_millis(millis)))
    }

    /// Both: not at all, if one says so, else the longer wait.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::After(one), Self::After(other)) => Self::After(one.max(other)),
            (Self::Unsaid, said) | (said, Self::Unsaid) => said,
        }
    }
}

/// One or more digits and nothing else; more than fit saturate.
fn digits(value: &[u8]) -> Option<u64> {
    let one = |number: u64, digit: &u8| {
        let digit = digit.wrapping_sub(b'0');
        (digit <= 9).then(|| number.saturating_mul(10).saturating_add(u64::from(digit)))
    };
    if value.is_empty() { None } else { value.iter().try_fold(0, one) }
}
