//! What late endings cost, in numbers: how much work is going on for nobody, and how many requests repeating makes.
//!
//! A rate is in its type. The essays that this project began with took requests per minute for requests per second and
//! were wrong by sixty: [`PerSecond`] and [`PerMinute`] do not add, compare or convert but by name.

pub(crate) mod told;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// So many a second.
///
/// A rate per minute is another type, and does not pass for one:
///
/// ```compile_fail
/// use oneclock_audit::estimate::{PerMinute, Share, zombies};
/// let _ = zombies(PerMinute::new(70.0).unwrap(), Share::percent(3.0).unwrap(), std::time::Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct PerSecond(f64);

/// So many a minute.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct PerMinute(f64);

/// A part of a whole, from none to all.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Share(f64);

/// How much work is going on for nobody at any moment, in the mean: how often it begins, times how long it goes on
/// (Little's law). `extra` is how long a callee goes on after its caller gave up.
///
/// ```
/// use std::time::Duration;
/// use oneclock_audit::estimate::{PerMinute, Share, zombies};
/// let rate = PerMinute::new(70.0).unwrap().per_second();
/// let busy = zombies(rate, Share::percent(3.0).unwrap(), Duration::from_secs(60));
/// assert!((busy - 2.1).abs() < 1e-9);
/// ```
#[must_use]
pub fn zombies(rate: PerSecond, timed_out: Share, extra: Duration) -> f64 {
    rate.0 * timed_out.0 * extra.as_secs_f64()
}

/// How many requests one request becomes in the mean, where each try fails with this share, whatever the others did, and
/// there are `tries` of them at most, the first included: the first one, the second if that failed, and so on.
///
/// ```
/// use oneclock_audit::estimate::{Share, amplification};
/// assert!((amplification(Share::percent(12.0).unwrap(), 4) - 1.136_128).abs() < 1e-9);
/// assert_eq!(amplification(Share::ALL, 4), 4.0);
/// ```
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "nobody tries so often")]
pub fn amplification(fails: Share, tries: u64) -> f64 {
    let p = fails.0;
    if p >= 1.0 {
        return tries as f64;
    }
    let tries = i32::try_from(tries).unwrap_or(i32::MAX);
    (1.0 - p.powi(tries)) / (1.0 - p)
}

// === PerSecond ===

impl PerSecond {
    /// A rate; `None` for what is none: below zero, or no number.
    #[must_use]
    pub fn new(rate: f64) -> Option<Self> {
        is_rate(rate).then_some(Self(rate))
    }

    /// As it is written: `70/s`, `4200/min`. A number without a unit is no rate.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (number, unit) = text.split_once('/')?;
        let number: f64 = number.trim().parse().ok()?;
        match unit.trim() {
            "s" | "sec" | "second" => Self::new(number),
            "min" | "minute" => PerMinute::new(number).map(PerMinute::per_second),
            _ => None,
        }
    }

    /// The same, counted in minutes.
    #[must_use]
    pub fn per_minute(self) -> PerMinute {
        PerMinute(self.0 * 60.0)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// So many times as often.
    #[must_use]
    pub fn times(self, factor: f64) -> Option<Self> {
        Self::new(self.0 * factor)
    }
}

// === PerMinute ===

impl PerMinute {
    /// A rate; `None` for what is none: below zero, or no number.
    #[must_use]
    pub fn new(rate: f64) -> Option<Self> {
        is_rate(rate).then_some(Self(rate))
    }

    /// The same, counted in seconds.
    #[must_use]
    pub fn per_second(self) -> PerSecond {
        PerSecond(self.0 / 60.0)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate >= 0.0
}

// === Share ===

impl Share {
    /// The whole.
    pub const ALL: Self = Self(1.0);

    /// So many in a hundred; `None` beyond 0 to 100.
    #[must_use]
    pub fn percent(percent: f64) -> Option<Self> {
        (0.0..=100.0).contains(&percent).then_some(Self(percent / 100.0))
    }
}

/// `70/s`, `1.17/s`.
impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", short(self.0))
    }
}

