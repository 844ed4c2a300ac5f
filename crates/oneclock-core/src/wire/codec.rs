//! How each convention spells what is left. Grammar exactly as the contract gives it (P1), saturating (P6, E6), written
//! rounded down (E1).
//!
//! Valid values take the short way; what is wrong with the others is found out afterwards, in cold code.

use std::time::Duration;

use super::{Encoded, Offset, Read, Wall, Why, rfc3339};

/// One spelling of a deadline.
///
/// ```
/// # use oneclock_core::wire::{Codec, Read, Wall, Why}; use std::time::Duration;
/// let wall = Wall::default(); // relative conventions do not look at it
/// assert_eq!(Codec::Grpc.parse(b"250m", wall), Read::Valid(Duration::from_millis(250)));
/// assert_eq!(Codec::Grpc.parse(b"0S", wall), Read::Expired);
/// assert_eq!(Codec::Grpc.parse(b"+5S", wall), Read::Malformed(Why::NotDigits));
///
/// let written = Codec::Grpc.encode(Duration::from_nanos(123_456_789), wall);
/// assert_eq!(written.as_ref().map(|value| value.as_str()), Some("123456u"), "rounded down");
/// assert!(Codec::Millis.encode(Duration::from_micros(600), wall).is_none(), "below one unit: the call is not made");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// `^[0-9]{1,8}[HMSmun]$`: hours, minutes, seconds, milli-, micro-, nanoseconds.
    Grpc,
    /// `^[0-9]{1,10}$`: milliseconds that are left.
    Millis,
    /// As [`Millis`](Self::Millis), but zero says nothing: Envoy means "no limit" by it.
    EnvoyUpstreamMillis,
    /// `^[0-9]+(\.[0-9]+)?$`: seconds that are left. Written with three digits after the point.
    DecimalSeconds,
    /// `^[0-9]{1,10}$`: seconds that are left.
    WholeSeconds,
    /// `^[0-9]+$`: the moment, in milliseconds since 1970.
    EpochMillis,
    /// `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)`: the moment. Written in UTC with three digits after the point.
    Rfc3339,
    /// `^[0-9]+ [0-9]+$`: when it was written and the moment, in nanoseconds since 1970. What was left when it was
    /// written also bounds what is left now, should the two clocks disagree.
    Finagle,
    /// `^[0-9]+(ms|s|m|h|d)$`. Written in milliseconds.
    L5d,
}

const NANOS_PER_MILLI: u64 = 1_000_000;
const MILLI: Duration = Duration::from_millis(1);
const TEN_DIGITS: u64 = 9_999_999_999;

impl Codec {
    /// Every spelling, for tables and tests.
    pub const ALL: [Self; 9] = [
        Self::Grpc,
        Self::Millis,
        Self::EnvoyUpstreamMillis,
        Self::DecimalSeconds,
        Self::WholeSeconds,
        Self::EpochMillis,
        Self::Rfc3339,
        Self::Finagle,
        Self::L5d,
    ];

    /// The longest value that is looked at, in bytes. A longer one is [`Why::TooLong`].
    pub const LONGEST: usize = 128;

    /// Whether the value names a moment, so that reading and writing it needs the wall clock.
    pub const fn is_absolute(self) -> bool {
        match self {
            Self::EpochMillis | Self::Rfc3339 | Self::Finagle => true,
            Self::Grpc
            | Self::Millis
            | Self::EnvoyUpstreamMillis
            | Self::DecimalSeconds
            | Self::WholeSeconds
            | Self::L5d => false,
        }
    }

