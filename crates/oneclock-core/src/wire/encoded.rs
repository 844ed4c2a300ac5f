//! The text of one field on the stack: hand-written, because the formatting machinery costs more than the header.

use std::fmt;

/// The value of a field that says how much is left: ASCII, at most 40 bytes, no allocation.
///
/// ```
/// # use oneclock_core::wire::{Codec, Wall}; use std::time::Duration;
/// let value = Codec::Millis.encode(Duration::from_millis(250), Wall::default());
/// assert_eq!(value.as_ref().map(|value| value.as_str()), Some("250"));
/// ```
#[derive(Clone, Copy)]
pub struct Encoded {
    // Written from the end towards the beginning, as digits come out of a division. Invariant: ASCII from `start` on.
    bytes: [u8; Encoded::CAPACITY],
    start: u8,
}

impl Encoded {
    /// Two numbers of nineteen digits and a space fit; nothing longer is ever written.
    const CAPACITY: usize = 40;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], start: Self::CAPACITY as u8 }
    }

    /// The value as text.
    pub fn as_str(&self) -> &str {
        // Only ASCII was written, so this cannot fail; without `unsafe` it has to be asked.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The value as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(usize::from(self.start)..).unwrap_or_default()
    }

    #[must_use]
    pub(super) const fn before(mut self, byte: u8) -> Self {
        debug_assert!(self.start > 0 && byte.is_ascii());
        self.start = self.start.saturating_sub(1);
        self.bytes[self.start as usize] = byte;
        self
    }

    #[must_use]
    pub(super) const fn before_number(mut self, mut number: u64) -> Self {
        loop {
            self = self.before(b'0' + (number % 10) as u8);
            number /= 10;
            if number == 0 {
                return self;
            }
        }
    }

    /// The last `width` digits, with leading zeros.
    #[must_use]
    pub(super) const fn before_padded(mut self, mut number: u64, width: u8) -> Self {
        let mut written = 0;
        while written < width {
            self = self.before(b'0' + (number % 10) as u8);
            number /= 10;
            written += 1;
        }
        self
    }
}

impl AsRef<str> for Encoded {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Encoded {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Encoded {}

impl PartialEq<&str> for Encoded {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_the_standard_library_prints_them() {
        for number in [0, 1, 9, 10, 99, 100, 12_345_678, u64::MAX] {
            assert_eq!(Encoded::new().before_number(number).as_str(), number.to_string());
            let padded = Encoded::new().before_padded(number, 4);
            assert_eq!(padded.as_str(), format!("{:04}", number % 10_000));
        }
    }

    #[test]
    fn the_longest_value_fits() {
        let longest = Encoded::new().before_number(i64::MAX as u64).before(b' ').before_number(i64::MAX as u64);
        assert_eq!(longest, "9223372036854775807 9223372036854775807");
        assert_eq!(longest.before(b'x').as_bytes().len(), Encoded::CAPACITY);
    }
}
