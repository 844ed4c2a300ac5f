//! What a controller built on nginx reads for all its Ingress objects: a `ConfigMap` whose name says that it is for one.
//!
//! It holds for every Ingress object that the controller serves, unless that says otherwise. Which of the two controllers it is for is told by the unit: with one it is that of NGINX Inc.

use oneclock_yaml::Node;

use super::super::kubernetes::Head;
use super::super::next_upstream::Conditions;
use crate::inventory::{Inventory, On, Role};
use crate::source::Source;

/// The key, and the setting for each of the controllers; empty where it has none.
const KEYS: &[(&str, &str, &str)] = &[
    ("proxy-connect-timeout", "ingress_nginx.proxy_connect_timeout", "nginx_inc.proxy_connect_timeout"),
    ("proxy-read-timeout", "ingress_nginx.proxy_read_timeout", "nginx_inc.proxy_read_timeout"),
    ("proxy-send-timeout", "ingress_nginx.proxy_send_timeout", "nginx_inc.proxy_send_timeout"),
    ("proxy-next-upstream-tries", "ingress_nginx.proxy_next_upstream_tries", ""),
    ("proxy-next-upstream-timeout", "ingress_nginx.proxy_next_upstream_timeout", ""),
    ("client-header-timeout", "ingress_nginx.client_header_timeout", ""),
    ("client-body-timeout", "ingress_nginx.client_body_timeout", ""),
    ("keep-alive", "ingress_nginx.keep_alive", ""),
    ("upstream-keepalive-timeout", "ingress_nginx.upstream_keepalive_timeout", ""),
    ("worker-shutdown-timeout", "ingress_nginx.worker_shutdown_timeout", "ingress_nginx.worker_shutdown_timeout"),
];

pub(super) fn read(source: &Source, document: &Node, head: &Head<'_>, inventory: &mut Inventory) -> bool {
    let named = head.name.contains("nginx") || head.name.contains("ingress");
    let data = document.find("data").map(Node::entries).unwrap_or_default();
    let found: Vec<_> = KEYS
        .iter()
        .filter_map(|keys| {
            data.iter().find(|(key, _)| key.text == keys.0).and_then(|(_, node)| Some((keys, node, node.text()?)))
        })
        .collect();
    if !named || found.is_empty() {
        return false;
    }
    let has_unit = |text: &str| text.trim().ends_with(|c: char| c.is_ascii_alphabetic());
    let inc = found.iter().any(|(keys, _, text)| keys.0 != "worker-shutdown-timeout" && has_unit(text));
    let product = if inc { "NGINX Ingress Controller" } else { "ingress-nginx" };
    let component =
        inventory.component(format!("{product} {}", head.name), product, Role::Gateway, source.of(document));
    inventory.controllers.push(component);
    let conditions = Conditions::of(document.text_at(&["data", "proxy-next-upstream"]));
    for ((_, plain, with_unit), node, text) in found {
        let id = if inc { with_unit } else { plain };
        if !id.is_empty() {
            let row = if id.ends_with("_tries") { conditions.row(id) } else { (*id).to_owned() };
            inventory.say(On::Component(component), &row, text, source.of(node));
        }
    }
    true
}
