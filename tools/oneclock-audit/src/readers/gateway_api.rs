//! Gateway API: `HTTPRoute` and `GRPCRoute`, with their timeouts and retries.
//!
//! A route whose parent is a `Service` stands in front of that name for every caller inside (a mesh); every other one is
//! where outsiders come in.

use oneclock_yaml::Node;

use super::kubernetes::{Head, head};
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To};
use crate::source::Source;

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let Some(head) = head(document) else { return false };
    if head.group != "gateway.networking.k8s.io" || !matches!(head.kind, "HTTPRoute" | "GRPCRoute") {
        return false;
    }
    let Some(spec) = document.find("spec") else { return true };
    let components = fronts(source, document, &head, spec, inventory);
    for rule in spec.find("rules").map(Node::items).unwrap_or_default() {
        for component in &components {
            one_rule(source, &head, rule, *component, inventory);
        }
    }
    true
}

/// What the route stands for: the gateways that it is attached to, taken as one, and each service.
fn fronts(source: &Source, document: &Node, head: &Head<'_>, spec: &Node, inventory: &mut Inventory) -> Vec<ComponentId> {
    let parents = spec.find("parentRefs").map(Node::items).unwrap_or_default();
    let services: Vec<&Node> = parents.iter().filter(|parent| parent.text_at(&["kind"]) == Some("Service")).collect();
    let mut fronts = Vec::new();
    for service in &services {
        let name = service.text_at(&["name"]).unwrap_or_default();
        let namespace = service.text_at(&["namespace"]).or(head.namespace);
        let front = inventory.component(format!("mesh route {}", head.name), "Gateway API", Role::Between, source.of(service));
        inventory.answers_to(front, Name::of(name).map(|name| name.within(namespace)));
        fronts.push(front);
    }
    if services.len() < parents.len() || parents.is_empty() {
        let gateway = parents.iter().find(|parent| parent.text_at(&["kind"]) != Some("Service"));
        let name = gateway.and_then(|parent| parent.text_at(&["name"])).unwrap_or(head.name);
        let front = inventory.component(format!("gateway {name}"), "Gateway API", Role::Gateway, source.of(document));
        for host in spec.find("hostnames").map(Node::items).unwrap_or_default() {
            inventory.answers_to(front, host.text().and_then(Name::of));
        }
        fronts.push(front);
    }
    fronts
}

fn one_rule(source: &Source, head: &Head<'_>, rule: &Node, from: ComponentId, inventory: &mut Inventory) {
    let matches = rule.find("matches").map(Node::items).unwrap_or_default();
    let path = matches.iter().find_map(|one| one.text_at(&["path", "value"]));
    let methods: Vec<String> = matches.iter().filter_map(|one| one.text_at(&["method"])).map(str::to_owned).collect();
    for backend in rule.find("backendRefs").map(Node::items).unwrap_or_default() {
        let Some(name) = backend.text_at(&["name"]).and_then(Name::of) else { continue };
        let port = backend.text_at(&["port"]).and_then(|port| port.parse().ok());
        let name = Name { port, ..name.within(backend.text_at(&["namespace"]).or(head.namespace)) };
        let label = format!("route {}{}", head.name, path.map(|path| format!(" {path}")).unwrap_or_default());
        let mut edge = Edge::new(from, To::Name(name), label, source.of(backend));
        edge.methods.clone_from(&methods);
        edge.path = path.map(str::to_owned);
        let edge = inventory.edge(edge);
        for (id, keys) in [
            ("gateway_api.request", ["timeouts", "request"]),
            ("gateway_api.backend_request", ["timeouts", "backendRequest"]),
            ("gateway_api.retry.attempts", ["retry", "attempts"]),
            ("gateway_api.retry.backoff", ["retry", "backoff"]),
        ] {
            let written = rule.at(&keys).and_then(|node| Some((node.text()?, source.of(node))));
            inventory.say_or_default(On::Edge(edge), id, written, &source.of(rule));
        }
    }
}
