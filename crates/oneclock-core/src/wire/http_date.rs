//! Moments as HTTP writes them (RFC 9110 section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`, and the two old forms that a
//! recipient must still read.
//!
//! The day of the week is checked to be one and otherwise not believed: the date says it all.

use super::Wall;
use super::rfc3339::{days_in, days_since_1970, two};

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAYS: [&[u8]; 7] = [b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday"];
const SECS_PER_DAY: i64 = 86_400;

/// Nanoseconds since 1970-01-01T00:00:00Z, negative before. `wall` tells the century of a year with two digits.
pub(crate) fn parse(value: &[u8], wall: Wall) -> Option<i128> {
    let comma = value.iter().position(|byte| *byte == b',');
    match comma {
        Some(3) => preferred(value),
        Some(at) => old(value.split_at(at), wall),
        None => asctime(value),
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn preferred(value: &[u8]) -> Option<i128> {
    let (head, time) = value.split_first_chunk::<17>()?;
    let [w0, w1, w2, b',', b' ', d0, d1, b' ', m0, m1, m2, b' ', y0, y1, y2, y3, b' '] = *head else { return None };
    is_short_day([w0, w1, w2]).then_some(())?;
    let year = two(y0, y1)? * 100 + two(y2, y3)?;
    moment(year, month([m0, m1, m2])?, two(d0, d1)?, time.strip_suffix(b" GMT")?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`. A year that would be more than 50 years ahead is the one a century before it.
fn old((day, rest): (&[u8], &[u8]), wall: Wall) -> Option<i128> {
    DAYS.contains(&day).then_some(())?;
    let (head, time) = rest.split_first_chunk::<12>()?;
    let [b',', b' ', d0, d1, b'-', m0, m1, m2, b'-', y0, y1, b' '] = *head else { return None };
    let now = 1970 + i64::try_from(wall.as_nanos() / 1_000_000_000).ok()? / 31_556_952;
    let year = now / 100 * 100 + two(y0, y1)?;
    let year = if year > now + 50 { year - 100 } else { year };
    moment(year, month([m0, m1, m2])?, two(d0, d1)?, time.strip_suffix(b" GMT")?)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(value: &[u8]) -> Option<i128> {
    let value: &[u8; 24] = value.try_into().ok()?;
    let (head, rest) = value.split_first_chunk::<11>()?;
    let [w0, w1, w2, b' ', m0, m1, m2, b' ', d0, d1, b' '] = *head else { return None };
    is_short_day([w0, w1, w2]).then_some(())?;
    let (time, year) = rest.split_at(8);
    let [b' ', y0, y1, y2, y3] = *year else { return None };
    let year = two(y0, y1)? * 100 + two(y2, y3)?;
    let day = two(if d0 == b' ' { b'0' } else { d0 }, d1)?;
    moment(year, month([m0, m1, m2])?, day, time)
}

fn moment(year: i64, month: i64, day: i64, time: &[u8]) -> Option<i128> {
    let [h0, h1, b':', n0, n1, b':', s0, s1] = *time else { return None };
    let (hour, minute, second) = (two(h0, h1)?, two(n0, n1)?, two(s0, s1)?);
    let real = (1..=days_in(year, month)).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !real {
        return None;
    }
    // A leap second is read as the one before it.
    let of_day = hour * 3600 + minute * 60 + second.min(59);
    Some(i128::from(days_since_1970(year, month, day) * SECS_PER_DAY + of_day) * 1_000_000_000)
}

fn month(name: [u8; 3]) -> Option<i64> {
    let at = MONTHS.iter().position(|month| **month == name)?;
    i64::try_from(at + 1).ok()
}

fn is_short_day(name: [u8; 3]) -> bool {
    DAYS.iter().any(|day| day.starts_with(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i128 = 1_769_860_800;

    #[track_caller]
    fn reads(value: &str, want: Option<i128>) {
        let wall = Wall::from_nanos(1_769_860_800_000_000_000);
        assert_eq!(parse(value.as_bytes(), wall), want.map(|secs| secs * 1_000_000_000), "{value:?}");
    }

    #[test]
    fn the_three_forms_of_rfc_9110() {
        for same in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            reads(same, Some(784_111_777));
        }
        reads("Sat, 31 Jan 2026 12:00:00 GMT", Some(NOON));
        reads("Saturday, 31-Jan-26 12:00:00 GMT", Some(NOON));
        reads("Thu, 01 Jan 1970 00:00:00 GMT", Some(0));
        reads("Wed, 31 Dec 1969 23:59:59 GMT", Some(-1));
    }

    #[test]
    fn p1_the_shape_and_the_calendar_are_strict() {
        for value in [
            "",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Xxx, 06 Nov 1994 08:49:37 GMT",
            "Sun,06 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 2026 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sonntag, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 06 08:49:37 1994 GMT",
            "2026-01-31T12:00:00Z",
        ] {
            reads(value, None);
        }
    }
}
