//! Header fields: what AMQP carries, and what is read from it.
//!
//! Decides how typed values become the text that the rules read: never by guessing, since a number where a moment belongs stays one,
//! and is unreadable.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use oneclock_core::expiry::names;
use oneclock_core::wire::{Wall, utc};

use super::Trouble;
use crate::{Incoming, Message};

/// How AMQP spells attributes of CloudEvents.
pub(super) const PREFIX: &str = "cloudEvents:";

/// How many deliveries before this copy counted.
pub(super) const ATTEMPT: &str = "deadline-attempt";
/// On a copy: an earlier delivery ended without a word, so it may have run.
pub(super) const MAY_HAVE_RUN: &str = "deadline-may-have-run";

/// How many times a quorum queue delivered this copy before.
pub(super) const DELIVERY_COUNT: &str = "x-delivery-count";
pub(super) const PERSISTENT: u8 = 2;
const DATA_CONTENT_TYPE: &str = "cloudEvents:datacontenttype";

// === From a message ===

/// The properties of a message of ours. Whatever has a property of its own is not written twice.
pub(super) fn of(message: &Message, now: Wall) -> Result<BasicProperties, Trouble> {
    let mut table = FieldTable::default();
    let mut too_long = None;
    message.write(PREFIX, |name, value| {
        if name == DATA_CONTENT_TYPE {
            return;
        }
        match ShortString::try_new(name) {
            Ok(name) => drop(table.insert(name, AMQPValue::LongString(value.into()))),
            Err(_) => too_long = Some("a header field's name"),
        }
    });
    if let Some(what) = too_long {
        return Err(Trouble::TooLong(what));
    }
    let short = |what, text: &str| ShortString::try_new(text).map_err(|_| Trouble::TooLong(what));
    let sent = message.stamp.first_enqueued.unwrap_or(now);
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(short("the id", &message.id)?)
        .with_timestamp(sent.as_nanos() / 1_000_000_000)
        .with_headers(table);
    if let Some(content_type) = &message.content_type {
        properties = properties.with_content_type(short("the content type", content_type)?);
    }
    Ok(properties)
}

// === Into a message ===

/// Reads everything that a delivery says.
pub(super) fn read(properties: &BasicProperties, incoming: &mut Incoming) {
    if let Some(id) = properties.message_id() {
        incoming.id(id.as_str());
    }
    if let Some(content_type) = properties.content_type() {
        incoming.content_type(content_type.as_str());
    }
    for (name, value) in properties.headers().iter().flatten() {
        let name = name.as_str();
        if name != ATTEMPT && name != MAY_HAVE_RUN {
            field(name, value, incoming);
        }
    }
}

fn field(name: &str, value: &AMQPValue, incoming: &mut Incoming) {
    let mut text = |text: &str| incoming.field(name, text.as_bytes());
    match value {
        AMQPValue::LongString(value) => incoming.field(name, value.as_bytes()),
        AMQPValue::ByteArray(value) => incoming.field(name, value.as_slice()),
        AMQPValue::ShortString(value) => text(value.as_str()),
        AMQPValue::Boolean(value) => text(if *value { "true" } else { "false" }),
        AMQPValue::ShortShortInt(value) => text(&value.to_string()),
        AMQPValue::ShortShortUInt(value) => text(&value.to_string()),
        AMQPValue::ShortInt(value) => text(&value.to_string()),
        AMQPValue::ShortUInt(value) => text(&value.to_string()),
        AMQPValue::LongInt(value) => text(&value.to_string()),
        AMQPValue::LongUInt(value) => text(&value.to_string()),
        AMQPValue::LongLongInt(value) => text(&value.to_string()),
        AMQPValue::Float(value) => text(&value.to_string()),
        AMQPValue::Double(value) => text(&value.to_string()),
        AMQPValue::DecimalValue(value) => text(&format!("{}e-{}", value.value, value.scale)),
        AMQPValue::Timestamp(seconds) => {
            let at = Wall::from_nanos(seconds.saturating_mul(1_000_000_000));
            if ends(name) { incoming.expires(at) } else { text(utc(at.as_nanos() / 1_000_000).as_str()) }
        }
        AMQPValue::Void => text("null"),
        // No rule reads one. Where a moment belongs it must not look like nothing, either.
        AMQPValue::FieldArray(_) if ends(name) => text("a list"),
        AMQPValue::FieldTable(_) if ends(name) => text("a table"),
        AMQPValue::FieldArray(_) | AMQPValue::FieldTable(_) => {}
    }
}

/// Whether a field of this name says when its message expires.
fn ends(name: &str) -> bool {
    let name = names::attribute(name);
    [names::EXPIRY, "expires", "JMSExpiration", "absolute-expiry-time"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

// === How often ===

/// How many deliveries counted before this copy was made.
pub(super) fn counted(properties: &BasicProperties) -> u32 {
    value(properties, ATTEMPT).and_then(number).unwrap_or(0)
}

/// How many times this copy was delivered before: exactly by a quorum queue, else whether it was.
pub(super) fn redelivered(properties: &BasicProperties, flag: bool) -> u32 {
    value(properties, DELIVERY_COUNT).and_then(number).unwrap_or(0).max(u32::from(flag))
}

/// Whether an earlier copy was delivered and nothing was heard of it.
pub(super) fn may_have_run(properties: &BasicProperties) -> bool {
    value(properties, MAY_HAVE_RUN).is_some()
}

fn value<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a AMQPValue> {
    properties.headers().as_ref().and_then(|table| table.inner().get(name))
}

fn number(value: &AMQPValue) -> Option<u32> {
    match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok()?.parse().ok(),
        AMQPValue::LongLongInt(number) => u32::try_from(*number).ok(),
        AMQPValue::LongInt(number) => u32::try_from(*number).ok(),
        AMQPValue::LongUInt(number) => Some(*number),
        AMQPValue::ShortUInt(number) => Some(u32::from(*number)),
        AMQPValue::ShortInt(number) => u32::try_from(*number).ok(),
        AMQPValue::ShortShortUInt(number) => Some(u32::from(*number)),
        AMQPValue::ShortShortInt(number) => u32::try_from(*number).ok(),
        _ => None,
    }
}
