//! Our own `oneclock.topology.yaml`: what no other file says. Who calls whom in code, with which limits; what is passed on;
//! what repeating would do; what was measured; and where budgets begin.
//!
//! ```yaml
//! entries:
//! - {name: shop page, to: storefront, budget: 800ms, reserve: 50ms, rate: 70/s}
//! services:
//! - name: storefront
//!   order: serial              # or parallel: how its calls follow each other
//!   p99: 40ms                  # its own work, without its calls
//!   calls:
//!   - {to: reviews, attempt: 3s, attempts: 2, methods: [GET], effects: read_only, propagates: none, p99: 20ms}
//! - name: reviews
//!   answers_to: [reviews.shop]
//!   limit: 10s                 # it ends the work of one request itself
//! ```
//!
//! What is not understood is listed with its place, and all else counts; that it fails, a rule says
//! (`topology-not-understood`).

use oneclock_yaml::{Key, Node, Value};

use crate::amount::{Unit, Zero, amount, shortened};
use crate::estimate::PerSecond;
use crate::inventory::{
    ComponentId, Edge, Effects, Entry, HeaderUnit, Inventory, Latency, Name, On, Order, Propagates, Role, To, Why,
};
use crate::source::Source;
use crate::walk::{self, Repository};

/// The name of the file, as it has to be.
pub(crate) const FILE: &str = "oneclock.topology.yaml";

const ENTRY: &[&str] = &["name", "to", "budget", "reserve", "rate"];
const SERVICE: &[&str] =
    &["name", "answers_to", "role", "order", "reserve", "p99", "limit", "retention", "writes", "reads", "calls"];
const CALL: &[&str] = &[
    "to",
    "timeout",
    "attempt",
    "attempts",
    "backoff",
    "connect",
    "idle",
    "methods",
    "path",
    "effects",
    "propagates",
    "p99",
    "streaming",
    "spares_unsafe",
];
/// Keys of a call that are settings, and what they are in the catalogue.
const LIMITS: &[(&str, &str)] = &[
    ("timeout", "topology.timeout"),
    ("attempt", "topology.attempt"),
    ("attempts", "topology.attempts"),
    ("backoff", "topology.backoff"),
    ("connect", "topology.connect"),
    ("idle", "topology.idle"),
];

/// Whether a path is that of a topology file: `oneclock.topology.yaml`, or `shop.topology.yaml`.
pub(crate) fn is_topology(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == FILE || name.ends_with(&format!(".{}", FILE.trim_start_matches("oneclock.")))
}

pub(super) fn mine(source: &Source) -> bool {
    is_topology(&source.path)
}

/// By its name, whatever is in it: one whose only key is misspelled is to be told of, too.
pub(super) fn read(source: &Source, _: &Repository, inventory: &mut Inventory) {
    let documents = match walk::documents(source) {
        Ok(documents) => documents,
        Err((why, place, says)) => return inventory.leave_out(why, place, says),
    };
    for document in &documents {
        if !matches!(document.value, Value::Map(_) | Value::Null) {
            let says = format!("a topology file has `entries` and `services`, and this is {}", document.what());
            inventory.leave_out(Why::NotUnderstood, source.of(document), says);
        }
        only(source, document, &["entries", "services"], inventory);
        for entry in list(source, document, "entries", inventory) {
            one_entry(source, entry, inventory);
        }
        for service in list(source, document, "services", inventory) {
            one_service(source, service, inventory);
        }
    }
}

fn one_entry(source: &Source, entry: &Node, inventory: &mut Inventory) {
    only(source, entry, ENTRY, inventory);
    let to = entry.text_at(&["to"]).and_then(Name::of);
    let budget = entry.find("budget").and_then(|node| time(source, node, inventory));
    let (Some(to), Some(budget)) = (to, budget) else {
        inventory.leave_out(
            Why::NotUnderstood,
            source.of(entry),
            "an entry says `to` (a name) and `budget` (a time, such as 800ms)",
        );
        return;
    };
    let reserve = entry.find("reserve").and_then(|node| time(source, node, inventory)).unwrap_or_default();
    let name = entry.text_at(&["name"]).map_or_else(|| to.to_string(), str::to_owned);
    let rate = entry.find("rate").and_then(|node| rate(source, node, inventory));
    inventory.entries.push(Entry { name, to, budget, reserve, rate, place: source.of(entry) });
}

