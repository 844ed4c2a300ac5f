//! A deadline on the wire: how each convention spells it, read and written without allocating.
//!
//! Decides what the bytes of a field mean and which bytes say "this much is left". Leaves to others which peer is
//! believed and what is done about a malformed field ([`ingress`](crate::ingress)), and how much a call may have
//! ([`grant`](crate::grant)). Contract sections 1 and 2. Three rules hold in every file here:
//!
//! - malformed is never absent, and nothing spells "no limit" (P2, P7);
//! - whatever is rounded, is rounded so that the deadline comes earlier (E1);
//! - no clock is read: a convention that speaks of a moment is given the [`Wall`] clock's reading (K1, P10).
//!
//! ```
//! use std::time::Duration;
//! use oneclock_core::wire::{Conventions, Read, Reader, Wall, names};
//!
//! // Arrival: every field of a known convention goes to the reader; the smallest wins.
//! let conventions = Conventions::default_set();
//! let mut reader = Reader::new(Wall::from_nanos(1_750_000_000_000_000_000));
//! for (name, value) in [("grpc-timeout", "5S"), ("x-remaining-ms", "300"), ("accept", "*/*")] {
//!     if let Some(convention) = conventions.find(name) {
//!         reader.field(convention, value.as_bytes());
//!     }
//! }
//! let reading = reader.finish();
//! assert_eq!(reading.read, Read::Valid(Duration::from_millis(300)));
//! assert_eq!(reading.source.map(|name| name.as_str()), Some(names::X_REMAINING_MS));
//! ```

#[cfg(test)]
#[expect(unreachable_pub, reason = "the fuzz crate includes the file as a public module of its own")]
mod account_properties;
mod codec;
mod convention;
mod encoded;
pub(crate) mod http_date;
pub mod names;
#[cfg(test)]
#[expect(unreachable_pub, reason = "the fuzz crate includes the file as a public module of its own")]
mod properties;
mod reader;
mod rfc3339;
pub mod server_timing;
pub mod writes;

pub use codec::Codec;
pub use convention::{Convention, Conventions, Declared, NotAConvention, NotAKind, NothingToSend, SameFieldTwice};
pub use encoded::Encoded;
pub use reader::{Absolute, MalformedField, Offset, Reader, Reading, WallClock};

use std::fmt;
use std::ops::Add;
use std::time::{Duration, SystemTime};

/// The moment `millis` after 1970 as RFC 3339 writes it, in UTC with three digits after the point. Later than the year 9999 it
/// saturates.
///
/// ```
/// use oneclock_core::wire::utc;
/// assert_eq!(utc(1_700_000_000_123).as_str(), "2023-11-14T22:13:20.123Z");
/// ```
pub fn utc(millis: u64) -> Encoded {
    rfc3339::print(millis)
}

/// The moment that an RFC 3339 time names, with its offset, strictly. One before 1970 reads as 1970, one after 2554 as 2554.
///
/// # Errors
/// [`Why`] it is none.
///
/// ```
/// use oneclock_core::wire::{Wall, Why, moment};
/// assert_eq!(moment(b"2023-11-14T22:13:20.123Z"), Ok(Wall::from_nanos(1_700_000_000_123_000_000)));
/// assert_eq!(moment(b"2023-11-14T22:13:20"), Err(Why::NotARfc3339Time)); // whose clock?
/// ```
pub fn moment(value: &[u8]) -> Result<Wall, Why> {
    match value {
        [] => Err(Why::Empty),
        value if value.len() > Codec::LONGEST => Err(Why::TooLong),
        value => {
            let nanos = rfc3339::parse(value)?.clamp(0, i128::from(u64::MAX));
            Ok(Wall::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
        }
    }
}

/// What one field, or all deadline fields of a request together, say (contract P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    /// Nothing was said.
    Absent,
    /// This much is left. Never zero.
    Valid(Duration),
    /// Nothing is left: the field says zero, or names a moment that is past.
    Expired,
    /// Something was said and cannot be understood. Never the same as nothing.
    Malformed(Why),
}

