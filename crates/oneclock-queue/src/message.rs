//! One message: its body, what it is, and what it says of its own end.
//!
//! Decides which header fields are whose. What describes the message (its id, what it is, who sent it) are attributes of
//! CloudEvents, which each transport spells with its own prefix; what it says of its end is `oneclock_core::expiry`'s. A live
//! deadline is never among them (contract Q6).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use oneclock::clock;
use oneclock_core::Name;
use oneclock_core::expiry::{Fault, Reader, Stamp, names};
use oneclock_core::wire::{Conventions, Wall, utc};

/// One message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Message {
    /// Its own, the same for every copy: a broker that drops duplicates knows them by it.
    pub id: Arc<str>,
    /// What is to be done, from a bounded set: it is a label.
    pub kind: Name,
    /// Who sent it.
    pub source: Name,
    /// For whom it is: an account or a tenant. Part of its key's scope.
    pub principal: Option<Arc<str>>,
    /// What it says of its own end.
    pub stamp: Stamp,
    /// What is wrong with how it says so.
    pub faults: Vec<Fault>,
    /// What its body is.
    pub content_type: Option<Arc<str>>,
    /// Other header fields, such as `traceparent`. Those of its end are not among them.
    pub fields: Vec<(Arc<str>, Arc<str>)>,
    /// What it carries.
    pub body: Bytes,
}

/// Reads the header fields of a message that was delivered. For bindings: one call for each field, whichever way the transport
/// spells it.
#[derive(Debug)]
pub struct Incoming {
    id: Option<Arc<str>>,
    kind: Option<Name>,
    source: Option<Name>,
    principal: Option<Arc<str>>,
    content_type: Option<Arc<str>>,
    fields: Vec<(Arc<str>, Arc<str>)>,
    reader: Reader,
    now: Wall,
}

/// A header field that no message may have. Nothing was published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadField {
    /// It carries a live deadline, which ends with whoever waits for it: durable work does not (contract Q6).
    #[error(
        "the field {field} carries a caller's live deadline, which means nothing to whoever reads the message later: leave it out, \
         and say when the work itself expires"
    )]
    LiveDeadline {
        /// Its name.
        field: Arc<str>,
    },
    /// It says something that only `Work` says.
    #[error("the field {field} is the message's own: say it with the methods of Work")]
    Ours {
        /// Its name.
        field: Arc<str>,
    },
    /// It has a control character, which could end a field and begin another.
    #[error("the field {field} has a control character, or no name")]
    Control {
        /// Its name.
        field: Arc<str>,
    },
}

const ID: &str = "id";
const KIND: &str = "type";
const SOURCE: &str = "source";
const TIME: &str = "time";
const SPEC: &str = "specversion";
const CONTENT_TYPE: &str = "datacontenttype";
const LONGEST_ATTRIBUTE: usize = CONTENT_TYPE.len();
const UNKNOWN: Name = Name::literal("unknown");

/// The most that is kept of other header fields, so that a stranger's message does not fill the memory.
const MOST_FIELDS: usize = 64;
const LONGEST_FIELD: usize = 8 * 1024;

// === Message ===

impl Message {
    /// A message of this kind, from this source, with a random id and nothing said of its end.
    pub fn new(kind: impl Into<Name>, source: impl Into<Name>, body: impl Into<Bytes>) -> Self {
        Self::with_id(random_id(), kind, source, body)
    }

    /// The same under this id.
    pub(crate) fn with_id(
        id: Arc<str>,
        kind: impl Into<Name>,
        source: impl Into<Name>,
        body: impl Into<Bytes>,
    ) -> Self {
        Self {
            id,
            kind: kind.into(),
            source: source.into(),
            principal: None,
            stamp: Stamp::default(),
            faults: Vec::new(),
            content_type: None,
            fields: Vec::new(),
            body: body.into(),
        }
    }

    /// All header fields, attributes of CloudEvents with their transport's `prefix` (`ce-`, `cloudEvents:`). For bindings.
    pub fn write(&self, prefix: &str, mut field: impl FnMut(&str, &str)) {
        let mut spelled = String::with_capacity(prefix.len() + LONGEST_ATTRIBUTE);
        spelled.push_str(prefix);
        let mut attribute = |name: &str, value: &str, field: &mut dyn FnMut(&str, &str)| {
            spelled.truncate(prefix.len());
            spelled.push_str(name);
            field(&spelled, value);
        };
        attribute(SPEC, "1.0", &mut field);
        attribute(ID, &self.id, &mut field);
        attribute(KIND, self.kind.as_str(), &mut field);
        attribute(SOURCE, self.source.as_str(), &mut field);
        if let Some(first) = self.stamp.first_enqueued {
            attribute(TIME, utc(first.as_nanos() / 1_000_000).as_str(), &mut field);
        }
        if let Some(content_type) = &self.content_type {
            attribute(CONTENT_TYPE, content_type, &mut field);
        }
        self.stamp.write(
            |name, value| {
                if name == names::EXPIRY { attribute(name, value, &mut field) } else { field(name, value) }
            },
        );
        if let Some(principal) = &self.principal {
            field(names::PRINCIPAL, principal);
        }
        for (name, value) in &self.fields {
            field(name, value);
        }
    }

