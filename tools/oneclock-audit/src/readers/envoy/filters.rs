//! Filters that take time of every request: questions to another service, and delays on purpose.

use oneclock_yaml::Node;

use super::super::proto::{Sayings, at, configuration, is, list, text};
use super::File;
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, To};

/// A filter that asks somebody: its names, the setting of its timeout, and where that and the service stand.
struct Asks {
    snake: &'static str,
    camel: &'static str,
    id: &'static str,
    timeout: &'static [&'static str],
    service: &'static [&'static str],
}

const ASKS: &[Asks] = &[
    Asks {
        snake: "ext_authz",
        camel: "ExtAuthz",
        id: "envoy.ext_authz.timeout",
        timeout: &["grpc_service", "timeout"],
        service: &["grpc_service"],
    },
    Asks {
        snake: "ratelimit",
        camel: "RateLimit",
        id: "envoy.ratelimit.timeout",
        timeout: &["timeout"],
        service: &["rate_limit_service", "grpc_service"],
    },
    Asks {
        snake: "ext_proc",
        camel: "ExternalProcessor",
        id: "envoy.ext_proc.message_timeout",
        timeout: &["message_timeout"],
        service: &["grpc_service"],
    },
];

pub(super) fn read(file: &File<'_>, manager: &Node, component: ComponentId, inventory: &mut Inventory) {
    for filter in list(manager, "http_filters") {
        let Some(config) = configuration(filter) else { continue };
        if is(filter, "fault", "HTTPFault") {
            let mut says = Sayings::default();
            says.add(file.source, config, &[("envoy.fault.fixed_delay", &["delay", "fixed_delay"])]);
            says.of(&On::Component(component), inventory);
        }
        for asks in ASKS.iter().filter(|asks| is(filter, asks.snake, asks.camel)) {
            if let Some(service) = at(config, asks.service) {
                ask(file, config, service, asks.id, asks.timeout, component, inventory);
            }
        }
        if let Some(uri) = at(config, &["http_service", "server_uri"]).filter(|_| is(filter, "ext_authz", "ExtAuthz")) {
            ask(file, uri, uri, "envoy.ext_authz.http.timeout", &["timeout"], component, inventory);
        }
    }
}

/// A question to a service: a cluster by its name, or an address that Envoy's gRPC library looks up.
fn ask(
    file: &File<'_>,
    config: &Node,
    service: &Node,
    id: &'static str,
    timeout: &[&str],
    from: ComponentId,
    inventory: &mut Inventory,
) {
    let cluster = text(service, &["envoy_grpc", "cluster_name"]).or_else(|| text(service, &["cluster"]));
    let targets = match cluster {
        Some(cluster) => file.clusters.targets(cluster),
        None => text(service, &["google_grpc", "target_uri"]).and_then(Name::of).into_iter().collect(),
    };
    let label = id.split('.').nth(1).unwrap_or(id);
    let mut says = Sayings::default();
    says.or_default(file.source, config, id, timeout);
    for target in targets {
        let edge = inventory.edge(Edge::new(from, To::Name(target), label, file.source.of(service)));
        says.of(&On::Edge(edge), inventory);
        if let Some(cluster) = cluster {
            file.clusters.settings(cluster, edge, false, inventory);
        }
    }
}
