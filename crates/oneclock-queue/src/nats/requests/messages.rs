//! What is asked and what is answered, and how both stand in a message of NATS.

use std::str::FromStr;
use std::sync::Arc;

use async_nats::{HeaderMap, HeaderName, HeaderValue, Message};
use bytes::Bytes;
use oneclock::events::Fields;
use oneclock_core::ingress::Trust;
use oneclock_core::wire::{Conventions, Reader, Reading, names};
use oneclock_core::{Outcome, Reason, effect};

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Question {
    /// Other fields. Those that carry a deadline are written when it goes out.
    pub fields: Vec<(Arc<str>, Arc<str>)>,
    /// What it carries.
    pub body: Bytes,
}

/// What is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// Other fields.
    pub fields: Vec<(Arc<str>, Arc<str>)>,
    /// What it carries.
    pub body: Bytes,
}

/// An answer that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declined {
    /// A status of HTTP: 4xx for what would be declined the next time as well.
    pub status: u16,
    /// What is wrong, for whoever reads it there.
    pub said: String,
    /// Why, in the words of the contract, where it is one of those reasons. With its own status it is proof of what was done.
    pub reason: Option<Reason>,
}

const CODE: &str = "Nats-Service-Error-Code";
const SAID: &str = "Nats-Service-Error";
/// The longest text of an answer that is none, in bytes.
const LONGEST: usize = 512;

// === Question, Answer ===

impl Question {
    /// The same with another field.
    #[must_use]
    pub fn field(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Its fields, without any that speaks of a deadline: a copy of one that arrived would be too long by now (contract E7).
    pub(super) fn headers(&self) -> Result<HeaderMap, Arc<str>> {
        let is_live = |name: &str| names::ALL.iter().any(|live| live.eq_ignore_ascii_case(name));
        headers(self.fields.iter().filter(|(name, _)| !is_live(name)))
    }

    pub(super) fn of(message: &Message) -> Self {
        Self { fields: fields(message.headers.as_ref()), body: message.payload.clone() }
    }
}

impl Answer {
    /// The same with another field.
    #[must_use]
    pub fn field(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    pub(super) fn headers(&self) -> Result<HeaderMap, Arc<str>> {
        headers(self.fields.iter())
    }

    /// What a message answers: something, or that it declines.
    pub(super) fn of(message: Message) -> Result<Self, Declined> {
        let text = |name: &str| message.headers.as_ref().and_then(|headers| headers.get(name)).map(HeaderValue::as_str);
        match text(CODE) {
            None => Ok(Self { fields: fields(message.headers.as_ref()), body: message.payload }),
            Some(code) => Err(Declined {
                status: code.parse().unwrap_or(500),
                said: cut(text(SAID).unwrap_or_default()),
                reason: text(names::ONECLOCK_REASON).and_then(Reason::from_word),
            }),
        }
    }
}

impl<B: Into<Bytes>> From<B> for Question {
    fn from(body: B) -> Self {
        Self { fields: Vec::new(), body: body.into() }
    }
}

impl<B: Into<Bytes>> From<B> for Answer {
    fn from(body: B) -> Self {
        Self { fields: Vec::new(), body: body.into() }
    }
}

// === Declined ===

impl Declined {
    /// An answer that is none.
    pub fn new(status: u16, said: impl Into<String>) -> Self {
        Self { status, said: said.into(), reason: None }
    }

    /// For a reason of the contract, with its status.
    pub fn because(reason: Reason) -> Self {
        Self { status: reason.http_status(), said: reason.title().to_owned(), reason: Some(reason) }
    }

    /// What it proves. A reason counts only from somebody inside the trust boundary (contract R8).
    pub(super) fn outcome(&self, trust: Trust) -> Outcome {
        let reason = self.reason.filter(|_| trust == Trust::Inside);
        effect::outcome(effect::Seen::Answer { status: self.status, reason }, false)
    }

    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        set(&mut headers, CODE, &self.status.to_string());
        set(&mut headers, SAID, &cut(&self.said));
        if let Some(reason) = self.reason {
            set(&mut headers, names::ONECLOCK_REASON, reason.as_str());
        }
        headers
    }
}

// === Fields ===

/// Fields of NATS, for observers that set theirs.
pub(super) struct Carried<'h>(pub(super) &'h mut HeaderMap);

impl Fields for Carried<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(HeaderValue::as_str)
    }

    fn set(&mut self, name: &'static str, value: &str) {
        set(self.0, name, value);
    }

    fn remove(&mut self, name: &'static str) {
        let kept = self.0.iter().filter(|(one, _)| AsRef::<str>::as_ref(*one) != name);
        let mut rest = HeaderMap::new();
        for (name, values) in kept {
            for value in values {
                rest.append(name.clone(), value.clone());
            }
        }
        *self.0 = rest;
    }
}

/// What the fields of a request say of its time, and which attempt it is.
pub(super) fn said<'c>(headers: Option<&HeaderMap>, conventions: &'c Conventions, trust: Trust) -> (Reading<'c>, u32) {
    let (mut reader, mut attempt) = (Reader::new(oneclock::clock::wall), 1);
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        let name = AsRef::<str>::as_ref(name).to_ascii_lowercase();
        if let Some(convention) = conventions.find(&name) {
            if trust == Trust::Inside || !convention.only_from_trusted() {
                values.iter().for_each(|value| reader.field(convention, value.as_str().as_bytes()));
            }
        } else if trust == Trust::Inside && name == names::X_ENVOY_ATTEMPT_COUNT {
            let said = values.iter().filter_map(|value| value.as_str().parse().ok());
            attempt = said.fold(attempt, u32::max);
        }
    }
    (reader.finish(), attempt)
}

/// Sets a field, if it can be one.
pub(super) fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_str(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

/// Else the name of the field that NATS cannot carry.
fn headers<'f>(fields: impl Iterator<Item = &'f (Arc<str>, Arc<str>)>) -> Result<HeaderMap, Arc<str>> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        match (HeaderName::from_str(name), HeaderValue::from_str(value)) {
            (Ok(field), Ok(value)) => headers.append(field, value),
            _ => return Err(Arc::clone(name)),
        }
    }
    Ok(headers)
}

fn fields(headers: Option<&HeaderMap>) -> Vec<(Arc<str>, Arc<str>)> {
    let all = headers.into_iter().flat_map(HeaderMap::iter);
    let each = |(name, values): (&HeaderName, &Vec<HeaderValue>)| {
        let name: Arc<str> = AsRef::<str>::as_ref(name).into();
        values.iter().map(|value| (Arc::clone(&name), value.as_str().into())).collect::<Vec<_>>()
    };
    all.flat_map(each).collect()
}

/// One line, not too long.
fn cut(said: &str) -> String {
    said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect()
}
