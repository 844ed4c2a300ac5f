//! What something says, in 32 bytes, so that what says the same is known again.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of some parts, each with its length, so that no two lists of parts are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut sum = Sha256::new();
        for part in parts {
            let part = part.as_ref();
            sum.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            sum.update(part);
        }
        Self(sum.finalize().into())
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// In hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_parts_are_another_digest() {
        assert_eq!(Digest::of(["a", "bc"]), Digest::of(["a", "bc"]));
        assert_ne!(Digest::of(["a", "bc"]), Digest::of(["ab", "c"]));
        assert_ne!(Digest::of([""; 0]), Digest::of([""]));
        assert_eq!(Digest::of([""; 0]).to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
