//! One service of a compose file.

use std::collections::HashSet;

use oneclock_yaml::{Key, Node};

use super::super::command::{Arg, Config, Started, nested, read as read_command, split};
use super::super::dockerfile::{Image, gunicorn_file};
use super::super::environment::{self, Near, Variable, Vars, lines};
use super::super::{images, started_by, stores};
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To};
use crate::source::{Place, Source};
use crate::walk::Repository;

/// An entry that says something about a service, and its file.
#[derive(Clone, Copy)]
pub(super) struct Layer<'a> {
    /// Its file.
    pub(super) source: &'a Source,
    /// The entry.
    pub(super) node: &'a Node,
}

/// A service.
pub(super) struct Service<'a> {
    id: ComponentId,
    layers: Vec<Layer<'a>>,
    names: Vec<Name>,
    product: &'static str,
    role: Role,
    image: Option<Image>,
    vars: &'a Vars,
    block: Place,
    /// It has an image of its own, or is built: not only an addition to one in another file.
    whole: bool,
}

// === Service ===

impl<'a> Service<'a> {
    /// Adds the service, with its names.
    pub(super) fn new(
        key: &Key,
        own: Layer<'a>,
        layers: Vec<Layer<'a>>,
        vars: &'a Vars,
        (folder, repository): (&str, &Repository),
        inventory: &mut Inventory,
    ) -> Self {
        let find = |key: &str| layers.iter().find_map(|layer| layer.node.find(key));
        let named = find("image").and_then(Node::text).map(|image| vars.fill(image));
        let builds: Vec<&Node> = layers.iter().filter_map(|layer| layer.node.find("build")).collect();
        let whole = named.is_some() || !builds.is_empty();
        let image = built(&builds, folder, vars, repository);
        // What is built is what it is built on.
        let on = image.as_ref().map(|image| vars.fill(&image.from));
        let known = named.as_deref().and_then(images::product).or_else(|| images::product(&on?));
        let (product, role) = known.unwrap_or(("", Role::Service));
        let block = own.source.of_key(key);
        let id = inventory.component(key.text.clone(), product, role, block.clone());
        let texts = |key: &str| find(key).and_then(Node::text).map(|text| vars.fill(text));
        let mut names: Vec<Name> = Vec::new();
        let written = [Some(key.text.clone()), texts("container_name"), texts("hostname")];
        let networks = layers.iter().filter_map(|layer| layer.node.find("networks")).flat_map(Node::entries);
        let aliases = networks.filter_map(|(_, network)| network.find("aliases"));
        let aliases = aliases.flat_map(Node::items).filter_map(Node::text).map(|text| vars.fill(text)).take(32);
        for name in written.into_iter().flatten().chain(aliases).filter_map(|text| Name::of(&text)) {
            inventory.answers_to(id, Some(name.clone()));
            names.push(name);
        }
        Self { id, layers, names, product, role, image, vars, block, whole }
    }

