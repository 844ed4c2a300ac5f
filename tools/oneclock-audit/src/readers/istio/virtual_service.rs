//! `VirtualService`: which request to a host goes where, how long it may take, how often it is tried.
//!
//! Bound to gateways it is where outsiders come in; bound to `mesh`, or to nothing, it stands in front of its hosts for
//! everybody inside. Bound to both it is both.
//!
//! Without `timeout` there is none, unlike in Envoy by itself. Without `retries` there are two all the same, after
//! failures to connect and the like, not after a timeout.

use oneclock_yaml::Node;

use super::super::kubernetes::Head;
use super::super::matched::{MOST_MATCHES, Matched, matched};
use super::super::proto::{Sayings, at, get, list, text};
use super::host;
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To, Why};
use crate::source::Source;

/// The gateway that stands for everybody inside.
const MESH: &str = "mesh";

/// More destinations than these of one rule are not told apart.
const MOST_DESTINATIONS: usize = 16;

/// After these conditions a request was not worked on, so that any may be repeated.
const UNTOUCHED: &[&str] = &["connect-failure", "refused-stream", "reset-before-request"];

/// What a `VirtualService` stands for.
struct Front<'a> {
    component: ComponentId,
    /// Its gateways; `mesh` for everybody inside.
    gateways: Vec<&'a str>,
}

pub(super) fn read(source: &Source, spec: &Node, head: &Head<'_>, inventory: &mut Inventory) {
    let fronts = fronts(source, spec, head, inventory);
    for rule in list(spec, "http") {
        http(source, head, rule, &fronts, inventory);
    }
    for rule in list(spec, "tcp").iter().chain(list(spec, "tls")) {
        for name in destinations(source, head, rule, inventory) {
            for front in fronts.iter().filter(|front| front.takes(rule)) {
                let label = format!("connections of {}", head.name);
                let mut edge = Edge::new(front.component, To::Name(name.clone()), label, source.of(rule));
                edge.streaming = true;
                inventory.edge(edge);
            }
        }
    }
}

fn fronts<'a>(source: &Source, spec: &'a Node, head: &Head<'_>, inventory: &mut Inventory) -> Vec<Front<'a>> {
    let written: Vec<&str> = list(spec, "gateways").iter().filter_map(Node::text).take(MOST_MATCHES).collect();
    let gateways: Vec<&str> = written.iter().copied().filter(|gateway| *gateway != MESH).collect();
    let mut fronts = Vec::new();
    if let Some(first) = gateways.first() {
        let component = inventory.component(format!("gateway {first}"), "Istio", Role::Gateway, source.of(spec));
        fronts.push(Front { component, gateways: gateways.clone() });
    }
    if gateways.len() < written.len() || written.is_empty() {
        let name = format!("mesh route {}", head.name);
        let component = inventory.component(name, "Istio", Role::Between, source.of(spec));
        fronts.push(Front { component, gateways: vec![MESH] });
    }
    for name in list(spec, "hosts").iter().filter_map(Node::text).take(MOST_MATCHES) {
        for front in &fronts {
            inventory.answers_to(front.component, host(name, head));
        }
    }
    fronts
}

fn http(source: &Source, head: &Head<'_>, rule: &Node, fronts: &[Front<'_>], inventory: &mut Inventory) {
    if let Some(delegate) = get(rule, "delegate") {
        let says = "delegate: what another VirtualService says is not followed";
        inventory.leave_out(Why::NotRead, source.of(delegate), says);
    }
    // A redirect and an answer that stands in the file call nobody.
    let names = destinations(source, head, rule, inventory);
    if names.is_empty() {
        return;
    }
    let says = settings(source, rule);
    let spares_unsafe = spares_unsafe(rule);
    let streaming = text(rule, &["websocketUpgrade"]) == Some("true");
    let matches = list(rule, "match").iter().map(|one| (path(one), text(one, &["method", "exact"])));
    for Matched { path, methods } in matched(matches) {
        for (front, name) in fronts
            .iter()
            .filter(|front| front.takes(rule))
            .flat_map(|front| names.iter().map(move |name| (front, name)))
        {
            let label =
                format!("route {}{}", head.name, path.as_ref().map(|path| format!(" {path}")).unwrap_or_default());
            let mut edge = Edge::new(front.component, To::Name(name.clone()), label, source.of(rule));
            edge.methods.clone_from(&methods);
            edge.path.clone_from(&path);
            edge.spares_unsafe = spares_unsafe;
            edge.streaming = streaming;
            let edge = inventory.edge(edge);
            says.of(&On::Edge(edge), inventory);
        }
    }
}

/// The different hosts of a rule; subsets are not told apart.
fn destinations(source: &Source, head: &Head<'_>, rule: &Node, inventory: &mut Inventory) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    for destination in list(rule, "route").iter().filter_map(|one| get(one, "destination")) {
        if names.len() >= MOST_DESTINATIONS {
            break;
        }
        let Some(written) = get(destination, "host") else { continue };
        let Some(name) = written.text().and_then(|text| host(text, head)) else {
            inventory.leave_out(
                Why::NotUnderstood,
                source.of(written),
                "a host that is no name that could be looked for",
            );
            continue;
        };
        let port = text(destination, &["port", "number"]).and_then(|port| port.parse().ok()).or(name.port);
        let name = Name { port, ..name };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn settings(source: &Source, rule: &Node) -> Sayings {
    let mut says = Sayings::default();
    says.or_default(source, rule, "istio.timeout", &["timeout"]);
    match get(rule, "retries") {
        None => says.unsaid("istio.retries.attempts", source.of(rule)),
        // Whoever writes the rest of a policy and no number of attempts gets none.
        Some(policy) if get(policy, "attempts").is_none() => {
            says.text("istio.retries.attempts", "0", source.of(policy))
        }
        Some(policy) => {
            let rows: &[(&str, &[&str])] = &[
                ("istio.retries.attempts", &["attempts"]),
                ("istio.retries.per_try_timeout", &["perTryTimeout"]),
                ("istio.retries.backoff", &["backoff"]),
            ];
            says.add(source, policy, rows);
        }
    }
    says.add(source, rule, &[("istio.fault.fixed_delay", &["fault", "delay", "fixedDelay"])]);
    says
}

/// Whether what is tried again was not worked on before. By default that depends: on the version, and on whether gRPC is
/// spoken.
fn spares_unsafe(rule: &Node) -> Option<bool> {
    let policy = get(rule, "retries")?;
    let tries = text(policy, &["attempts"]).is_some_and(|attempts| attempts != "0");
    let conditions = text(policy, &["retryOn"]).filter(|conditions| tries && !conditions.is_empty())?;
    Some(conditions.split(',').all(|condition| UNTOUCHED.contains(&condition.trim())))
}

fn path(matched: &Node) -> Option<&str> {
    ["prefix", "exact", "regex"].iter().find_map(|kind| at(matched, &["uri", kind])).and_then(Node::text)
}

// === Front ===

impl Front<'_> {
    /// Whether a rule is for it: its matches may name gateways of their own.
    fn takes(&self, rule: &Node) -> bool {
        let matches = list(rule, "match");
        matches.is_empty()
            || matches.iter().take(MOST_MATCHES).any(|one| {
                let own = list(one, "gateways");
                own.is_empty() || own.iter().filter_map(Node::text).any(|gateway| self.gateways.contains(&gateway))
            })
    }
}
