//! Header fields of NATS, both ways.
//!
//! Decides which are the message's, which are the server's own (`Nats-…`: they steer what a publish does, so none is ever copied),
//! and which this binding keeps on a copy (how often it was tried, when it is due, where it goes then).

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use oneclock::clock;
use oneclock_core::expiry::{Stamp, names};
use oneclock_core::wire::{Wall, moment, utc};

use crate::broker::Lane;
use crate::message::{Incoming, Message};

/// How often a copy was tried before it was made.
const ATTEMPTS: &str = "deadline-attempts";
/// When a copy that waits is due, RFC 3339.
const NOT_BEFORE: &str = "deadline-not-before";
/// Where a copy that waits goes then.
const LANE: &str = "deadline-lane";
/// On a copy: an earlier delivery ended without a word, so it may have run.
pub(super) const MAY_HAVE_RUN: &str = "deadline-may-have-run";
const OURS: [&str; 4] = [ATTEMPTS, NOT_BEFORE, LANE, MAY_HAVE_RUN];

const PREFIX: &str = "ce-";
pub(super) const ID: &str = "ce-id";
pub(super) const CONTENT_TYPE: &str = "content-type";
/// By which the server drops a second copy.
pub(super) const NUMBER: &str = "Nats-Msg-Id";
const SERVERS: &str = "nats-";

/// What most messages have: names that are made once.
static WRITTEN: [HeaderName; 13] = [
    HeaderName::from_static("ce-specversion"),
    HeaderName::from_static(ID),
    HeaderName::from_static("ce-type"),
    HeaderName::from_static("ce-source"),
    HeaderName::from_static("ce-time"),
    HeaderName::from_static("ce-datacontenttype"),
    HeaderName::from_static("ce-expirytime"),
    HeaderName::from_static(names::POLICY),
    HeaderName::from_static(names::OWNER),
    HeaderName::from_static(names::FIRST_ENQUEUED),
    HeaderName::from_static(names::KEY),
    HeaderName::from_static(names::UNCERTAINTY),
    HeaderName::from_static(names::PRINCIPAL),
];

/// A field that NATS cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the field {name:?} cannot be a header field of NATS: a name has no spaces and no colon, a value has no line break"
)]
pub(super) struct NotAField {
    name: String,
}

/// What was read of a delivery's fields.
pub(super) struct ReadFields {
    pub(super) message: Message,
    /// How often it was tried before this copy was made.
    pub(super) before: u32,
    /// Whether it may have run before this copy was made.
    pub(super) may_have_run: bool,
}

/// What a copy that waits is waiting for.
pub(super) struct Waits {
    pub(super) left: Duration,
    pub(super) lane: Lane,
}

/// All fields of a message that is published.
pub(super) fn of_message(message: &Message) -> Result<HeaderMap, NotAField> {
    let mut headers = HeaderMap::new();
    let (mut wrong, mut said) = (None, [false; WRITTEN.len()]);
    message.write(PREFIX, |name, value| {
        let Ok(value) = HeaderValue::from_str(value) else {
            wrong.get_or_insert_with(|| NotAField { name: name.to_owned() });
            return;
        };
        let written = WRITTEN.iter().zip(&mut said).find(|(known, _)| AsRef::<str>::as_ref(*known) == name);
        // What a message says twice it says twice: its reader decides.
        if let Some((known, said)) = written {
            if std::mem::replace(said, true) {
                headers.append(known.clone(), value);
            } else {
                headers.insert(known.clone(), value);
            }
            return;
        }
        match HeaderName::from_str(name) {
            Ok(_) if is_servers(name) => {}
            Ok(name) => headers.append(name, value),
            Err(_) => {
                wrong.get_or_insert_with(|| NotAField { name: name.to_owned() });
            }
        }
    });
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    // A redrive is another message to the server: under the same id it would be dropped as a duplicate.
    let id = match message.stamp.redrives {
        0 => HeaderValue::from_str(&message.id),
        number => HeaderValue::from_str(&format!("{}:redrive:{number}", message.id)),
    };
    headers.insert(NATS_MESSAGE_ID, id.map_err(|_| NotAField { name: ID.to_owned() })?);
    Ok(headers)
}

