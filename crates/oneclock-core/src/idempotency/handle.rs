//! The name of a record in a monitor's address: what a caller may ask about again, without the principal.
//!
//! Decides only the spelling. Whoever asks brings a principal of its own, so a handle that leaks shows nothing.

use std::fmt;

use super::{Key, Scope};
use crate::Name;

/// Method, route and key as one path segment: hexadecimal, so that every proxy leaves it alone.
///
/// ```
/// # use oneclock_core::idempotency::*;
/// # let scope = Scope { principal: "shop-7".into(), method: "POST".into(), route: "/charges".into(), key: Key::new("tap-7").unwrap() };
/// let segment = Handle::of(&scope).to_string();
/// assert_eq!(Handle::parse(&segment).unwrap().with_principal("shop-7"), scope);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    method: Name,
    route: Name,
    key: Key,
}

impl Handle {
    /// The handle of this scope.
    pub fn of(scope: &Scope) -> Self {
        Self { method: scope.method.clone(), route: scope.route.clone(), key: scope.key.clone() }
    }

    /// Reads a path segment. `None` if it is not one that this wrote.
    pub fn parse(segment: &str) -> Option<Self> {
        if !segment.len().is_multiple_of(2) {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let bytes: Option<Vec<u8>> = segment
            .as_bytes()
            .chunks_exact(2)
            .map(|pair| match pair {
                [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
                _ => None,
            })
            .collect();
        let text = String::from_utf8(bytes?).ok()?;
        let mut parts = text.splitn(3, '\n'); // the route last, since nobody promises what it is made of
        let (method, key, route) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { method: method.to_owned().into(), key: Key::new(key).ok()?, route: route.to_owned().into() })
    }

    /// The scope, for this principal.
    pub fn with_principal(self, principal: &str) -> Scope {
        Scope { principal: principal.into(), method: self.method, route: self.route, key: self.key }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [self.method.as_str(), "\n", self.key.as_str(), "\n", self.route.as_str()] {
            for byte in part.bytes() {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::properties;
    use super::*;

    #[test]
    fn m7_what_is_no_handle() {
        for text in ["", "5", "zz", "ff", "504f5354", "504f53540a0a2f61", "504f53540a610a2f61", "+5"] {
            properties::handle(text);
        }
        assert_eq!(Handle::parse("504f5354"), None, "no key");
        assert_eq!(Handle::parse("504f53540a0a2f61"), None, "an empty key");
        assert!(Handle::parse("504f53540a610a2f61").is_some());
    }
}