    /// What the value of one field says. `wall` is looked at only if [`is_absolute`](Self::is_absolute).
    pub fn parse(self, value: &[u8], wall: Wall) -> Read {
        let parsed = match self {
            Self::Grpc => grpc(value),
            Self::Millis => ten_digits(value).map(Duration::from_millis),
            Self::EnvoyUpstreamMillis => match ten_digits(value) {
                Ok(0) => return Read::Absent,
                other => other.map(Duration::from_millis),
            },
            Self::WholeSeconds => ten_digits(value).map(Duration::from_secs),
            Self::DecimalSeconds => decimal_seconds(value),
            Self::L5d => l5d(value),
            Self::EpochMillis | Self::Rfc3339 | Self::Finagle => return self.parse_moment(value, wall).0,
        };
        match parsed {
            Ok(span) => Read::remaining(span),
            Err(why) => Read::Malformed(reason(value, why)),
        }
    }

    /// As [`parse`](Self::parse), with the distance of the moment, if the value names one (contract P10).
    pub(super) fn parse_moment(self, value: &[u8], wall: Wall) -> (Read, Option<Offset>) {
        let now = i128::from(wall.as_nanos());
        let moment = match self {
            _ if value.len() > Self::LONGEST => Err(Why::TooLong),
            Self::EpochMillis => digits(value).map(|millis| (millis.into_nanos(NANOS_PER_MILLI), None)),
            Self::Rfc3339 => rfc3339::parse(value).map(|nanos| (nanos, None)),
            Self::Finagle => pair(value).map(|(stamp, end)| (end.into(), Some(i128::from(end) - i128::from(stamp)))),
            relative => return (relative.parse(value, wall), None),
        };
        match moment {
            Ok((at, when_written)) => {
                let offset = Offset::from_nanos(at - now);
                let bound = when_written.map_or(Duration::MAX, |left| Offset::from_nanos(left).remaining());
                (Read::remaining(offset.remaining().min(bound)), Some(offset))
            }
            Err(why) => (Read::Malformed(reason(value, why)), None),
        }
    }

    /// The value that says `remaining` is left, rounded down (contract E1) and saturating (E6). `None` when that is below
    /// one unit of the field, zero included: there is nothing to send and the call is not made (E2, E3).
    ///
    /// `wall` is looked at only if [`is_absolute`](Self::is_absolute).
    pub fn encode(self, remaining: Duration, wall: Wall) -> Option<Encoded> {
        match self {
            Self::Grpc => encode_grpc(remaining),
            Self::Millis | Self::EnvoyUpstreamMillis => Some(Encoded::new().before_number(millis(remaining)?)),
            Self::L5d => Some(Encoded::new().before(b's').before(b'm').before_number(millis(remaining)?)),
            Self::WholeSeconds => match remaining.as_secs() {
                0 => None,
                secs => Some(Encoded::new().before_number(secs.min(TEN_DIGITS))),
            },
            Self::DecimalSeconds => {
                let (secs, millis) = match remaining {
                    huge if huge.as_secs() > TEN_DIGITS => (TEN_DIGITS, 999),
                    tiny if tiny < MILLI => return None,
                    span => (span.as_secs(), span.subsec_millis()),
                };
                Some(Encoded::new().before_padded(millis.into(), 3).before(b'.').before_number(secs))
            }
            Self::EpochMillis => Some(Encoded::new().before_number(epoch_millis(remaining, wall)?)),
            Self::Rfc3339 => Some(rfc3339::print(epoch_millis(remaining, wall)?)),
            Self::Finagle => {
                const LAST: u64 = i64::MAX as u64; // Finagle counts in a signed word
                let now = wall.as_nanos();
                let span = u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX);
                let end = now.saturating_add(span).min(LAST);
                (end > now).then(|| Encoded::new().before_number(end).before(b' ').before_number(now))
            }
        }
    }
}

// === Reading ===

