//! Labels of a compose file: which services Traefik passes requests to, and how often it tries.

use std::collections::BTreeMap;

use oneclock_yaml::Node;

use super::{local, rule::rule};
use crate::inventory::{Edge, Inventory, Name, On, Role, To};
use crate::source::{Place, Source};

type Label = (String, String, Place);

/// So many labels of a service are read.
const MOST_LABELS: usize = 256;
/// So many labels of retries are read.
const MOST_RETRIES: usize = 1024;

pub(crate) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let services = document.find("services").map(Node::entries).unwrap_or_default();
    let labelled: Vec<(&str, Vec<Label>)> = services
        .iter()
        .map(|(name, service)| (name.text.as_str(), labels(source, service)))
        .filter(|(_, labels)| labels.iter().any(|(key, _, _)| key.starts_with("traefik.http.routers.")))
        .collect();
    let Some((_, first)) = labelled.first() else { return false };
    let Some((_, _, place)) = first.first() else { return false };
    let component = inventory.component("traefik labels", "Traefik", Role::Gateway, place.clone());
    // A middleware of one service may be used by another.
    let all: Vec<&Label> = labelled
        .iter()
        .flat_map(|(_, labels)| labels)
        .filter(|label| label.0.contains(".retry."))
        .take(MOST_RETRIES)
        .collect();
    let before = inventory.edges.len();
    for (service, labels) in &labelled {
        for (key, value, place) in labels {
            if inventory.edges.len() - before >= super::MOST_CALLS {
                return true;
            }
            let Some(router) = key.strip_prefix("traefik.http.routers.").and_then(|rest| rest.strip_suffix(".rule"))
            else {
                continue;
            };
            let of =
                |part: &str| labels.iter().find(|(key, _, _)| *key == format!("traefik.http.routers.{router}.{part}"));
            let rule = rule(value);
            rule.hosts.iter().for_each(|host| inventory.answers_to(component, Name::of(host)));
            let ports = labels.iter().filter(|(key, _, _)| key.ends_with(".loadbalancer.server.port"));
            let port = ports.map(|(_, port, _)| port.parse().ok()).next().flatten();
            let Some(name) = Name::of(service) else { continue };
            let mut edge =
                Edge::new(component, To::Name(Name { port, ..name }), format!("router {router}"), place.clone());
            edge.path = rule.path;
            edge.methods = rule.methods;
            let used: Vec<&str> = of("middlewares")
                .map(|(_, names, _)| names.split(',').map(|name| local(name.trim())).collect())
                .unwrap_or_default();
            let mut retries: BTreeMap<&str, &Label> = BTreeMap::new();
            for label in &all {
                let Some((middleware, key)) =
                    label.0.strip_prefix("traefik.http.middlewares.").and_then(|rest| rest.split_once(".retry."))
                else {
                    continue;
                };
                if used.iter().any(|name| name.eq_ignore_ascii_case(middleware)) {
                    retries.entry(key).or_insert(label);
                }
            }
            if !retries.is_empty() {
                let repeats = retries.get("retrynonidempotentmethod").is_some_and(|(_, value, _)| value == "true");
                edge.spares_unsafe = Some(!repeats);
            }
            let edge = inventory.edge(edge);
            let by_status = retries.keys().any(|key| key.starts_with("status"));
            for (key, (_, value, place)) in retries {
                let id = match key {
                    "attempts" => super::attempts(by_status),
                    "initialinterval" => "traefik.retry_initial_interval",
                    "timeout" => "traefik.retry_timeout",
                    _ => continue,
                };
                inventory.say(On::Edge(edge), id, value, place.clone());
            }
        }
    }
    true
}

/// `key=value` of a list, or a mapping; the keys in lower case, as Traefik takes them.
fn labels(source: &Source, service: &Node) -> Vec<Label> {
    let of = |node: &Node| {
        let listed = node.items().iter().filter_map(|item| {
            let (key, value) = item.text()?.split_once('=')?;
            Some((key.trim().to_ascii_lowercase(), value.trim().to_owned(), source.of(item)))
        });
        let mapped = node.entries().iter().filter_map(|(key, value)| {
            Some((key.text.to_ascii_lowercase(), value.text()?.trim().to_owned(), source.of(value)))
        });
        listed.chain(mapped).collect::<Vec<_>>()
    };
    let nodes = [service.find("labels"), service.at(&["deploy", "labels"])];
    nodes.into_iter().flatten().flat_map(of).take(MOST_LABELS).collect()
}