    /// The hosts it answers to.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|name| name.host.clone())
    }

    /// Who is called by its names in the same file. An addition has nothing of its own: its names are those of another file.
    pub(super) fn to(&self) -> To {
        match self.names.first() {
            Some(name) if !self.whole => To::Name(name.clone()),
            _ => super::component(self.id),
        }
    }

    /// What the nearest layer says: of a value, and of a command, whose words nobody joins.
    fn find(&self, key: &str) -> Option<(&'a Node, &'a Source)> {
        self.all(key).next()
    }

    /// What every layer says, the nearest first: of what is joined key by key, or appended.
    fn all(&self, key: &str) -> impl Iterator<Item = (&'a Node, &'a Source)> {
        self.layers.iter().filter_map(move |layer| Some((layer.node.find(key)?, layer.source)))
    }

    /// Everything that it says.
    pub(super) fn read(&self, folder: &str, near: &Near<'_>, repository: &Repository, inventory: &mut Inventory) {
        self.bounds(inventory);
        let mut variables = self.variables(folder, repository);
        let context = self.context(folder);
        let seen = self.find("build").is_some();
        let config = |path: Option<&str>| match context.as_deref().filter(|_| seen) {
            Some(context) => gunicorn_file(repository, context, path),
            None => Config::Unseen,
        };
        let args = self.args();
        let block = self.block.clone();
        let started =
            Started { component: self.id, product: self.product, variables: &variables, block, config: &config };
        if read_command(&args, &started, inventory) {
            // The command has said it: what the environment would say is what the command was made of.
            variables.retain(|variable| !environment::is_product_key(&variable.key) || variable.key.starts_with("PG"));
        }
        self.called(&args, near, inventory);
        // Stores and brokers call nobody, whatever their environment names.
        if !matches!(self.role, Role::Store | Role::Broker) {
            environment::read(&variables, self.id, near, inventory);
        }
        self.mounted(folder, repository, inventory);
    }

    /// What compose bounds.
    fn bounds(&self, inventory: &mut Inventory) {
        let on = || On::Component(self.id);
        let written = |node: &Node, source: &Source| Some((self.vars.fill(node.text()?), source.of(node)));
        match self.find("stop_grace_period").and_then(|(node, source)| written(node, source)) {
            Some((text, place)) => inventory.say(on(), "compose.stop_grace_period", &text, place),
            None if self.whole => inventory.unsaid(on(), "compose.stop_grace_period", self.block.clone()),
            None => {}
        }
        let Some((check, source)) = self.all("healthcheck").find(|(check, _)| check.find("test").is_some()) else {
            return;
        };
        for (key, id) in [("timeout", "compose.healthcheck.timeout"), ("interval", "compose.healthcheck.interval")] {
            match self.all("healthcheck").find_map(|(check, source)| written(check.find(key)?, source)) {
                Some((text, place)) => inventory.say(on(), id, &text, place),
                None => inventory.unsaid(on(), id, source.of(check)),
            }
        }
    }

    /// The folder in which it is built, or else that of the file.
    fn context(&self, folder: &str) -> Option<String> {
        context(&self.all("build").map(|(build, _)| build).collect::<Vec<_>>(), folder, self.vars)
    }

    /// Its command, or that of its image; compose's own entry point takes the image's command away.
    fn args(&self) -> Vec<Arg> {
        let (entry, command) = (self.find("entrypoint"), self.find("command"));
        let mut args: Vec<Arg> = entry.map(|(node, source)| self.words(node, source)).unwrap_or_default();
        match command {
            Some((node, source)) => args.extend(self.words(node, source)),
            None if entry.is_none() => args.extend(self.image.iter().flat_map(|image| image.args.iter().cloned())),
            None => {}
        }
        nested(args)
    }

    fn words(&self, node: &Node, source: &Source) -> Vec<Arg> {
        match node.text() {
            Some(text) => split(&self.vars.fill(text), &source.of(node)),
            None => nested(
                node.items()
                    .iter()
                    .filter_map(|item| Some(Arg { text: self.vars.fill(item.text()?), place: source.of(item) }))
                    .collect(),
            ),
        }
    }

    /// URLs among its arguments, if somebody in the file answers to them.
    fn called(&self, args: &[Arg], near: &Near<'_>, inventory: &mut Inventory) {
        for arg in args.iter().filter(|arg| arg.text.contains("://") && arg.text.len() < 500) {
            let url = arg.text.rsplit_once('=').map_or(arg.text.as_str(), |(_, url)| url);
            let Some(to) = Name::of(url).and_then(|name| near.hosts.get(&name.host)) else { continue };
            if *to != To::Component(self.id) {
                inventory.edge(Edge::new(self.id, to.clone(), "command", arg.place.clone()));
            }
        }
    }

    /// The environment: its own over that of files, the nearest layer over the one that it extends, and all of it over
    /// that of its image. A product reads a few variables of a file that all services share, and which is not known.
    fn variables(&self, folder: &str, repository: &Repository) -> Vec<Variable> {
        let mut variables: Vec<Variable> = Vec::new();
        let mut known: HashSet<String> = HashSet::new();
        let mut add = |variable: Variable| {
            if known.insert(variable.key.clone()) {
                variables.push(variable);
            }
        };
        for layer in &self.layers {
            layer
                .node
                .find("environment")
                .map(|node| self.environment(node, layer.source))
                .unwrap_or_default()
                .into_iter()
                .for_each(&mut add);
        }
        // Those of the nearest layer are the last ones, and of these the last one wins.
        let files = self.all("env_file").filter(|_| self.product.is_empty());
        for path in files.flat_map(|(node, _)| paths(node).into_iter().rev()) {
            let Some(path) = started_by::beside(folder, &self.vars.fill(path)) else { continue };
            // What is kept is often an example of what is used.
            let example = path.strip_suffix(".env").map(|before| format!("{before}env.example"));
            let names = [Some(path.clone()), Some(format!("{path}.example")), example];
            let Some(file) = names.iter().flatten().find_map(|name| repository.open(name).ok()) else { continue };
            lines(&file)
                .into_iter()
                .map(|one| Variable { value: self.vars.fill(&one.value), ..one })
                .for_each(&mut add);
        }
        self.image.iter().flat_map(|image| image.variables.iter().cloned()).for_each(&mut add);
        variables
    }

    fn environment(&self, node: &Node, source: &Source) -> Vec<Variable> {
        let of = |key: &str, value: &str, place: Place| Variable {
            key: key.to_owned(),
            value: self.vars.fill(value),
            place,
        };
        let listed = node.items().iter().filter_map(|item| {
            let text = item.text()?;
            let place = source.of(item);
            match text.split_once('=') {
                Some((key, value)) => {
                    let behind = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
                    let (column, width) = (
                        place.column.saturating_add(behind(key.chars().count() + 1)),
                        behind(value.chars().count().max(1)),
                    );
                    Some(of(key, value, Place { column, width, ..place }))
                }
                None => Some(of(text, self.vars.get(text)?, place)),
            }
        });
        let mapped = node.entries().iter().filter_map(|(key, value)| match value.text() {
            Some(text) => Some(of(&key.text, text, source.of(value))),
            None => Some(of(&key.text, self.vars.get(&key.text)?, source.of_key(key))),
        });
        listed.chain(mapped).collect()
    }

    /// Files of settings that are put into it.
    fn mounted(&self, folder: &str, repository: &Repository, inventory: &mut Inventory) {
        let mut targets = HashSet::new();
        for volume in self.all("volumes").flat_map(|(node, _)| node.items()).take(64) {
            let (from, to) = match volume.text().map(|text| self.vars.fill(text)) {
                Some(text) => {
                    let (from, rest) = text.split_once(':').unwrap_or((&text, &text));
                    (from.to_owned(), rest.split(':').next().unwrap_or_default().to_owned())
                }
                None => {
                    let of = |key| volume.text_at(&[key]).map(|text| self.vars.fill(text)).unwrap_or_default();
                    (of("source"), of("target"))
                }
            };
            // What is put where a nearer layer puts something is not there.
            if !targets.insert(to) {
                continue;
            }
            let Some(path) = started_by::beside(folder, &from).filter(|_| from.contains('.')) else { continue };
            let is_store = stores::mine(&Source::new(path.as_str(), ""));
            inventory.mounted.push((self.id, path.clone()));
            if let Some(file) = is_store.then(|| repository.open(&path).ok()).flatten() {
                stores::read_into(&file, self.id, inventory);
            }
        }
    }
}

/// The folder that the layers build in; `.` where they do not say.
fn context(builds: &[&Node], folder: &str, vars: &Vars) -> Option<String> {
    let written = builds.iter().find_map(|build| build.text().or_else(|| build.text_at(&["context"])));
    started_by::beside(folder, &vars.fill(written.unwrap_or(".")))
}

/// The Dockerfile, where it is built from one that is kept here.
fn built(builds: &[&Node], folder: &str, vars: &Vars, repository: &Repository) -> Option<Image> {
    builds.first()?;
    let file = builds.iter().find_map(|build| build.text_at(&["dockerfile"]));
    let file = file.map_or("Dockerfile".to_owned(), |file| vars.fill(file));
    let path = started_by::beside(&context(builds, folder, vars)?, &file)?;
    repository.open(&path).ok().map(|source| Image::of(&source))
}

/// `env_file: a`, `[a, b]`, `[{path: a}]`.
fn paths(node: &Node) -> Vec<&str> {
    match node.text() {
        Some(text) => vec![text],
        None => {
            node.items().iter().take(16).filter_map(|item| item.text().or_else(|| item.text_at(&["path"]))).collect()
        }
    }
}
