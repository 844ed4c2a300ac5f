//! gRPC service configs: `methodConfig` with its timeouts, retries and hedging, in a file of its own or as the
//! `serviceConfig` of another.
//!
//! A timeout holds for all attempts of a call together, and goes along to the callee. Attempts count the first one, and
//! no client makes more than five. What may be repeated is said elsewhere, by the methods' `.proto` files. Whose client reads the file is not in it: each file is taken for one client.

use oneclock_yaml::Node;

use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Propagates, Role, To};
use crate::source::Source;

/// Clients make no more attempts than this, whatever is written.
const MOST: u64 = 5;

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let configs = document.find("methodConfig").or_else(|| document.at(&["serviceConfig", "methodConfig"]));
    let Some(configs) = configs.filter(|configs| !configs.items().is_empty()) else { return false };
    let client =
        inventory.component(format!("client of {}", source.name()), "gRPC", Role::Service, source.of(document));
    for config in configs.items() {
        for name in config.find("name").map(Node::items).unwrap_or_default() {
            one(source, client, config, name, inventory);
        }
    }
    true
}

fn one(source: &Source, client: ComponentId, config: &Node, name: &Node, inventory: &mut Inventory) {
    let service = name.text_at(&["service"]).unwrap_or_default();
    // A name without a service is for all of them.
    let to = Name::of(if service.is_empty() { "every-grpc-service" } else { service });
    let Some(to) = to else { return };
    let method = name.text_at(&["method"]);
    let label = format!("gRPC {service}{}", method.map(|method| format!("/{method}")).unwrap_or_default());
    let mut edge = Edge::new(client, To::Name(to), label.trim_end(), source.of(name));
    edge.propagates = Propagates::Deadline;
    edge.path = (!service.is_empty()).then(|| format!("/{service}/{}", method.unwrap_or_default()));
    let repeats = config.find("retryPolicy").or_else(|| config.find("hedgingPolicy")).is_some();
    edge.spares_unsafe = repeats.then_some(false); // whatever is listed is repeated
    let on = On::Edge(inventory.edge(edge));
    for (id, path) in [
        ("grpc.timeout", ["timeout"].as_slice()),
        ("grpc.retry.initial_backoff", &["retryPolicy", "initialBackoff"]),
        ("grpc.retry.attempt_timeout", &["retryPolicy", "perAttemptRecvTimeout"]),
        ("grpc.hedging.delay", &["hedgingPolicy", "hedgingDelay"]),
    ] {
        if let Some((text, node)) = config.at(path).and_then(|node| Some((node.text()?, node))) {
            inventory.say(on.clone(), id, text, source.of(node));
        }
    }
    for (id, policy) in [("grpc.retry.max_attempts", "retryPolicy"), ("grpc.hedging.max_attempts", "hedgingPolicy")] {
        let Some((text, node)) = config.at(&[policy, "maxAttempts"]).and_then(|node| Some((node.text()?, node))) else {
            continue;
        };
        let capped = text.parse::<u64>().is_ok_and(|times| times > MOST).then(|| MOST.to_string());
        inventory.say(on.clone(), id, capped.as_deref().unwrap_or(text), source.of(node));
    }
}
