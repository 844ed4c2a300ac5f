//! Who answers to a name. Several may, in a repository with many examples: the nearest ones in the tree of files are
//! meant.
//!
//! What stands between (a mesh's route for `reviews`) comes before what it stands in front of, but for its own calls.

use std::collections::HashMap;

use crate::inventory::{Component, ComponentId, Edge, Inventory, Name, Role, Setting};

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
        let caller_is_between = component(call.from).is_some_and(|caller| caller.role == Role::Between);
        let candidates: Vec<(ComponentId, &Component)> = all
            .iter()
            .filter(|id| **id != call.from)
            .filter_map(|id| component(*id).map(|component| (*id, component)))
            .filter(|(_, component)| component.names.iter().any(|known| same(known, name)))
            .collect();
        let those = |between: bool| {
            let fitting = candidates.iter().filter(|(_, one)| (one.role == Role::Between) == between);
            nearest(fitting.map(|(id, component)| (*id, &*component.place.file)), &call.place.file)
        };
        let between = if caller_is_between { Vec::new() } else { those(true) };
        if between.is_empty() { those(false) } else { between }
    }
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
    let hosts = long.host == short.host || (!short.host.contains('.') && label(&long.host) == short.host);
    ports && hosts
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
