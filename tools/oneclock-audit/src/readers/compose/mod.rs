//! Compose files: the services with their names, environments and commands, and what compose itself bounds.
//!
//! A service is what its own entry says over what it extends; anchors and merged fragments are one with it. Variables are
//! filled in from `.env` beside the file, as compose does it (of a `.env` that is not kept, its example). `depends_on` is
//! an order of starting, no call, and not read; neither are published ports, which say nothing about who calls. What
//! `compose.override.yaml` says stands over the file beside it, as compose takes it: a value and a command are replaced, what has
//! keys is joined key by key (an environment in either notation, a health check, volumes by where they are put), files of
//! variables are appended. Not read: `!reset` and `!override`.

mod service;

use std::collections::HashMap;

use oneclock_yaml::Node;

use self::service::{Layer, Service};
use super::environment::{Near, Vars, lines};
use super::started_by;
use crate::inventory::{Inventory, To, Why};
use crate::source::{Source, folder};
use crate::walk::{Repository, documents};

/// By its name, or by how it looks: `services:` with something below it, and images.
pub(super) fn mine(source: &Source) -> bool {
    if !matches!(source.extension().as_str(), "yaml" | "yml") || !source.text.contains("services:") {
        return false;
    }
    let name = source.name();
    let named = name.starts_with("compose") || name.starts_with("docker-compose") || name.contains("docker-compose");
    named || looks(&source.text)
}

fn looks(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| line.trim_end() != "services:").skip(1);
    let first = lines.find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let keyed =
        first.is_some_and(|line| line.starts_with(' ') && line.trim_end().ends_with(':') && !line.contains("- "));
    keyed && lines.any(|line| line.trim_start().starts_with("image:") || line.trim_start().starts_with("build:"))
}

/// No file that anybody wrote has more services; each may have others read for it.
const MOST: usize = 500;

/// What compose reads where no file is named: the first of them that is there.
const BASES: &[&str] = &["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"];
/// And what it lays over it.
const OVERRIDES: &[&str] =
    &["compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml"];

/// Files that others extend.
struct Files(Vec<(Source, Vec<Node>)>);

pub(super) fn read(source: &Source, repository: &Repository, inventory: &mut Inventory) {
    let folder = folder(&source.path);
    let first = |names: &[&str]| names.iter().find_map(|name| repository.open(&started_by::within(folder, name)).ok());
    let over = if BASES.contains(&source.name()) || OVERRIDES.contains(&source.name()) {
        first(BASES).zip(first(OVERRIDES))
    } else {
        None
    };
    // What is laid over another file is read with it.
    if over.as_ref().is_some_and(|(_, over)| over.path == source.path) {
        if let Some(Err((why, place, says))) = over.map(|(_, over)| documents(&over)) {
            inventory.leave_out(why, place, says);
        }
        return;
    }
    let over = over.filter(|(base, _)| base.path == source.path);
    let over = over.and_then(|(_, over)| Some((documents(&over).ok()?, over)));
    let over = over
        .as_ref()
        .and_then(|(documents, over)| Some((documents.iter().find_map(|document| document.find("services"))?, over)));
    let documents = match documents(source) {
        Ok(documents) => documents,
        Err((why, place, says)) => {
            inventory.leave_out(why, place, says);
            return;
        }
    };
    let vars = dotenv(repository, folder);
    for document in &documents {
        let Some(services) = document.find("services") else { continue };
        if services.entries().len() > MOST {
            let says = format!("{} services; no more than {MOST} of a file are read", services.entries().len());
            inventory.leave_out(Why::TooLarge, source.of(services), says);
        }
        let files = Files::of(services, folder, repository);
        let added = over.into_iter().flat_map(|(over, source)| {
            let own = over.entries().iter().take(MOST).filter(|(key, _)| services.find(&key.text).is_none());
            own.map(move |(key, node)| (key, Layer { source, node }))
        });
        let read: Vec<Service<'_>> = services
            .entries()
            .iter()
            .take(MOST)
            .map(|(key, node)| (key, Layer { source, node }))
            .chain(added)
            .filter(|(_, own)| !own.node.entries().is_empty())
            .map(|(key, own)| {
                let laid = over.and_then(|(over, source)| Some(Layer { source, node: over.find(&key.text)? }));
                let laid = laid.filter(|laid| laid.source.path != own.source.path);
                let layers = laid.into_iter().chain(layers(own, services, &files)).collect();
                Service::new(key, own, layers, &vars, (folder, repository), inventory)
            })
            .collect();
        let mut near = Near::default();
        for service in &read {
            for name in service.names() {
                near.hosts.insert(name, service.to());
            }
        }
        for service in &read {
            service.read(folder, &near, repository, inventory);
        }
    }
}

/// The variables that compose fills in.
fn dotenv(repository: &Repository, folder: &str) -> Vars {
    let names = [".env", ".env.example", "env.example", ".env.sample", "example.env"];
    let file = names.iter().find_map(|name| repository.open(&started_by::within(folder, name)).ok());
    file.map(|file| Vars::of(&lines(&file))).unwrap_or_default()
}

/// A service, and what it extends, the nearest first.
fn layers<'a>(own: Layer<'a>, services: &'a Node, files: &'a Files) -> Vec<Layer<'a>> {
    const DEEP: usize = 8;
    let mut layers = vec![own];
    let mut at = (own, services, own.source);
    while layers.len() < DEEP {
        let (layer, here, source) = at;
        let Some(extends) = layer.node.find("extends") else { break };
        let Some(name) = extends.text().or_else(|| extends.text_at(&["service"])) else { break };
        let (services, source) = match extends.text_at(&["file"]) {
            None => (here, source),
            Some(file) => match files.services(folder(&source.path), file) {
                Some(found) => found,
                None => break,
            },
        };
        let Some(node) = services.find(name) else { break };
        let next = Layer { source, node };
        layers.push(next);
        at = (next, services, source);
    }
    layers
}

impl Files {
    fn of(services: &Node, folder: &str, repository: &Repository) -> Self {
        const MOST: usize = 16;
        let mut opened: HashMap<String, ()> = HashMap::new();
        let mut files = Vec::new();
        for (_, service) in services.entries() {
            let Some(path) = service.text_at(&["extends", "file"]).and_then(|file| started_by::beside(folder, file))
            else {
                continue;
            };
            if opened.len() >= MOST || opened.insert(path.clone(), ()).is_some() {
                continue;
            }
            let Ok(file) = repository.open(&path) else { continue };
            if let Ok(documents) = documents(&file) {
                files.push((file, documents));
            }
        }
        Self(files)
    }

    fn services(&self, folder: &str, file: &str) -> Option<(&Node, &Source)> {
        let path = started_by::beside(folder, file)?;
        let (source, documents) = self.0.iter().find(|(source, _)| *source.path == *path)?;
        Some((documents.iter().find_map(|document| document.find("services"))?, source))
    }
}

/// Names resolve to services of the same file: of many files in a repository, each has its own `db`.
fn component(id: crate::inventory::ComponentId) -> To {
    To::Component(id)
}
