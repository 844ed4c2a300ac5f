//! Moments as RFC 3339 writes them, strictly: `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)`, capital letters, every field
//! checked against the calendar.
//!
//! By hand, because the core takes no clock and no calendar crate. A leap second (`:60` at the end of a UTC month) is read
//! as the last nanosecond before it, so that it shortens.

use super::codec::nanos_of_fraction;
use super::{Encoded, Why};

/// 9999-12-31T23:59:59.999Z in milliseconds since 1970: the last one that has four digits of year.
pub(super) const LAST_MILLI: u64 = 253_402_300_799_999;

const SECS_PER_DAY: i64 = 86_400;

/// Nanoseconds since 1970-01-01T00:00:00Z, negative before.
pub(super) fn parse(value: &[u8]) -> Result<i128, Why> {
    const SHAPE: Why = Why::NotARfc3339Time;
    let (head, rest) = value.split_first_chunk::<19>().ok_or(SHAPE)?;
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', n0, n1, b':', s0, s1] = *head else {
        return Err(SHAPE);
    };
    let year = two(y0, y1).zip(two(y2, y3)).map(|(century, year)| century * 100 + year).ok_or(SHAPE)?;
    let (month, day) = two(m0, m1).zip(two(d0, d1)).ok_or(SHAPE)?;
    let (hour, minute) = two(h0, h1).zip(two(n0, n1)).ok_or(SHAPE)?;
    let second = two(s0, s1).ok_or(SHAPE)?;

    let (nanos, zone) = match rest.split_first() {
        Some((b'.', rest)) => {
            let end = rest.iter().position(|byte| !byte.is_ascii_digit()).ok_or(SHAPE)?;
            let (digits, zone) = rest.split_at(end);
            (nanos_of_fraction(digits).ok_or(SHAPE)?, zone)
        }
        _ => (0, rest),
    };
    let (east, zone_hour, zone_minute) = match *zone {
        [b'Z'] => (1, 0, 0),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let (hour, minute) = two(h0, h1).zip(two(m0, m1)).ok_or(SHAPE)?;
            (if sign == b'+' { 1 } else { -1 }, hour, minute)
        }
        _ => return Err(SHAPE),
    };

    let real = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60
        && zone_hour < 24
        && zone_minute < 60;
    if !real {
        return Err(Why::NoSuchTime);
    }

    let of_day = hour * 3600 + minute * 60 + second.min(59) - east * (zone_hour * 3600 + zone_minute * 60);
    let secs = days_since_1970(year, month, day) * SECS_PER_DAY + of_day;
    let nanos = match second {
        60 if ends_a_month(secs) => 999_999_999,
        60 => return Err(Why::NoSuchTime),
        _ => nanos,
    };
    Ok(i128::from(secs) * 1_000_000_000 + i128::from(nanos))
}

/// The moment `millis` after 1970, in UTC with three digits after the point. Later than the year 9999 it saturates.
pub(super) fn print(millis: u64) -> Encoded {
    let millis = millis.min(LAST_MILLI);
    let secs = millis / 1_000;
    let of_day = secs % SECS_PER_DAY as u64;
    let (year, month, day) = date(secs / SECS_PER_DAY as u64);
    Encoded::new()
        .before(b'Z')
        .before_padded(millis % 1_000, 3)
        .before(b'.')
        .before_padded(of_day % 60, 2)
        .before(b':')
        .before_padded(of_day / 60 % 60, 2)
        .before(b':')
        .before_padded(of_day / 3600, 2)
        .before(b'T')
        .before_padded(day, 2)
        .before(b'-')
        .before_padded(month, 2)
        .before(b'-')
        .before_padded(year, 4)
}

pub(super) fn two(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| i64::from(tens) * 10 + i64::from(ones))
}

pub(super) fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Whether the second after this one begins a month in UTC, which is where leap seconds are put.
fn ends_a_month(secs: i64) -> bool {
    let next = secs + 1;
    if next.rem_euclid(SECS_PER_DAY) != 0 {
        return false;
    }
    // The calendar repeats every 400 years of 146 097 days, so a day before 1970 can be asked about a later one.
    let day = next.div_euclid(SECS_PER_DAY).rem_euclid(146_097);
    matches!(date(day.unsigned_abs()), (_, _, 1))
}

