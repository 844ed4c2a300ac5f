//! Envoy: a bootstrap, or a piece of one (a file of listeners, routes, clusters or endpoints, a dump of what runs), in
//! YAML or JSON, with keys in either spelling (`virtual_hosts`, `virtualHosts`).
//!
//! What is found by its shape, wherever it stands: listeners ([`listener`]), routes ([`routes`]), clusters with their
//! endpoints ([`clusters`]). Each chain of a listener is a component of its own, since each has clocks of its own; clusters
//! of a file without listeners are components too, by whose name the routes of another file find them.
//!
//! Listed and not read: routes as a matcher tree, clusters that a header or a plug-in chooses, routes that come from a
//! control plane, listeners of other protocols, templates by another name than YAML. What a control plane says besides,
//! and runtime keys, no file shows.
//!
//! A gRPC call's own `grpc-timeout` goes on to the service unchanged, so a route for gRPC hands deadlines on. All other
//! routes do not: `x-envoy-expected-rq-timeout-ms` goes along, but nobody is known to stop by it.

mod clusters;
mod filters;
mod listener;
mod routes;

use std::collections::HashMap;

use oneclock_yaml::Node;

use self::clusters::Clusters;
use super::kubernetes::head;
use super::proto::get;
use crate::inventory::{Edge, Inventory, Name, Role, To};
use crate::source::Source;

/// One of these has every file that could be one of Envoy's.
pub(super) const WORDS: &[&str] = &[
    "virtual_hosts",
    "virtualHosts",
    "load_assignment",
    "loadAssignment",
    "filter_chains",
    "filterChains",
    "static_resources",
    "staticResources",
    "envoy.config.cluster",
    "lb_endpoints",
];

/// A template that becomes one of Envoy's files.
pub(super) fn is_template(source: &Source) -> bool {
    let template =
        ["tmpl", "tpl", "gotmpl", "template", "j2", "jinja", "jinja2", "in"].contains(&source.extension().as_str());
    template
        && source.name().to_ascii_lowercase().contains("envoy")
        && WORDS.iter().any(|word| source.text.contains(word))
}

/// What stands in a file, by its shape.
#[derive(Default)]
struct Found<'a> {
    listeners: Vec<&'a Node>,
    clusters: Vec<&'a Node>,
    assignments: Vec<&'a Node>,
    routes: Vec<&'a Node>,
}

/// What all parts of a file have in common.
struct File<'a> {
    source: &'a Source,
    clusters: Clusters<'a>,
    /// Routes that are not inside of a listener, by their name.
    routes: HashMap<&'a str, &'a Node>,
    /// How many calls were known before this file.
    calls_before: usize,
}

pub(super) fn read(source: &Source, documents: &[Node], inventory: &mut Inventory) -> bool {
    let mut found = Found::default();
    for document in documents.iter().filter(|document| head(document).is_none()) {
        found.gather(document);
    }
    let Found { listeners, clusters, assignments, routes } = found;
    if listeners.is_empty() && clusters.is_empty() && assignments.is_empty() && routes.is_empty() {
        return false;
    }
    let named = routes.iter().filter_map(|routes| Some((get(routes, "name")?.text()?, *routes))).collect();
    let calls_before = inventory.edges.len();
    let clusters_of_file = Clusters::of(source, &clusters, &assignments);
    let file = File { source, clusters: clusters_of_file, routes: named, calls_before };
    let mut taken = HashMap::new();
    for one in &listeners {
        listener::read(&file, one, &mut taken, inventory);
    }
    for one in routes.iter().filter(|one| !taken.contains_key(&one.place)) {
        let name = get(one, "name").and_then(Node::text).unwrap_or("of a file");
        let component = inventory.component(format!("Envoy routes {name}"), "Envoy", Role::Gateway, source.of(one));
        routes::read(&file, one, component, inventory);
    }
    if listeners.is_empty() && routes.is_empty() {
        for cluster in clusters {
            alone(&file, cluster, inventory);
        }
    }
    true
}

/// A cluster whose routes stand in another file.
fn alone(file: &File<'_>, cluster: &Node, inventory: &mut Inventory) {
    let Some(name) = get(cluster, "name").and_then(Node::text) else { return };
    let place = file.source.of(cluster);
    let component = inventory.component(format!("Envoy cluster {name}"), "Envoy", Role::Service, place.clone());
    let targets = file.clusters.targets(name);
    let own = clusters::named(name);
    // A cluster that is called what its only host is called would stand before that host for everybody.
    let host = |name: &Option<Name>| name.as_ref().map(|name| name.host.clone());
    if targets.iter().all(|target| Some(&target.host) != host(&own).as_ref()) {
        inventory.answers_to(component, own);
    }
    for target in targets {
        let edge = inventory.edge(Edge::new(component, To::Name(target), format!("cluster {name}"), place.clone()));
        file.clusters.settings(name, edge, true, inventory);
    }
}

// === Found ===

impl<'a> Found<'a> {
    /// In the order of the document; what has been recognised is not looked into.
    fn gather(&mut self, document: &'a Node) {
        let mut stack = vec![document];
        while let Some(node) = stack.pop() {
            let has = |key| get(node, key).is_some();
            if has("filter_chains") || has("default_filter_chain") {
                self.listeners.push(node);
            } else if has("virtual_hosts") {
                self.routes.push(node);
            } else if is_cluster(node) {
                self.clusters.push(node);
            } else if has("cluster_name") && has("endpoints") {
                self.assignments.push(node);
            } else {
                stack.extend(node.items().iter().rev());
                stack.extend(node.entries().iter().rev().map(|(_, value)| value));
            }
        }
    }
}

fn is_cluster(node: &Node) -> bool {
    let discovery = ["STATIC", "STRICT_DNS", "LOGICAL_DNS", "EDS", "ORIGINAL_DST"];
    let by_type = get(node, "type")
        .and_then(Node::text)
        .is_some_and(|text| discovery.contains(&text.to_ascii_uppercase().as_str()));
    let other =
        ["load_assignment", "cluster_type", "eds_cluster_config", "hosts"].iter().any(|key| get(node, key).is_some());
    get(node, "name").is_some() && (by_type || other)
}
