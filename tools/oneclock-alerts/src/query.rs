//! Selectors of Prometheus' language, made of the metrics that `oneclock_telemetry::names` declares.
//!
//! Decides the quoting. No name of a metric is spelled here or by those who use this; a test holds that every label that is
//! asked for is one that its metric has.

use std::collections::BTreeMap;
use std::fmt;

use oneclock_telemetry::names::{Kind, Metric};

use crate::policy::Label;

/// Which series of a metric.
#[derive(Clone, Debug)]
pub(crate) struct Series<'a> {
    metric: &'a Metric,
    part: &'static str,
    matching: Option<&'a BTreeMap<Label, String>>,
    raw: &'a str,
    matchers: Vec<(&'static str, &'static str, String)>,
}

/// All series of a metric; of a histogram, how many values it has seen.
pub(crate) fn series(metric: &Metric) -> Series<'_> {
    let part = if metric.kind == Kind::Histogram { "_count" } else { "" };
    Series { metric, part, matching: None, raw: "", matchers: Vec::new() }
}

/// The sum of what a histogram has seen.
pub(crate) fn sum_of(metric: &Metric) -> Series<'_> {
    Series { part: "_sum", ..series(metric) }
}

/// A histogram's buckets.
pub(crate) fn buckets(metric: &Metric) -> Series<'_> {
    Series { part: "_bucket", ..series(metric) }
}

impl<'a> Series<'a> {
    /// Only those that a policy is about.
    pub(crate) fn of(mut self, matching: &'a BTreeMap<Label, String>) -> Self {
        self.matching = Some(matching);
        self
    }

    /// Only those that these matchers choose, as they stand.
    pub(crate) fn chosen_by(mut self, raw: &'a str) -> Self {
        self.raw = raw;
        self
    }

    pub(crate) fn with(self, label: &'static str, value: &str) -> Self {
        self.matcher(label, "=", value)
    }

    pub(crate) fn without(self, label: &'static str, value: &str) -> Self {
        self.matcher(label, "!=", value)
    }

    pub(crate) fn with_any(self, label: &'static str, values: &[&str]) -> Self {
        match values {
            [value] => self.with(label, value),
            _ => self.matcher(label, "=~", &values.join("|")), // words of ours, without anything special in them
        }
    }

    fn matcher(mut self, label: &'static str, how: &'static str, value: &str) -> Self {
        self.matchers.push((label, how, quoted(value)));
        self
    }

    /// `rate(…[window])`.
    pub(crate) fn rate(&self, window: impl fmt::Display) -> String {
        format!("rate({self}[{window}])")
    }

    /// `increase(…[window])`.
    pub(crate) fn increase(&self, window: impl fmt::Display) -> String {
        format!("increase({self}[{window}])")
    }
}

impl fmt::Display for Series<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_policy = self.matching.into_iter().flat_map(matchers);
        let raw = Some(self.raw.to_owned()).filter(|raw| !raw.is_empty());
        let own = self.matchers.iter().map(|(label, how, value)| format!("{label}{how}{value}"));
        let all: Vec<_> = of_policy.chain(raw).chain(own).collect();
        write!(f, "{}{}", self.metric.name, self.part)?;
        if all.is_empty() { Ok(()) } else { write!(f, "{{{}}}", all.join(",")) }
    }
}

fn matchers(matching: &BTreeMap<Label, String>) -> impl Iterator<Item = String> {
    matching.iter().map(|(label, value)| format!("{label}={}", quoted(value)))
}

/// The selector of a policy alone: for what its own rules have recorded.
pub(crate) fn selector(matching: &BTreeMap<Label, String>) -> String {
    let all: Vec<_> = matchers(matching).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use oneclock_telemetry::names;

    use super::*;

    #[test]
    fn a_value_cannot_leave_its_quotes() {
        let series = series(&names::CALLS).with("layer", "a\"} or vector(1) #\\").to_string();
        assert_eq!(series, format!("{}{{layer=\"a\\\"}} or vector(1) #\\\\\"}}", names::CALLS.name));
    }
}
