//! Traefik: its static file (entry points, the transport to servers) and its dynamic ones (routers, services, retries,
//! transports), in YAML or TOML, and what labels of a compose file say to it.
//!
//! A file is a component. What a static file does not say holds by default: where there is one, Traefik takes nothing from
//! arguments or the environment. What a dynamic file does not say may be said by the static one.
//!
//! Not read: arguments and environment, the resources of Kubernetes (`IngressRoute` and the like), weighted, mirrored and
//! failing-over services but for the services that they name.

mod labels;
mod rule;
mod toml;

use oneclock_yaml::Node;

use crate::inventory::{ComponentId, Edge, EdgeId, Inventory, Name, On, Role, To, Why};
use crate::source::Source;
use crate::walk::Repository;

pub(super) use labels::read as read_labels;

/// A service that names services that name services.
const DEEPEST: usize = 4;
/// So many servers of a service are taken; the others are like them.
const MOST_SERVERS: usize = 16;
/// So many calls of one file are taken.
const MOST_CALLS: usize = 4096;

pub(super) const WORDS: &[&str] = &["entryPoints", "entrypoints", "routers", "serversTransport", "loadBalancer"];

/// What an entry point says of its clients.
const FRONT: &[(&[&str], &str)] = &[
    (&["transport", "respondingTimeouts", "readTimeout"], "traefik.read_timeout"),
    (&["transport", "respondingTimeouts", "writeTimeout"], "traefik.write_timeout"),
    (&["transport", "respondingTimeouts", "idleTimeout"], "traefik.idle_timeout"),
    (&["transport", "lifeCycle", "graceTimeOut"], "traefik.grace_timeout"),
];
/// What a transport says of its calls.
const TRANSPORT: &[(&str, &str)] = &[
    ("dialTimeout", "traefik.dial_timeout"),
    ("responseHeaderTimeout", "traefik.response_header_timeout"),
    ("idleConnTimeout", "traefik.idle_conn_timeout"),
];

pub(super) fn is_mine(source: &Source) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| source.text.contains(word));
    source.extension() == "toml"
        && says(WORDS)
        && says(&["[entryPoints", "[entrypoints", "[http.", "[tcp.", "[serversTransport", "[http]"])
}

pub(super) fn read_text(source: &Source, _: &Repository, inventory: &mut Inventory) {
    match toml::document(&source.text) {
        Some(document) => {
            read(source, &document, inventory);
        }
        None if ["{{", "{%", "<%"].iter().any(|mark| source.text.contains(mark)) => {
            let says = "a template that is filled in elsewhere: audit what it becomes";
            inventory.leave_out(Why::Templated, source.place(1, 1, 1), says);
        }
        None => inventory.leave_out(Why::Unparsed, source.place(1, 1, 1), "no TOML"),
    }
}

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    // `routers` and `services` of `http` are words of Traefik only together with what stands in them.
    let points = find(document, "entryPoints")
        .filter(|points| points.entries().iter().any(|(_, point)| find(point, "address").is_some()));
    let has = |layer: &str, key: &str, inner: &[&str]| {
        let all = find(document, layer).and_then(|layer| find(layer, key)).map(Node::entries).unwrap_or_default();
        all.iter().any(|(_, one)| inner.iter().any(|word| find(one, word).is_some()))
    };
    let balanced = ["loadBalancer", "weighted", "failover", "mirroring"];
    let dynamic = ["http", "tcp"].iter().any(|layer| {
        has(layer, "routers", &["rule"])
            || has(layer, "services", &balanced)
            || has(layer, "serversTransports", &["forwardingTimeouts"])
    });
    if points.is_none() && !dynamic {
        return false;
    }
    let component =
        inventory.component(format!("traefik {}", source.name()), "Traefik", Role::Gateway, source.of(document));
    if let Some(points) = points {
        entry_points(source, points, component, inventory);
        let transport = find(document, "serversTransport").and_then(|one| find(one, "forwardingTimeouts"));
        for (key, id) in TRANSPORT {
            let written = transport.and_then(|one| said(source, one, key));
            inventory.say_or_default(On::Component(component), id, written, &source.of(points));
        }
    }
    for layer in ["http", "tcp"] {
        let Some(node) = find(document, layer) else { continue };
        let file = File { source, layer: node, component, tcp: layer == "tcp", first: inventory.edges.len() };
        for (name, router) in find(node, "routers").map(Node::entries).unwrap_or_default().iter().take(MOST_CALLS) {
            file.router(&name.text, router, inventory);
        }
    }
    true
}

/// Every entry point's own; what none of them says, once.
fn entry_points(source: &Source, points: &Node, component: ComponentId, inventory: &mut Inventory) {
    for (path, id) in FRONT {
        let mut written = false;
        for (_, point) in points.entries() {
            let node = path.iter().try_fold(point, |node, key| find(node, key));
            if let Some((node, text)) = node.and_then(|node| Some((node, node.text()?))) {
                inventory.say(On::Component(component), id, text, source.of(node));
                written = true;
            }
        }
        if !written {
            inventory.unsaid(On::Component(component), id, source.of(points));
        }
    }
}

