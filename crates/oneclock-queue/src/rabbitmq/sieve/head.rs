//! The head of a message, looked at without recursion.

/// Of a message whose head cannot be read: what it was, as bytes, from its flags on.
pub(super) const UNREADABLE: &str = "deadline-unreadable-head";

/// The payload of a frame with a message's head: class, weight, length of the body, flags, properties.
pub(super) struct Head<'a>(pub(super) &'a [u8]);

/// Bytes that are read one after the other. `None`: there are too few, or they are not what belongs there.
struct Bytes<'a>(&'a [u8]);

/// So deep may lists and tables be nested. The client needs some kilobytes of stack for each.
const DEEPEST: usize = 16;
/// Before the flags.
const FIXED: usize = 12;
/// Which properties there are, in their order on the wire, from the highest bit of the flags on.
const PROPERTIES: [Property; 14] = {
    use Property::{Byte, Moment, Table, Text};
    [Text, Text, Table, Byte, Byte, Text, Text, Text, Text, Moment, Text, Text, Text, Text]
};
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PERSISTENT: u8 = 2;
/// The most bytes that are kept of what cannot be read: with what is around it, it fits into the least frame that brokers agree on by
/// default.
const KEPT: usize = 130_000;

enum Property {
    Text,
    Table,
    Byte,
    Moment,
}

impl Head<'_> {
    /// What is to be delivered instead, if the client could not read it.
    pub(super) fn replacement(&self) -> Option<Vec<u8>> {
        let (fixed, rest) = self.0.split_at_checked(FIXED)?; // it is no head, and the client says so
        if readable(rest).is_some() {
            return None;
        }
        let mut table = Vec::new();
        entry(&mut table, UNREADABLE, b'x', rest.get(..KEPT).unwrap_or(rest));
        entry(&mut table, "expirytime", b'S', b"unreadable");
        let mut instead = fixed.to_vec();
        instead.extend_from_slice(&(HEADERS | DELIVERY_MODE).to_be_bytes());
        long(&mut instead, &table);
        instead.push(PERSISTENT);
        Some(instead)
    }
}

fn long(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend_from_slice(bytes);
}

fn entry(to: &mut Vec<u8>, name: &'static str, kind: u8, value: &[u8]) {
    to.push(u8::try_from(name.len()).unwrap_or(0));
    to.extend_from_slice(name.as_bytes());
    to.push(kind);
    long(to, value);
}

/// Whether the client can read these flags and properties.
fn readable(bytes: &[u8]) -> Option<()> {
    let mut bytes = Bytes(bytes);
    let flags = u16::from_be_bytes(*bytes.take(2)?.first_chunk()?);
    for (place, property) in PROPERTIES.iter().enumerate() {
        if flags & (1 << (15 - place)) == 0 {
            continue;
        }
        match property {
            Property::Text => bytes.name()?,
            Property::Byte => drop(bytes.take(1)?),
            Property::Moment => drop(bytes.take(8)?),
            Property::Table => tables(bytes.long()?)?,
        }
    }
    Some(())
}

/// A table, with all that is nested in it.
fn tables(table: &[u8]) -> Option<()> {
    let mut open = vec![(Bytes(table), true)];
    while let Some((bytes, named)) = open.last_mut() {
        if bytes.0.is_empty() {
            open.pop();
            continue;
        }
        if *named {
            bytes.name()?;
        }
        let nested = match *bytes.take(1)?.first()? {
            b'V' => None,
            b't' | b'b' | b'B' => bytes.take(1).map(|_| None)?,
            b's' | b'U' | b'u' => bytes.take(2).map(|_| None)?,
            b'I' | b'i' | b'f' => bytes.take(4).map(|_| None)?,
            b'D' => bytes.take(5).map(|_| None)?,
            b'L' | b'l' | b'd' | b'T' => bytes.take(8).map(|_| None)?,
            b'S' | b'x' => bytes.long().map(|_| None)?,
            b'A' => Some((Bytes(bytes.long()?), false)),
            b'F' => Some((Bytes(bytes.long()?), true)),
            _ => return None,
        };
        if open.len() >= DEEPEST && nested.is_some() {
            return None;
        }
        open.extend(nested);
    }
    Some(())
}

impl<'a> Bytes<'a> {
    fn take(&mut self, many: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(many)?;
        self.0 = rest;
        Some(taken)
    }

    /// What has its length before it, in four bytes.
    fn long(&mut self) -> Option<&'a [u8]> {
        let size = u32::from_be_bytes(*self.take(4)?.first_chunk()?);
        self.take(usize::try_from(size).ok()?)
    }

    /// What has its length before it, in one byte, and is UTF-8.
    fn name(&mut self) -> Option<()> {
        let size = *self.take(1)?.first()?;
        std::str::from_utf8(self.take(usize::from(size))?).ok().map(drop)
    }
}