fn grpc(value: &[u8]) -> Result<Duration, Why> {
    let (unit, number) = value.split_last().ok_or(Why::Empty)?;
    if number.is_empty() || number.len() > 8 {
        return Err(why_not_grpc(value));
    }
    let Some(number) = few_digits(number) else { return Err(why_not_grpc(value)) };
    // Eight digits of hours are 3.6e11 seconds: nothing below can overflow.
    match unit {
        b'n' => Ok(Duration::from_nanos(number)),
        b'u' => Ok(Duration::from_micros(number)),
        b'm' => Ok(Duration::from_millis(number)),
        b'S' => Ok(Duration::from_secs(number)),
        b'M' => Ok(Duration::from_secs(number * 60)),
        b'H' => Ok(Duration::from_secs(number * 3600)),
        _ => Err(why_not_grpc(value)),
    }
}

#[cold]
fn why_not_grpc(value: &[u8]) -> Why {
    match value.split_last() {
        None => Why::Empty,
        Some((unit, _)) if unit.is_ascii_digit() => Why::NoUnit,
        Some((unit, _)) if !b"HMSmun".contains(unit) => Why::UnknownUnit,
        Some((_, number)) if !number.is_empty() && number.iter().all(u8::is_ascii_digit) => Why::TooManyDigits,
        Some(_) => Why::NotDigits,
    }
}

fn ten_digits(value: &[u8]) -> Result<u64, Why> {
    match value.len() {
        0 => Err(Why::Empty),
        1..=10 => few_digits(value).ok_or(Why::NotDigits),
        _ if value.iter().all(u8::is_ascii_digit) => Err(Why::TooManyDigits),
        _ => Err(Why::NotDigits),
    }
}

/// At most nineteen digits, which cannot overflow.
fn few_digits(value: &[u8]) -> Option<u64> {
    let mut number = 0;
    for byte in value {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    Some(number)
}

/// A number of any length, saturated.
#[derive(Clone, Copy)]
struct Number(u64);

impl Number {
    fn into_nanos(self, unit: u64) -> i128 {
        i128::from(self.0) * i128::from(unit)
    }
}

fn digits(value: &[u8]) -> Result<Number, Why> {
    if value.is_empty() {
        return Err(Why::NotDigits);
    }
    value.iter().try_fold(Number(0), |Number(number), byte| match byte.wrapping_sub(b'0') {
        digit @ 0..=9 => Ok(Number(number.saturating_mul(10).saturating_add(digit.into()))),
        _ => Err(Why::NotDigits),
    })
}

fn decimal_seconds(value: &[u8]) -> Result<Duration, Why> {
    if value.len() > Codec::LONGEST {
        return Err(Why::TooLong);
    }
    let (whole, fraction) = match value.iter().position(|byte| *byte == b'.') {
        None => (value, None),
        Some(point) => (&value[..point], Some(&value[point + 1..])),
    };
    let Number(secs) = digits(whole).map_err(|_| Why::NotADecimal)?;
    let nanos = match fraction {
        None => 0,
        Some(fraction) => nanos_of_fraction(fraction).ok_or(Why::NotADecimal)?,
    };
    Ok(Duration::new(secs, nanos))
}

/// The first nine digits after a point as nanoseconds; more are cut off, which is rounding down.
pub(super) fn nanos_of_fraction(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    let (mut nanos, mut place) = (0, 100_000_000);
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        nanos += u32::from(digit) * place;
        place /= 10;
    }
    Some(nanos)
}

fn pair(value: &[u8]) -> Result<(u64, u64), Why> {
    let space = value.iter().position(|byte| *byte == b' ').ok_or(Why::NotAPair)?;
    let (Number(stamp), Number(end)) =
        (digits(&value[..space]).map_err(|_| Why::NotAPair)?, digits(&value[space + 1..]).map_err(|_| Why::NotAPair)?);
    Ok((stamp, end))
}

fn l5d(value: &[u8]) -> Result<Duration, Why> {
    if value.len() > Codec::LONGEST {
        return Err(Why::TooLong);
    }
    let end = value.iter().position(|byte| !byte.is_ascii_digit()).ok_or(Why::NoUnit)?;
    let (number, unit) = value.split_at(end);
    let Number(number) = digits(number)?;
    match unit {
        b"ms" => Ok(Duration::from_millis(number)),
        b"s" => Ok(Duration::from_secs(number)),
        b"m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        b"h" => Ok(Duration::from_secs(number.saturating_mul(3600))),
        b"d" => Ok(Duration::from_secs(number.saturating_mul(86_400))),
        _ if unit.iter().all(u8::is_ascii_alphabetic) => Err(Why::UnknownUnit),
        _ => Err(Why::NotDigits),
    }
}

