//! Refusing a configuration where it stands. The tree itself is that of `oneclock_yaml`.

use super::Refused;

pub(super) use oneclock_yaml::{Node, Place, Value};

/// Deeper than any configuration, and far from what would exhaust the stack.
const DEEPEST: usize = 32;

/// The documents of a file; empty ones are left out.
pub(super) fn documents(text: &str) -> Result<Vec<Node>, Refused> {
    oneclock_yaml::documents(text, DEEPEST).map_err(|error| Refused::of(&error))
}

/// Whatever has a place can be refused there.
pub(super) trait Refuse {
    fn refused(&self, why: impl Into<String>) -> Refused;
}

impl Refuse for Place {
    fn refused(&self, why: impl Into<String>) -> Refused {
        Refused { line: Some(self.line), column: Some(self.column), why: why.into() }
    }
}

impl Refuse for Node {
    fn refused(&self, why: impl Into<String>) -> Refused {
        self.place.refused(why)
    }
}
