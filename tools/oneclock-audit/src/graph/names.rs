//! Who answers to a name. Several may, in a repository with many examples: the nearest ones in the tree of files are
//! meant.
//!
//! What stands between (a mesh's route for `reviews`) comes before what it stands in front of, but for its own calls and
//! for those of a gateway: a mesh's route for callers inside does not hold there. A gateway answers to a name only where
//! nobody else does, and in a cluster never to a gateway of its own kind: what that calls lies behind it. What the topology file says
//! is said of this very repository, and comes before all others who do work. `localhost` is whoever is described in the
//! same file.
//!
//! `api` and `api.shop` are one name where `shop` is a namespace of something that is described here: no list tells
//! whether `api.openai` is of the internet.

use std::collections::{HashMap, HashSet};

use crate::inventory::{Component, ComponentId, Edge, Inventory, Name, On, Role, Setting, To};
use crate::readers;

/// The readers of what runs in Kubernetes: a service of docker compose does not answer there.
const CLUSTER: &[&str] = &["Kubernetes", "ingress controllers", "Gateway API", "Istio", "Linkerd"];

/// What more files than these describe is taken for nobody: a name that everybody has says nothing.
const MOST: usize = 16;
/// The same of more than so many in fewer files.
const MOST_IN_ALL: usize = 256;

/// Everybody, by the first label of the names they answer to.
pub(super) struct Names {
    by_label: HashMap<String, Vec<ComponentId>>,
    /// The namespaces of what is described here.
    namespaces: HashSet<String>,
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
        Self { by_label, namespaces: namespaces(inventory).map(str::to_owned).collect() }
    }

    /// Those that the call means.
    ///
    /// # Errors
    /// So many answer to the name that none of them is meant.
    pub(super) fn who(&self, name: &Name, call: &Edge, inventory: &Inventory) -> Result<Vec<ComponentId>, usize> {
        let all = self.by_label.get(label(&name.host)).map(Vec::as_slice).unwrap_or_default();
        let component = |id: ComponentId| inventory.components.get(id.0);
        let in_cluster = component(call.from).is_some_and(|caller| CLUSTER.contains(&caller.reader));
        let product = component(call.from).map(|caller| &caller.product);
        let caller = component(call.from).map(|caller| caller.role);
        let own_kind = |one: &Component| {
            in_cluster && one.role == Role::Gateway && caller == Some(Role::Gateway) && product == Some(&one.product)
        };
        let here = name.is_loopback() || name.is_everywhere();
        let candidates: Vec<(ComponentId, &Component)> = all
            .iter()
            .filter(|id| **id != call.from)
            .filter_map(|id| component(*id).map(|component| (*id, component)))
            .filter(|(_, component)| !here || component.place.file == call.place.file)
            .filter(|(_, component)| !(in_cluster && component.reader == "compose"))
            .filter(|(_, component)| component.names.iter().any(|known| self.same(known, name)) && !own_kind(component))
            .collect();
        let works = |role: Role| !matches!(role, Role::Between | Role::Gateway);
        let those = |fits: fn(Role) -> bool| {
            let fitting = candidates.iter().filter(|(_, one)| fits(one.role));
            nearest(fitting.map(|(id, component)| (*id, &*component.place.file)), &call.place.file)
        };
        let mut found = Vec::new();
        if !matches!(caller, Some(Role::Between | Role::Gateway)) {
            found = those(|role| role == Role::Between)?;
        }
        if found.is_empty() {
            let said = candidates.iter().filter(|(_, one)| works(one.role) && one.reader == readers::TOPOLOGY);
            found = nearest(said.map(|(id, component)| (*id, &*component.place.file)), &call.place.file)?;
        }
        if found.is_empty() {
            found = those(works)?;
        }
        if found.is_empty() && caller != Some(Role::Between) {
            found = those(|role| role == Role::Gateway)?;
        }
        Ok(found)
    }

    /// What is said of everybody's calls to one of these names: the called one, and those of who answers to it.
    pub(super) fn about<'a, 'n>(
        &self,
        names: impl Iterator<Item = &'n Name>,
        call: &Edge,
        all: &[(&Name, &'a Setting)],
    ) -> Vec<&'a Setting> {
        let names: Vec<&Name> = names.collect();
        let fitting = all.iter().filter(|(about, _)| names.iter().any(|name| self.same(about, name)));
        nearest(fitting.map(|(_, setting)| (*setting, &*setting.place.file)), &call.place.file).unwrap_or_default()
    }

    /// Whether a name means what another one says. Without a namespace it means any of this repository; without a port
    /// likewise.
    fn same(&self, known: &Name, asked: &Name) -> bool {
        let ports = known.port.is_none() || asked.port.is_none() || known.port == asked.port;
        let (long, short) = if known.host.len() >= asked.host.len() { (known, asked) } else { (asked, known) };
        let within =
            || two_labels(&long.host).is_some_and(|(name, of)| name == short.host && self.namespaces.contains(of));
        ports && (long.host == short.host || within())
    }
}

