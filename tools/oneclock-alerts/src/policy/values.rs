//! The values of a policy, as people write them: `1%`, `5m`, `14.4`, `job`.
//!
//! Decides what is one. A share without its sign is refused: `1` would be everything or a hundredth. So is a span without
//! its unit, and zero: none of these switches anything off.

use std::fmt;
use std::time::Duration;

use oneclock::events::RanOn;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A part of a whole, more than nothing and less than all of it. Written in per cent.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share {
    percent: f64, // kept as written, so that it is printed as written
}

/// A span, as Prometheus writes it: a whole number and `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

/// How many times.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Times(f64);

/// The name of a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(String);

/// A sort of work that may go on after its end: the label `layer` of the zombies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Steps that must finish.
    MustFinish,
    /// Closures on blocking threads.
    Blocking,
    /// Statements on database servers.
    Statement,
}

// === Share ===

impl Share {
    pub(crate) const fn percent(percent: f64) -> Self {
        Self { percent }
    }

    /// As a fraction, for an expression.
    pub fn fraction(self) -> f64 {
        tidy(self.percent / 100.0)
    }

    /// A tenth of it, as a fraction.
    pub fn tenth(self) -> f64 {
        tidy(self.percent / 1_000.0)
    }

    /// What is left of the whole.
    pub fn rest(self) -> Self {
        Self { percent: tidy(100.0 - self.percent) }
    }

    fn parse(text: &str) -> Option<Self> {
        let percent: f64 = decimal(text.strip_suffix('%')?.trim_end())?;
        (percent > 0.0 && percent < 100.0).then_some(Self { percent })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.percent)
    }
}

// === Span ===

impl Span {
    pub(crate) const fn minutes(minutes: u64) -> Self {
        Self(Duration::from_secs(minutes * 60))
    }

    pub(crate) const fn hours(hours: u64) -> Self {
        Self::minutes(hours * 60)
    }

    pub(crate) const fn days(days: u64) -> Self {
        Self::hours(days * 24)
    }

    /// How long it is.
    pub const fn duration(self) -> Duration {
        self.0
    }

    /// In seconds, for an expression.
    pub fn seconds(self) -> f64 {
        self.0.as_secs_f64()
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
        let of_a_unit = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        if !number.bytes().all(|digit| digit.is_ascii_digit()) {
            return None; // Rust would read a sign
        }
        let millis = number.parse::<u64>().ok()?.checked_mul(of_a_unit)?;
        // A year is more than any Prometheus keeps.
        (1..=366 * 86_400_000).contains(&millis).then_some(Self(Duration::from_millis(millis)))
    }
}

/// The units, the longest first, in milliseconds.
const UNITS: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis() as u64;
        let (unit, of_a_unit) = UNITS.iter().find(|(_, unit)| millis.is_multiple_of(*unit)).unwrap_or(&("ms", 1));
        write!(f, "{}{unit}", millis / of_a_unit)
    }
}

// === Times ===

impl Times {
    pub(crate) const fn new(times: f64) -> Self {
        Self(times)
    }

    /// So many times one.
    pub const fn of_one(self) -> f64 {
        self.0
    }

    /// So many times a share, as a fraction.
    pub fn of(self, share: Share) -> f64 {
        tidy(self.0 * share.fraction())
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

// === Label ===

impl Label {
    pub(crate) fn job() -> Self {
        Self("job".to_owned())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let mut letters = text.bytes();
        let begins = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
        let goes_on = letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_');
        (begins && goes_on && !text.starts_with("__")).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === Layer ===

impl Layer {
    const ALL: [Self; 3] = [Self::MustFinish, Self::Blocking, Self::Statement];

    /// The word of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MustFinish => RanOn::MustFinish.as_str(),
            Self::Blocking => RanOn::Blocking.as_str(),
            Self::Statement => RanOn::Statement.as_str(),
        }
    }
}

impl<'de> Deserialize<'de> for Layer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const WORDS: &[&str] = &[Layer::ALL[0].as_str(), Layer::ALL[1].as_str(), Layer::ALL[2].as_str()];
        let word = String::deserialize(deserializer)?;
        let found = Self::ALL.into_iter().find(|layer| layer.as_str() == word);
        found.ok_or_else(|| D::Error::unknown_variant(&word, WORDS))
    }
}

// === Reading ===

/// Without a sign, an exponent, or a word for infinity, all of which Rust would read.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|letter| letter.is_ascii_digit() || letter == b'.');
    if plain { text.parse().ok() } else { None }
}

/// Nine digits are more than anybody writes, and hide what binary fractions do to decimal ones.
fn tidy(number: f64) -> f64 {
    (number * 1e9).round() / 1e9
}

/// Reads a value from its text, whatever YAML takes that for.
struct Read<T> {
    parse: fn(&str) -> Option<T>,
    expected: &'static str,
}

impl<T> Visitor<'_> for Read<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::custom(format_args!("`{text}` is not {}", self.expected)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Err(E::invalid_type(Unexpected::Unit, &self))
    }
}

macro_rules! read {
    ($($what:ty, $parse:expr, $expected:literal;)*) => {$(
        impl<'de> Deserialize<'de> for $what {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Read { parse: $parse, expected: $expected })
            }
        }
    )*};
}

read! {
    Share, Share::parse, "a share with its sign, more than 0% and less than 100%, such as 0.5%";
    Span, Span::parse, "a whole number and its unit, one of ms, s, m, h and d, such as 5m";
    Times, |text| decimal(text).filter(|times| *times > 0.0 && *times <= 1e6).map(Times), "a number above zero, such as 14.4";
    Label, Label::parse, "the name of a label, such as job";
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_in_per_cent_and_neither_nothing_nor_all() {
        for (text, fraction) in [("1%", 0.01), ("0.5%", 0.005), ("99.95%", 0.9995), ("20 %", 0.2)] {
            assert_eq!(Share::parse(text).unwrap().fraction(), fraction, "{text}");
        }
        for wrong in ["1", "0.01", "0%", "100%", "-1%", "+1%", "1e1%", "NaN%", "inf%", "%", "", "1%%"] {
            assert_eq!(Share::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Share::parse("99.9%").unwrap().rest().fraction(), 0.001, "and not 0.0009999999999999432");
    }

    #[test]
    fn a_span_is_whole_and_has_a_unit() {
        for (text, printed) in
            [("5m", "5m"), ("300s", "5m"), ("90s", "90s"), ("24h", "1d"), ("36h", "36h"), ("500ms", "500ms")]
        {
            assert_eq!(Span::parse(text).unwrap().to_string(), printed);
        }
        for wrong in ["5", "m", "0m", "-5m", "+5m", "1.5h", "1h30m", "5 m", "5M", "99999999999999d", "400d", ""] {
            assert_eq!(Span::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_label_is_one_that_prometheus_reads() {
        for label in ["job", "k8s_cluster", "_x"] {
            assert!(Label::parse(label).is_some(), "{label}");
        }
        for wrong in ["", "1job", "a-b", "a.b", "a b", "__name__", "job}", "jöb"] {
            assert_eq!(Label::parse(wrong), None, "{wrong}");
        }
    }
}
