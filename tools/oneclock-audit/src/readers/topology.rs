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
//! An unknown key is listed with its place; all else counts.

use oneclock_yaml::{Key, Node};

use crate::amount::{Unit, Zero, amount};
use crate::estimate::PerSecond;
use crate::inventory::{
    ComponentId, Edge, Effects, Entry, HeaderUnit, Inventory, Latency, Name, On, Order, Propagates, Role, To, Why,
};
use crate::source::Source;

/// The name of the file, as it has to be.
pub const FILE: &str = "oneclock.topology.yaml";

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

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    if source.name() != FILE && !source.name().ends_with(&format!(".{}", FILE.trim_start_matches("oneclock."))) {
        return false;
    }
    only(source, document, &["entries", "services"], inventory);
    for entry in document.find("entries").map(Node::items).unwrap_or_default() {
        one_entry(source, entry, inventory);
    }
    for service in document.find("services").map(Node::items).unwrap_or_default() {
        one_service(source, service, inventory);
    }
    true
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
    let role = one_of(source, service, "role", inventory, |word| match word {
        "service" => Some(Role::Service),
        "gateway" => Some(Role::Gateway),
        "store" => Some(Role::Store),
        "broker" => Some(Role::Broker),
        "worker" => Some(Role::Worker),
        _ => None,
    });
    let id = inventory.component(name, "", role.unwrap_or(Role::Service), source.of(service));
    inventory.answers_to(id, Name::of(name));
    for other in service.find("answers_to").map(Node::items).unwrap_or_default() {
        inventory.answers_to(id, other.text().and_then(Name::of));
    }
    let order = one_of(source, service, "order", inventory, |word| match word {
        "serial" => Some(Order::Serial),
        "parallel" => Some(Order::Parallel),
        _ => None,
    });
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
    for call in service.find("calls").map(Node::items).unwrap_or_default() {
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
    edge.methods = call
        .find("methods")
        .map(Node::items)
        .unwrap_or_default()
        .iter()
        .filter_map(Node::text)
        .map(str::to_owned)
        .collect();
    edge.path = call.text_at(&["path"]).map(str::to_owned);
    edge.streaming = call.text_at(&["streaming"]) == Some("true");
    edge.spares_unsafe = call.text_at(&["spares_unsafe"]).map(|word| word == "true");
    let propagates = one_of(source, call, "propagates", inventory, |word| match word {
        "deadline" => Some(Propagates::Deadline),
        "none" => Some(Propagates::None),
        "unknown" => Some(Propagates::Unknown),
        _ => None,
    });
    edge.propagates = propagates.unwrap_or_default();
    let effects = one_of(source, call, "effects", inventory, |word| match word {
        "read_only" => Some(Effects::ReadOnly),
        "idempotent" => Some(Effects::Idempotent),
        "keyed" => Some(Effects::Keyed),
        "once" => Some(Effects::Once),
        _ => None,
    });
    edge.effects = effects.unwrap_or_default();
    let on = On::Edge(inventory.edge(edge));
    for (key, setting) in LIMITS {
        declare(source, call, key, setting, &on, inventory);
    }
    latency(source, call, on, inventory);
}

fn declare(source: &Source, node: &Node, key: &str, setting: &str, on: &On, inventory: &mut Inventory) {
    if let Some((value, text)) = node.find(key).and_then(|value| Some((value, value.text()?))) {
        inventory.declare(on.clone(), setting, text, source.of(value));
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

fn one_of<T>(
    source: &Source,
    node: &Node,
    key: &str,
    inventory: &mut Inventory,
    known: fn(&str) -> Option<T>,
) -> Option<T> {
    let value = node.find(key)?;
    let found = value.text().and_then(known);
    if found.is_none() {
        let says = format!("`{key}` does not know `{}`", value.text().unwrap_or(value.what()));
        inventory.leave_out(Why::NotUnderstood, source.of(value), says);
    }
    found
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