/// What holds for every spelling comes before what one of them found.
#[cold]
fn reason(value: &[u8], why: Why) -> Why {
    if value.is_empty() {
        Why::Empty
    } else if value.len() > Codec::LONGEST {
        Why::TooLong
    } else if !value.is_ascii() {
        Why::NotAscii
    } else {
        why
    }
}

// === Writing ===

fn encode_grpc(remaining: Duration) -> Option<Encoded> {
    const EIGHT_DIGITS: u64 = 99_999_999;
    let (secs, nanos) = (remaining.as_secs(), remaining.subsec_nanos());
    let (number, unit) = match secs {
        0 if nanos == 0 => return None,
        0 if u64::from(nanos) <= EIGHT_DIGITS => (nanos.into(), b'n'),
        0..100 => (secs * 1_000_000 + u64::from(nanos / 1_000), b'u'),
        100..100_000 => (secs * 1_000 + u64::from(nanos / 1_000_000), b'm'),
        100_000..=EIGHT_DIGITS => (secs, b'S'),
        _ if secs / 60 <= EIGHT_DIGITS => (secs / 60, b'M'),
        _ => ((secs / 3600).min(EIGHT_DIGITS), b'H'),
    };
    Some(Encoded::new().before(unit).before_number(number))
}

/// Whole milliseconds in ten digits; `None` below one.
fn millis(remaining: Duration) -> Option<u64> {
    if remaining < MILLI {
        return None;
    }
    let millis = remaining.as_secs().saturating_mul(1_000).saturating_add(remaining.subsec_millis().into());
    Some(millis.min(TEN_DIGITS))
}