fn one_service(source: &Source, service: &Node, inventory: &mut Inventory) {
    only(source, service, SERVICE, inventory);
    let Some(name) = service.text_at(&["name"]) else {
        inventory.leave_out(Why::NotUnderstood, source.of(service), "a service says its `name`");
        return;
    };
    let role = one_of(
        source,
        service,
        "role",
        inventory,
        &[
            ("service", Role::Service),
            ("gateway", Role::Gateway),
            ("store", Role::Store),
            ("broker", Role::Broker),
            ("worker", Role::Worker),
        ],
    );
    let id = inventory.component(name, "", role.unwrap_or(Role::Service), source.of(service));
    inventory.answers_to(id, Name::of(name));
    for other in list(source, service, "answers_to", inventory) {
        inventory.answers_to(id, other.text().and_then(Name::of));
    }
    let order =
        one_of(source, service, "order", inventory, &[("serial", Order::Serial), ("parallel", Order::Parallel)]);
    let reserve = service.find("reserve").and_then(|node| time(source, node, inventory));
    if let Some(component) = inventory.components.get_mut(id.0) {
        component.order = order;
        component.reserve = reserve.unwrap_or_default();
    }
    for (key, setting) in [("limit", "topology.limit"), ("retention", "topology.retention")] {
        declare(source, service, key, setting, &On::Component(id), inventory);
    }
    latency(source, service, On::Component(id), inventory);
    for (key, writes) in [("writes", true), ("reads", false)] {
        header_units(source, service, key, writes, id, inventory);
    }
    for call in list(source, service, "calls", inventory) {
        one_call(source, call, id, inventory);
    }
}

fn one_call(source: &Source, call: &Node, from: ComponentId, inventory: &mut Inventory) {
    only(source, call, CALL, inventory);
    let Some(to) = call.text_at(&["to"]).and_then(Name::of) else {
        inventory.leave_out(Why::NotUnderstood, source.of(call), "a call says `to`, the name of a service");
        return;
    };
    let mut edge = Edge::new(from, To::Name(to), "in code", source.of(call));
    edge.methods = list(source, call, "methods", inventory).iter().filter_map(Node::text).map(str::to_owned).collect();
    edge.path = call.text_at(&["path"]).map(str::to_owned);
    edge.streaming = one_of(source, call, "streaming", inventory, YES_OR_NO).unwrap_or_default();
    edge.spares_unsafe = one_of(source, call, "spares_unsafe", inventory, YES_OR_NO);
    let propagates = one_of(
        source,
        call,
        "propagates",
        inventory,
        &[("deadline", Propagates::Deadline), ("none", Propagates::None), ("unknown", Propagates::Unknown)],
    );
    edge.propagates = propagates.unwrap_or_default();
    let effects = one_of(
        source,
        call,
        "effects",
        inventory,
        &[
            ("read_only", Effects::ReadOnly),
            ("idempotent", Effects::Idempotent),
            ("keyed", Effects::Keyed),
            ("once", Effects::Once),
        ],
    );
    edge.effects = effects.unwrap_or_default();
    let on = On::Edge(inventory.edge(edge));
    for (key, setting) in LIMITS {
        declare(source, call, key, setting, &on, inventory);
    }
    latency(source, call, on, inventory);
}

fn declare(source: &Source, node: &Node, key: &str, setting: &str, on: &On, inventory: &mut Inventory) {
    let Some(value) = node.find(key) else { return };
    match value.text() {
        Some(text) => inventory.declare(on.clone(), setting, text, source.of(value)),
        None => {
            let says = format!("`{key}` is one value, and this is {}", value.what());
            inventory.leave_out(Why::NotUnderstood, source.of(value), says);
        }
    }
}

