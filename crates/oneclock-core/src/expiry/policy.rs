//! What a contract says of work that has expired.

use std::fmt;

/// What becomes of work that has expired (contract Q5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// It is of no use to anybody: counted, and gone. A price that was quoted, a "your driver is here".
    Discard,
    /// Somebody looks at it. What is said of no policy, too.
    #[default]
    DeadLetter,
    /// It is done all the same, late, after what is not late. It has an owner, who is told. A payment that was taken.
    MustComplete,
}

impl Policy {
    /// Every policy, for tables and tests.
    pub const ALL: [Self; 3] = [Self::Discard, Self::DeadLetter, Self::MustComplete];

    /// The word on the wire and for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::DeadLetter => "dead-letter",
            Self::MustComplete => "must-complete",
        }
    }

    /// Reads the word.
    ///
    /// ```
    /// use oneclock_core::expiry::Policy;
    /// assert_eq!(Policy::parse("must-complete"), Some(Policy::MustComplete));
    /// assert_eq!(Policy::parse("discrad"), None); // read as dead-letter: nothing is lost by a slip of the pen
    /// ```
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == word)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
