//! A YAML document (or a JSON one, which is YAML too) as a tree in which everything knows its place, so that whatever is
//! found wrong later can be shown where it stands.
//!
//! Decides nothing about what a document means. A scalar is its text, whatever YAML would take it for: `on`, `1` and
//! `"1"` are what was written. Bounded: a document that is too deep, or whose aliases explode, is refused with its place.
//!
//! ```
//! let documents = oneclock_yaml::documents("route:\n  timeout: 15s\n", oneclock_yaml::DEEPEST)?;
//! let timeout = documents[0].at(&["route", "timeout"]).expect("it is there");
//! assert_eq!((timeout.text(), timeout.place.line, timeout.place.column), (Some("15s"), 2, 12));
//! # Ok::<(), oneclock_yaml::Error>(())
//! ```

#![forbid(unsafe_code)]

mod any;
mod error;

use std::fmt;

pub use error::{Error, Wrong};

/// Deeper than what people write, and far from what would exhaust the stack.
pub const DEEPEST: usize = 64;

/// As many as all nodes of a file: what they hold together is bounded, not how they are divided.
const MOST_DOCUMENTS: usize = 250_000;

/// Where something stands, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it was written, not where an alias repeats it: that is where it has to be changed.
    pub place: Place,
    /// What was written.
    pub value: Value,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `null` or `~`.
    Null,
    /// A text, a number, a boolean: as it was written.
    Scalar(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the document.
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where it stands.
    pub place: Place,
    /// The key.
    pub text: String,
}

/// The documents of a file; empty ones are left out.
///
/// # Errors
/// The first thing that is no YAML, is deeper than `deepest`, or grows beyond what a document may hold.
pub fn documents(text: &str, deepest: usize) -> Result<Vec<Node>, Error> {
    error::shallow(text, deepest)?;
    let options = serde_saphyr::options! {
        with_snippet: false, // the line and the column are enough, and a line may hold a password
        strict_booleans: true,
        reject_non_finite_typeless_float: false, // a text like any other
        // Fragments are repeated as often as somebody likes; what they come to is bounded by the number of nodes.
        // So are documents, each of which is a node at least: what a chart becomes has thousands.
        budget: serde_saphyr::budget! {
            max_depth: deepest,
            max_documents: MOST_DOCUMENTS,
            enforce_alias_anchor_ratio: false,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| Error::of(&error))
}

// === Place ===

impl Place {
    /// The beginning of a file.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

// === Node ===

impl Node {
    /// What it is, for an error.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value of a key, if this is a mapping that has it.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(known, _)| known.text == key).map(|(_, node)| node)
    }

    /// The value at the end of a path of keys.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.find(key))
    }

    /// The text of a single value.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a key's single value.
    #[must_use]
    pub fn text_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path).and_then(Self::text)
    }

    /// What a list holds; nothing for all else.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// What a mapping holds; nothing for all else.
    #[must_use]
    pub fn entries(&self) -> &[(Key, Self)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }
}
