//! How much a caller needs an answer: what is only nice to have is shed first (contract C7).
//!
//! Decides the two words, and that nobody can make more of what they were given.

use std::fmt;

/// Whether whoever waits needs the answer, or would do without.
///
/// It travels with the budget inside the trust boundary. A child is at most as important as its parent, and what outsiders
/// say of it can only lower it.
///
/// ```
/// # use oneclock_core::Importance;
/// assert_eq!(Importance::Required.at_most(Importance::Optional), Importance::Optional);
/// assert_eq!(Importance::from_word("optional"), Some(Importance::Optional));
/// assert!(Importance::Required < Importance::Optional, "what is required comes first");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Importance {
    /// The answer is needed.
    #[default]
    Required,
    /// Whoever waits can do without, and has something to say instead.
    Optional,
}

impl Importance {
    /// The word for the wire, logs and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
        }
    }

    /// The importance that this word says; `None` for any other.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "required" => Some(Self::Required),
            "optional" => Some(Self::Optional),
            _ => None,
        }
    }

    /// The lower of the two: a part is never more important than the whole.
    #[must_use]
    pub fn at_most(self, other: Self) -> Self {
        self.max(other)
    }
}

impl fmt::Display for Importance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
