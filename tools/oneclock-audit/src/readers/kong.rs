//! Kong, as it is declared in a file (`_format_version`): services, their routes, and the targets of upstreams.
//!
//! A file is a component; every route of a service is a call with the times of the service. What a service does not say is
//! what the file's own defaults say (`_info.defaults`), and otherwise the product's.
//!
//! Not read: plugins, the annotations and resources of its ingress controller.

use std::collections::HashMap;

use oneclock_yaml::Node;

use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To, Why};
use crate::source::Source;

/// So many targets of an upstream are taken; the others are like them.
const MOST_TARGETS: usize = 16;
/// So many calls of one file are taken.
const MOST_CALLS: usize = 4096;

const TIMES: &[(&str, &str)] = &[
    ("connect_timeout", "kong.connect_timeout"),
    ("read_timeout", "kong.read_timeout"),
    ("write_timeout", "kong.write_timeout"),
    ("retries", "kong.retries"),
];

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let services = document.find("services").map(Node::items).unwrap_or_default();
    if document.find("_format_version").is_none() || services.is_empty() {
        return false;
    }
    let component = inventory.component(format!("kong {}", source.name()), "Kong", Role::Gateway, source.of(document));
    let upstreams = document.find("upstreams").map(Node::items).unwrap_or_default();
    let mut loose: HashMap<&str, Vec<&Node>> = HashMap::new();
    for route in document.find("routes").map(Node::items).unwrap_or_default() {
        let service = route.text_at(&["service", "name"]).or_else(|| route.text_at(&["service"]));
        loose.entry(service.unwrap_or_default()).or_default().push(route);
    }
    let file = File {
        source,
        component,
        first: inventory.edges.len(),
        defaults: document.at(&["_info", "defaults", "service"]),
        upstreams: upstreams.iter().filter_map(|one| Some((one.text_at(&["name"])?, one))).collect(),
    };
    for service in services {
        let name = service.text_at(&["name"]).unwrap_or_default();
        let routes = service.find("routes").map(Node::items).unwrap_or_default().iter();
        let routes: Vec<&Node> = routes.chain(loose.get(name).into_iter().flatten().copied()).collect();
        file.service(service, name, &routes, inventory);
    }
    true
}

struct File<'a> {
    source: &'a Source,
    component: ComponentId,
    first: usize,
    defaults: Option<&'a Node>,
    upstreams: HashMap<&'a str, &'a Node>,
}

impl File<'_> {
    fn service(&self, service: &Node, name: &str, routes: &[&Node], inventory: &mut Inventory) {
        let url = service.text_at(&["url"]);
        let host = url.or_else(|| service.text_at(&["host"])).unwrap_or_default();
        let port = service.text_at(&["port"]).and_then(|port| port.parse().ok());
        let targets =
            self.upstreams.get(host).and_then(|upstream| upstream.find("targets")).map(Node::items).unwrap_or_default();
        let targets = targets.iter().filter_map(|one| one.text_at(&["target"])).filter_map(Name::of);
        let mut targets: Vec<Name> = targets.take(MOST_TARGETS).collect();
        if targets.is_empty() {
            targets.extend(Name::of(host).map(|name| Name { port: port.or(name.port), ..name }));
        }
        if targets.is_empty() {
            let says = format!("service {}: whom it calls is not known here", crate::amount::shortened(name));
            return inventory.leave_out(Why::NotUnderstood, self.source.of(service), says);
        }
        let all = [None];
        let each: Vec<Option<&Node>> = routes.iter().map(|route| Some(*route)).collect();
        for route in if each.is_empty() { &all[..] } else { &each } {
            for target in &targets {
                if inventory.edges.len() - self.first >= MOST_CALLS {
                    return;
                }
                self.call(service, name, *route, target, inventory);
            }
        }
    }

    fn call(&self, service: &Node, name: &str, route: Option<&Node>, target: &Name, inventory: &mut Inventory) {
        let of = |key: &str| route.and_then(|route| route.find(key)).map(Node::items).unwrap_or_default();
        let place = service.find("url").or_else(|| service.find("host")).unwrap_or(service);
        let label = format!("service {}", crate::amount::shortened(name));
        let mut edge = Edge::new(self.component, To::Name(target.clone()), label, self.source.of(place));
        edge.path =
            of("paths").iter().find_map(Node::text).filter(|path| !path.starts_with('~')).map(crate::amount::shortened);
        edge.methods = of("methods").iter().take(16).filter_map(Node::text).map(str::to_owned).collect();
        let scheme = service.text_at(&["url"]).and_then(|url| url.split_once("://")).map(|(scheme, _)| scheme);
        let protocol = service.text_at(&["protocol"]).or(scheme);
        edge.streaming = matches!(protocol, Some("tcp" | "tls" | "tls_passthrough" | "udp" | "ws" | "wss"));
        // As nginx, which it is made of: POST, LOCK and PATCH are not sent twice.
        edge.spares_unsafe = (service.text_at(&["retries"]) != Some("0")).then_some(true);
        let edge = inventory.edge(edge);
        for (key, id) in TIMES {
            let written = service.find(key).or_else(|| self.defaults.and_then(|defaults| defaults.find(key)));
            let written = written.and_then(|node| Some((node.text()?, self.source.of(node))));
            inventory.say_or_default(On::Edge(edge), id, written, &self.source.of(service));
        }
    }
}
