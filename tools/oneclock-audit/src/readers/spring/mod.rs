//! Spring Boot: `application*` and `bootstrap*` as YAML or `.properties`, and the files that a configuration server keeps
//! for its applications. Profiles (documents and files of their own) say things of the same application.
//!
//! An application is what lies in one folder; files of `src/test` are not read. A default is told only where the same
//! file shows that the part is in use, no file beside it may set it, and no configuration server does. Not read: what is
//! set in Java and on the command line; what the environment says of databases is read where it stands.

mod brokers;
mod clients;
mod gateway;
mod resilience;
mod server;
mod stores;
mod tree;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use self::tree::Tree;
use crate::inventory::{ComponentId, Edge, EdgeId, Inventory, Name, On, Role, To, Why};
use crate::source::{Place, Source, folder};
use crate::walk::Repository;

/// Words at the start of a line that make a YAML file one of Spring's, whatever its name.
const OWN: &[&str] =
    &["spring:", "spring.", "resilience4j:", "resilience4j.", "feign:", "ribbon:", "hystrix:", "zuul:", "eureka:"];

/// Files beside a file that are asked whether they set what it does not, and how much of each.
const BESIDE: usize = 16;
const LARGEST_BESIDE: usize = 256 * 1024;

/// Nobody has more profiles than this in one file.
const MOST_DOCUMENTS: usize = 64;

/// What one file says of its application.
struct App<'a> {
    source: &'a Source,
    repository: &'a Repository,
    documents: Vec<Tree>,
    /// What the files beside it say, in one spelling.
    beside: String,
    /// A configuration server says more, or this is what one says.
    remote: bool,
    component: ComponentId,
    start: Place,
    /// What was asked of `beside` before: it is long, and asked again for every route.
    asked: RefCell<HashMap<String, bool>>,
    /// Whether code sets what limits a call under a breaker; asked once, for it takes all files of the application.
    limited_in_code: OnceCell<bool>,
    has_druid: OnceCell<bool>,
}

pub(super) fn mine(source: &Source) -> bool {
    if source.path.starts_with("src/test/") || source.path.contains("/src/test/") {
        return false;
    }
    match source.extension().as_str() {
        "properties" => by_name(source),
        "yml" | "yaml" => {
            by_name(source) || source.text.lines().any(|line| OWN.iter().any(|word| line.starts_with(word)))
        }
        _ => false,
    }
}

