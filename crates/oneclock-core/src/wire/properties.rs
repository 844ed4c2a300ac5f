//! What holds for every codec and for the reader, and an oracle that reads the grammar in another way. The property tests
//! here and the fuzz targets assert the same functions; the fuzz crate includes this file by its path.

use std::time::Duration;

use super::{Codec, Convention, Read, Reader, Wall};

/// The value is read as the contract's grammar says, and nothing panics.
pub fn reading(codec: Codec, value: &[u8], wall: Wall) {
    let read = codec.parse(value, wall);
    let told = |read: Read| match read {
        Read::Absent => Oracle::Absent,
        Read::Expired => Oracle::Left(0),
        Read::Valid(span) => Oracle::Left(span.as_nanos()),
        Read::Malformed(_) => Oracle::Malformed,
    };
    assert_ne!(read, Read::Valid(Duration::ZERO), "{codec:?}: zero is expired, not valid");
    assert_eq!(told(read), oracle(codec, value, wall), "{codec:?}: {:?} at {wall:?}", value.escape_ascii().to_string());
}

/// `decode(encode(d)) <= d`, less than one unit away unless saturated; nothing is sent exactly when less than one unit is
/// left (contract E1, E2, E3, E6).
pub fn writing(codec: Codec, remaining: Duration, wall: Wall) {
    let (left, now) = (remaining.as_nanos(), u128::from(wall.as_nanos()));
    let finest = match codec {
        Codec::Grpc | Codec::Finagle => 1,
        Codec::WholeSeconds => 1_000_000_000,
        _ => 1_000_000,
    };
    let Some(written) = codec.encode(remaining, wall) else {
        let spoken_for = codec == Codec::Finagle && now >= i64::MAX as u128;
        assert!(left < finest || spoken_for, "{codec:?}: {remaining:?} was not sent");
        return;
    };
    assert!(left >= finest, "{codec:?}: {remaining:?} was sent as {written}");
    let Read::Valid(back) = codec.parse(written.as_bytes(), wall) else {
        panic!("{codec:?}: {remaining:?} was sent as {written}, which does not read back");
    };
    assert!(back <= remaining, "{codec:?}: {remaining:?} was sent as {written}: longer");
    let unit = match (codec, written.as_bytes().last()) {
        (Codec::Grpc, Some(b'u')) => 1_000,
        (Codec::Grpc, Some(b'm')) => 1_000_000,
        (Codec::Grpc, Some(b'S')) => 1_000_000_000,
        (Codec::Grpc, Some(b'M')) => 60_000_000_000,
        (Codec::Grpc, Some(b'H')) => 3_600_000_000_000,
        _ => finest,
    };
    let most = match codec {
        Codec::Grpc => "99999999H",
        Codec::DecimalSeconds => "9999999999.999",
        Codec::EpochMillis => "253402300799999",
        Codec::Rfc3339 => "9999-12-31T23:59:59.999Z",
        Codec::Finagle => "9223372036854775807",
        Codec::L5d => "9999999999ms",
        _ => "9999999999",
    };
    let saturated = written.as_str().ends_with(most);
    assert!(left - back.as_nanos() < unit || saturated, "{codec:?}: {remaining:?} was sent as {written}: too short");
}

/// The smallest wins, any malformed field makes the whole malformed, and the order does not matter (contract P8, P9).
pub fn fields(fields: &[(&Convention, &[u8])], wall: Wall) {
    let read = |fields: &mut dyn Iterator<Item = &(&Convention, &[u8])>| {
        let mut reader = Reader::new(wall);
        fields.for_each(|(convention, value)| reader.field(convention, value));
        let reading = reader.finish();
        let named = reading.source.is_some();
        assert_eq!(named, reading.read != Read::Absent, "every result but absent has a source");
        assert_eq!(reading.malformed.is_some(), matches!(reading.read, Read::Malformed(_)));
        (reading.read, reading.at_most)
    };
    let (forward, at_most) = read(&mut fields.iter());
    let (backward, at_most_too) = read(&mut fields.iter().rev());
    assert_eq!(at_most, at_most_too);

    let singles: Vec<_> = fields.iter().map(|(convention, value)| convention.codec().parse(value, wall)).collect();
    let least = singles.iter().filter_map(|read| match read {
        Read::Valid(span) => Some(*span),
        Read::Expired => Some(Duration::ZERO),
        Read::Absent | Read::Malformed(_) => None,
    });
    let least = least.min();
    assert_eq!(at_most, least);
    if singles.iter().any(|read| matches!(read, Read::Malformed(_))) {
        assert!(matches!(forward, Read::Malformed(_)) && matches!(backward, Read::Malformed(_)));
    } else {
        assert_eq!(forward, backward);
        assert_eq!(forward, least.map_or(Read::Absent, Read::remaining));
    }
}

// === The oracle: plain text work and wide integers, as slow as it likes ===

#[derive(Debug, PartialEq, Eq)]
enum Oracle {
    Absent,
    Left(u128),
    Malformed,
}

fn oracle(codec: Codec, value: &[u8], wall: Wall) -> Oracle {
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= 128);
    let left = match codec {
        Codec::EnvoyUpstreamMillis if text.is_some_and(|text| number(text, 10) == Some(0)) => return Oracle::Absent,
        _ => text.and_then(|text| left(codec, text, wall.as_nanos().into())),
    };
    left.map_or(Oracle::Malformed, |left| Oracle::Left(left.min(Duration::MAX.as_nanos())))
}

