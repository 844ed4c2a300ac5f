//! `VirtualServer` and `VirtualServerRoute` of NGINX Inc.: upstreams with their times, and the routes that pass to them.

use std::collections::HashMap;

use oneclock_yaml::Node;

use super::super::kubernetes::Head;
use super::super::next_upstream::Conditions;
use crate::inventory::{Edge, Inventory, Name, On, Role, To};
use crate::source::Source;

/// The key of an upstream, the setting, and whether the product's default holds where it is not written.
const KEYS: &[(&str, &str, bool)] = &[
    ("connect-timeout", "nginx_inc.proxy_connect_timeout", true),
    ("read-timeout", "nginx_inc.proxy_read_timeout", true),
    ("send-timeout", "nginx_inc.proxy_send_timeout", true),
    ("next-upstream-tries", "nginx_inc.proxy_next_upstream_tries", false),
    ("next-upstream-timeout", "nginx_inc.proxy_next_upstream_timeout", false),
    ("fail-timeout", "nginx_inc.fail_timeout", false),
];

pub(super) fn read(source: &Source, document: &Node, head: &Head<'_>, inventory: &mut Inventory) {
    let product = "NGINX Ingress Controller";
    let component =
        inventory.component(format!("virtual server {}", head.name), product, Role::Gateway, source.of(document));
    inventory.answers_to(component, document.text_at(&["spec", "host"]).and_then(Name::of));
    let upstreams = document.at(&["spec", "upstreams"]).map(Node::items).unwrap_or_default();
    let upstreams: HashMap<&str, &Node> =
        upstreams.iter().filter_map(|one| Some((one.text_at(&["name"])?, one))).collect();
    let routes = document
        .at(&["spec", "routes"])
        .or_else(|| document.at(&["spec", "subroutes"]))
        .map(Node::items)
        .unwrap_or_default();
    for route in routes {
        let path = route.text_at(&["path"]);
        let splits = route.find("splits").map(Node::items).unwrap_or_default();
        let matches = route.find("matches").map(Node::items).unwrap_or_default();
        for action in std::iter::once(route).chain(splits).chain(matches) {
            let pass = action.at(&["action", "pass"]).or_else(|| action.at(&["action", "proxy", "upstream"]));
            let Some(upstream) = pass.and_then(Node::text).and_then(|name| upstreams.get(name)) else { continue };
            let Some(name) = upstream.text_at(&["service"]).and_then(Name::of) else { continue };
            let port = upstream.text_at(&["port"]).and_then(|port| port.parse().ok());
            let label = path.map_or_else(String::new, |path| format!("path {path}"));
            let to = To::Name(Name { port, ..name.within(head.namespace) });
            let mut edge =
                Edge::new(component, to, label, pass.map_or_else(|| source.of(action), |pass| source.of(pass)));
            edge.path = path.map(str::to_owned);
            let next = upstream.find("next-upstream").and_then(|node| Some((node.text()?, node)));
            let conditions = Conditions::of(next.map(|(text, _)| text));
            edge.spares_unsafe = (!conditions.off).then_some(!conditions.repeats_unsafe);
            let edge = inventory.edge(edge);
            for (key, id, default) in KEYS {
                let counts = key.ends_with("-tries");
                let row = if counts { conditions.row(id) } else { (*id).to_owned() };
                let off = next.filter(|_| counts && conditions.off);
                match (off, upstream.find(key).and_then(|node| Some((node.text()?, source.of(node))))) {
                    (Some((_, node)), _) => inventory.say(On::Edge(edge), &row, "1", source.of(node)),
                    (None, None) if !default => {}
                    (None, written) => inventory.say_or_default(On::Edge(edge), &row, written, &source.of(upstream)),
                }
            }
        }
    }
}