/// What a delivery says.
pub(super) fn read(headers: &HeaderMap, fallback_id: impl Display, body: Bytes, ours: Duration) -> ReadFields {
    let mut incoming = Incoming::new();
    let (mut before, mut may_have_run) = (0, false);
    for (name, values) in headers.iter() {
        let name: &str = name.as_ref();
        for value in values.iter().map(HeaderValue::as_str) {
            if is_servers(name) {
                if name.eq_ignore_ascii_case("nats-msg-id") {
                    incoming.id(value);
                }
            } else if name.eq_ignore_ascii_case(CONTENT_TYPE) {
                incoming.content_type(value);
            } else if name == ATTEMPTS {
                before = value.parse().unwrap_or(0);
            } else if name == MAY_HAVE_RUN {
                may_have_run = true;
            } else if !OURS.contains(&name) {
                incoming.field(name, value.as_bytes());
            }
        }
    }
    ReadFields { message: incoming.finish(fallback_id, body, ours), before, may_have_run }
}

/// The fields of a copy: all that it came with, its id, and a number of its own by which the server knows it.
pub(super) fn copy(headers: &HeaderMap, id: &str, number: &str) -> HeaderMap {
    let mut copied = HeaderMap::new();
    for (name, values) in headers.iter() {
        let word: &str = name.as_ref();
        if !is_servers(word) && !OURS.contains(&word) {
            for value in values {
                copied.append(name.clone(), value.clone());
            }
        }
    }
    // One that had no id of its own keeps the one that it was known by.
    if !has_id(headers) {
        set(&mut copied, ID, id);
    }
    set(&mut copied, NUMBER, number);
    copied
}

/// Whether it has an id of its own.
pub(super) fn has_id(headers: &HeaderMap) -> bool {
    headers.iter().any(|(name, _)| AsRef::<str>::as_ref(name).eq_ignore_ascii_case(ID))
}

/// Sets a field, if it can be one.
pub(super) fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_str(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

/// Without the reasons of a dead letter, and with what is new of its stamp: everything else stays as it came.
pub(super) fn redriven(headers: &mut HeaderMap, stamp: &Stamp) {
    let is_old = |name: &str| {
        let name = names::attribute(name).to_ascii_lowercase();
        name == names::REDRIVES || name == names::OWNER || name.starts_with(names::DEAD)
    };
    let mut kept = HeaderMap::new();
    for (name, values) in headers.iter().filter(|(name, _)| !is_old((*name).as_ref())) {
        values.iter().for_each(|value| kept.append(name.clone(), value.clone()));
    }
    *headers = kept;
    stamp.write(|name, value| {
        if matches!(name, names::REDRIVES | names::OWNER) {
            set(headers, name, value);
        }
    });
}

/// Says how often a copy was tried before.
pub(super) fn tried(headers: &mut HeaderMap, attempts: u32) {
    if attempts > 0 {
        set(headers, ATTEMPTS, &attempts.to_string());
    }
}

/// Says that an earlier delivery may have run.
pub(super) fn may_have_run(headers: &mut HeaderMap) {
    set(headers, MAY_HAVE_RUN, "true");
}

/// Says when a copy is due, and where it goes then.
pub(super) fn waits(headers: &mut HeaderMap, after: Duration, lane: Lane) {
    let due = clock::wall() + after;
    set(headers, NOT_BEFORE, utc(due.as_nanos() / 1_000_000).as_str());
    set(headers, LANE, lane.as_str());
}

/// What a copy is waiting for. One that does not say is due.
pub(super) fn waiting(headers: &HeaderMap, now: Wall) -> Waits {
    let text = |name: &str| headers.get(name).map(HeaderValue::as_str);
    let due = text(NOT_BEFORE).and_then(|value| moment(value.as_bytes()).ok());
    let lane = text(LANE).and_then(|word| Lane::ALL.into_iter().find(|lane| lane.as_str() == word));
    Waits { left: due.map_or(Duration::ZERO, |due| due.since(now)), lane: lane.unwrap_or(Lane::Main) }
}

/// What a copy that waited knows of its deliveries, for the copy that goes to its lane.
pub(super) fn keep_deliveries(waited: &HeaderMap, headers: &mut HeaderMap) {
    for name in [ATTEMPTS, MAY_HAVE_RUN] {
        if let Some(value) = waited.get(name) {
            headers.insert(name, value.clone());
        }
    }
}

fn is_servers(name: &str) -> bool {
    name.get(..SERVERS.len()).is_some_and(|head| head.eq_ignore_ascii_case(SERVERS))
}
