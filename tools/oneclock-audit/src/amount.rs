//! What a written value says: how long, how many times, never, or something only a running system knows.
//!
//! A bare number means what the setting's product takes it for ([`Unit`], from the catalogue): seconds for nginx,
//! milliseconds for `HAProxy`. So does zero ([`Zero`]). What is not understood is an error, never "no limit".

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a setting amounts to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// It fires after this long.
    After(#[serde(serialize_with = "milliseconds")] Duration),
    /// No limit.
    Never,
    /// So many times.
    Times(u64),
    /// Only a running system knows: a variable without a default, an expression.
    Unknown(String),
}

/// What a bare number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Microseconds.
    #[serde(rename = "us")]
    Micros,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Minutes.
    #[serde(rename = "min")]
    Minutes,
    /// A number of times, not a time.
    #[serde(rename = "times")]
    Times,
    /// Nothing: the product refuses a number without a unit.
    #[serde(rename = "refused")]
    Refused,
}

/// What zero means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zero {
    /// No limit.
    #[default]
    Never,
    /// It fires at once, or the thing is off.
    Literal,
    /// The product's default is taken.
    Default,
    /// The product refuses it.
    Refused,
}

/// Whatever is longer counts as a hundred years: nobody waits until then, and sums of such times stay times.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A value that is no amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not understood as {wanted}")]
pub(crate) struct NotUnderstood {
    /// What was written, shortened.
    pub text: String,
    /// What was looked for.
    pub wanted: &'static str,
}

