//! One thing that two files describe is one component: a service of docker compose and the Spring application of that
//! name, a service of the topology file and the deployment that it is about.
//!
//! Merged are components that do work (no gateway, nothing that stands between), that share a name, and that different
//! readers found, where each of those readers found one such thing only: with two, the files are examples beside each
//! other, and which one is meant nobody knows.
//!
//! A service of docker compose that runs nginx, with a file of the repository put into it, is the one nginx of that file; so
//! with every other server whose file is read.
//!
//! What is one component has all names of its parts. Its part, its order and its reserve are those of whoever states them,
//! the topology file before all others: that is said of this very repository.

use std::collections::{BTreeMap, HashMap};

use crate::inventory::{Component, ComponentId, Inventory, Role};
use crate::readers;

/// In a folder that is put into something, so many files are looked at.
const FILES: usize = 64;
/// The readers of servers that run somebody's own program: no image tells them.
const SERVERS: &[&str] = &["uWSGI", "gunicorn"];

/// Who is one with whom.
pub(super) struct Merged {
    /// For every component, by its number, the one that stands for it: the first one.
    pub(super) stands: Vec<ComponentId>,
    /// Those that stand for several, with what their parts say.
    pub(super) whole: HashMap<ComponentId, Component>,
}

/// Joins components.
pub(super) fn merged(inventory: &Inventory) -> Merged {
    let mut sets = Sets((0..inventory.components.len()).collect());
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, component) in inventory.components.iter().enumerate() {
        if !works(component) {
            continue;
        }
        for name in component.names.iter().filter(|name| !(name.is_loopback() || name.is_everywhere())) {
            let group = groups.entry(super::names::label(&name.host)).or_default();
            if group.last() != Some(&number) {
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
        if once.len() == readers.len() {
            group.iter().zip(group.iter().skip(1)).for_each(|(a, b)| sets.join(*a, *b));
        }
    }
    mounted(inventory, &mut sets);
    let stands: Vec<ComponentId> =
        (0..inventory.components.len()).map(|number| ComponentId(sets.root(number))).collect();
    let mut parts: HashMap<ComponentId, Vec<&Component>> = HashMap::new();
    for (stand, component) in stands.iter().zip(&inventory.components) {
        parts.entry(*stand).or_default().push(component);
    }
    parts.retain(|_, parts| parts.len() > 1);
    let whole = parts.into_iter().filter_map(|(stand, parts)| Some((stand, whole(parts)?))).collect();
    Merged { stands, whole }
}

/// What several descriptions of one thing say together, in the order of the inventory.
fn whole(mut parts: Vec<&Component>) -> Option<Component> {
    let mut whole = (*parts.first()?).clone();
    for name in parts.iter().flat_map(|part| &part.names) {
        if !whole.names.contains(name) {
            whole.names.push(name.clone());
        }
    }
    parts.sort_by_key(|part| part.reader != readers::TOPOLOGY);
    // Whoever says nothing else says "a service".
    whole.role = parts.iter().map(|part| part.role).find(|role| *role != Role::Service).unwrap_or(Role::Service);
    whole.order = parts.iter().find_map(|part| part.order);
    whole.reserve = parts.iter().map(|part| part.reserve).find(|reserve| !reserve.is_zero()).unwrap_or_default();
    Some(whole)
}

/// Sets of components, each known by its lowest number: whatever the order in which they are joined, they come to the
/// same.
struct Sets(Vec<usize>);

impl Sets {
    fn root(&mut self, of: usize) -> usize {
        let mut root = of;
        while let Some(above) = self.0.get(root).copied().filter(|above| *above != root) {
            root = above;
        }
        let mut at = of;
        while let Some(above) = self.0.get_mut(at).filter(|above| **above != root) {
            at = std::mem::replace(above, root);
        }
        root
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if let Some(above) = self.0.get_mut(a.max(b)) {
            *above = a.min(b);
        }
    }
}

fn works(component: &Component) -> bool {
    matches!(component.role, Role::Service | Role::Worker | Role::Store | Role::Broker)
}

/// What runs with a file of the repository, and what that file describes. With several of either nobody knows which.
fn mounted(inventory: &Inventory, sets: &mut Sets) {
    let mut described: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, one) in inventory.components.iter().enumerate() {
        described.entry(&one.place.file).or_default().push(number);
    }
    let mut times: HashMap<&str, usize> = HashMap::new();
    inventory.mounted.iter().for_each(|(_, path)| *times.entry(path).or_default() += 1);
    for (runs, path) in &inventory.mounted {
        let Some(service) = inventory.components.get(runs.0) else { continue };
        let alike = |number: &&usize| {
            inventory.components.get(**number).is_some_and(|one| match service.product.as_str() {
                "" => SERVERS.contains(&one.reader),
                product => one.product == product && one.reader != service.reader,
            })
        };
        let files =
            described.range(path.as_str()..).take_while(|(file, _)| file.starts_with(path.as_str())).take(FILES);
        let files = files.filter(|(file, _)| is_below(file, path));
        let mut found =
            files.flat_map(|(file, numbers)| numbers.iter().filter(alike).map(move |number| (*file, *number)));
        let (Some((file, number)), None) = (found.next(), found.next()) else { continue };
        let above = file.match_indices('/').filter_map(|(at, _)| file.get(..at));
        if above.chain([file]).filter_map(|path| times.get(path)).sum::<usize>() > 1 {
            continue;
        }
        sets.join(number, runs.0);
    }
}

fn is_below(file: &str, path: &str) -> bool {
    file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