/// `application.yml`, `bootstrap-prod.properties`.
fn by_name(source: &Source) -> bool {
    let stem = stem(source.name());
    ["application", "bootstrap"]
        .iter()
        .any(|name| stem.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// `orders` of `orders-prod`: what configuration servers call the file of an application and a profile.
fn without_profile(stem: &str) -> &str {
    const PROFILES: &[&str] = &["dev", "test", "prod", "production", "staging", "local", "docker", "default"];
    match stem.rsplit_once('-') {
        Some((name, profile)) if PROFILES.contains(&profile) && !name.is_empty() => name,
        _ => stem,
    }
}

pub(super) fn read(source: &Source, repository: &Repository, inventory: &mut Inventory) {
    let start = source.place(1, 1, 1);
    let mut documents: Vec<Tree> = if source.extension() == "properties" {
        let (documents, wrong) = Tree::of_properties(source);
        if let Some(wrong) = wrong {
            inventory.leave_out(Why::Unparsed, source.place(wrong.line, 1, 1), wrong.says);
        }
        documents
    } else {
        match crate::walk::documents(source) {
            Ok(documents) => documents.iter().map(|document| Tree::of_yaml(source, document)).collect(),
            Err((why, place, says)) => return inventory.leave_out(why, place, says),
        }
    };
    if documents.len() > MOST_DOCUMENTS {
        inventory.leave_out(
            Why::TooLarge,
            start.clone(),
            format!("more than {MOST_DOCUMENTS} documents: the others are not read"),
        );
        documents.truncate(MOST_DOCUMENTS);
    }
    let beside = beside(source, repository);
    let any = |path: &str| documents.iter().any(|document| document.at(path).is_some());
    let remote = !by_name(source)
        || any("spring.cloud.config.uri")
        || any("spring.cloud.config.discovery")
        || any("spring.cloud.nacos.config")
        || any("spring.cloud.consul.config")
        || documents
            .iter()
            .any(|document| document.text("spring.config.import").is_some_and(|text| text.contains("server:")))
        || beside.contains("configserver:")
        || beside.contains("nacos:");
    let component = application(source, &documents, &start, inventory);
    let asked = RefCell::default();
    let app = App {
        source,
        repository,
        documents,
        beside,
        remote,
        component,
        start,
        asked,
        limited_in_code: OnceCell::new(),
        has_druid: OnceCell::new(),
    };
    for document in &app.documents {
        server::read(&app, document, inventory);
        stores::read(&app, document, inventory);
        clients::read(&app, document, inventory);
        gateway::read(&app, document, inventory);
        resilience::read(&app, document, inventory);
    }
}

/// The application of a file: that of another file of its folder, or a new one.
fn application(source: &Source, documents: &[Tree], start: &Place, inventory: &mut Inventory) -> ComponentId {
    let said = documents
        .iter()
        .find_map(|document| document.text("spring.application.name"))
        .filter(|name| !name.contains("${"));
    let own = by_name(source);
    let here = folder(&source.path);
    let name = match said {
        Some(name) => name.to_owned(),
        None if own => module(&source.path).to_owned(),
        None => without_profile(stem(source.name())).to_owned(),
    };
    let known = inventory.components.iter().position(|known| {
        let file = Source::new(std::sync::Arc::clone(&known.place.file), "");
        // What a configuration server keeps is known by the name of the application alone.
        let same = if own && by_name(&file) { folder(&file.path) == here } else { known.name == name };
        known.product == "Spring Boot" && same
    });
    let component = match known {
        Some(index) => {
            if let (Some(said), Some(component)) = (said, inventory.components.get_mut(index)) {
                said.clone_into(&mut component.name);
            }
            ComponentId(index)
        }
        None => {
            let gateway = documents.iter().any(gateway::is_one);
            let role = if gateway { Role::Gateway } else { Role::Service };
            inventory.component(name.clone(), "Spring Boot", role, start.clone())
        }
    };
    if said.is_some() || !own {
        inventory.answers_to(component, Name::of(&name));
    }
    component
}

/// `orders` of `shop/orders/src/main/resources/application.yml`.
fn module(path: &str) -> &str {
    let folder = folder(path);
    let folder = folder.split("/src/main/").next().unwrap_or(folder);
    let folder =
        folder.strip_suffix("src/main/resources").unwrap_or(folder).trim_end_matches("/config").trim_end_matches('/');
    let last = folder.rsplit('/').next().unwrap_or_default();
    if last.is_empty() { "application" } else { last }
}

fn beside(source: &Source, repository: &Repository) -> String {
    let here = folder(&source.path);
    let mut all = String::new();
    let others = repository.folder(here).into_iter().filter(|path| **path != *source.path);
    for path in others.filter(|path| by_name(&Source::new(path.as_str(), ""))).take(BESIDE) {
        let Ok(other) = repository.open(&path) else { continue };
        let text: String = other.text.chars().take(LARGEST_BESIDE).collect();
        all.push_str(&tree::canonical(&text));
    }
    all
}

// === App ===

impl App<'_> {
    /// A setting, where it is written.
    fn say(&self, on: &On, id: &str, written: Option<(&str, Place)>, inventory: &mut Inventory) {
        if let Some((text, place)) = written {
            inventory.say(on.clone(), id, text, place);
        }
    }

    /// Settings of the application itself, where they are written.
    fn say_all(&self, document: &Tree, rows: &[(&str, &str)], on: &On, inventory: &mut Inventory) {
        for (id, path) in rows {
            self.say(on, id, document.written(path), inventory);
        }
    }

    /// A setting as it is written, or what holds otherwise. Nothing is told of it where another document or file has it:
    /// it is told there.
    fn say_or_default(&self, on: &On, id: &str, document: &Tree, path: &str, block: &Place, inventory: &mut Inventory) {
        match document.written(path) {
            Some((text, place)) => inventory.say(on.clone(), id, text, place),
            None => self.default(on, id, &[path], block, inventory),
        }
    }

    /// Whether another document of this file, or a file beside it, has one of the properties: it is told there.
    fn elsewhere(&self, paths: &[&str]) -> bool {
        paths.iter().any(|path| {
            let last = tree::canonical(path.rsplit('.').next().unwrap_or(path));
            let beside = || *self.asked.borrow_mut().entry(last.clone()).or_insert_with(|| self.beside.contains(&last));
            self.documents.iter().any(|document| document.at(path).is_some()) || beside()
        })
    }

    /// What holds where none of the properties is written. What a configuration server says nobody here can know.
    fn default(&self, on: &On, id: &str, paths: &[&str], block: &Place, inventory: &mut Inventory) {
        if self.elsewhere(paths) {
            return;
        }
        if self.remote {
            inventory.unknown(on.clone(), id, "another file of the application may set it", block.clone());
        } else {
            inventory.unsaid(on.clone(), id, block.clone());
        }
    }

    /// A call of the application; `None` where no name is written. The same call is not added twice.
    fn call(&self, to: &str, label: &str, place: Place, inventory: &mut Inventory) -> Option<EdgeId> {
        let name = Name::of(resolved(to))?;
        Some(inventory.edge(Edge::new(self.component, To::Name(name), label, place)))
    }

    /// Whether the application's code makes time limiters.
    fn limited_in_code(&self) -> bool {
        const WORDS: &[&str] = &["TimeLimiterConfig", "timeLimiterConfig"];
        *self.limited_in_code.get_or_init(|| {
            let module = self.source.path.split_once("src/main/").map(|(module, _)| module);
            module.is_some_and(|module| {
                self.repository.mentions(&format!("{module}src/main"), &["java", "kt", "groovy"], WORDS)
            })
        })
    }

    /// Whether somebody in the repository uses Druid, the pool: some of its versions set limits of the driver by
    /// themselves.
    fn has_druid(&self) -> bool {
        const FILES: &[&str] = &["yml", "yaml", "properties", "xml", "gradle", "kts"];
        *self.has_druid.get_or_init(|| self.repository.mentions("", FILES, &["druid"]))
    }

    /// All calls that a kind of client makes, of which no file says where they go. They are not all calls of the
    /// application: its database has other limits.
    fn every(&self, client: &str, place: Place, inventory: &mut Inventory) -> On {
        let host = format!("every-{}", client.to_ascii_lowercase().replace(' ', "-"));
        let label = format!("every {client}");
        On::Edge(inventory.edge(Edge::new(self.component, To::Name(Name { host, port: None }), label, place)))
    }

    fn itself(&self) -> On {
        On::Component(self.component)
    }
}

/// What `${X:y}` says where nobody sets X.
fn resolved(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    match inner.and_then(|inner| inner.split_once(':')) {
        Some((name, default)) if !name.contains(['$', '{']) && !default.contains("${") => default,
        _ => text,
    }
}
