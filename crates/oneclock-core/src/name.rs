//! Names of operations, calls, routes and branches, cheap to copy when they are literals.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

/// What an operation, a call, a route or a branch is called in ledgers, errors and metrics.
///
/// A literal costs nothing to clone; a name made at run time is shared. Names become metric labels, so they must come
/// from a bounded set: a matched route, never a raw path.
///
/// ```
/// # use oneclock_core::Name;
/// let literal = Name::from("inventory");
/// let made = Name::from(format!("replica-{}", 3));
/// assert_eq!(literal.as_str(), "inventory");
/// assert_eq!(made.to_string(), "replica-3");
/// ```
#[derive(Clone)]
pub struct Name(Repr);

#[derive(Clone)]
enum Repr {
    Literal(&'static str),
    Shared(Arc<str>),
}

/// Who called what, as an error says it. A part that calls what it is named after is one hop, not two.
///
/// ```
/// # use oneclock_core::{Name, name::Hop};
/// let (order, pricing) = (Name::from("order"), Name::from("pricing"));
/// assert_eq!(Hop(&order, Some(&pricing)).to_string(), "order → pricing");
/// assert_eq!(Hop(&pricing, Some(&pricing)).to_string(), "pricing");
/// assert_eq!(Hop(&order, None).to_string(), "order");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop<'a>(pub &'a Name, pub Option<&'a Name>);

impl Name {
    /// A name known when the program was compiled.
    pub const fn literal(name: &'static str) -> Self {
        Self(Repr::Literal(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Literal(name) => name,
            Repr::Shared(name) => name,
        }
    }
}

impl From<&'static str> for Name {
    fn from(name: &'static str) -> Self {
        Self::literal(name)
    }
}

impl From<String> for Name {
    fn from(name: String) -> Self {
        Self(Repr::Shared(name.into()))
    }
}

impl From<Arc<str>> for Name {
    fn from(name: Arc<str>) -> Self {
        Self(Repr::Shared(name))
    }
}

impl From<Cow<'static, str>> for Name {
    fn from(name: Cow<'static, str>) -> Self {
        match name {
            Cow::Borrowed(name) => Self::literal(name),
            Cow::Owned(name) => name.into(),
        }
    }
}

impl From<&Name> for Name {
    fn from(name: &Name) -> Self {
        name.clone()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state); // as `str` hashes, because of `Borrow<str>`
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Hop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1.filter(|call| *call != self.0) {
            Some(call) => write!(f, "{} → {call}", self.0),
            None => self.0.fmt(f),
        }
    }
}