/// Days from 1970-01-01 to this date. Counted in years that begin in March, so that the leap day comes last.
pub(super) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of this many days after 1970-01-01; the inverse of [`days_since_1970`].
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn reads(value: &str, want: Result<i128, Why>) {
        assert_eq!(parse(value.as_bytes()), want, "{value:?}");
    }

    const NOON: i128 = 1_769_860_800_000_000_000;

    #[test]
    fn p1_the_shape_is_strict() {
        for value in [
            "",
            "2026-01-31",
            "2026-01-31T12:00Z",
            "2026-01-31T12:00:00",
            "2026-01-31 12:00:00Z",
            "2026-01-31t12:00:00Z",
            "2026-01-31T12:00:00z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00,5Z",
            "2026-01-31T12:00:00.5",
            "2026-01-31T12:00:00+01",
            "2026-01-31T12:00:00+0100",
            "2026-01-31T12:00:00+01:00:00",
            "2026-01-31T12:00:00 Z",
            " 2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00Z ",
            "2026-1-31T12:00:00Z",
            "+2026-01-31T12:00:00Z",
            "12026-01-31T12:00:00Z",
            "2026-01-31T12:00:00-1:00",
            "Sat, 31 Jan 2026 12:00:00 GMT",
            "1769860800000",
        ] {
            reads(value, Err(Why::NotARfc3339Time));
        }
    }

    #[test]
    fn p1_the_calendar_is_real() {
        for value in [
            "2026-00-31T12:00:00Z",
            "2026-13-31T12:00:00Z",
            "2026-01-00T12:00:00Z",
            "2026-01-32T12:00:00Z",
            "2026-04-31T12:00:00Z",
            "2026-02-29T12:00:00Z",
            "1900-02-29T12:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:60:00Z",
            "2026-01-31T12:00:61Z",
            "2026-01-31T12:00:00+24:00",
            "2026-01-31T12:00:00+01:60",
        ] {
            reads(value, Err(Why::NoSuchTime));
        }
        for value in ["2024-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "0000-02-29T00:00:00Z"] {
            assert!(parse(value.as_bytes()).is_ok(), "{value}");
        }
    }

    #[test]
    fn offsets_and_fractions() {
        for value in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00+00:00",
            "2026-01-31T12:00:00-00:00",
            "2026-01-31T13:00:00+01:00",
            "2026-01-31T06:30:00-05:30",
            "2026-02-01T11:59:00+23:59",
            "2026-01-31T12:00:00.0000000009Z",
        ] {
            reads(value, Ok(NOON));
        }
        reads("2026-01-31T12:00:00.25Z", Ok(NOON + 250_000_000));
        reads("1970-01-01T00:00:00Z", Ok(0));
        reads("1969-12-31T23:59:59.5Z", Ok(-500_000_000));
        reads("0000-01-01T00:00:00+23:59", Ok(-62_167_305_540_000_000_000));
        reads("9999-12-31T23:59:59.999Z", Ok(i128::from(LAST_MILLI) * 1_000_000));
    }

    #[test]
    fn a_leap_second_is_read_as_the_moment_before() {
        let before = parse(b"2016-12-31T23:59:59.999999999Z");
        for value in ["2016-12-31T23:59:60Z", "2016-12-31T23:59:60.5Z", "2017-01-01T08:59:60+09:00"] {
            assert_eq!(parse(value.as_bytes()), before, "{value}");
        }
        assert!(parse(b"1960-06-30T23:59:60Z").is_ok());
        for value in ["2016-12-31T22:59:60Z", "2016-12-30T23:59:60Z", "2016-12-31T23:59:60+01:00"] {
            reads(value, Err(Why::NoSuchTime));
        }
    }

    #[test]
    fn the_end_of_the_calendar_saturates() {
        assert_eq!(print(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(print(0), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn every_day_of_the_calendar_reads_back() {
        let mut expected = (1970, 1, 1);
        for days in 0..=LAST_MILLI / 86_400_000 {
            let (year, month, day) = date(days);
            assert_eq!((year, month, day), expected);
            assert_eq!(days_since_1970(year as i64, month as i64, day as i64), days as i64);
            expected = match expected {
                (year, 12, 31) => (year + 1, 1, 1),
                (year, month, day) if day == days_in(year as i64, month as i64) as u64 => (year, month + 1, 1),
                (year, month, day) => (year, month, day + 1),
            };
        }
        assert_eq!(expected, (10_000, 1, 1));
    }

    proptest! {
        #[test]
        fn e1_what_is_printed_reads_back(millis in 0..=LAST_MILLI) {
            prop_assert_eq!(parse(print(millis).as_bytes()), Ok(i128::from(millis) * 1_000_000));
        }
    }
}