fn left(codec: Codec, text: &str, now: i128) -> Option<u128> {
    let until = |moment: i128| (moment - now).max(0).unsigned_abs();
    match codec {
        Codec::Grpc => {
            let units =
                [("n", 1), ("u", 1_000), ("m", 1_000_000), ("S", SECOND), ("M", 60 * SECOND), ("H", 3600 * SECOND)];
            units.into_iter().find_map(|(unit, nanos)| Some(number(text.strip_suffix(unit)?, 8)? * nanos))
        }
        Codec::Millis | Codec::EnvoyUpstreamMillis => Some(number(text, 10)? * 1_000_000),
        Codec::WholeSeconds => Some(number(text, 10)? * SECOND),
        Codec::DecimalSeconds => {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
            Some(word(number(whole, 128)?) * SECOND + fraction_nanos(fraction)?)
        }
        Codec::L5d => {
            let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
            let (unit, millis) = units.into_iter().find(|(unit, _)| {
                text.strip_suffix(unit).is_some_and(|number| number.ends_with(|last: char| last.is_ascii_digit()))
            })?;
            let number = word(number(text.strip_suffix(unit)?, 128)?);
            // Saturation is in whole seconds, of which a word holds the most.
            let nanos = number * millis * 1_000_000;
            Some(if unit == "ms" { nanos } else { word(nanos / SECOND) * SECOND })
        }
        Codec::EpochMillis => Some(until(word(number(text, 128)?) as i128 * 1_000_000)),
        Codec::Finagle => {
            let [stamp, end] = *text.split(' ').collect::<Vec<_>>().as_slice() else { return None };
            let (stamp, end) = (word(number(stamp, 128)?), word(number(end, 128)?));
            Some(until(end as i128).min(end.saturating_sub(stamp)))
        }
        Codec::Rfc3339 => Some(until(moment(text)?)),
        #[allow(unreachable_patterns, reason = "outside the crate the enum is non-exhaustive")]
        _ => unreachable!("{codec:?} has no oracle"),
    }
}

const SECOND: u128 = 1_000_000_000;

fn number(text: &str, most: usize) -> Option<u128> {
    let fits = (1..=most).contains(&text.len()) && text.chars().all(|digit| digit.is_ascii_digit());
    // Too long for the integer is more than any word: 128 bits hold 38 digits.
    fits.then(|| text.parse().unwrap_or(u128::MAX))
}

fn word(number: u128) -> u128 {
    number.min(u64::MAX.into())
}

fn fraction_nanos(digits: &str) -> Option<u128> {
    number(digits, 128)?;
    format!("{digits:0<9}")[..9].parse().ok()
}

fn moment(text: &str) -> Option<i128> {
    let (date, rest) = text.split_once('T')?;
    let [year, month, day] = *parts(date, '-', &[4, 2, 2])? else { return None };
    let (clock, offset) = match rest.strip_suffix('Z') {
        Some(clock) => (clock, 0),
        None => {
            let sign = rest.rfind(['+', '-'])?;
            let [hours, minutes] = *parts(&rest[sign + 1..], ':', &[2, 2])? else { return None };
            let span = (hours * 60 + minutes) * 60;
            let east = rest[sign..].starts_with('+');
            (hours < 24 && minutes < 60).then_some((&rest[..sign], if east { span } else { -span }))?
        }
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let nanos = fraction_nanos(fraction)? as i128;
    let [hour, minute, second] = *parts(clock, ':', &[2, 2, 2])? else { return None };

    let leap = |year: i128| (year % 4 == 0) != (year % 100 == 0) || year % 400 == 0;
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month).ok().filter(|month| (1..=12).contains(month))? - 1;
    if !(1..=lengths[before]).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let years: i128 = (0..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let days = years + lengths[..before].iter().sum::<i128>() + day - 1 - 719_528; // 0000-01-01 to 1970-01-01
    let minutes = (days * 24 + hour) * 60 + minute - offset / 60;
    if second < 60 {
        return Some((minutes * 60 + second) * SECOND as i128 + nanos);
    }
    let next = minutes + 1; // a leap second ends the last minute of a UTC month
    let ends_a_month = next.rem_euclid(24 * 60) == 0 && begins_a_month(next.div_euclid(24 * 60));
    ends_a_month.then_some(next * 60 * SECOND as i128 - 1)
}

fn begins_a_month(day: i128) -> bool {
    let leap = |year: i128| (year % 4 == 0) != (year % 100 == 0) || year % 400 == 0;
    let (mut year, mut start) = (-1, -719_528 - 365); // the year before year 0 has no leap day
    loop {
        for length in [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if day <= start {
                return day == start;
            }
            start += length;
        }
        year += 1;
    }
}

fn parts(text: &str, by: char, widths: &[usize]) -> Option<Box<[i128]>> {
    let fields: Vec<_> = text.split(by).collect();
    let shaped = fields.len() == widths.len() && fields.iter().zip(widths).all(|(field, width)| field.len() == *width);
    shaped.then(|| fields.into_iter().map(|field| Some(number(field, 4)? as i128)).collect())?
}
