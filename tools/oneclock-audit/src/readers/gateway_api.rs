//! Gateway API: `HTTPRoute` and `GRPCRoute` with their timeouts and retries, `TLSRoute` and `TCPRoute` as what they are,
//! connections that are passed through. And `HTTPRoute` of `policy.linkerd.io`, which says the same.
//!
//! A route whose parent is a `Service` stands in front of that name for every caller inside (a mesh); one of a gateway is
//! where outsiders come in. Copies that are sent elsewhere (`RequestMirror`) are not waited for, and are no calls here.
//!
//! A gRPC call's own `grpc-timeout` goes on to the service unchanged, so the routes of gRPC hand deadlines on.

use oneclock_yaml::Node;

use super::kubernetes::{Head, head};
use super::linkerd;
use super::matched::{Matched, matched};
use super::proto::{Sayings, text};
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Propagates, Role, To};
use crate::source::Source;

/// One of these has every route.
pub(super) const WORDS: &[&str] = &["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"];

/// Gateway API allows no more of each.
const MOST_PARENTS: usize = 32;
const MOST_BACKENDS: usize = 16;

/// What a route stands for.
struct Front {
    component: ComponentId,
    /// The service in front of which it stands, which is called where the rule names nobody else.
    service: Option<Name>,
}

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let Some(head) = head(document) else { return false };
    let (ours, linkerds) = (head.group == "gateway.networking.k8s.io", head.group == "policy.linkerd.io");
    let streaming = matches!(head.kind, "TLSRoute" | "TCPRoute");
    let known = (ours && (streaming || matches!(head.kind, "HTTPRoute" | "GRPCRoute")))
        || (linkerds && head.kind == "HTTPRoute");
    if !known {
        return false;
    }
    let Some(spec) = document.find("spec") else { return true };
    let fronts = fronts(source, document, &head, spec, inventory);
    let annotations = linkerd::annotations(source, document);
    for rule in spec.find("rules").map(Node::items).unwrap_or_default() {
        let mut says = Sayings::default();
        for (id, keys) in [
            ("gateway_api.request", ["timeouts", "request"]),
            ("gateway_api.backend_request", ["timeouts", "backendRequest"]),
            ("gateway_api.retry.attempts", ["retry", "attempts"]),
            ("gateway_api.retry.backoff", ["retry", "backoff"]),
        ] {
            says.add(source, rule, &[(id, &keys)]);
        }
        for edge in edges(source, &head, rule, &fronts) {
            let edge = Edge { streaming, spares_unsafe: annotations.retries.then_some(false), ..edge };
            let on = On::Edge(inventory.edge(edge));
            says.of(&on, inventory);
            annotations.says.of(&on, inventory);
        }
    }
    true
}

/// The gateways that it is attached to, taken as one, and each service.
fn fronts(source: &Source, document: &Node, head: &Head<'_>, spec: &Node, inventory: &mut Inventory) -> Vec<Front> {
    let parents = spec.find("parentRefs").map(Node::items).unwrap_or_default();
    let mut gateway = None;
    let mut fronts = Vec::new();
    for parent in parents.iter().take(MOST_PARENTS) {
        match parent.text_at(&["kind"]) {
            Some("Service") => {
                let Some(name) = parent.text_at(&["name"]).and_then(Name::of) else { continue };
                let name = name.within(parent.text_at(&["namespace"]).or(head.namespace));
                let name = Name { port: port(parent), ..name };
                let title = format!("mesh route {}", head.name);
                let component = inventory.component(title, "Gateway API", Role::Between, source.of(parent));
                inventory.answers_to(component, Some(name.clone()));
                fronts.push(Front { component, service: Some(name) });
            }
            // What is attached to Linkerd's `Server` says who may call, not where calls go.
            Some("Server") => {}
            _ => gateway = gateway.or(parent.text_at(&["name"])),
        }
    }
    if let Some(name) = gateway.or(parents.is_empty().then_some(head.name)) {
        let component =
            inventory.component(format!("gateway {name}"), "Gateway API", Role::Gateway, source.of(document));
        for host in spec.find("hostnames").map(Node::items).unwrap_or_default().iter().take(MOST_PARENTS) {
            inventory.answers_to(component, host.text().and_then(Name::of));
        }
        fronts.push(Front { component, service: None });
    }
    fronts
}

/// The calls of a rule: each of its paths to each of its backends.
fn edges(source: &Source, head: &Head<'_>, rule: &Node, fronts: &[Front]) -> Vec<Edge> {
    let matches = rule.find("matches").map(Node::items).unwrap_or_default();
    let grpc = head.kind == "GRPCRoute";
    let rpcs: Vec<Option<String>> = if grpc { matches.iter().map(rpc).collect() } else { Vec::new() };
    let all = if grpc {
        matched(rpcs.iter().map(|rpc| (rpc.as_deref(), None)))
    } else {
        matched(matches.iter().map(|one| (one.text_at(&["path", "value"]), one.text_at(&["method"]))))
    };
    let mut edges = Vec::new();
    for front in fronts {
        for (to, at) in backends(head, rule, front) {
            for Matched { path, methods } in &all {
                let label =
                    format!("route {}{}", head.name, path.as_ref().map(|path| format!(" {path}")).unwrap_or_default());
                let mut edge = Edge::new(front.component, To::Name(to.clone()), label, source.of(at));
                edge.path.clone_from(path);
                edge.methods.clone_from(methods);
                edge.propagates = if grpc { Propagates::Deadline } else { Propagates::Unknown };
                edges.push(edge);
            }
        }
    }
    edges
}

/// Who is called. Of a service's own rule without any backend that service is.
fn backends<'a>(head: &Head<'_>, rule: &'a Node, front: &Front) -> Vec<(Name, &'a Node)> {
    let written = rule.find("backendRefs").map(Node::items).unwrap_or_default();
    let redirects = rule.find("filters").map(Node::items).unwrap_or_default();
    let redirects = redirects.iter().any(|filter| filter.text_at(&["type"]) == Some("RequestRedirect"));
    if written.is_empty() && !redirects {
        return front.service.clone().map(|service| (service, rule)).into_iter().collect();
    }
    let mut backends: Vec<(Name, &Node)> = Vec::new();
    for backend in written.iter().filter(|backend| text(backend, &["weight"]) != Some("0")).take(MOST_BACKENDS) {
        let Some(name) = backend.text_at(&["name"]).and_then(Name::of) else { continue };
        let name = name.within(backend.text_at(&["namespace"]).or(head.namespace));
        backends.push((Name { port: port(backend), ..name }, backend));
    }
    backends
}

fn port(reference: &Node) -> Option<u16> {
    reference.text_at(&["port"]).and_then(|port| port.parse().ok())
}

/// `/package.Service/Method`, as far as a match says it.
fn rpc(matched: &Node) -> Option<String> {
    match (matched.text_at(&["method", "service"]), matched.text_at(&["method", "method"])) {
        (Some(service), Some(method)) => Some(format!("/{service}/{method}")),
        (Some(service), None) => Some(format!("/{service}/")),
        (None, Some(method)) => Some(format!("/*/{method}")),
        (None, None) => None,
    }
}
