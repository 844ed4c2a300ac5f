//! Who answers to a name. Several may, in a repository with many examples: the nearest ones in the tree of files are
//! meant.
//!
//! What stands between (a mesh's route for `reviews`) comes before what it stands in front of, but for its own calls and
//! for those of a gateway: a mesh's route for callers inside does not hold there. A gateway answers to a name only where
//! nobody else does, and never to a gateway of its own kind: what that calls lies behind it. What the topology file says
//! is said of this very repository, and comes before all others who do work. `localhost` is whoever is described in the
//! same file.

use std::collections::HashMap;

use crate::inventory::{Component, ComponentId, Edge, Inventory, Name, Role, Setting};
use crate::readers;

/// More than these are taken for nobody: a name that everybody has says nothing.
const MOST: usize = 16;

/// Everybody, by the first label of the names they answer to.
pub(super) struct Names {
    by_label: HashMap<String, Vec<ComponentId>>,
}

// === Names ===

impl Names {
    pub(super) fn of(inventory: &Inventory) -> Self {
        let mut by_label: HashMap<String, Vec<ComponentId>> = HashMap::new();
        for (number, component) in inventory.components.iter().enumerate() {
            for name in &component.names {
                let known = by_label.entry(label(&name.host).to_owned()).or_default();
                if known.last() != Some(&ComponentId(number)) {
                    known.push(ComponentId(number));
                }
            }
        }
        Self { by_label }
    }

    /// Those that the call means.
    pub(super) fn who(&self, name: &Name, call: &Edge, inventory: &Inventory) -> Vec<ComponentId> {
        let all = self.by_label.get(label(&name.host)).map(Vec::as_slice).unwrap_or_default();
        let component = |id: ComponentId| inventory.components.get(id.0);
        let product = component(call.from).map(|caller| &caller.product);
        let caller = component(call.from).map(|caller| caller.role);
        let own_kind = |one: &Component| {
            one.role == Role::Gateway && caller == Some(Role::Gateway) && product == Some(&one.product)
        };
        let here = is_loopback(&name.host);
        let candidates: Vec<(ComponentId, &Component)> = all
            .iter()
            .filter(|id| **id != call.from)
            .filter_map(|id| component(*id).map(|component| (*id, component)))
            .filter(|(_, component)| !here || component.place.file == call.place.file)
            .filter(|(_, component)| component.names.iter().any(|known| same(known, name)) && !own_kind(component))
            .collect();
        let works = |role: Role| !matches!(role, Role::Between | Role::Gateway);
        let said: Vec<ComponentId> = candidates
            .iter()
            .filter(|(_, one)| works(one.role) && one.reader == readers::TOPOLOGY)
            .map(|(id, _)| *id)
            .collect();
        let those = |fits: fn(Role) -> bool| {
            let fitting = candidates.iter().filter(|(_, one)| fits(one.role));
            nearest(fitting.map(|(id, component)| (*id, &*component.place.file)), &call.place.file)
        };
        let mut found = Vec::new();
        if !matches!(caller, Some(Role::Between | Role::Gateway)) {
            found = those(|role| role == Role::Between);
        }
        if found.is_empty() {
            found = if said.is_empty() { those(works) } else { said };
        }
        if found.is_empty() && caller != Some(Role::Between) {
            found = those(|role| role == Role::Gateway);
        }
        found
    }
}

/// Whether a host is the machine itself, which is another one in every file.
pub(super) fn is_loopback(host: &str) -> bool {
    matches!(host, "localhost" | "::1" | "0.0.0.0") || host.starts_with("127.")
}

