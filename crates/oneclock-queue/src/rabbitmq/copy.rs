//! What a copy of a message keeps, and what it leaves out.
//!
//! Decides which few fields a copy may not carry as they are, because the broker acts on them, and in which order it leaves out what it
//! can do without where its head would be larger than a frame. A message may fill one, and each copy says something more than the
//! one before: what comes again needs its count, a dead letter can do without everything that was added to it.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};
use oneclock_core::expiry::{Reader, Stamp, names};
use oneclock_core::wire::Wall;

use super::headers::{ATTEMPT, DELIVERY_COUNT, MAY_HAVE_RUN, PERSISTENT};

/// What the broker writes into a delivery and reads from nobody: on a copy it would be said of another delivery.
const OF_THE_DELIVERY: [&str; 4] = [DELIVERY_COUNT, "x-acquired-count", ATTEMPT, MAY_HAVE_RUN];
/// Where the broker keeps the way that a message has come.
const DEATHS: &str = "x-death";
/// By these the broker routes to other queues as well, so that a copy would come there a second time.
const ROUTES: [(&str, &str); 2] = [("CC", "deadline-was-cc"), ("BCC", "deadline-was-bcc")];
/// Properties that bind a message to whoever sent it, or to when.
const WAS_USER: &str = "deadline-was-user-id";
const WAS_EXPIRATION: &str = "deadline-was-expiration";

/// What the frame of a message's head takes beside its properties, in bytes: its own seven and one, class, weight, the body's size, and
/// which properties there are.
const AROUND: usize = 8 + 2 + 2 + 8 + 2;
/// What the broker adds to a message that it moves out of a queue by itself, in bytes, with room to spare: names are of 255 at most.
pub(super) const ROOM_TO_WAIT: usize = 2_048;

/// What a copy that goes on can do without: the way that it has come.
pub(super) const WAY: [&str; 1] = [DEATHS];
/// What one that was put back can do without.
pub(super) const OF_A_REDRIVE: [&str; 2] = [DEATHS, names::REDRIVES];
/// What a dead letter can do without, in this order.
pub(super) const OF_THE_DEAD: [&str; 10] = [
    names::DEAD_DETAIL,
    MAY_HAVE_RUN,
    names::DEAD_AT,
    names::DEAD_ATTEMPTS,
    DEATHS,
    WAS_EXPIRATION,
    WAS_USER,
    "deadline-was-cc",
    "deadline-was-bcc",
    names::DEAD_REASON,
];

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

    /// Leaves out what it can do without, until it fits into a frame of `most` bytes. Whether it does, and what was left out.
    pub(super) fn fit(&mut self, most: usize, spare: &[&str]) -> (bool, Vec<String>) {
        let mut left_out = Vec::new();
        for name in spare {
            if self.size() <= most {
                break;
            }
            if self.table.remove(*name).is_some() {
                left_out.push((*name).to_owned());
            }
        }
        (self.size() <= most, left_out)
    }

    /// The same of a dead letter. Where that is not enough the longest fields that no rule reads go before.
    pub(super) fn fit_at_any_price(&mut self, most: usize) -> (bool, Vec<String>) {
        let (mut left_out, mut rest) = (Vec::new(), self.table.clone());
        loop {
            self.table.clone_from(&rest);
            let (fits, spared) = self.fit(most, &OF_THE_DEAD);
            let strangers = rest.iter().filter(|(name, _)| is_read_by_nobody(name.as_str()));
            let longest = strangers.max_by_key(|(name, value)| name.as_str().len() + value_size(value));
            let longest = longest.map(|(name, _)| name.clone()).filter(|_| !fits);
            let Some(longest) = longest else {
                left_out.extend(spared);
                return (fits, left_out);
            };
            rest.remove(longest.as_str());
            left_out.push(longest.to_string());
        }
    }

    /// What its head takes on the wire, in bytes, with a time to live that it may get.
    fn size(&self) -> usize {
        size(&self.properties) + 4 + entries_size(self.table.iter()) + LONGEST_EXPIRATION
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

/// Whether it says nothing of the message itself, nor of its end.
fn is_read_by_nobody(name: &str) -> bool {
    let is_attribute = names::attribute(name).len() != name.len();
    let is_ours = OF_THE_DEAD.contains(&name) || name.eq_ignore_ascii_case(names::PRINCIPAL);
    !is_attribute && !is_ours && !Reader::new(Wall::default()).knows(name)
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

/// Of the text of a time to live, in bytes: ten digits, and their number.
const LONGEST_EXPIRATION: usize = 11;

/// What the head of a message takes on the wire, in bytes.
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
    let bytes = usize::from(properties.delivery_mode().is_some()) + usize::from(properties.priority().is_some());
    let timestamp = properties.timestamp().map_or(0, |_| 8);
    let headers = properties.headers().as_ref().map_or(0, table_size);
    AROUND + shorts + bytes + timestamp + headers
}

fn table_size(table: &FieldTable) -> usize {
    4 + entries_size(table.into_iter())
}

fn entries_size<'a>(entries: impl Iterator<Item = (&'a ShortString, &'a AMQPValue)>) -> usize {
    entries.map(|(name, value)| 1 + name.as_str().len() + value_size(value)).sum()
}

fn value_size(value: &AMQPValue) -> usize {
    1 + match value {
        AMQPValue::LongString(value) => 4 + value.len(),
        AMQPValue::ByteArray(value) => 4 + value.len(),
        AMQPValue::ShortString(value) => 1 + value.as_str().len(),
        AMQPValue::FieldArray(values) => 4 + values.as_slice().iter().map(value_size).sum::<usize>(),
        AMQPValue::FieldTable(table) => table_size(table),
        AMQPValue::Void => 0,
        AMQPValue::Boolean(_) | AMQPValue::ShortShortInt(_) | AMQPValue::ShortShortUInt(_) => 1,
        AMQPValue::ShortInt(_) | AMQPValue::ShortUInt(_) => 2,
        AMQPValue::LongInt(_) | AMQPValue::LongUInt(_) | AMQPValue::Float(_) => 4,
        AMQPValue::DecimalValue(_) => 5,
        AMQPValue::LongLongInt(_) | AMQPValue::Double(_) | AMQPValue::Timestamp(_) => 8,
    }
}