struct File<'a> {
    source: &'a Source,
    /// `http` or `tcp`.
    layer: &'a Node,
    component: ComponentId,
    tcp: bool,
    first: usize,
}

impl File<'_> {
    fn router(&self, name: &str, router: &Node, inventory: &mut Inventory) {
        let rule = rule::rule(text(router, "rule").unwrap_or_default());
        for host in &rule.hosts {
            inventory.answers_to(self.component, Name::of(host));
        }
        let Some(service) = find(router, "service") else { return };
        let mut servers = Vec::new();
        self.servers(service.text().unwrap_or_default(), 0, &mut servers);
        let retry = find(router, "middlewares")
            .map(Node::items)
            .unwrap_or_default()
            .iter()
            .find_map(|one| self.retry(one.text()?));
        for (server, transport) in servers {
            if inventory.edges.len() - self.first >= MOST_CALLS {
                return;
            }
            let target = find(server, "url").or_else(|| find(server, "address")).unwrap_or(server);
            let Some(called) = target.text().and_then(Name::of) else {
                let says = format!("router {name}: whom it calls is not known here");
                inventory.leave_out(Why::NotUnderstood, self.source.of(target), says);
                continue;
            };
            let mut edge =
                Edge::new(self.component, To::Name(called), format!("router {name}"), self.source.of(target));
            edge.path.clone_from(&rule.path);
            edge.methods.clone_from(&rule.methods);
            edge.streaming = self.tcp;
            let edge = inventory.edge(edge);
            self.transport(transport, edge, inventory);
            if let Some(retry) = retry {
                retried(self.source, retry, edge, inventory);
            }
        }
    }

    /// The servers of a service, with the name of the transport to them.
    fn servers<'n>(&'n self, name: &str, depth: usize, servers: &mut Vec<(&'n Node, Option<&'n str>)>) {
        let Some(service) = find(self.layer, "services").and_then(|services| find(services, local(name))) else {
            return;
        };
        let balancer = find(service, "loadBalancer");
        let transport = balancer.and_then(|balancer| text(balancer, "serversTransport"));
        for server in balancer.and_then(|balancer| find(balancer, "servers")).map(Node::items).unwrap_or_default() {
            if servers.len() < MOST_SERVERS {
                servers.push((server, transport));
            }
        }
        if depth >= DEEPEST {
            return;
        }
        let weighted =
            find(service, "weighted").and_then(|one| find(one, "services")).map(Node::items).unwrap_or_default();
        let others = ["mirroring", "failover"]
            .iter()
            .filter_map(|key| find(service, key))
            .filter_map(|one| text(one, "service"));
        let fallback = find(service, "failover").and_then(|one| text(one, "fallback"));
        for other in
            weighted.iter().filter_map(|one| text(one, "name")).chain(others).chain(fallback).take(MOST_SERVERS)
        {
            self.servers(other, depth + 1, servers);
        }
    }

    fn transport(&self, name: Option<&str>, edge: EdgeId, inventory: &mut Inventory) {
        let found = name.and_then(|name| find(self.layer, "serversTransports").and_then(|all| find(all, local(name))));
        let Some(found) = found else { return };
        let inner = if self.tcp { Some(found) } else { find(found, "forwardingTimeouts") };
        for (key, id) in TRANSPORT.iter().filter(|(key, _)| !self.tcp || *key == "dialTimeout") {
            let written = inner.and_then(|one| said(self.source, one, key));
            inventory.say_or_default(On::Edge(edge), id, written, &self.source.of(found));
        }
    }

    fn retry(&self, name: &str) -> Option<&Node> {
        find(self.layer, "middlewares").and_then(|all| find(all, local(name))).and_then(|one| find(one, "retry"))
    }
}

/// What a middleware that tries again says of a call.
fn retried(source: &Source, retry: &Node, edge: EdgeId, inventory: &mut Inventory) {
    for (key, id) in [
        ("attempts", attempts(find(retry, "status").is_some())),
        ("initialInterval", "traefik.retry_initial_interval"),
        ("timeout", "traefik.retry_timeout"),
    ] {
        if let Some((text, place)) = said(source, retry, key) {
            inventory.say(On::Edge(edge), id, text, place);
        }
    }
    if let Some(edge) = inventory.edges.get_mut(edge.0) {
        edge.spares_unsafe = Some(text(retry, "retryNonIdempotentMethod") != Some("true"));
    }
}

/// The setting that counts attempts: without a status that is listed only what could not be sent is tried again.
const fn attempts(by_status: bool) -> &'static str {
    if by_status { "traefik.retry_attempts" } else { "traefik.retry_attempts.connects" }
}

fn said<'a>(source: &Source, node: &'a Node, key: &str) -> Option<(&'a str, crate::source::Place)> {
    let node = find(node, key)?;
    Some((node.text()?, source.of(node)))
}

/// The value of a key, however it is cased: Traefik does not care.
fn find<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    node.entries().iter().find(|(known, _)| known.text.eq_ignore_ascii_case(key)).map(|(_, node)| node)
}

fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    find(node, key).and_then(Node::text)
}

/// `service@file` is `service` of a file.
fn local(name: &str) -> &str {
    name.split_once('@').map_or(name, |(name, _)| name)
}