/// The last whole millisecond before the moment, no later than the year 9999; `None` if less than one is left.
fn epoch_millis(remaining: Duration, wall: Wall) -> Option<u64> {
    let at = u128::from(wall.as_nanos()).saturating_add(remaining.as_nanos()) / u128::from(NANOS_PER_MILLI);
    let at = u64::try_from(at).unwrap_or(u64::MAX).min(rfc3339::LAST_MILLI);
    (remaining >= MILLI).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::properties;
    use proptest::prelude::*;

    const NOON: Wall = Wall::from_nanos(1_769_860_800_000_000_000); // 2026-01-31T12:00:00Z

    #[track_caller]
    fn reads(codec: Codec, values: &[&str], want: Read) {
        for value in values {
            assert_eq!(codec.parse(value.as_bytes(), NOON), want, "{codec:?}: {value:?}");
            properties::reading(codec, value.as_bytes(), NOON);
        }
    }

    #[track_caller]
    fn writes(codec: Codec, remaining: Duration, want: Option<&str>) {
        let written = codec.encode(remaining, NOON);
        assert_eq!(written.as_ref().map(Encoded::as_str), want, "{codec:?}: {remaining:?}");
        properties::writing(codec, remaining, NOON);
    }

    const fn nanos(nanos: u64) -> Read {
        Read::Valid(Duration::from_nanos(nanos))
    }

    const fn secs(secs: u64) -> Read {
        Read::Valid(Duration::from_secs(secs))
    }

    const fn no(why: Why) -> Read {
        Read::Malformed(why)
    }

    #[test]
    fn p1_grpc_units() {
        for (value, want) in [
            ("00000001n", nanos(1)),
            ("1u", nanos(1_000)),
            ("100m", nanos(100_000_000)),
            ("5S", secs(5)),
            ("2M", secs(120)),
            ("1H", secs(3_600)),
        ] {
            reads(Codec::Grpc, &[value], want);
        }
    }

    #[test]
    fn p1_a_ninth_digit_is_malformed_even_when_zero() {
        reads(Codec::Grpc, &["000000000S", "123456789S"], no(Why::TooManyDigits));
    }

    #[test]
    fn p1_grpc_has_no_sign_no_space_no_decimal() {
        reads(Codec::Grpc, &["+1S", "-1S", "1 S", " 1S", "1.5S", "9a1S", "S", "1,2S", "\t1S"], no(Why::NotDigits));
        reads(Codec::Grpc, &["1s", "1h", "1S ", "1S\n", "5S,1S\0", "1N", "1US "], no(Why::UnknownUnit));
        reads(Codec::Grpc, &["1", "12345678", "123456789"], no(Why::NoUnit));
        reads(Codec::Grpc, &[""], no(Why::Empty));
    }

    /// What a first draft would do, and why the digits are read by hand.
    #[test]
    fn p1_p6_the_standard_library_takes_what_the_contract_refuses() {
        assert_eq!("+5".parse::<u64>(), Ok(5));
        reads(Codec::Grpc, &["+5S"], no(Why::NotDigits));
        reads(Codec::Millis, &["+5"], no(Why::NotDigits));
        for not_finite in ["NaN", "inf", "-inf", "infinity"] {
            assert!(not_finite.parse::<f64>().is_ok_and(|float| !float.is_finite()));
            reads(Codec::DecimalSeconds, &[not_finite], no(Why::NotADecimal));
        }
    }

    #[test]
    fn p2_non_ascii_is_malformed() {
        for codec in Codec::ALL {
            reads(codec, &["5é", "５S", "1µ"], no(Why::NotAscii));
            assert_eq!(codec.parse(b"5\xffS", NOON), no(Why::NotAscii));
            reads(codec, &[""], no(Why::Empty));
            let long = "1".repeat(129);
            reads(codec, &[&long], no(Why::TooLong));
        }
    }

    #[test]
    fn p4_zero_is_expired_never_unlimited() {
        reads(Codec::Grpc, &["0S", "0n", "00000000S", "0H"], Read::Expired);
        reads(Codec::Millis, &["0", "0000000000"], Read::Expired);
        reads(Codec::WholeSeconds, &["0"], Read::Expired);
        reads(Codec::DecimalSeconds, &["0", "0.0", "0.0000000009"], Read::Expired);
        reads(Codec::L5d, &["0ms", "0d"], Read::Expired);
        reads(Codec::EpochMillis, &["0", "1769860800000", "1769860799999"], Read::Expired);
        reads(Codec::Finagle, &["0 0", "1769860800000000000 1769860800000000000"], Read::Expired);
    }

    #[test]
    fn p2_zero_asked_of_an_envoy_says_nothing() {
        reads(Codec::EnvoyUpstreamMillis, &["0", "0000000000"], Read::Absent);
        reads(Codec::EnvoyUpstreamMillis, &["1"], nanos(1_000_000));
        reads(Codec::EnvoyUpstreamMillis, &["-0"], no(Why::NotDigits));
    }

    #[test]
    fn p1_p5_milliseconds_are_one_to_ten_digits() {
        reads(Codec::Millis, &["250", "0000000250"], nanos(250_000_000));
        reads(Codec::Millis, &["9999999999"], Read::Valid(Duration::from_millis(9_999_999_999)));
        reads(Codec::Millis, &["00000000000", "12345678901"], no(Why::TooManyDigits));
        reads(Codec::Millis, &["+5", "-5", " 5", "5 ", "5.0", "5ms", "1e3", "0x5", "5,6", "inf"], no(Why::NotDigits));
    }

    #[test]
    fn p6_decimals_are_digits_and_one_point() {
        reads(Codec::DecimalSeconds, &["5", "5.0", "05.000000000000"], secs(5));
        reads(Codec::DecimalSeconds, &["0.25", "0.250000000999"], nanos(250_000_000));
        let bad = ["NaN", "inf", "-1", "+1", ".5", "5.", ".", "1.2.3", "1e3", " 1", "1 ", "1,5", "infinity"];
        reads(Codec::DecimalSeconds, &bad, no(Why::NotADecimal));
        reads(Codec::DecimalSeconds, &["99999999999999999999"], secs(u64::MAX));
    }

    #[test]
    fn p6_l5d_saturates() {
        reads(Codec::L5d, &["250ms"], nanos(250_000_000));
        reads(Codec::L5d, &["90s"], secs(90));
        reads(Codec::L5d, &["2m", "002m"], secs(120));
        reads(Codec::L5d, &["1h"], secs(3_600));
        reads(Codec::L5d, &["1d"], secs(86_400));
        reads(Codec::L5d, &["18446744073709551615d", "99999999999999999999h"], secs(u64::MAX));
        reads(Codec::L5d, &["5"], no(Why::NoUnit));
        reads(Codec::L5d, &["5S", "5us", "5sec", "5mss"], no(Why::UnknownUnit));
        reads(Codec::L5d, &["ms", "-5s", "+5s", "1.5s", "5 s", " 5s", "5s "], no(Why::NotDigits));
    }

    #[test]
    fn p10_a_moment_is_what_is_left_until_it() {
        reads(Codec::EpochMillis, &["1769860800250"], nanos(250_000_000));
        reads(Codec::EpochMillis, &["-1", "+1769860800250", "1769860800.25"], no(Why::NotDigits));
        reads(Codec::Rfc3339, &["2026-01-31T12:00:05Z", "2026-01-31T13:00:05+01:00"], secs(5));
        reads(Codec::Finagle, &["1769860800000000000 1769860805000000000"], secs(5));
        reads(Codec::Finagle, &["5", "1  2", " 1 2", "1 2 ", "1 2 3", "-1 2", "1 +2", "1\t2"], no(Why::NotAPair));
    }

    #[test]
    fn p10_what_was_left_when_a_pair_was_written_also_bounds() {
        // Our clock is an hour behind the sender's: five seconds were left, not an hour and five seconds.
        reads(Codec::Finagle, &["1769864400000000000 1769864405000000000"], secs(5));
    }

    #[test]
    fn e1_grpc_takes_the_finest_unit_of_eight_digits_and_rounds_down() {
        for (remaining, want) in [
            (1, "1n"),
            (12_345_678, "12345678n"),
            (99_999_999, "99999999n"),
            (100_000_000, "100000u"),
            (123_456_789, "123456u"),
            (99_999_999_999, "99999999u"),
            (100_000_000_000, "100000m"),
            (99_999_999_999_999, "99999999m"),
            (100_000_000_000_000, "100000S"),
        ] {
            writes(Codec::Grpc, Duration::from_nanos(remaining), Some(want));
        }
        writes(Codec::Grpc, Duration::from_secs(99_999_999), Some("99999999S"));
        writes(Codec::Grpc, Duration::from_secs(100_000_000), Some("1666666M"));
        writes(Codec::Grpc, Duration::from_secs(99_999_999 * 60 + 59), Some("99999999M"));
        writes(Codec::Grpc, Duration::from_secs(100_000_000 * 60), Some("1666666H"));
    }

    #[test]
    fn e2_e3_below_one_unit_nothing_is_sent() {
        for codec in Codec::ALL {
            writes(codec, Duration::ZERO, None);
        }
        let almost = Duration::from_nanos(999_999);
        for codec in [Codec::Millis, Codec::EnvoyUpstreamMillis, Codec::DecimalSeconds, Codec::L5d] {
            writes(codec, almost, None);
        }
        for codec in [Codec::EpochMillis, Codec::Rfc3339] {
            assert_eq!(codec.encode(almost, Wall::from_nanos(NOON.as_nanos() + 999_999)), None, "{codec:?}");
        }
        writes(Codec::WholeSeconds, Duration::from_millis(999), None);
        writes(Codec::Millis, MILLI, Some("1"));
        writes(Codec::Finagle, Duration::from_nanos(1), Some("1769860800000000000 1769860800000000001"));
    }

    #[test]
    fn e6_huge_values_saturate() {
        for (codec, want) in [
            (Codec::Grpc, "99999999H"),
            (Codec::Millis, "9999999999"),
            (Codec::EnvoyUpstreamMillis, "9999999999"),
            (Codec::DecimalSeconds, "9999999999.999"),
            (Codec::WholeSeconds, "9999999999"),
            (Codec::EpochMillis, "253402300799999"),
            (Codec::Rfc3339, "9999-12-31T23:59:59.999Z"),
            (Codec::Finagle, "1769860800000000000 9223372036854775807"),
            (Codec::L5d, "9999999999ms"),
        ] {
            writes(codec, Duration::MAX, Some(want));
        }
    }

    #[test]
    fn e1_the_others_in_their_own_unit() {
        let left = Duration::from_nanos(5_250_999_999);
        for (codec, want) in [
            (Codec::Millis, "5250"),
            (Codec::DecimalSeconds, "5.250"),
            (Codec::WholeSeconds, "5"),
            (Codec::EpochMillis, "1769860805250"),
            (Codec::Rfc3339, "2026-01-31T12:00:05.250Z"),
            (Codec::Finagle, "1769860800000000000 1769860805250999999"),
            (Codec::L5d, "5250ms"),
        ] {
            writes(codec, left, Some(want));
        }
    }

    /// Spans of every size, not only the huge ones that uniform numbers give.
    fn spans() -> impl Strategy<Value = Duration> {
        (any::<u64>(), 0u32..64, 0u32..1_000_000_000, 0u32..31).prop_map(|(secs, shift, nanos, small)| {
            Duration::new(secs.checked_shr(shift + 1).unwrap_or(0), nanos >> small)
        })
    }

    fn walls() -> impl Strategy<Value = Wall> {
        prop_oneof![any::<u64>(), 1_600_000_000_000_000_000..2_000_000_000_000_000_000u64].prop_map(Wall::from_nanos)
    }

    fn codecs() -> impl Strategy<Value = Codec> {
        prop::sample::select(&Codec::ALL[..])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn e1_what_is_written_reads_back_no_longer_and_less_than_a_unit_shorter(
            codec in codecs(), remaining in spans(), wall in walls()
        ) {
            properties::writing(codec, remaining, wall);
        }

        #[test]
        fn p1_any_bytes_are_read_as_the_grammar_says(
            codec in codecs(), value in prop::collection::vec(any::<u8>(), 0..160), wall in walls()
        ) {
            properties::reading(codec, &value, wall);
        }

        #[test]
        fn p1_almost_valid_values_are_read_as_the_grammar_says(
            codec in codecs(), value in "[ +.-]?[0-9]{0,24}[ .T:-]?[0-9]{0,22}(H|M|S|m|u|n|ms|s|h|d|Z|[ -~])?", wall in walls()
        ) {
            properties::reading(codec, value.as_bytes(), wall);
        }

        #[test]
        fn p1_almost_rfc3339_is_read_as_the_grammar_says(
            value in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,12})?(Z|z|[+-][0-2][0-9]:?[0-6][0-9])?",
            wall in walls()
        ) {
            properties::reading(Codec::Rfc3339, value.as_bytes(), wall);
        }

        #[test]
        fn p1_a_byte_changed_in_a_valid_value_is_read_as_the_grammar_says(
            codec in codecs(), remaining in spans(), wall in walls(), at: prop::sample::Index, byte: u8
        ) {
            if let Some(written) = codec.encode(remaining, wall) {
                let mut value = written.as_bytes().to_vec();
                let at = at.index(value.len());
                value[at] = byte;
                properties::reading(codec, &value, wall);
            }
        }
    }
}
