//! Ingress objects with the annotations of their controllers, what such a controller reads for all of them, and the
//! `VirtualServer` of NGINX Inc.
//!
//! Two controllers are built on nginx, and their units differ: ingress-nginx takes seconds without a unit, the one of
//! NGINX Inc. (`nginx.org/`) wants one. Which controller serves an object is told by its annotations, not by the name of
//! its class, which both of them call `nginx`. An object that no annotation tells gets no defaults.
//!
//! Not read: what a controller gets as arguments, snippets of nginx in annotations, Ingress objects of other controllers
//! (their calls are, their settings are not).

mod config_map;
mod virtual_server;

use std::collections::HashSet;

use oneclock_yaml::Node;

use super::kubernetes::{Head, head};
use super::next_upstream::Conditions;
use crate::amount::shortened;
use crate::catalogue::known;
use crate::inventory::{ComponentId, Edge, EdgeId, Inventory, Name, On, Role, To, Why};
use crate::source::Source;

/// A controller: how its annotations begin, what it is called, and what it reads for a call or for the whole.
struct Controller {
    prefix: &'static str,
    product: &'static str,
    /// The key of an annotation, the setting, and whether the product's default holds where it is not written.
    calls: &'static [(&'static str, &'static str, bool)],
    whole: &'static [(&'static str, &'static str)],
}

const CONTROLLERS: &[Controller] = &[
    Controller {
        prefix: "nginx.ingress.kubernetes.io/",
        product: "ingress-nginx",
        calls: &[
            ("proxy-connect-timeout", "ingress_nginx.proxy_connect_timeout", true),
            ("proxy-read-timeout", "ingress_nginx.proxy_read_timeout", true),
            ("proxy-send-timeout", "ingress_nginx.proxy_send_timeout", true),
            ("proxy-next-upstream-tries", "ingress_nginx.proxy_next_upstream_tries", true),
            ("proxy-next-upstream-timeout", "ingress_nginx.proxy_next_upstream_timeout", false),
        ],
        whole: &[],
    },
    Controller {
        prefix: "nginx.org/",
        product: "NGINX Ingress Controller",
        calls: &[
            ("proxy-connect-timeout", "nginx_inc.proxy_connect_timeout", true),
            ("proxy-read-timeout", "nginx_inc.proxy_read_timeout", true),
            ("proxy-send-timeout", "nginx_inc.proxy_send_timeout", true),
            ("proxy-next-upstream-tries", "nginx_inc.proxy_next_upstream_tries", false),
            ("proxy-next-upstream-timeout", "nginx_inc.proxy_next_upstream_timeout", false),
            ("fail-timeout", "nginx_inc.fail_timeout", false),
        ],
        whole: &[],
    },
    Controller {
        prefix: "haproxy.org/",
        product: "HAProxy Kubernetes Ingress",
        calls: &[
            ("timeout-connect", "haproxy.timeout_connect", false),
            ("timeout-server", "haproxy.timeout_server", false),
            ("timeout-queue", "haproxy.timeout_queue", false),
            ("timeout-tunnel", "haproxy.timeout_tunnel", false),
            ("timeout-check", "haproxy.timeout_check", false),
        ],
        whole: &[
            ("timeout-client", "haproxy.timeout_client"),
            ("timeout-http-request", "haproxy.timeout_http_request"),
        ],
    },
    Controller {
        prefix: "haproxy-ingress.github.io/",
        product: "HAProxy Ingress",
        calls: &[
            ("timeout-connect", "haproxy.timeout_connect", false),
            ("timeout-server", "haproxy.timeout_server", false),
            ("timeout-queue", "haproxy.timeout_queue", false),
            ("timeout-tunnel", "haproxy.timeout_tunnel", false),
        ],
        whole: &[
            ("timeout-client", "haproxy.timeout_client"),
            ("timeout-http-request", "haproxy.timeout_http_request"),
        ],
    },
    Controller {
        prefix: "alb.ingress.kubernetes.io/",
        product: "AWS Load Balancer Controller",
        calls: &[("healthcheck-timeout-seconds", "alb_ingress.healthcheck_timeout", false)],
        whole: &[],
    },
];

/// Settings of the load balancer that an annotation lists as `key=value,key=value`.
const ATTRIBUTES: &[(&str, &str, &str)] = &[
    ("load-balancer-attributes", "idle_timeout.timeout_seconds", "alb_ingress.idle_timeout"),
    ("load-balancer-attributes", "client_keep_alive.seconds", "alb_ingress.client_keep_alive"),
    ("target-group-attributes", "deregistration_delay.timeout_seconds", "alb_ingress.deregistration_delay"),
];

pub(super) const WORDS: &[&str] = &["Ingress", "VirtualServer", "proxy-", "timeout-", "ConfigMap"];

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let Some(head) = head(document) else { return false };
    match (head.group, head.kind) {
        ("networking.k8s.io" | "extensions", "Ingress") => ingress(source, document, &head, inventory),
        ("k8s.nginx.org", "VirtualServer" | "VirtualServerRoute") => {
            virtual_server::read(source, document, &head, inventory)
        }
        ("", "ConfigMap") => return config_map::read(source, document, &head, inventory),
        _ => return false,
    }
    true
}

