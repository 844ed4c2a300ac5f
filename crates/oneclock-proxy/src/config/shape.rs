//! What a mapping may hold: its keys, what they are, what they mean. One description, from which the file is read, the
//! JSON Schema made and the reference checked, so that none of them knows a key that the others do not.

use super::Refused;
use super::node::{Node, Refuse, Value};
use super::redact::shown;
use super::refused::known;

/// A mapping with a fixed set of keys.
pub(super) struct Shape {
    /// What it is, with its article.
    pub(super) what: &'static str,
    pub(super) keys: &'static [Key],
    /// Keys that others know here and that cannot be kept, each with what to do about it.
    pub(super) unsupported: &'static [(&'static str, &'static str)],
}

/// One key.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) is: Is,
    pub(super) otherwise: Otherwise,
    pub(super) says: &'static str,
}

/// What a key's value is where its line is missing.
pub(super) enum Otherwise {
    /// There is none: the line has to be there.
    Required,
    /// This, as it would be written or in words.
    Is(&'static str),
}

/// What a value is.
pub(super) enum Is {
    /// Anything: it is not looked at.
    Anything,
    /// A text, with what it looks like.
    Text(&'static str),
    /// A duration of GEP-2257.
    Duration,
    /// A whole number between these.
    Count(u64, u64),
    /// A number from 0 to 1.
    Share,
    /// Yes or no.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A mapping.
    Map(&'static Shape),
    /// A mapping from names that the file chooses.
    ByName(&'static Shape),
    /// A list.
    List(&'static Self),
    /// One of these.
    Either(&'static [Self]),
}

/// A mapping of the file, all of whose keys are known.
pub(super) struct Fields<'n> {
    pub(super) node: &'n Node,
    shape: &'static Shape,
}

// === Shape ===

impl Shape {
    fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }

    fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Key {
    pub(super) const fn required(name: &'static str, is: Is, says: &'static str) -> Self {
        Self { name, is, otherwise: Otherwise::Required, says }
    }

    pub(super) const fn optional(name: &'static str, is: Is, default: &'static str, says: &'static str) -> Self {
        Self { name, is, otherwise: Otherwise::Is(default), says }
    }
}

// === Fields ===

impl<'n> Fields<'n> {
    /// Looks at a mapping: whether it is one, knows no key that the shape does not, has those that it must have, and
    /// has a value for each.
    pub(super) fn of(node: &'n Node, shape: &'static Shape) -> Result<Self, Refused> {
        let Value::Map(entries) = &node.value else {
            let keys = shape.names().join(", ");
            return Err(node.refused(format!(
                "{} is expected here, with keys of {keys}; this is {}",
                shape.what,
                node.what()
            )));
        };
        for (key, value) in entries {
            let text = &*key.text;
            if let Some((_, instead)) = shape.unsupported.iter().find(|(name, _)| *name == text) {
                return Err(key.place.refused(format!("`{text}` is not supported, and is not ignored: {instead}")));
            }
            let Some(known_key) = shape.key(text) else {
                let known = known(text, &shape.names());
                return Err(key.place.refused(format!("there is no key `{}` here{known}", shown(text))));
            };
            if matches!(value.value, Value::Null) && !matches!(known_key.is, Is::Anything) {
                return Err(key.place.refused(format!("`{text}` has no value: write one, or delete the line")));
            }
        }
        let fields = Self { node, shape };
        for key in shape.keys.iter().filter(|key| matches!(key.otherwise, Otherwise::Required)) {
            fields.need(key.name)?;
        }
        Ok(fields)
    }

    /// The value of a key, if it is there.
    pub(super) fn get(&self, name: &'static str) -> Option<&'n Node> {
        debug_assert!(self.shape.key(name).is_some(), "{name} is no key of {}", self.shape.what);
        self.node.find(name)
    }

    /// The value of a key that has to be there.
    pub(super) fn need(&self, name: &'static str) -> Result<&'n Node, Refused> {
        self.get(name).ok_or_else(|| {
            let says = self.shape.key(name).map_or("", |key| key.says);
            self.node.refused(format!("`{name}` is missing in {}: {says}", self.shape.what))
        })
    }

    /// The value of a key, read, if it is there.
    pub(super) fn read<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&'n Node) -> Result<T, Refused>,
    ) -> Result<Option<T>, Refused> {
        self.get(name).map(read).transpose()
    }
}