/// What is said of everybody's calls to this name, or to another name of those who answer to it.
pub(super) fn about<'a>(
    name: &Name,
    callees: &[ComponentId],
    call: &Edge,
    all: &[(&Name, &'a Setting)],
    inventory: &Inventory,
) -> Vec<&'a Setting> {
    let others = callees.iter().filter_map(|id| inventory.components.get(id.0)).flat_map(|component| &component.names);
    let names: Vec<&Name> = std::iter::once(name).chain(others).collect();
    let fitting = all.iter().filter(|(about, _)| names.iter().any(|name| same(about, name)));
    nearest(fitting.map(|(_, setting)| (*setting, &*setting.place.file)), &call.place.file)
}

/// Those whose file shares most folders with `file`; nobody, where too many do.
fn nearest<'f, T>(all: impl Iterator<Item = (T, &'f str)>, file: &str) -> Vec<T> {
    let mut best = 0;
    let mut found = Vec::new();
    for (one, its_file) in all {
        let shared = shared(its_file, file);
        if shared > best {
            found.clear();
        }
        if shared >= best {
            best = shared;
            found.push(one);
        }
    }
    if found.len() > MOST { Vec::new() } else { found }
}

/// How near two files are: the folders they share, and one more where they are the same.
fn shared(a: &str, b: &str) -> usize {
    if a == b {
        return usize::MAX;
    }
    a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b).count() + 1
}

/// Whether a name means what another one says. Without a namespace it means any; without a port likewise.
fn same(known: &Name, asked: &Name) -> bool {
    let ports = known.port.is_none() || asked.port.is_none() || known.port == asked.port;
    let (long, short) = if known.host.len() >= asked.host.len() { (known, asked) } else { (asked, known) };
    let within = !short.host.contains('.') && label(&long.host) == short.host && !is_public(&long.host);
    ports && (long.host == short.host || within)
}

/// Whether a host is one of the internet: `shop.example.com` is not the `shop` of a cluster. `shop.io` is one, too; a
/// namespace of that name is the rarer thing.
fn is_public(host: &str) -> bool {
    const ENDS: &[&str] = &[
        "com", "org", "net", "io", "dev", "app", "cloud", "edu", "gov", "info", "biz", "de", "uk", "fr", "eu", "us",
        "ch", "nl", "cn", "jp", "ru", "br", "au",
    ];
    host.rsplit_once('.').is_some_and(|(_, end)| ENDS.contains(&end))
}

/// The first label of a host; all of an address.
pub(super) fn label(host: &str) -> &str {
    let address = host.contains(':') || host.chars().all(|c| c.is_ascii_digit() || c == '.');
    if address { host } else { host.split('.').next().unwrap_or(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn are_the_same(known: &str, asked: &str, want: bool) {
        let name = |text: &str| Name::of(text).expect("a name");
        assert_eq!(same(&name(known), &name(asked)), want, "{known} {asked}");
        assert_eq!(same(&name(asked), &name(known)), want, "{asked} {known}");
    }

    #[test]
    fn names_with_and_without_a_namespace() {
        are_the_same("reviews", "reviews.prod", true);
        are_the_same("reviews.prod", "reviews.test", false);
        are_the_same("reviews:80", "reviews:9080", false);
        are_the_same("reviews:80", "reviews", true);
        are_the_same("reviews", "review", false);
        are_the_same("10.0.0.1", "10.0.0.2", false);
        are_the_same("127.0.0.1:3000", "127.0.0.1:3000", true);
        are_the_same("api.example.com", "api.example.org", false);
        are_the_same("api.example.com", "api", false);
        are_the_same("api.example", "api", true);
    }

    #[test]
    fn the_nearest_is_meant() {
        let files = ["a/x/one.yaml", "a/y/two.yaml", "b/three.yaml"];
        let near = |file: &str| nearest(files.iter().map(|file| (*file, *file)), file);
        assert_eq!(near("a/y/caller.yaml"), ["a/y/two.yaml"]);
        assert_eq!(near("a/caller.yaml"), ["a/x/one.yaml", "a/y/two.yaml"]);
        assert_eq!(near("b/three.yaml"), ["b/three.yaml"]);
        assert_eq!(near("c/caller.yaml").len(), 3);
    }
}