/// Why a field is malformed. Each has a sentence for the person who has to find the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// There is a field, with nothing in it.
    Empty,
    /// More than [`Codec::LONGEST`] bytes.
    TooLong,
    /// A byte outside ASCII.
    NotAscii,
    /// Something else where only digits belong: a sign, a space, a separator, a letter, or nothing.
    NotDigits,
    /// More digits than the convention allows, leading zeros included.
    TooManyDigits,
    /// A number without its unit.
    NoUnit,
    /// A unit that the convention does not have. Case matters.
    UnknownUnit,
    /// Neither digits, nor digits, a point and digits.
    NotADecimal,
    /// Not two numbers with one space between them.
    NotAPair,
    /// Not of the shape `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)`.
    NotARfc3339Time,
    /// The right shape, but the calendar has no such day or the day no such time.
    NoSuchTime,
}

/// What the wall clock says: nanoseconds since 1970-01-01T00:00:00Z, as Unix counts them.
///
/// Needed only by conventions that speak of a moment ([`Codec::is_absolute`]). It lasts until 2554 and saturates there.
/// A budget is never counted on it (contract K2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(u64);

// === Read ===

impl Read {
    /// This much is left; nothing is [`Read::Expired`] (contract P4).
    pub const fn remaining(span: Duration) -> Self {
        if span.is_zero() { Self::Expired } else { Self::Valid(span) }
    }
}

// === Why ===

impl Why {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 11] = [
        Self::Empty,
        Self::TooLong,
        Self::NotAscii,
        Self::NotDigits,
        Self::TooManyDigits,
        Self::NoUnit,
        Self::UnknownUnit,
        Self::NotADecimal,
        Self::NotAPair,
        Self::NotARfc3339Time,
        Self::NoSuchTime,
    ];

    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLong => "too_long",
            Self::NotAscii => "not_ascii",
            Self::NotDigits => "not_digits",
            Self::TooManyDigits => "too_many_digits",
            Self::NoUnit => "no_unit",
            Self::UnknownUnit => "unknown_unit",
            Self::NotADecimal => "not_a_decimal",
            Self::NotAPair => "not_a_pair",
            Self::NotARfc3339Time => "not_a_rfc3339_time",
            Self::NoSuchTime => "no_such_time",
        }
    }

    /// The sentence for people. It never repeats what was sent.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Empty => "the field is empty",
            Self::TooLong => "longer than 128 bytes",
            Self::NotAscii => "a byte outside ASCII",
            Self::NotDigits => "only digits belong here: no sign, no space, no point",
            Self::TooManyDigits => "too many digits, leading zeros included",
            Self::NoUnit => "the unit is missing",
            Self::UnknownUnit => "an unknown unit (case matters)",
            Self::NotADecimal => "not a decimal number of seconds such as 5 or 0.250",
            Self::NotAPair => "not two numbers with one space between them",
            Self::NotARfc3339Time => "not an RFC 3339 time with an offset, such as 2026-01-31T12:00:00.250Z",
            Self::NoSuchTime => "no such day or time in the calendar",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

// === Wall ===

impl Wall {
    /// The moment `nanos` after the Unix epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` until this moment; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Wall {
    type Output = Self;

    /// Saturates in the year 2554.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl From<SystemTime> for Wall {
    /// A clock set before 1970 reads as 1970, one set after 2554 as 2554.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_why_has_its_own_word_and_sentence() {
        for (i, a) in Why::ALL.iter().enumerate() {
            for b in &Why::ALL[i + 1..] {
                assert_ne!(a.as_str(), b.as_str());
                assert_ne!(a.sentence(), b.sentence());
            }
            assert!(!a.sentence().ends_with('.'));
        }
        assert_eq!(Why::TooLong.sentence(), format!("longer than {} bytes", Codec::LONGEST));
    }

    #[test]
    fn p4_nothing_left_is_expired() {
        assert_eq!(Read::remaining(Duration::ZERO), Read::Expired);
        assert_eq!(Read::remaining(Duration::from_nanos(1)), Read::Valid(Duration::from_nanos(1)));
    }

    #[test]
    fn a_wall_clock_outside_its_range_saturates() {
        assert_eq!(Wall::from(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), Wall::from_nanos(0));
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(20_000_000_000);
        assert_eq!(Wall::from(far), Wall::from_nanos(u64::MAX));
    }
}
