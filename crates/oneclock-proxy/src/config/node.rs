//! A YAML document as a tree in which everything knows its place, so that whatever is found wrong later can be shown
//! where it stands.
//!
//! Decides nothing about a configuration. A scalar is its text, whatever YAML would take it for: `on`, `1` and `"1"`
//! are what was written.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use super::Refused;

/// Deeper than any configuration, and far from what would exhaust the stack.
const DEEPEST: usize = 32;

/// Where something stands, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: u64,
    pub(super) column: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) text: String,
}

/// The documents of a file; empty ones are left out.
pub(super) fn documents(text: &str) -> Result<Vec<Node>, Refused> {
    let options = serde_saphyr::options! {
        with_snippet: false, // the line and the column are enough, and a line may hold a password
        strict_booleans: true,
        reject_non_finite_typeless_float: false, // a text like any other
        budget: serde_saphyr::budget! { max_depth: DEEPEST },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| Refused::of(&error))
}

// === Place ===

impl Place {
    pub(super) fn refused(self, why: impl Into<String>) -> Refused {
        Refused { line: Some(self.line), column: Some(self.column), why: why.into() }
    }
}

/// Where it was written, not where an alias repeats it: that is where it has to be changed.
fn place<T>(spanned: &Spanned<T>) -> Place {
    let known = [spanned.defined, spanned.referenced].into_iter().find(|place| *place != Location::UNKNOWN);
    known.map_or(Place { line: 1, column: 1 }, |at| Place { line: at.line(), column: at.column() })
}

// === Node ===

impl Node {
    pub(super) fn refused(&self, why: impl Into<String>) -> Refused {
        self.place.refused(why)
    }

    /// What it is, for an error.
    pub(super) fn what(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value of a key, if this is a mapping that has it.
    pub(super) fn find(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(known, _)| known.text == key).map(|(_, node)| node)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { place: place(&spanned), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

/// Takes whatever comes.
struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<Value, E> {
        Ok(Value::Scalar(yes.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Scalar(number.to_string()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Scalar(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Scalar(number.to_string()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Scalar(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::Scalar(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let at = place(&key);
            map.push((Key { place: at, text: key.value }, entries.next_value()?));
        }
        Ok(Value::Map(map))
    }
}