/// The namespaces that something here is in. A gateway is called by names of the internet, and tells none; whom it
/// calls does.
fn namespaces(inventory: &Inventory) -> impl Iterator<Item = &str> {
    let inner = inventory.components.iter().filter(|one| one.role != Role::Gateway && CLUSTER.contains(&one.reader));
    let said = inventory.components.iter().filter(|one| one.reader == readers::TOPOLOGY);
    let own = |one: &Component, name: &str| one.names.iter().any(|other| other.host == name);
    let said = said.flat_map(move |one| {
        one.names.iter().filter_map(|name| two_labels(&name.host)).filter(move |(name, _)| own(one, name))
    });
    let called = inventory.edges.iter().filter(|call| {
        let caller = inventory.components.get(call.from.0).filter(|one| CLUSTER.contains(&one.reader));
        caller.is_some_and(|caller| matches!(caller.role, Role::Gateway | Role::Between))
    });
    let called = called.filter_map(|call| match &call.to {
        To::Name(name) => Some(name),
        To::Component(_) => None,
    });
    let about = inventory.settings.iter().filter_map(|setting| match &setting.on {
        On::CallsTo(name) => Some(name),
        _ => None,
    });
    let names = inner.flat_map(|one| &one.names).chain(called).chain(about);
    names.filter_map(|name| two_labels(&name.host)).chain(said).map(|(_, of)| of)
}

/// `reviews.prod`: the name, and what it is in.
fn two_labels(host: &str) -> Option<(&str, &str)> {
    host.split_once('.').filter(|(name, of)| !name.is_empty() && !of.is_empty() && !of.contains('.'))
}

/// Those whose file shares most folders with `file`; how many, where too many do.
pub(super) fn nearest<'f, T>(all: impl Iterator<Item = (T, &'f str)>, file: &str) -> Result<Vec<T>, usize> {
    let mut best = 0;
    let mut found = Vec::new();
    for (one, its_file) in all {
        let shared = shared(its_file, file);
        if shared > best {
            found.clear();
        }
        if shared >= best {
            best = shared;
            found.push((one, its_file));
        }
    }
    let files: HashSet<&str> = found.iter().map(|(_, file)| *file).collect();
    if files.len() > MOST || found.len() > MOST_IN_ALL {
        return Err(found.len());
    }
    Ok(found.into_iter().map(|(one, _)| one).collect())
}

/// How near two files are: the folders they share, and one more where they are the same.
fn shared(a: &str, b: &str) -> usize {
    if a == b {
        return usize::MAX;
    }
    a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b).count() + 1
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
        let namespaces = ["prod", "test", "shop"].map(str::to_owned).into();
        let names = Names { by_label: HashMap::new(), namespaces };
        assert_eq!(names.same(&name(known), &name(asked)), want, "{known} {asked}");
        assert_eq!(names.same(&name(asked), &name(known)), want, "{asked} {known}");
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
        are_the_same("api.openai.ai", "api", false);
        are_the_same("openai.ai", "openai", false);
        are_the_same("api.shop", "api", true);
        are_the_same("api.shop.example", "api", false);
    }

    #[test]
    fn the_nearest_is_meant() {
        let files = ["a/x/one.yaml", "a/y/two.yaml", "b/three.yaml"];
        let near = |file: &str| nearest(files.iter().map(|file| (*file, *file)), file).expect("a few");
        assert_eq!(near("a/y/caller.yaml"), ["a/y/two.yaml"]);
        assert_eq!(near("a/caller.yaml"), ["a/x/one.yaml", "a/y/two.yaml"]);
        assert_eq!(near("b/three.yaml"), ["b/three.yaml"]);
        assert_eq!(near("c/caller.yaml").len(), 3);
    }
}
