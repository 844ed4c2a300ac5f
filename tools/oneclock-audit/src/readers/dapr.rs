//! Dapr's `Resiliency`: policies, and the applications, actors and components that they are laid on.
//!
//! A timeout holds for one attempt. A policy that a target names and nobody defines is listed. Not read: components, and
//! the policies for what comes in.

use std::collections::HashMap;

use oneclock_yaml::Node;

use super::kubernetes::head;
use crate::inventory::{Edge, Inventory, Name, On, Role, To, Why};
use crate::source::Source;

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    if !head(document).is_some_and(|head| head.group == "dapr.io" && head.kind == "Resiliency") {
        return false;
    }
    let mut policies = HashMap::new();
    for (group, named) in document.at(&["spec", "policies"]).map(Node::entries).unwrap_or_default() {
        policies
            .extend(named.entries().iter().map(|(name, policy)| ((group.text.as_str(), name.text.as_str()), policy)));
    }
    for (kind, targets) in document.at(&["spec", "targets"]).map(Node::entries).unwrap_or_default() {
        for (name, target) in targets.entries() {
            let target = if kind.text == "components" { target.find("outbound") } else { Some(target) };
            let (Some(target), Some(name)) = (target, Name::of(&name.text)) else { continue };
            let on = On::CallsTo(name.clone());
            let retry = target.text_at(&["retry"]).and_then(|name| policies.get(&("retries", name)));
            if let Some(retry) = retry.filter(|_| kind.text == "apps") {
                calls(source, name, target, retry, inventory);
            }
            one(source, &policies, target, &on, inventory);
        }
    }
    true
}

/// Whoever calls an application does it through its own sidecar, which repeats whatever failed, whatever its method is;
/// only a policy that names status codes may leave out what was worked on.
fn calls(source: &Source, name: Name, target: &Node, retry: &Node, inventory: &mut Inventory) {
    let sidecar = inventory.component("Dapr sidecar", "Dapr", Role::Between, source.of(target));
    let mut edge = Edge::new(sidecar, To::Name(name), "service invocation", source.of(target));
    edge.spares_unsafe = retry.find("matching").is_none().then_some(false);
    inventory.edge(edge);
}

fn one(source: &Source, policies: &HashMap<(&str, &str), &Node>, target: &Node, on: &On, inventory: &mut Inventory) {
    let named = |key: &str, group: &'static str, inventory: &mut Inventory| {
        let written = target.find(key)?;
        let found = policies.get(&(group, written.text()?)).copied();
        if found.is_none() {
            let says = format!("{key}: no policy of this name in this file");
            inventory.leave_out(Why::NotUnderstood, source.of(written), says);
        }
        found
    };
    if let Some(node) = named("timeout", "timeouts", inventory) {
        // Newer files nest it: `{responseTimeout: 5s}` is not a time.
        if let Some(text) = node.text() {
            inventory.say(on.clone(), "dapr.timeout", text, source.of(node));
        }
    }
    if let Some(retry) = named("retry", "retries", inventory) {
        let written = |key: &str| retry.find(key).and_then(|node| Some((node.text()?, source.of(node))));
        inventory.say_or_default(on.clone(), "dapr.retry.max_retries", written("maxRetries"), &source.of(retry));
        // An exponential one begins smaller; its bound is of no use here.
        let constant = retry.text_at(&["policy"]) != Some("exponential");
        if let Some((text, place)) = written("duration").filter(|_| constant) {
            inventory.say(on.clone(), "dapr.retry.duration", text, place);
        }
    }
    let breaker = named("circuitBreaker", "circuitBreakers", inventory).and_then(|breaker| breaker.find("timeout"));
    if let Some((text, node)) = breaker.and_then(|node| Some((node.text()?, node))) {
        inventory.say(on.clone(), "dapr.breaker.timeout", text, source.of(node));
    }
}
