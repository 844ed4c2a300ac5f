//! A file that is read: its text, and places in it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// A file of the repository, as text.
#[derive(Clone, Debug)]
pub struct Source {
    /// As it is shown: relative to where the audit began, with `/`.
    pub path: Arc<str>,
    /// All of it.
    pub text: Arc<str>,
}

/// Where something stands, counted from one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The file's path.
    pub file: Arc<str>,
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
    /// How many characters of the line are meant; at least one.
    pub width: u32,
}

// === Source ===

impl Source {
    /// A file and its text.
    #[must_use]
    pub fn new(path: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The last part of the path.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// What stands behind the last dot of the name, in lower case; empty where there is none.
    #[must_use]
    pub(crate) fn extension(&self) -> String {
        self.name().rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).unwrap_or_default()
    }

    /// A place in it. `width` counts characters.
    #[must_use]
    pub(crate) fn place(&self, line: usize, column: usize, width: usize) -> Place {
        let small = |number: usize| u32::try_from(number.max(1)).unwrap_or(u32::MAX);
        Place { file: Arc::clone(&self.path), line: small(line), column: small(column), width: small(width) }
    }

    /// The place of a node of YAML.
    #[must_use]
    pub fn of(&self, node: &oneclock_yaml::Node) -> Place {
        let width = node.text().map_or(1, |text| text.lines().next().unwrap_or_default().chars().count());
        self.at(node.place, width)
    }

    /// The place of a key of YAML.
    #[must_use]
    pub(crate) fn of_key(&self, key: &oneclock_yaml::Key) -> Place {
        self.at(key.place, key.text.chars().count())
    }

    /// A place of YAML.
    pub(crate) fn at(&self, place: oneclock_yaml::Place, width: usize) -> Place {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        self.place(number(place.line), number(place.column), width)
    }
}

/// The folder of a path; empty for the root.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

// === Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