fn ingress(source: &Source, document: &Node, head: &Head<'_>, inventory: &mut Inventory) {
    let annotations = document.at(&["metadata", "annotations"]).map(Node::entries).unwrap_or_default();
    let annotation = |prefix: &str, key: &str| {
        annotations.iter().find(|(known, _)| known.text.strip_prefix(prefix) == Some(key)).map(|(_, node)| node)
    };
    let class = document
        .text_at(&["spec", "ingressClassName"])
        .or_else(|| annotation("kubernetes.io/ingress.", "class").and_then(Node::text));
    let told = |one: &&Controller| annotations.iter().any(|(known, _)| known.text.starts_with(one.prefix));
    let mut mine: Vec<&Controller> = CONTROLLERS.iter().filter(told).collect();
    if mine.is_empty() && class == Some("alb") {
        mine.extend(CONTROLLERS.iter().find(|one| one.prefix.starts_with("alb")));
    }
    let product = mine.first().map_or("", |one| one.product);
    let component = inventory.component(format!("ingress {}", head.name), product, Role::Gateway, source.of(document));
    let mut edges = Vec::new();
    for rule in document.at(&["spec", "rules"]).map(Node::items).unwrap_or_default() {
        inventory.answers_to(component, rule.text_at(&["host"]).and_then(Name::of));
        for path in rule.at(&["http", "paths"]).map(Node::items).unwrap_or_default() {
            let backend = path.find("backend");
            edges.extend(
                backend.and_then(|backend| call(source, head, component, backend, path.text_at(&["path"]), inventory)),
            );
        }
    }
    let backend = document.at(&["spec", "defaultBackend"]).or_else(|| document.at(&["spec", "backend"]));
    edges.extend(backend.and_then(|backend| call(source, head, component, backend, None, inventory)));
    // With the annotations of two controllers nobody knows which of them serves it.
    let sure = mine.len() == 1;
    let block = source.of(document);
    for controller in mine {
        let written =
            |key: &str| annotation(controller.prefix, key).and_then(|node| Some((node.text()?, source.of(node))));
        let next = written("proxy-next-upstream");
        let values: Vec<_> = controller.calls.iter().map(|call| (call, written(call.0))).collect();
        let streaming: HashSet<&str> =
            written("websocket-services").map(|(text, _)| text.split(',').map(str::trim).collect()).unwrap_or_default();
        let conditions = Conditions::of(next.as_ref().map(|(text, _)| *text));
        for (edge, service) in &edges {
            for ((key, id, default), written) in &values {
                let counts = key.ends_with("-tries");
                let row = if counts { conditions.row(id) } else { (*id).to_owned() };
                let off = next.as_ref().filter(|_| counts && conditions.off);
                match (off, written.clone()) {
                    (Some((_, place)), _) => inventory.say(On::Edge(*edge), &row, "1", place.clone()),
                    (None, None) if !(*default && sure) => {}
                    (None, Some((text, place))) if refuses(&row, text) => {
                        let says = format!("{key}: `{}` is refused, and the default holds", shortened(text));
                        inventory.leave_out(Why::NotUnderstood, place, says);
                        inventory.unsaid(On::Edge(*edge), &row, block.clone());
                    }
                    (None, written) => inventory.say_or_default(On::Edge(*edge), &row, written, &block),
                }
            }
            if let Some(edge) =
                inventory.edges.get_mut(edge.0).filter(|_| controller.product.to_ascii_lowercase().contains("nginx"))
            {
                edge.spares_unsafe = (!conditions.off).then_some(!conditions.repeats_unsafe);
                edge.streaming |= streaming.contains(service.as_str());
            }
        }
        for (key, id) in controller.whole {
            if let Some((text, place)) = written(key) {
                inventory.say(On::Component(component), id, text, place);
            }
        }
        if controller.prefix.starts_with("alb") {
            attributes(component, &written, &block, sure, inventory);
        }
    }
}

/// Whether a controller passes over a value because it has a unit.
fn refuses(row: &str, text: &str) -> bool {
    known(row).is_some_and(|known| known.bare && known.amount(text).is_err())
}

/// What the load balancer itself is told.
fn attributes<'a>(
    component: ComponentId,
    written: &dyn Fn(&str) -> Option<(&'a str, crate::source::Place)>,
    block: &crate::source::Place,
    sure: bool,
    inventory: &mut Inventory,
) {
    for (annotation, key, id) in ATTRIBUTES {
        let value = written(annotation).and_then(|(text, place)| {
            let pair = text.split(',').find_map(|pair| pair.split_once('=').filter(|(name, _)| name.trim() == *key));
            pair.map(|(_, value)| (value.trim(), place))
        });
        match value {
            None if !sure => {}
            value => inventory.say_or_default(On::Component(component), id, value, block),
        }
    }
}

/// The call to a backend, and its service.
fn call(
    source: &Source,
    head: &Head<'_>,
    from: ComponentId,
    backend: &Node,
    path: Option<&str>,
    inventory: &mut Inventory,
) -> Option<(EdgeId, String)> {
    let service = backend.text_at(&["service", "name"]).or_else(|| backend.text_at(&["serviceName"]))?;
    let port = backend.text_at(&["service", "port", "number"]).or_else(|| backend.text_at(&["servicePort"]));
    let name = Name::of(service)?.within(head.namespace);
    let name = Name { port: port.and_then(|port| port.parse().ok()), ..name };
    let label = path.map_or_else(String::new, |path| format!("path {path}"));
    let mut edge = Edge::new(
        from,
        To::Name(name),
        label,
        source.of(backend.find("service").and_then(|one| one.find("name")).unwrap_or(backend)),
    );
    edge.path = path.map(str::to_owned);
    Some((inventory.edge(edge), service.to_owned()))
}
