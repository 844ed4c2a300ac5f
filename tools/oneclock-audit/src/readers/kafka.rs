//! Kafka's own `.properties`: brokers, and producers, consumers and workers of Connect, whose keys may have `producer.` or
//! `consumer.` before them. Clients of librdkafka have other defaults and other files; nothing is told by default here,
//! since code says the rest.

use super::lines::{Line, Parted, lines};
use super::started_by;
use crate::inventory::{Edge, Inventory, Name, On, Role, To};
use crate::source::{Source, folder};
use crate::walk::Repository;

const KEYS: &[(&str, &str)] = &[
    ("delivery.timeout.ms", "kafka.delivery_timeout"),
    ("request.timeout.ms", "kafka.request_timeout"),
    ("max.block.ms", "kafka.max_block"),
    ("linger.ms", "kafka.linger"),
    ("retries", "kafka.retries"),
    ("retry.backoff.ms", "kafka.retry_backoff"),
    ("max.poll.interval.ms", "kafka.max_poll_interval"),
    ("session.timeout.ms", "kafka.session_timeout"),
    ("heartbeat.interval.ms", "kafka.heartbeat_interval"),
    ("default.api.timeout.ms", "kafka.default_api_timeout"),
    ("transaction.timeout.ms", "kafka.transaction_timeout"),
    ("connections.max.idle.ms", "kafka.connections_max_idle"),
    ("fetch.max.wait.ms", "kafka.fetch_max_wait"),
];
const BROKER: &[(&str, &str)] = &[
    ("request.timeout.ms", "kafka.broker_request_timeout"),
    ("connections.max.idle.ms", "kafka.connections_max_idle"),
    ("zookeeper.session.timeout.ms", "kafka.zookeeper_session"),
];

/// A file of properties that names brokers, or is a broker's.
pub(super) fn mine(source: &Source) -> bool {
    matches!(source.extension().as_str(), "properties" | "config") && (is_client(source) || is_broker(source))
}

fn is_client(source: &Source) -> bool {
    source.text.lines().any(|line| line.trim_start().starts_with("bootstrap.servers"))
}

fn is_broker(source: &Source) -> bool {
    source
        .text
        .lines()
        .map(str::trim_start)
        .any(|line| ["broker.id", "node.id", "zookeeper.connect="].iter().any(|key| line.starts_with(key)))
}

pub(super) fn read(source: &Source, _: &Repository, inventory: &mut Inventory) {
    let broker = is_broker(source) && !is_client(source);
    let (product, role, keys) = if broker { ("Kafka", Role::Broker, BROKER) } else { ("", Role::Service, KEYS) };
    let stem = source.name().rsplit_once('.').map_or("", |(stem, _)| stem);
    let name = if broker {
        "Kafka".to_owned()
    } else {
        format!("{} {stem}", started_by::called(folder(&source.path), "Kafka"))
    };
    let component = inventory.component(name, product, role, source.place(1, 1, 1));
    let mut calls = None;
    for line in lines(source, Parted::Any) {
        if line.key == "bootstrap.servers" && !broker {
            calls = calls.or(servers(&line).map(|name| {
                let mut edge = Edge::new(component, To::Name(name), line.key, line.place.clone());
                edge.streaming = true;
                inventory.edge(edge)
            }));
            continue;
        }
        let key = ["producer.", "consumer.", "admin."]
            .iter()
            .find_map(|before| line.key.strip_prefix(before))
            .unwrap_or(line.key);
        if let Some((_, id)) = keys.iter().find(|(known, _)| *known == key) {
            inventory.say(On::Component(component), id, line.value, line.place);
        }
    }
}

/// The first of the servers: the others are its replicas.
fn servers(line: &Line<'_>) -> Option<Name> {
    line.value.split(',').find_map(|server| Name::of(server.rsplit("://").next().unwrap_or_default()))
}
