//! Reading an `Idempotency-Key` field.
//!
//! Decides which bytes are a key and when two are the same one (contract M7, M8): a structured-field string and the bare
//! text mean the same. A UUID of version 7 also says when it was made, which is how a key that outlived its record is told
//! from a new one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::wire::Wall;

/// The field's name, in lower case.
pub const FIELD: &str = "idempotency-key";

/// The key of one logical operation, as its client made it: the same for every attempt, another for the next operation.
///
/// ```
/// # use oneclock_core::idempotency::Key;
/// let quoted = Key::parse(br#""8e03978e-40d5-43dd-bc93-6894a57f9324""#).unwrap();
/// let bare = Key::parse(b"8e03978e-40d5-43dd-bc93-6894a57f9324").unwrap();
/// assert_eq!(quoted, bare);
/// assert!(Key::parse(b"").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>); // Invariant: 1 to 255 characters from 0x20 to 0x7E.

/// Why a field is not a key. The request is answered with 400 (contract M7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAKey {
    /// Nothing in it, or nothing between its quotes.
    #[error("the key is empty")]
    Empty,
    /// More than [`Key::LONGEST`] characters.
    #[error("the key has more than {} characters", Key::LONGEST)]
    TooLong,
    /// A control character, or one outside ASCII.
    #[error("the key has a character that is not printable ASCII")]
    NotPrintable,
    /// Without quotes: a space, a comma, a semicolon or a quote, which belong inside of quotes.
    #[error("a key with spaces, commas, semicolons or quotes stands in quotes")]
    NeedsQuotes,
    /// With quotes: none at the end, a backslash before something else than a quote or a backslash, or more after it.
    #[error("the quoted key does not end where it should")]
    BadQuotes,
    /// The field came more than once.
    #[error("there is more than one key")]
    MoreThanOne,
}

// === Key ===

impl Key {
    /// The most characters of a key, after its quotes are gone.
    pub const LONGEST: usize = 255;

    /// Reads a field's value: a structured-field string (RFC 9651) or the bare text. Both are the same key.
    ///
    /// # Errors
    /// [`NotAKey`].
    pub fn parse(field: &[u8]) -> Result<Self, NotAKey> {
        let field = field.trim_ascii();
        match field {
            [] => Err(NotAKey::Empty),
            [b'"', quoted @ ..] => Self::quoted(quoted),
            bare if bare.iter().any(|byte| b" \t,;\"".contains(byte)) => Err(NotAKey::NeedsQuotes),
            bare => Self::of_bytes(bare),
        }
    }

    /// Reads all values of the field in a request: `None` if there is none.
    ///
    /// # Errors
    /// [`NotAKey`], also for more than one value.
    pub fn parse_all<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Self>, NotAKey> {
        let mut fields = fields.into_iter();
        match (fields.next(), fields.next()) {
            (None, _) => Ok(None),
            (Some(only), None) => Self::parse(only).map(Some),
            (Some(_), Some(_)) => Err(NotAKey::MoreThanOne),
        }
    }

    /// A key of this text, as it is.
    ///
    /// # Errors
    /// [`NotAKey`].
    pub fn new(text: &str) -> Result<Self, NotAKey> {
        Self::of_bytes(text.as_bytes())
    }

    /// The text, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The field's value: quoted, as the specification has it.
    ///
    /// ```
    /// # use oneclock_core::idempotency::Key;
    /// let key = Key::new(r#"tap "7""#).unwrap();
    /// assert_eq!(key.to_field(), r#""tap \"7\"""#);
    /// assert_eq!(Key::parse(key.to_field().as_bytes()), Ok(key));
    /// ```
    pub fn to_field(&self) -> String {
        let mut field = String::with_capacity(self.0.len() + 2);
        field.push('"');
        for c in self.0.chars() {
            if matches!(c, '"' | '\\') {
                field.push('\\');
            }
            field.push(c);
        }
        field.push('"');
        field
    }

    /// When it was made, if it is a UUID of version 7, alone or with a `/` and more after it.
    ///
    /// ```
    /// # use oneclock_core::idempotency::Key;
    /// let key = Key::new("017f22e2-79b0-7cc3-98c4-dc0c0c07398f/charge").unwrap();
    /// assert_eq!(key.made().unwrap().as_nanos(), 1_645_557_742_000 * 1_000_000);
    /// assert_eq!(Key::new("8e03978e-40d5-43dd-bc93-6894a57f9324").unwrap().made(), None); // version 4
    /// ```
    pub fn made(&self) -> Option<Wall> {
        let text = self.0.as_bytes();
        let (uuid, rest) = text.split_at_checked(36)?;
        if !(rest.is_empty() || rest.starts_with(b"/")) {
            return None;
        }
        let mut millis: u64 = 0;
        for (i, byte) in uuid.iter().enumerate() {
            match (i, byte) {
                (8 | 13 | 18 | 23, b'-') | (14, b'7') | (19, b'8' | b'9' | b'a' | b'b' | b'A' | b'B') => {}
                (8 | 13 | 18 | 23 | 14 | 19, _) => return None,
                (0..13, _) => millis = millis << 4 | u64::from(hex(*byte)?),
                _ => {
                    hex(*byte)?;
                }
            }
        }
        Some(Wall::from_nanos(0) + Duration::from_millis(millis))
    }

