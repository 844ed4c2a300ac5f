//! The access log: where lines go, and which requests leave one.
//!
//! Decides the defaults: every request leaves a line, and of those that are refused beyond a smaller share a hundred a second
//! do.

use std::path::PathBuf;

use super::keys::ACCESS_LOG;
use super::node::{Node, Value};
use super::redact::shown;
use super::refused::known;
use super::shape::Fields;
use super::{Refused, values};

/// How many lines a second there are of requests that were refused, unless said otherwise.
const REFUSALS: u32 = 100;

/// Which requests leave a line, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessLog {
    /// Where lines go. Nowhere unless said otherwise.
    pub to: LogTo,
    /// The share of requests that leave a line. Those that a deadline ended, or that the upstream failed (502), leave one in any
    /// case. All unless said otherwise.
    pub sample: Share,
    /// How many lines a second there are of requests that were refused before they began, besides those of the share: a flood
    /// of refusals must not fill a disk. 100 unless said otherwise.
    pub refusals: u32,
}

/// Where lines go, each of them one JSON object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogTo {
    /// Nowhere: there are none.
    #[default]
    Nowhere,
    /// To standard output.
    Stdout,
    /// To the end of a file.
    File(PathBuf),
}

/// A share, from nothing to all, in millionths.
///
/// ```
/// # use oneclock_proxy::config::Share;
/// assert_eq!(Share::of_millionths(10_000).map(|share| share.to_string()).as_deref(), Some("0.01"));
/// assert_eq!(Share::of_millionths(1_000_001), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

/// Reads it, in its short form or in full.
pub(super) fn read(node: &Node) -> Result<AccessLog, Refused> {
    let Value::Map(_) = &node.value else {
        return Ok(AccessLog {
            to: values::parsed(node, |text| place(text, &["none", "stdout"]))?,
            ..AccessLog::default()
        });
    };
    let fields = Fields::of(node, &ACCESS_LOG)?;
    let to = values::parsed(fields.need("to")?, |text| place(text, &["stdout"]))?;
    let otherwise = AccessLog::default();
    let sample = fields.read("sample", share)?.unwrap_or(otherwise.sample);
    let refusals = fields.read("refusals", |node| values::count(node, 0, 1_000_000))?;
    let refusals = refusals.and_then(|most| u32::try_from(most).ok()).unwrap_or(otherwise.refusals);
    Ok(AccessLog { to, sample, refusals })
}

fn place(text: &str, words: &[&'static str]) -> Result<LogTo, String> {
    match text {
        "none" if words.contains(&"none") => Ok(LogTo::Nowhere),
        "stdout" => Ok(LogTo::Stdout),
        path if path.starts_with('/') => Ok(LogTo::File(path.into())),
        other => {
            let known = known(other, words);
            Err(format!(
                "`{}` is not known here{known}, or the path of a file, which begins with a slash",
                shown(other)
            ))
        }
    }
}

/// `0.01`: a digit, and up to six behind a point.
fn share(node: &Node) -> Result<Share, Refused> {
    values::parsed(node, |text| {
        let (whole, behind) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| (1..=6).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
        let millionths = || format!("{whole}{behind:0<6}").parse().ok();
        let read = (matches!(whole, "0" | "1") && digits(behind)).then(millionths).flatten();
        read.and_then(Share::of_millionths).ok_or_else(|| {
            format!(
                "`{}` is not a share: write a number from 0 to 1 with at most six decimals, such as 0.01",
                shown(text)
            )
        })
    })
}

// === AccessLog ===

impl Default for AccessLog {
    fn default() -> Self {
        Self { to: LogTo::default(), sample: Share::ALL, refusals: REFUSALS }
    }
}

// === LogTo ===

/// As it is written in a file.
impl std::fmt::Display for LogTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nowhere => f.write_str("none"),
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

// === Share ===

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// All.
    pub const ALL: Self = Self(1_000_000);

    /// So many of a million; `None` if that is more than all.
    pub fn of_millionths(millionths: u32) -> Option<Self> {
        Some(Self(millionths)).filter(|share| *share <= Self::ALL)
    }

    /// How many of a million.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// As a number from 0 to 1.
    pub(super) fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }
}

/// As it is written in a file.
impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_f64().fmt(f)
    }
}