/// A value that a shell, Spring or compose fills in when it runs, and what it takes otherwise.
enum Filled<'a> {
    No(&'a str),
    Default(&'a str),
    Open(&'a str),
}

/// What `text` amounts to, where a bare number has this unit and zero this meaning.
///
/// # Errors
/// What is neither a number, nor a duration in a known notation, nor a word for "no limit", nor a variable.
pub(crate) fn amount(text: &str, unit: Unit, zero: Zero) -> Result<Amount, NotUnderstood> {
    let text = unquoted(text.trim());
    let text = match filled(text) {
        Filled::No(text) => text,
        Filled::Default(text) => unquoted(text.trim()),
        Filled::Open(name) => return Ok(Amount::Unknown(shortened(name))),
    };
    if unit == Unit::Times {
        return times(text);
    }
    if matches!(
        text.to_ascii_lowercase().as_str(),
        "none" | "off" | "infinite" | "infinity" | "never" | "false" | "disabled" | "-1"
    ) {
        return Ok(Amount::Never);
    }
    let wanted = "a time";
    let time = duration(text, unit).ok_or_else(|| NotUnderstood { text: shortened(text), wanted })?.min(LONGEST);
    if !time.is_zero() {
        return Ok(Amount::After(time));
    }
    match zero {
        Zero::Never => Ok(Amount::Never),
        Zero::Literal => Ok(Amount::After(Duration::ZERO)),
        Zero::Default => Ok(Amount::Unknown("0, for which the product takes its default".to_owned())),
        Zero::Refused => Err(NotUnderstood { text: shortened(text), wanted: "a time above zero" }),
    }
}

/// Whether something stands beside the number; of what only a running system fills in nobody knows.
pub(crate) fn has_unit(text: &str) -> bool {
    let Some(text) = shown_to_all(text) else { return false };
    text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().any(char::is_alphabetic)
}

/// Whether a part of one of the numbers is written: `1.5s`, `0.5`.
pub(crate) fn has_fraction(text: &str) -> bool {
    shown_to_all(text).is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.'))
}

/// The number, where nothing stands beside it.
pub(crate) fn bare(text: &str) -> Option<f64> {
    shown_to_all(text)?.replace('_', "").parse().ok().filter(|number: &f64| number.is_finite())
}

/// What stands there for everybody to see: nothing where only a running system fills it in.
fn shown_to_all(text: &str) -> Option<&str> {
    match filled(unquoted(text.trim())) {
        Filled::No(text) | Filled::Default(text) => Some(unquoted(text.trim())),
        Filled::Open(_) => None,
    }
}

fn times(text: &str) -> Result<Amount, NotUnderstood> {
    let wanted = "a number of times";
    if matches!(text.to_ascii_lowercase().as_str(), "-1" | "infinite" | "unlimited") {
        return Ok(Amount::Never);
    }
    let whole = text.strip_suffix(".0").unwrap_or(text);
    whole.parse().map(Amount::Times).map_err(|_| NotUnderstood { text: shortened(text), wanted })
}

/// `1h30m`, `250ms`, `0.250s`, `5 min`, `PT2M`, `15`.
fn duration(text: &str, unit: Unit) -> Option<Duration> {
    if let Some(iso) = text.strip_prefix(['P', 'p']) {
        return iso_8601(iso);
    }
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(rest.len());
        let (number, behind) = rest.split_at_checked(end)?;
        let behind = behind.trim_start();
        let end = behind.find(|c: char| !c.is_alphabetic()).unwrap_or(behind.len());
        let (word, behind) = behind.split_at_checked(end)?;
        sum = sum.checked_add(one(number, word, unit)?)?;
        rest = behind.trim_start();
    }
    Some(sum)
}

fn one(number: &str, word: &str, unit: Unit) -> Option<Duration> {
    let number: f64 = number.replace('_', "").parse().ok()?;
    let seconds = match word {
        "" => match unit {
            Unit::Micros => 1e-6,
            Unit::Millis => 1e-3,
            Unit::Seconds => 1.0,
            Unit::Minutes => 60.0,
            Unit::Times | Unit::Refused => return None,
        },
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" | "millis" | "milliseconds" | "millisecond" => 1e-3,
        "s" | "S" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "H" | "hour" | "hours" => 3_600.0,
        "d" | "D" | "day" | "days" => 86_400.0,
        "w" | "week" | "weeks" => 604_800.0,
        _ => return None,
    };
    // Nanoseconds, rounded: 0.1 of a second is a hundred milliseconds, not 99.999.
    Duration::try_from_secs_f64((number * seconds * 1e9).round() / 1e9).ok()
}

/// What stands behind the `P`: `T2M`, `1DT12H`, `T0.5S`.
fn iso_8601(text: &str) -> Option<Duration> {
    let (days, time) = text.split_once(['T', 't']).map_or((text, ""), |(days, time)| (days, time));
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let days =
        if days.is_empty() { Some(Duration::ZERO) } else { one(days.strip_suffix(['D', 'd'])?, "d", Unit::Refused) };
    let lower = time.to_ascii_lowercase();
    let time = if time.is_empty() { Some(Duration::ZERO) } else { duration(&lower, Unit::Refused) };
    days?.checked_add(time?)
}

/// `${X:-60}` (shell, compose), `${X:60}` (Spring), `${X}`, `$X`, `{{ x }}`, `$(x)`.
fn filled(text: &str) -> Filled<'_> {
    let Some(inner) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
        let open = text.starts_with('$') || text.contains("${") || text.contains("{{") || text.starts_with("@");
        return if open { Filled::Open(text) } else { Filled::No(text) };
    };
    for mark in [":-", "-", ":?", "?", ":"] {
        let Some((name, default)) = inner.split_once(mark) else { continue };
        if name.contains(['-', ':', '?', '{', '$']) {
            continue;
        }
        let fixed = !mark.ends_with('?') && !default.contains(['$', '{']) && !default.is_empty();
        return if fixed { Filled::Default(default) } else { Filled::Open(text) };
    }
    Filled::Open(text)
}

fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner.trim();
        }
    }
    text
}

/// As much of what was written as a sentence can hold.
pub(crate) fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    if text.chars().count() > LONGEST {
        short.push('…');
    }
    short
}

fn milliseconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64() * 1e3)
}

// === Amount ===

impl Amount {
    /// The time, if it is one.
    #[must_use]
    pub const fn after(&self) -> Option<Duration> {
        match self {
            Self::After(time) => Some(*time),
            _ => None,
        }
    }

    /// The count, if it is one.
    #[must_use]
    pub const fn times(&self) -> Option<u64> {
        match self {
            Self::Times(times) => Some(*times),
            _ => None,
        }
    }
}

/// `1.5s`, `250ms`, `2m`, `none`, `3`, `unknown (X)`.
impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::After(time) => f.write_str(&shown(*time)),
            Self::Never => f.write_str("none"),
            Self::Times(times) => write!(f, "{times}"),
            Self::Unknown(why) => write!(f, "unknown ({why})"),
        }
    }
}