    fn quoted(rest: &[u8]) -> Result<Self, NotAKey> {
        let mut text = Vec::with_capacity(rest.len());
        let mut bytes = rest.iter().copied();
        loop {
            match bytes.next() {
                None => return Err(NotAKey::BadQuotes),
                Some(b'"') => break,
                Some(b'\\') => match bytes.next() {
                    Some(escaped @ (b'"' | b'\\')) => text.push(escaped),
                    _ => return Err(NotAKey::BadQuotes),
                },
                Some(byte) => text.push(byte),
            }
        }
        // Parameters have no meaning here, and ignoring them would make one key of two.
        if bytes.next().is_some() { Err(NotAKey::BadQuotes) } else { Self::of_bytes(&text) }
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self, NotAKey> {
        if bytes.is_empty() {
            return Err(NotAKey::Empty);
        }
        if bytes.len() > Self::LONGEST {
            return Err(NotAKey::TooLong);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) if bytes.iter().all(|byte| matches!(byte, 0x20..=0x7E)) => Ok(Self(text.into())),
            _ => Err(NotAKey::NotPrintable),
        }
    }
}

const fn hex(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// So that what a key is handed to takes this one, and what is made of one.
impl AsRef<Key> for Key {
    fn as_ref(&self) -> &Key {
        self
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn m8_any_bytes_are_read_as_the_grammar_says(field in prop::collection::vec(any::<u8>(), 0..300)) {
            super::super::properties::key(&field);
        }

        #[test]
        fn m8_what_is_nearly_a_key_is_read_as_the_grammar_says(field in r#"[ ]?["]?[a-c\\" ,;\t\x7f-\x{e9}]{0,8}["]?[ ]?"#) {
            super::super::properties::key(field.as_bytes());
        }

        #[test]
        fn m7_any_segment_is_a_handle_or_none(segment in "[0-9a-fA-F+]{0,40}") {
            super::super::properties::handle(&segment);
        }
    }

    #[track_caller]
    fn reads(field: &str, want: Result<&str, NotAKey>) {
        super::super::properties::key(field.as_bytes());
        assert_eq!(Key::parse(field.as_bytes()).as_ref().map(Key::as_str), want.as_ref().copied(), "{field:?}");
    }

    #[test]
    fn m8_quoted_and_bare_are_the_same_key() {
        for field in ["abc", "\"abc\"", " abc ", "  \"abc\""] {
            reads(field, Ok("abc"));
        }
        reads(r#""a \"b\" \\c""#, Ok(r#"a "b" \c"#));
        reads(r"a\b", Ok(r"a\b"));
    }

    #[test]
    fn m7_what_is_no_key() {
        for empty in ["", " ", "\"\""] {
            reads(empty, Err(NotAKey::Empty));
        }
        for open in ["\"", "\"abc", r#""abc\""#, r#""a\bc""#, "\"abc\"x", "\"abc\";p=1", "\"a\", \"b\""] {
            reads(open, Err(NotAKey::BadQuotes));
        }
        for bare in ["a b", "a,b", "a;b", "a\"b", "a\tb"] {
            reads(bare, Err(NotAKey::NeedsQuotes));
        }
        for odd in ["a\u{7f}", "schlüssel", "\"a\tb\"", "a\0"] {
            reads(odd, Err(NotAKey::NotPrintable));
        }
        let longest = "k".repeat(255);
        reads(&longest, Ok(&longest));
        reads(&format!("\"{longest}\""), Ok(&longest));
        reads(&"k".repeat(256), Err(NotAKey::TooLong));
    }

    #[test]
    fn m7_one_field_only() {
        assert_eq!(Key::parse_all([]), Ok(None));
        assert_eq!(Key::parse_all([&b"a"[..], b"a"]), Err(NotAKey::MoreThanOne));
    }

    #[test]
    fn m7_only_a_uuid_of_version_7_says_when_it_was_made() {
        let made = |text: &str| Key::new(text).expect("a key").made().map(Wall::as_nanos);
        assert_eq!(made("017F22E2-79B0-7CC3-98C4-DC0C0C07398F"), Some(1_645_557_742_000_000_000));
        for not in [
            "017f22e2-79b0-7cc3-18c4-dc0c0c07398f", // another variant
            "017f22e2-79b0-6cc3-98c4-dc0c0c07398f",
            "017f22e279b0-7cc3-98c4-dc0c0c07398f-",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398",
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398fx",
            "g17f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        ] {
            assert_eq!(made(not), None, "{not}");
        }
        assert_eq!(made("ffffffff-ffff-7fff-bfff-ffffffffffff"), Some(u64::MAX), "saturates");
    }
}
