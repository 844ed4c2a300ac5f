//! Istio: what a `VirtualService` routes ([`virtual_service`]), what a `DestinationRule` says of everybody's calls to a
//! host, the hosts of a `ServiceEntry`, and the defaults of a mesh in an `IstioOperator`.
//!
//! Recognised and not read: `EnvoyFilter`, which may change anything, and `Sidecar`. The mesh's defaults in a `ConfigMap`
//! are not seen: what is said to hold by default is what Istio ships with.

mod virtual_service;

use oneclock_yaml::Node;

use super::kubernetes::{Head, head};
use super::proto::{Sayings, at, get, list, text};
use crate::inventory::{Inventory, Name, On, Role, Why};
use crate::source::Source;

/// One of these has every file of Istio's.
pub(super) const WORDS: &[&str] = &["networking.istio.io", "install.istio.io"];

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let Some(head) = head(document) else { return false };
    let spec = document.find("spec").unwrap_or(document);
    match (head.group, head.kind) {
        ("networking.istio.io", "VirtualService") => virtual_service::read(source, spec, &head, inventory),
        ("networking.istio.io", "DestinationRule") => destination_rule(source, spec, &head, inventory),
        ("networking.istio.io", "ServiceEntry") => service_entry(source, spec, &head, inventory),
        ("networking.istio.io", kind @ ("EnvoyFilter" | "Sidecar")) => {
            let says = format!("{kind} {}: known, and not read", head.name);
            inventory.leave_out(Why::NotRead, source.of(document), says);
        }
        ("install.istio.io", "IstioOperator") => mesh(source, spec, inventory),
        _ => return false,
    }
    true
}

/// A host as a file of a namespace means it.
fn host(text: &str, head: &Head<'_>) -> Option<Name> {
    Name::of(text).map(|name| name.within(head.namespace))
}

fn destination_rule(source: &Source, spec: &Node, head: &Head<'_>, inventory: &mut Inventory) {
    let Some(written) = get(spec, "host") else { return };
    let Some(name) = written.text().and_then(|text| host(text, head)) else {
        let says =
            format!("DestinationRule {}: whose calls it is about is no name that could be looked for", head.name);
        return inventory.leave_out(Why::NotUnderstood, source.of(written), says);
    };
    let policy = get(spec, "trafficPolicy");
    let ports = policy.map(|policy| list(policy, "portLevelSettings")).unwrap_or_default();
    let subsets = list(spec, "subsets").iter().filter_map(|subset| get(subset, "trafficPolicy"));
    let mut whole = Sayings::default();
    match policy.and_then(|policy| at(policy, CONNECT)) {
        Some(_) => {}
        None => whole.unsaid("istio.connect_timeout", source.of(policy.unwrap_or(spec))),
    }
    whole.of(&On::CallsTo(name.clone()), inventory);
    for policy in policy.into_iter().chain(subsets) {
        traffic(source, policy).of(&On::CallsTo(name.clone()), inventory);
    }
    for policy in ports {
        let port = text(policy, &["port", "number"]).and_then(|port| port.parse().ok());
        traffic(source, policy).of(&On::CallsTo(Name { port, ..name.clone() }), inventory);
    }
}

const CONNECT: &[&str] = &["connectionPool", "tcp", "connectTimeout"];

fn traffic(source: &Source, policy: &Node) -> Sayings {
    let mut says = Sayings::default();
    let rows: &[(&str, &[&str])] = &[
        ("istio.connect_timeout", CONNECT),
        ("istio.tcp.idle_timeout", &["connectionPool", "tcp", "idleTimeout"]),
        ("istio.max_connection_duration", &["connectionPool", "tcp", "maxConnectionDuration"]),
        ("istio.idle_timeout", &["connectionPool", "http", "idleTimeout"]),
        ("istio.max_retries", &["connectionPool", "http", "maxRetries"]),
    ];
    says.add(source, policy, rows);
    if let Some(outliers) = get(policy, "outlierDetection") {
        says.or_default(source, outliers, "istio.ejection", &["baseEjectionTime"]);
    }
    says
}

/// Somebody outside of the mesh, by the names that are known inside. What selects workloads names what is described
/// elsewhere.
fn service_entry(source: &Source, spec: &Node, head: &Head<'_>, inventory: &mut Inventory) {
    if get(spec, "workloadSelector").is_some() {
        return;
    }
    for (node, name) in list(spec, "hosts").iter().filter_map(|node| Some((node, host(node.text()?, head)?))) {
        let component = inventory.component(name.to_string(), "", Role::Service, source.of(node));
        inventory.answers_to(component, Some(name));
    }
}

fn mesh(source: &Source, spec: &Node, inventory: &mut Inventory) {
    let Some(config) = get(spec, "meshConfig") else { return };
    let mut says = Sayings::default();
    let rows: &[(&str, &[&str])] = &[
        ("istio.mesh.connect_timeout", &["connectTimeout"]),
        ("istio.mesh.retries.attempts", &["defaultHttpRetryPolicy", "attempts"]),
        ("istio.mesh.retries.per_try_timeout", &["defaultHttpRetryPolicy", "perTryTimeout"]),
        ("istio.mesh.drain", &["defaultConfig", "terminationDrainDuration"]),
    ];
    says.add(source, config, rows);
    if says.any() {
        let component = inventory.component("Istio mesh", "Istio", Role::Between, source.of(config));
        says.of(&On::Component(component), inventory);
    }
}