fn latency(source: &Source, node: &Node, on: On, inventory: &mut Inventory) {
    let Some(value) = node.find("p99") else { return };
    if let Some(p99) = time(source, value, inventory) {
        inventory.latencies.push(Latency { on, p99, place: source.of(value) });
    }
}

fn header_units(
    source: &Source,
    service: &Node,
    key: &str,
    writes: bool,
    component: ComponentId,
    inventory: &mut Inventory,
) {
    for (header, unit) in service.find(key).map(Node::entries).unwrap_or_default() {
        let known = match unit.text() {
            Some("ms") => Some(Unit::Millis),
            Some("s") => Some(Unit::Seconds),
            Some("us") => Some(Unit::Micros),
            _ => None,
        };
        match known {
            Some(unit) => {
                let place = source.of_key(header);
                let header = header.text.to_ascii_lowercase();
                inventory.header_units.push(HeaderUnit { component, header, writes, unit, place });
            }
            None => {
                inventory.leave_out(Why::NotUnderstood, source.of(unit), "the unit of a header is `s`, `ms` or `us`")
            }
        }
    }
}

/// A time with its unit; what is none is listed.
fn time(source: &Source, node: &Node, inventory: &mut Inventory) -> Option<std::time::Duration> {
    let read = amount(node.text().unwrap_or_default(), Unit::Refused, Zero::Literal);
    let time = read.as_ref().ok().and_then(|amount| amount.after());
    if time.is_none() {
        inventory.leave_out(Why::NotUnderstood, source.of(node), "a time has a unit: 800ms, 2s, 1m30s");
    }
    time
}

/// A rate with its unit; what is none is listed.
fn rate(source: &Source, node: &Node, inventory: &mut Inventory) -> Option<PerSecond> {
    let rate = node.text().and_then(PerSecond::read);
    if rate.is_none() {
        inventory.leave_out(Why::NotUnderstood, source.of(node), "a rate has a unit: 70/s, 4200/min");
    }
    rate
}

const YES_OR_NO: &[(&str, bool)] = &[("true", true), ("false", false)];

/// A word of a few; another is listed, with those that there are.
fn one_of<T: Copy>(
    source: &Source,
    node: &Node,
    key: &str,
    inventory: &mut Inventory,
    known: &[(&str, T)],
) -> Option<T> {
    let value = node.find(key)?;
    let found = known.iter().find(|(word, _)| value.text() == Some(*word)).map(|(_, meant)| *meant);
    if found.is_none() {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let given = value.text().map_or_else(|| value.what().to_owned(), |text| format!("`{}`", shortened(text)));
        let says = format!("`{key}` does not know {given}; it is one of {}", words.join(", "));
        inventory.leave_out(Why::NotUnderstood, source.of(value), says);
    }
    found
}

/// What a key's list holds; what is none is listed.
fn list<'n>(source: &Source, node: &'n Node, key: &str, inventory: &mut Inventory) -> &'n [Node] {
    let Some(value) = node.find(key) else { return &[] };
    if !matches!(value.value, Value::List(_) | Value::Null) {
        let says = format!("`{key}` is a list, and this is {}", value.what());
        inventory.leave_out(Why::NotUnderstood, source.of(value), says);
    }
    value.items()
}

/// Lists the keys that say nothing here, with the nearest one that would.
fn only(source: &Source, node: &Node, known: &[&str], inventory: &mut Inventory) {
    for (Key { text, .. }, key) in node.entries().iter().map(|(key, _)| (key, key)) {
        if known.contains(&text.as_str()) {
            continue;
        }
        let near = known.iter().copied().min_by_key(|one| strsim::damerau_levenshtein(one, text));
        let near = near.filter(|one| strsim::damerau_levenshtein(one, text) <= 2);
        let hint =
            near.map_or_else(|| format!("known are {}", known.join(", ")), |near| format!("did you mean `{near}`?"));
        inventory.leave_out(Why::NotUnderstood, source.of_key(key), format!("there is no key `{text}` here; {hint}"));
    }
}
