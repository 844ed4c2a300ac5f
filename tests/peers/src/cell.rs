//! One cell of the table: what was measured, and whether that is right. The mark is computed by the row, for every proxy in
//! the same way.

use std::time::Duration;

/// Whether what was measured is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Right,
    Wrong,
    /// The proxy has no such notion.
    NoSuchNotion,
}

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) mark: Mark,
    /// In a few words.
    pub(crate) said: String,
}

// === Mark ===

impl Mark {
    pub(crate) const fn of(right: bool) -> Self {
        if right { Self::Right } else { Self::Wrong }
    }

    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Right => "✓",
            Self::Wrong => "✗",
            Self::NoSuchNotion => "–",
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong => "wrong",
            Self::NoSuchNotion => "no_such_notion",
        }
    }
}

// === Cell ===

impl Cell {
    pub(crate) fn judged(right: bool, said: impl Into<String>) -> Self {
        Self { mark: Mark::of(right), said: said.into() }
    }

    /// There is nothing to be right about; what was seen, if anything was.
    pub(crate) fn no_such_notion(said: impl Into<String>) -> Self {
        Self { mark: Mark::NoSuchNotion, said: said.into() }
    }

    /// What could not be measured is not right.
    pub(crate) fn failed(error: &str) -> Self {
        Self { mark: Mark::Wrong, said: format!("not measured: {error}") }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        match (self.mark, self.said.as_str()) {
            (mark, "") => mark.sign().to_owned(),
            (mark, said) => format!("{} {said}", mark.sign()),
        }
    }
}

/// Seconds, as the table shows them.
pub(crate) fn seconds(span: Duration) -> String {
    format!("{:.2} s", span.as_secs_f64())
}
