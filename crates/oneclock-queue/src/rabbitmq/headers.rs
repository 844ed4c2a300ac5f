//! Header fields: what AMQP carries, what is read from it, and what a copy keeps.
//!
//! Decides how typed values become the text that the rules read (never by guessing: a number where a moment belongs stays one,
//! and is unreadable), and which few fields a copy may not carry as they are, because the broker acts on them.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};
use oneclock_core::expiry::{Stamp, names};
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
const DELIVERY_COUNT: &str = "x-delivery-count";
/// What the broker writes into a delivery and reads from nobody: on a copy it would be said of another delivery.
const OF_THE_DELIVERY: [&str; 4] = [DELIVERY_COUNT, "x-acquired-count", ATTEMPT, MAY_HAVE_RUN];
/// Where the broker keeps the way that a message has come.
const DEATHS: &str = "x-death";
/// By these the broker routes to other queues as well, so that a copy would come there a second time.
const ROUTES: [(&str, &str); 2] = [("CC", "deadline-was-cc"), ("BCC", "deadline-was-bcc")];
/// Properties that bind a message to whoever sent it, or to when.
const WAS_USER: &str = "deadline-was-user-id";
const WAS_EXPIRATION: &str = "deadline-was-expiration";

const PERSISTENT: u8 = 2;
const DATA_CONTENT_TYPE: &str = "cloudEvents:datacontenttype";

/// What frames of a message's head take beside its properties, in bytes, rounded up.
const AROUND: usize = 32;

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

// === A copy ===

/// The properties of a copy, and what is added to it.
pub(super) struct Copy {
    properties: BasicProperties,
    table: BTreeMap<ShortString, AMQPValue>,
}

impl Copy {
    /// A copy that will be, perhaps after a while, in the queue `to`: every field as it came, but for those on which the broker
    /// acts.
    pub(super) fn of(original: &BasicProperties, to: &ShortString) -> Self {
        let mut table = original.headers().as_ref().map(|table| table.inner().clone()).unwrap_or_default();
        for name in OF_THE_DELIVERY {
            table.remove(name);
        }
        for (name, renamed) in ROUTES {
            if let Some(value) = table.remove(name) {
                table.insert(renamed.into(), value);
            }
        }
        if let Some(AMQPValue::FieldArray(deaths)) = table.get_mut(DEATHS) {
            // What has left a queue by itself and comes to it from the waiting one is a circle to RabbitMQ, which drops it.
            let kept: Vec<_> = deaths.as_slice().iter().filter(|death| !is_of(death, to)).cloned().collect();
            *deaths = FieldArray::from(kept);
        }
        let word = |word: &ShortString| AMQPValue::LongString(word.as_str().into());
        if let Some(user) = original.user_id() {
            table.insert(WAS_USER.into(), word(user)); // the broker takes a message only from whom it names
        }
        if let Some(expiration) = original.expiration() {
            table.entry(WAS_EXPIRATION.into()).or_insert_with(|| word(expiration)); // relative: it would begin again
        }
        Self { properties: without(original), table }
    }

    /// With this field.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    /// Put back under this stamp: without what is said of a dead letter, and as if it had never been delivered.
    pub(super) fn redriven(mut self, stamp: &Stamp) -> Self {
        let said_anew = |name: &str| {
            let name = names::attribute(name);
            [names::REDRIVES, names::OWNER].iter().any(|new| new.eq_ignore_ascii_case(name))
        };
        self.table.retain(|name, _| {
            let name = name.as_str();
            name != MAY_HAVE_RUN && !name.starts_with(names::DEAD) && !said_anew(name)
        });
        stamp.write(|name, value| {
            if said_anew(name) {
                self.set(name, value);
            }
        });
        self
    }

    /// Sets this field.
    pub(super) fn set(&mut self, name: &'static str, value: &str) {
        self.table.insert(name.into(), AMQPValue::LongString(value.into()));
    }

    /// Under this id, if it has none.
    pub(super) fn known_as(mut self, id: &str) -> Self {
        let has = self.properties.message_id().is_some() || self.table.contains_key("cloudEvents:id");
        if let (false, Ok(id)) = (has, ShortString::try_new(id)) {
            self.properties = self.properties.with_message_id(id);
        }
        self
    }

    /// The whole, which the broker removes after `expiration` milliseconds, if that is given.
    pub(super) fn finish(self, expiration: Option<u64>) -> BasicProperties {
        let properties = self.properties.with_headers(self.table.into());
        match expiration {
            Some(millis) => properties.with_expiration(millis.to_string().into()),
            None => properties,
        }
    }
}

fn is_of(death: &AMQPValue, queue: &ShortString) -> bool {
    let AMQPValue::FieldTable(death) = death else { return false };
    matches!(death.inner().get("queue"), Some(AMQPValue::LongString(of)) if of.as_bytes() == queue.as_str().as_bytes())
}

/// Every property but the headers, the user and the expiration. Always persistent.
fn without(original: &BasicProperties) -> BasicProperties {
    let mut copy = BasicProperties::default().with_delivery_mode(PERSISTENT);
    if let Some(value) = original.priority() {
        copy = copy.with_priority(*value);
    }
    if let Some(value) = original.timestamp() {
        copy = copy.with_timestamp(*value);
    }
    type Set = fn(BasicProperties, ShortString) -> BasicProperties;
    let shorts: [(&Option<ShortString>, Set); 8] = [
        (original.content_type(), BasicProperties::with_content_type),
        (original.content_encoding(), BasicProperties::with_content_encoding),
        (original.correlation_id(), BasicProperties::with_correlation_id),
        (original.reply_to(), BasicProperties::with_reply_to),
        (original.message_id(), BasicProperties::with_message_id),
        (original.kind(), BasicProperties::with_type),
        (original.app_id(), BasicProperties::with_app_id),
        (original.cluster_id(), BasicProperties::with_cluster_id),
    ];
    for (value, set) in shorts {
        if let Some(value) = value {
            copy = set(copy, value.clone());
        }
    }
    copy
}

// === How long ===

/// What the head of a message takes on the wire, in bytes, or a little more.
pub(super) fn size(properties: &BasicProperties) -> usize {
    let shorts = [
        properties.content_type(),
        properties.content_encoding(),
        properties.correlation_id(),
        properties.reply_to(),
        properties.expiration(),
        properties.message_id(),
        properties.kind(),
        properties.user_id(),
        properties.app_id(),
        properties.cluster_id(),
    ];
    let shorts: usize = shorts.iter().filter_map(|value| value.as_ref()).map(|value| value.as_str().len() + 1).sum();
    let headers = properties.headers().as_ref().map_or(0, table_size);
    AROUND + shorts + headers
}

fn table_size(table: &FieldTable) -> usize {
    4 + table.into_iter().map(|(name, value)| 1 + name.as_str().len() + value_size(value)).sum::<usize>()
}

fn value_size(value: &AMQPValue) -> usize {
    1 + match value {
        AMQPValue::LongString(value) => 4 + value.len(),
        AMQPValue::ByteArray(value) => 4 + value.len(),
        AMQPValue::ShortString(value) => 1 + value.as_str().len(),
        AMQPValue::FieldArray(values) => 4 + values.as_slice().iter().map(value_size).sum::<usize>(),
        AMQPValue::FieldTable(table) => table_size(table),
        _ => 8,
    }
}
