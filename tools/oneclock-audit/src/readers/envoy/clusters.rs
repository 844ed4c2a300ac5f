//! Clusters: the hosts behind a name, and what bounds calls to them.

use std::collections::HashMap;

use oneclock_yaml::Node;

use super::super::proto::{Sayings, at, get, list, text};
use crate::inventory::{EdgeId, Inventory, Name, On};
use crate::source::Source;

/// More hosts than these of one cluster are not told apart.
const MOST_HOSTS: usize = 4;

/// Nor are more checks and thresholds.
const MOST_OF_A_KIND: usize = 4;

/// The clusters of a file, by their name.
pub(super) struct Clusters<'a> {
    by_name: HashMap<&'a str, Cluster>,
}

#[derive(Default)]
struct Cluster {
    hosts: Vec<Name>,
    /// What bears on every call to it.
    calls: Sayings,
    /// What bears on calls of HTTP besides.
    requests: Sayings,
}

// === Clusters ===

impl<'a> Clusters<'a> {
    /// Clusters, and endpoints that stand beside them.
    pub(super) fn of(source: &Source, clusters: &[&'a Node], assignments: &[&'a Node]) -> Self {
        let mut by_name: HashMap<&'a str, Cluster> = HashMap::new();
        for assignment in assignments {
            let Some(name) = text(assignment, &["cluster_name"]) else { continue };
            by_name.insert(name, Cluster { hosts: hosts(assignment), ..Cluster::default() });
        }
        for cluster in clusters {
            let Some(name) = text(cluster, &["name"]) else { continue };
            let elsewhere = text(cluster, &["eds_cluster_config", "service_name"]).unwrap_or(name);
            let own = get(cluster, "load_assignment").map(hosts).unwrap_or_default();
            let old = list(cluster, "hosts").iter().filter_map(address);
            let mut hosts: Vec<Name> = own.into_iter().chain(old).take(MOST_HOSTS).collect();
            if hosts.is_empty() {
                hosts = by_name.get(elsewhere).map(|known| known.hosts.clone()).unwrap_or_default();
            }
            by_name.insert(name, Cluster { hosts, ..Cluster::of(source, cluster) });
        }
        Self { by_name }
    }

    /// Where calls to a cluster go: to its hosts, or to its own name, where these stand elsewhere or in variables. People
    /// call a cluster what its service is called.
    pub(super) fn targets(&self, name: &str) -> Vec<Name> {
        let hosts = self.by_name.get(name).map(|cluster| cluster.hosts.clone()).unwrap_or_default();
        if hosts.is_empty() { named(name).into_iter().collect() } else { hosts }
    }

    /// What a cluster says about a call to it. Nothing, not even a default, where the cluster stands elsewhere.
    pub(super) fn settings(&self, name: &str, edge: EdgeId, is_http: bool, inventory: &mut Inventory) {
        let Some(cluster) = self.by_name.get(name) else { return };
        cluster.calls.of(&On::Edge(edge), inventory);
        if is_http {
            cluster.requests.of(&On::Edge(edge), inventory);
        }
    }
}

// === Cluster ===

impl Cluster {
    fn of(source: &Source, node: &Node) -> Self {
        let mut calls = Sayings::default();
        calls.or_default(source, node, "envoy.cluster.connect_timeout", &["connect_timeout"]);
        for check in list(node, "health_checks").iter().take(MOST_OF_A_KIND) {
            calls.add(source, check, &[("envoy.cluster.health_check.timeout", &["timeout"])]);
        }
        let thresholds = get(node, "circuit_breakers").map(|all| list(all, "thresholds")).unwrap_or_default();
        for threshold in thresholds.iter().take(MOST_OF_A_KIND) {
            calls.add(source, threshold, &[("envoy.cluster.max_retries", &["max_retries"])]);
        }
        if let Some(outliers) = get(node, "outlier_detection") {
            calls.or_default(source, outliers, "envoy.cluster.ejection", &["base_ejection_time"]);
        }
        let mut requests = Sayings::default();
        let options = protocol_options(node).unwrap_or(node);
        let common = "common_http_protocol_options";
        requests.or_default(source, options, "envoy.cluster.idle_timeout", &[common, "idle_timeout"]);
        let rows: &[(&str, &[&str])] = &[
            ("envoy.cluster.max_stream_duration", &[common, "max_stream_duration"]),
            ("envoy.cluster.max_connection_duration", &[common, "max_connection_duration"]),
        ];
        requests.add(source, options, rows);
        Self { hosts: Vec::new(), calls, requests }
    }
}

/// A cluster's name as that of a host. Istio's say both: `outbound|9080||reviews.prod.svc.cluster.local`.
pub(super) fn named(name: &str) -> Option<Name> {
    let mut parts = name.split('|');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(port), Some(_), Some(host)) => {
            Name::of(host).map(|name| Name { port: port.parse().ok().or(name.port), ..name })
        }
        _ => Name::of(name),
    }
}

/// The different hosts of an assignment.
fn hosts(assignment: &Node) -> Vec<Name> {
    let mut hosts = Vec::new();
    for endpoint in list(assignment, "endpoints").iter().flat_map(|locality| list(locality, "lb_endpoints")) {
        let name = at(endpoint, &["endpoint", "address"]).and_then(address);
        hosts.extend(name.filter(|name| !hosts.contains(name)));
        if hosts.len() >= MOST_HOSTS {
            break;
        }
    }
    hosts
}

/// A socket address; `None` for a pipe, and for what a variable says.
pub(super) fn address(node: &Node) -> Option<Name> {
    let host = Name::of(text(node, &["socket_address", "address"])?)
        // An IPv6 address stands without its brackets here.
        .or_else(|| Name::of(&format!("[{}]", text(node, &["socket_address", "address"])?)))?;
    let port = text(node, &["socket_address", "port_value"]).and_then(|port| port.parse().ok());
    Some(Name { port, ..host })
}

/// The options of HTTP, which stand under a long name.
fn protocol_options(cluster: &Node) -> Option<&Node> {
    let all = get(cluster, "typed_extension_protocol_options")?;
    all.entries().iter().find(|(key, _)| key.text.ends_with("HttpProtocolOptions")).map(|(_, options)| options)
}