/// A time for people, in the notation that Gateway API and Go read too: `1h30m`, `2m`, `1.5s`, `250ms`, `20us`.
#[must_use]
pub(crate) fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    if time.is_zero() {
        return "0s".to_owned();
    }
    if seconds >= 60 {
        let parts = [(seconds / 3_600, "h"), (seconds / 60 % 60, "m")].into_iter().filter(|(number, _)| *number > 0);
        let mut text: String = parts.map(|(number, word)| format!("{number}{word}")).collect();
        let millis = time.subsec_millis();
        if !seconds.is_multiple_of(60) || millis > 0 {
            let rest = format!("{}.{millis:03}", seconds % 60);
            text.push_str(&format!("{}s", rest.trim_end_matches('0').trim_end_matches('.')));
        }
        return text;
    }
    let (number, word) = match seconds {
        0 if time.as_millis() == 0 => (time.as_secs_f64() * 1e6, "us"),
        0 => (time.as_secs_f64() * 1e3, "ms"),
        _ => (time.as_secs_f64(), "s"),
    };
    let text = format!("{number:.3}");
    format!("{}{word}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, unit: Unit, millis: u64) {
        assert_eq!(amount(text, unit, Zero::Never), Ok(Amount::After(Duration::from_millis(millis))), "{text:?}");
    }

    #[test]
    fn every_notation_of_the_formats() {
        reads("60", Unit::Seconds, 60_000);
        reads("5000", Unit::Millis, 5_000);
        reads("5_000", Unit::Millis, 5_000);
        reads("0.250s", Unit::Refused, 250);
        reads("1h30m", Unit::Refused, 5_400_000);
        reads("1m 30s", Unit::Seconds, 90_000);
        reads("5min", Unit::Millis, 300_000);
        reads("2 min", Unit::Millis, 120_000);
        reads("PT2M", Unit::Refused, 120_000);
        reads("PT0.5S", Unit::Refused, 500);
        reads("P1DT1H", Unit::Refused, 90_000_000);
        reads("'30s'", Unit::Millis, 30_000);
        reads("\"60\"", Unit::Seconds, 60_000);
        reads("0.1", Unit::Seconds, 100);
    }

    #[test]
    fn a_variable_counts_as_its_default_or_is_unknown() {
        reads("${GUNICORN_TIMEOUT:-60}", Unit::Seconds, 60_000);
        reads("${http.timeout:2s}", Unit::Millis, 2_000);
        for open in ["${X}", "$X", "{{ .Values.timeout }}", "${A:-${B}}", "${X:?needed}", "${X}s"] {
            assert!(matches!(amount(open, Unit::Seconds, Zero::Never), Ok(Amount::Unknown(_))), "{open}");
        }
    }

    #[test]
    fn zero_and_words() {
        assert_eq!(amount("0", Unit::Seconds, Zero::Never), Ok(Amount::Never));
        assert_eq!(amount("0s", Unit::Seconds, Zero::Literal), Ok(Amount::After(Duration::ZERO)));
        assert!(amount("0", Unit::Millis, Zero::Refused).is_err());
        for word in ["none", "off", "infinite", "-1"] {
            assert_eq!(amount(word, Unit::Seconds, Zero::Never), Ok(Amount::Never));
        }
    }

    #[test]
    fn what_is_no_time_is_an_error() {
        for text in ["", "soon", "5 parsecs", "10", "1.2.3s", "s", "P", "PT", "-5s", "99999999999999999999999h"] {
            assert!(amount(text, Unit::Refused, Zero::Never).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_nobody_lives_to_see_is_a_hundred_years() {
        reads("18000000000000000000s", Unit::Refused, 100 * 365 * 86_400_000);
    }

    #[test]
    fn counts() {
        assert_eq!(amount("3", Unit::Times, Zero::Literal), Ok(Amount::Times(3)));
        assert_eq!(amount("-1", Unit::Times, Zero::Literal), Ok(Amount::Never));
        assert!(amount("3s", Unit::Times, Zero::Literal).is_err());
    }

    #[test]
    fn shown_as_people_write_it() {
        let cases = [
            (90_000, "1m30s"),
            (1_500, "1.5s"),
            (250, "250ms"),
            (3_600_000, "1h"),
            (15_000, "15s"),
            (0, "0s"),
            (119_500, "1m59.5s"),
        ];
        for (millis, want) in cases {
            assert_eq!(shown(Duration::from_millis(millis)), want);
        }
        assert_eq!(shown(Duration::from_micros(20)), "20us");
    }
}
