//! What every document of Kubernetes has, and the workloads: who runs under which names, what its environment and its
//! command say, and how long it is given to end.
//!
//! The documents of a file bear on each other: a `Service` gives names to the workload that it selects, a `ConfigMap` its
//! variables. Across files names are joined by the graph: a workload that no `Service` of its file selects answers to its
//! own name, which is what its service is called in nearly all repositories.

mod workload;

use std::collections::HashMap;

use oneclock_yaml::Node;

use self::workload::Workload;
use super::environment::Near;
use crate::inventory::{Inventory, Name, On, Role, To};
use crate::source::Source;

/// What a document of Kubernetes is.
pub(super) struct Head<'a> {
    /// The group of `apiVersion`; empty for the core.
    pub(super) group: &'a str,
    /// The kind.
    pub(super) kind: &'a str,
    /// Its name; empty where it has none.
    pub(super) name: &'a str,
    /// Its namespace, where it says so.
    pub(super) namespace: Option<&'a str>,
}

/// `apiVersion`, `kind` and the name; `None` where the document is none of Kubernetes.
pub(super) fn head(document: &Node) -> Option<Head<'_>> {
    let version = document.text_at(&["apiVersion"])?;
    Some(Head {
        group: version.split_once('/').map_or("", |(group, _)| group),
        kind: document.text_at(&["kind"])?,
        name: document.text_at(&["metadata", "name"]).unwrap_or_default(),
        namespace: document.text_at(&["metadata", "namespace"]),
    })
}

/// A file is only parsed for this reader if it has one of them.
pub(super) const WORDS: &[&str] = &[
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "CronJob",
    "kind: Job",
    "kind: \"Job\"",
    "\"kind\": \"Job\"",
    "kind: Pod",
    "\"kind\": \"Pod\"",
    "serving.knative.dev",
];

/// A `Service`: its name, and what it selects.
struct Selecting<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
    labels: Vec<(&'a str, &'a str)>,
}

pub(super) fn read(source: &Source, documents: &[Node], inventory: &mut Inventory) -> bool {
    let objects = objects(documents);
    let heads: Vec<(Head<'_>, &Node)> = objects.iter().filter_map(|object| Some((head(object)?, *object))).collect();
    let services: Vec<Selecting<'_>> = heads.iter().filter_map(|(head, object)| Selecting::of(head, object)).collect();
    let maps: HashMap<&str, &Node> = heads
        .iter()
        .filter(|(head, _)| head.group.is_empty() && head.kind == "ConfigMap")
        .filter_map(|(head, object)| Some((head.name, object.find("data")?)))
        .collect();
    let workloads: Vec<Workload<'_>> = heads.iter().filter_map(|(head, object)| Workload::of(head, object)).collect();
    let mut took = !workloads.is_empty();
    // By one of the labels that they select, so that not every one has to be compared with every workload.
    let mut by_label: HashMap<(&str, &str), Vec<&Selecting<'_>>> = HashMap::new();
    for service in &services {
        if let Some(label) = service.labels.first() {
            by_label.entry(*label).or_default().push(service);
        }
    }
    let mut hosts = HashMap::new();
    for name in services.iter().map(|service| service.name).chain(workloads.iter().map(Workload::name)) {
        if let Some(name) = Name::of(name) {
            hosts.insert(name.host.clone(), To::Name(name));
        }
    }
    let mut near = Near { hosts, namespace: None, cluster: true };
    for workload in &workloads {
        let likely = workload.labels().filter_map(|label| by_label.get(&label)).flatten().take(256);
        let names: Vec<&str> = likely.filter(|service| service.selects(workload)).map(|service| service.name).collect();
        near.namespace = workload.namespace();
        workload.read(source, &names, &maps, &near, inventory);
    }
    for (head, object) in &heads {
        took |= knative(source, head, object, inventory);
    }
    took
}

/// The documents, and what their lists hold.
fn objects(documents: &[Node]) -> Vec<&Node> {
    documents
        .iter()
        .flat_map(|document| match document.text_at(&["kind"]) {
            Some(kind) if kind.ends_with("List") => {
                document.find("items").map(Node::items).unwrap_or_default().iter().collect()
            }
            _ => vec![document],
        })
        .collect()
}

/// Knative: a service of its own kind, which bounds each request. What is not said is the cluster's to say.
fn knative(source: &Source, head: &Head<'_>, object: &Node, inventory: &mut Inventory) -> bool {
    let spec = match (head.group, head.kind) {
        ("serving.knative.dev", "Service" | "Configuration") => object.at(&["spec", "template", "spec"]),
        ("serving.knative.dev", "Revision") => object.find("spec"),
        _ => None,
    };
    let Some(spec) = spec else { return false };
    let component = inventory.component(head.name, "Knative", Role::Service, source.of(object));
    inventory.answers_to(component, Name::of(head.name).map(|name| name.within(head.namespace)));
    for (key, id) in [
        ("timeoutSeconds", "knative.timeout"),
        ("responseStartTimeoutSeconds", "knative.response_start"),
        ("idleTimeoutSeconds", "knative.idle"),
    ] {
        if let Some((node, text)) = spec.find(key).and_then(|node| Some((node, node.text()?))) {
            inventory.say(On::Component(component), id, text, source.of(node));
        }
    }
    true
}

// === Selecting ===

impl<'a> Selecting<'a> {
    fn of(head: &Head<'a>, object: &'a Node) -> Option<Self> {
        if !head.group.is_empty() || head.kind != "Service" {
            return None;
        }
        let selector = object.at(&["spec", "selector"]).map(Node::entries).unwrap_or_default();
        let labels: Vec<(&str, &str)> =
            selector.iter().filter_map(|(key, value)| Some((key.text.as_str(), value.text()?))).collect();
        Some(Self { namespace: head.namespace, name: head.name, labels })
    }

    fn selects(&self, workload: &Workload<'_>) -> bool {
        self.namespace == workload.namespace()
            && !self.labels.is_empty()
            && self.labels.iter().all(|(key, value)| workload.has(key, value))
    }
}
