//! Linkerd: `ServiceProfile`, and the annotations `timeout.linkerd.io/*` and `retry.linkerd.io/*` of a `Service`. Those of
//! a route are read with the route, in [`gateway_api`](super::gateway_api).
//!
//! Where a service has a profile its annotations count for nothing; each file is read for itself here. Linkerd asks no
//! method before it repeats a request, only how large its body is.

use oneclock_yaml::Node;

use super::kubernetes::head;
use super::proto::{Sayings, at, get, list, text};
use crate::inventory::{ComponentId, Edge, Effects, Inventory, Name, On, Role, To};
use crate::source::Source;

/// One of these has every file that is for Linkerd.
pub(super) const WORDS: &[&str] = &["timeout.linkerd.io/", "retry.linkerd.io/", "ServiceProfile"];

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let Some(head) = head(document) else { return false };
    match (head.group, head.kind) {
        ("", "Service") => {
            let Some(name) = Name::of(head.name).map(|name| name.within(head.namespace)) else { return false };
            let annotations = annotations(source, document);
            annotations.says.of(&On::CallsTo(name), inventory);
            annotations.says.any()
        }
        ("linkerd.io", "ServiceProfile") => {
            profile(source, document, head.name, inventory);
            true
        }
        _ => false,
    }
}

/// What the annotations of a service or a route say.
pub(super) struct Annotations {
    /// The settings.
    pub(super) says: Sayings,
    /// Whether something is tried again.
    pub(super) retries: bool,
}

/// The annotations of a service or a route.
pub(super) fn annotations(source: &Source, document: &Node) -> Annotations {
    let mut says = Sayings::default();
    let Some(all) = document.at(&["metadata", "annotations"]) else { return Annotations { says, retries: false } };
    let rows: &[(&str, &[&str])] = &[
        ("linkerd.request", &["timeout.linkerd.io/request"]),
        ("linkerd.response", &["timeout.linkerd.io/response"]),
        ("linkerd.idle", &["timeout.linkerd.io/idle"]),
    ];
    says.add(source, all, rows);
    let conditions = get(all, "retry.linkerd.io/http").or_else(|| get(all, "retry.linkerd.io/grpc"));
    let limit = text(all, &["retry.linkerd.io/limit"]);
    let timeout = get(all, "retry.linkerd.io/timeout");
    let retries = conditions.is_some() || limit.is_some() || timeout.is_some();
    if retries {
        match (limit, conditions.or(timeout)) {
            // Zero counts as if nobody had written it.
            (Some("0"), _) | (None, None) => says.unsaid("linkerd.retry.limit", source.of(all)),
            (None, Some(node)) => says.unsaid("linkerd.retry.limit", source.of(node)),
            (Some(_), _) => says.add(source, all, &[("linkerd.retry.limit", &["retry.linkerd.io/limit"])]),
        }
        says.add(source, all, &[("linkerd.retry.timeout", &["retry.linkerd.io/timeout"])]);
    }
    Annotations { says, retries }
}

fn profile(source: &Source, document: &Node, name: &str, inventory: &mut Inventory) {
    let Some(callee) = Name::of(name) else { return };
    let component = inventory.component(format!("profile {callee}"), "Linkerd", Role::Between, source.of(document));
    inventory.answers_to(component, Some(callee.clone()));
    for route in at(document, &["spec", "routes"]).map(Node::items).unwrap_or_default() {
        one(source, route, component, &callee, inventory);
    }
}

fn one(source: &Source, route: &Node, from: ComponentId, callee: &Name, inventory: &mut Inventory) {
    let label = format!("route {}", text(route, &["name"]).unwrap_or_default());
    let mut edge = Edge::new(from, To::Name(callee.clone()), label, source.of(route));
    let condition = get(route, "condition");
    // Of conditions that belong together each may say one half.
    let parts = condition.map(|condition| list(condition, "all")).unwrap_or_default().iter().chain(condition);
    let said = |key: &str| parts.clone().find_map(|part| text(part, &[key])).map(str::to_owned);
    edge.methods.extend(said("method"));
    edge.path = said("pathRegex");
    let retryable = get(route, "isRetryable").filter(|node| node.text() == Some("true"));
    if retryable.is_some() {
        // That is what its author says with it.
        edge.effects = Effects::Idempotent;
        edge.spares_unsafe = Some(false);
    }
    let mut says = Sayings::default();
    says.or_default(source, route, "linkerd.profile.timeout", &["timeout"]);
    if let Some(node) = retryable {
        says.text("linkerd.profile.is_retryable", "unlimited", source.of(node));
    }
    let edge = inventory.edge(edge);
    says.of(&On::Edge(edge), inventory);
}