    /// The value of one of its other header fields. Names are compared without their case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Whether its fields may be published.
    ///
    /// # Errors
    /// [`BadField`]: the first that may not.
    pub fn check_fields(&self) -> Result<(), BadField> {
        let conventions = Conventions::default_set();
        let reader = Reader::new(Wall::default());
        for (name, value) in &self.fields {
            let field = Arc::clone(name);
            let lower = name.to_ascii_lowercase();
            if conventions.find(&lower).is_some() {
                return Err(BadField::LiveDeadline { field });
            }
            if reader.knows(name) || names::attribute(name).len() != name.len() || lower.starts_with("deadline-") {
                return Err(BadField::Ours { field });
            }
            if name.is_empty() || name.contains(|c: char| !c.is_ascii_graphic() || c == ':') || has_control(value) {
                return Err(BadField::Control { field });
            }
        }
        let owner = self.stamp.owner.as_deref().unwrap_or_default();
        let (principal, content_type) = (self.principal.as_deref(), self.content_type.as_deref());
        let own = [
            ("id", &*self.id),
            ("kind", self.kind.as_str()),
            ("source", self.source.as_str()),
            ("owner", owner),
            ("principal", principal.unwrap_or_default()),
            ("content type", content_type.unwrap_or_default()),
        ];
        let bad = own.iter().find(|(_, value)| has_control(value));
        bad.map_or(Ok(()), |(name, _)| Err(BadField::Control { field: (*name).into() }))
    }
}

pub(crate) fn random_id() -> Arc<str> {
    let mut text = uuid::Uuid::encode_buffer();
    Arc::from(&*uuid::Uuid::now_v7().hyphenated().encode_lower(&mut text))
}

fn has_control(value: &str) -> bool {
    value.contains(|c: char| c.is_control())
}

// === Incoming ===

impl Incoming {
    /// For a message that is read now.
    pub fn new() -> Self {
        Self::at(clock::wall())
    }

    fn at(now: Wall) -> Self {
        let reader = Reader::new(now);
        Self {
            id: None,
            kind: None,
            source: None,
            principal: None,
            content_type: None,
            fields: Vec::new(),
            reader,
            now,
        }
    }

    /// Reads one header field.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        let text = || std::str::from_utf8(value).ok().filter(|text| text.len() <= LONGEST_FIELD);
        let named = || text().map(|text| Name::from(Arc::<str>::from(text)));
        let attribute = names::attribute(name);
        if attribute.len() != name.len() {
            let is = |known: &str| attribute.eq_ignore_ascii_case(known);
            if is(ID) {
                self.id = text().map(Arc::from).or(self.id.take());
                return;
            } else if is(KIND) {
                self.kind = named().or(self.kind.take());
                return;
            } else if is(SOURCE) {
                self.source = named().or(self.source.take());
                return;
            } else if is(CONTENT_TYPE) {
                self.content_type = text().map(Arc::from).or(self.content_type.take());
                return;
            } else if is(SPEC) || is(TIME) {
                return;
            }
        }
        if attribute.eq_ignore_ascii_case(names::PRINCIPAL) {
            self.principal = text().map(Arc::from);
        } else if !self.reader.field(name, value)
            && self.fields.len() < MOST_FIELDS
            && let Some(text) = text()
        {
            self.fields.push((name.into(), text.into()));
        }
    }

    /// Its expiry, where a transport has a property of its own for a moment.
    pub fn expires(&mut self, at: Wall) {
        self.reader.moment(at);
    }

    /// Its id, where a transport has a property of its own for it. One that is among the fields counts more.
    pub fn id(&mut self, id: &str) {
        self.id.get_or_insert_with(|| id.into());
    }

    /// What its body is, likewise.
    pub fn content_type(&mut self, content_type: &str) {
        self.content_type.get_or_insert_with(|| content_type.into());
    }

    /// The whole, with its body. `fallback_id` is what the broker knows it by, for one without an id of its own, and is not made
    /// otherwise; `ours` is by how much our clock may be wrong.
    pub fn finish(self, fallback_id: impl fmt::Display, body: Bytes, ours: std::time::Duration) -> Message {
        let reading = self.reader.finish().received(self.now, ours);
        Message {
            id: self.id.unwrap_or_else(|| fallback_id.to_string().into()),
            kind: self.kind.unwrap_or(UNKNOWN),
            source: self.source.unwrap_or(UNKNOWN),
            principal: self.principal,
            stamp: reading.stamp,
            faults: reading.faults,
            content_type: self.content_type,
            fields: self.fields,
            body,
        }
    }
}

impl Default for Incoming {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.kind, self.id, self.source)
    }
}
