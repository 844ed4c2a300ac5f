//! One thing that two files describe is one component: a service of docker compose and the Spring application of that
//! name, a service of the topology file and the deployment that it is about.
//!
//! Merged are components that do work (no gateway, nothing that stands between), that share a name, and that different
//! readers found, where each of those readers found one such thing only: with two, the files are examples beside each
//! other, and which one is meant nobody knows.

use std::collections::HashMap;

use crate::inventory::{Component, ComponentId, Inventory, Role};

/// For every component, by its number, the one that stands for it.
pub(super) fn merged(inventory: &Inventory) -> Vec<ComponentId> {
    let mut stands: Vec<ComponentId> = (0..inventory.components.len()).map(ComponentId).collect();
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, component) in inventory.components.iter().enumerate() {
        if !works(component) {
            continue;
        }
        for name in component.names.iter().filter(|name| !super::names::is_loopback(&name.host)) {
            let group = groups.entry(super::names::label(&name.host)).or_default();
            if !group.contains(&number) {
                group.push(number);
            }
        }
    }
    for group in groups.values() {
        let readers: Vec<&str> =
            group.iter().filter_map(|at| inventory.components.get(*at)).map(|one| one.reader).collect();
        let mut once = readers.clone();
        once.sort_unstable();
        once.dedup();
        if group.len() < 2 || once.len() != readers.len() {
            continue;
        }
        let first = group.iter().filter_map(|at| stands.get(*at).copied()).min();
        for at in group {
            if let (Some(stand), Some(first)) = (stands.get_mut(*at), first) {
                *stand = first;
            }
        }
    }
    // A component with two names may have joined two groups: everybody stands where its first one stands.
    for number in 0..stands.len() {
        let mut stand = stands.get(number).copied().unwrap_or(ComponentId(number));
        while let Some(next) = stands.get(stand.0).copied().filter(|next| *next < stand) {
            stand = next;
        }
        if let Some(own) = stands.get_mut(number) {
            *own = stand;
        }
    }
    stands
}

fn works(component: &Component) -> bool {
    matches!(component.role, Role::Service | Role::Worker | Role::Store | Role::Broker)
}