/// `70/min`.
impl fmt::Display for PerMinute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/min", short(self.0))
    }
}

/// Three digits that say something: `0.0123`, `2.1`, `19.3`, `1155`.
pub(crate) fn short(number: f64) -> String {
    if number >= 99.95 || number == 0.0 {
        return format!("{number:.0}");
    }
    let mut digits = 2;
    let mut edge = 10.0;
    while number < edge / 10.0 && digits < 6 {
        digits += 1;
        edge /= 10.0;
    }
    let text = if number >= 9.995 { format!("{number:.1}") } else { format!("{number:.digits$}") };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(rate: f64) -> PerSecond {
        PerMinute::new(rate).expect("a rate").per_second()
    }

    fn percent(percent: f64) -> Share {
        Share::percent(percent).expect("a share")
    }

    #[track_caller]
    fn is(found: f64, want: f64) {
        assert!((found - want).abs() < 1e-9, "{found} is not {want}");
    }

    /// The essays say 126, 1155 and 8085: they multiplied a rate per minute by seconds.
    #[test]
    fn zombies_of_rates_per_minute() {
        is(zombies(minute(70.0), percent(3.0), Duration::from_secs(60)), 2.1);
        is(zombies(minute(210.0), percent(11.0), Duration::from_secs(50)), 19.25);
        is(zombies(minute(210.0), percent(11.0), Duration::from_secs(50)) * 7.0, 134.75);
        is(zombies(PerSecond::new(200.0).expect("a rate"), percent(5.0), Duration::from_secs(40)), 400.0);
    }

    /// What the essays did, in one line: the number that they print comes out of the wrong unit.
    #[test]
    fn the_naive_way_is_sixty_times_too_much() {
        let naive = 70.0 * 0.03 * 60.0;
        is(naive / zombies(minute(70.0), percent(3.0), Duration::from_secs(60)), 60.0);
    }

    /// `12 % × 1200 a minute × 3`: 7.2 a second, not 72.
    #[test]
    fn repeated_requests_of_a_rate_per_minute() {
        is(minute(1200.0).times(0.12 * 3.0).expect("a rate").get(), 7.2);
        is(minute(1200.0).per_minute().get(), 1200.0);
    }

    /// `(1 + retries) × share` says 48 %; `retries × share` is right only where every try fails once one did.
    #[test]
    fn amplification_is_a_sum_of_powers() {
        for (p, tries) in [(12.0, 4), (0.0, 4), (50.0, 1), (50.0, 3), (99.0, 7), (100.0, 64), (30.0, 0)] {
            let sum: f64 = (0..tries).map(|i| (p / 100.0_f64).powi(i)).sum();
            is(amplification(percent(p), u64::from(tries.unsigned_abs())), sum);
        }
        assert!(amplification(percent(12.0), 4) - 1.0 < 0.137);
    }

    #[test]
    fn a_rate_has_a_unit() {
        assert_eq!(PerSecond::read("70/s"), PerSecond::new(70.0));
        assert_eq!(PerSecond::read("4200/min"), PerSecond::new(70.0));
        assert_eq!(PerSecond::read(" 1.5 / second"), PerSecond::new(1.5));
        for none in ["70", "70/h", "-1/s", "NaN/s", "inf/s", "/s", "fast/s", ""] {
            assert_eq!(PerSecond::read(none), None, "{none:?}");
        }
    }

    #[test]
    fn shown_with_three_digits() {
        let cases = [
            (2.1, "2.1"),
            (19.25, "19.2"),
            (0.012_34, "0.0123"),
            (1155.0, "1155"),
            (0.0, "0"),
            (9.999, "10"),
            (99.96, "100"),
        ];
        for (number, want) in cases {
            assert_eq!(short(number), want);
        }
    }
}
