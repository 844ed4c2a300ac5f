//! HAProxy: frontends and listeners, whom they may pass a request on to, and the times that hold there.
//!
//! A frontend is a component; every server of a backend that it may choose is a call of it, with the backend's times. A
//! backend that no frontend of the file chooses stands for itself. What is unset is without a limit, as the product has
//! it, but only where the file has its `global` or `defaults`: in a part of several files nobody knows.
//!
//! Not read: maps and expressions that choose a backend (all that they may choose is not known), Lua, `http-request`
//! rules but for the one that keeps unsafe methods from being repeated, `defaults` of other files.

mod sections;

use std::collections::{BTreeSet, HashMap};

use sections::{Section, Word, sections};

use crate::inventory::{ComponentId, Edge, EdgeId, Inventory, Name, On, Role, To, Why};
use crate::source::{Place, Source};
use crate::walk::Repository;

/// So many servers of a backend are taken; the others are like them.
const MOST_SERVERS: usize = 16;
/// So many calls of one file are taken.
const MOST_CALLS: usize = 4096;

/// What bounds the client's side.
const FRONT: &[(&str, &str)] = &[
    ("timeout client", "haproxy.timeout_client"),
    ("timeout http-request", "haproxy.timeout_http_request"),
    ("timeout http-keep-alive", "haproxy.timeout_http_keep_alive"),
];

/// By its name a configuration, by its sections one of HAProxy.
pub(super) fn is_mine(source: &Source) -> bool {
    let name = source.name().to_ascii_lowercase();
    let named = ["cfg", "haproxy"].contains(&source.extension().as_str())
        || (name.contains("haproxy")
            && !["yaml", "yml", "json", "md", "rst", "sh", "py", "go", "txt"].contains(&source.extension().as_str()));
    let opens = |line: &str| ["frontend ", "backend ", "listen ", "defaults"].iter().any(|word| line.starts_with(word));
    let says = |line: &str| {
        ["timeout ", "server ", "bind ", "default_backend ", "use_backend ", "mode "]
            .iter()
            .any(|word| line.starts_with(word))
    };
    named
        && source.text.lines().any(|line| opens(line.trim_start()))
        && source.text.lines().any(|line| says(line.trim_start()))
}

pub(super) fn read(source: &Source, _: &Repository, inventory: &mut Inventory) {
    if ["{{", "{%", "<%"].iter().any(|mark| source.text.contains(mark)) {
        let says = "a template that is filled in elsewhere: audit what it becomes";
        return inventory.leave_out(Why::Templated, source.place(1, 1, 1), says);
    }
    let sections = sections(source);
    let mut reading = Reading { whole: sections.whole, calls: 0, inventory };
    let of = |kinds: &[&str]| {
        sections.all.iter().filter(|section| kinds.contains(&section.kind.as_str())).collect::<Vec<_>>()
    };
    let backends: HashMap<&str, &Section> =
        of(&["backend", "listen"]).iter().map(|one| (one.name.as_str(), *one)).collect();
    let mut chosen = BTreeSet::new();
    for front in of(&["frontend", "listen"]) {
        let component = reading.component(front);
        reading.front(front, component);
        let mut mine = BTreeSet::new();
        if front.kind == "listen" {
            reading.servers(front, front, component, None);
        }
        for line in &front.uses {
            let (Some(word), Some(backend)) = (line.first(), line.get(1)) else { continue };
            if !mine.insert(&backend.text) {
                continue;
            }
            if let Some(section) = backends.get(backend.text.as_str()) {
                chosen.insert(section.name.clone());
                reading.servers(section, front, component, path(front, line));
            } else {
                let says = format!("{} {}: which backend that is, is not known here", word.text, backend.text);
                reading.inventory.leave_out(Why::NotUnderstood, backend.place.clone(), says);
            }
        }
    }
    for alone in of(&["backend"]).into_iter().filter(|one| !chosen.contains(&one.name)) {
        let component = reading.component(alone);
        reading.servers(alone, alone, component, None);
    }
}

struct Reading<'a> {
    whole: bool,
    calls: usize,
    inventory: &'a mut Inventory,
}

impl Reading<'_> {
    fn component(&mut self, section: &Section) -> ComponentId {
        self.inventory.component(
            format!("haproxy {} {}", section.kind, section.name),
            "HAProxy",
            Role::Gateway,
            section.place.clone(),
        )
    }

    fn front(&mut self, section: &Section, component: ComponentId) {
        for (key, id) in FRONT {
            self.say(On::Component(component), id, section.values.get(*key), &section.place, *key == "timeout client");
        }
    }

    /// The calls to the servers of a backend.
    fn servers(&mut self, backend: &Section, front: &Section, from: ComponentId, path: Option<String>) {
        for line in backend.servers.iter().take(MOST_SERVERS) {
            let template = line.first().is_some_and(|word| word.text == "server-template");
            let Some(address) = line.get(if template { 3 } else { 2 }) else { continue };
            if self.calls >= MOST_CALLS {
                return;
            }
            let Some(name) = named(&address.text) else {
                let says =
                    format!("server {}: whom it calls is not known here", crate::amount::shortened(&address.text));
                self.inventory.leave_out(Why::NotUnderstood, address.place.clone(), says);
                continue;
            };
            self.calls += 1;
            let label = if backend.kind == "listen" { String::new() } else { format!("backend {}", backend.name) };
            let mut edge = Edge::new(from, To::Name(name), label, address.place.clone());
            edge.path.clone_from(&path);
            // Without a word about it HAProxy passes connections on, and knows nothing of requests.
            edge.streaming =
                [front, backend].iter().all(|one| one.values.get("mode").is_none_or(|mode| mode.text == "tcp"));
            edge.spares_unsafe = spares_unsafe(backend);
            let edge = self.inventory.edge(edge);
            self.times(backend, edge, line);
        }
    }

    fn times(&mut self, backend: &Section, edge: EdgeId, line: &[Word]) {
        let on = On::Edge(edge);
        let value = |key: &str| backend.values.get(key);
        self.say(on.clone(), "haproxy.timeout_connect", value("timeout connect"), &backend.place, true);
        self.say(on.clone(), "haproxy.timeout_server", value("timeout server"), &backend.place, true);
        self.say(on.clone(), "haproxy.timeout_tunnel", value("timeout tunnel"), &backend.place, false);
        match (value("timeout queue"), value("timeout connect")) {
            (None, Some(connect)) => {
                self.inventory.follows(on.clone(), "haproxy.timeout_queue", &connect.text, connect.place.clone())
            }
            (queue, _) => self.say(on.clone(), "haproxy.timeout_queue", queue, &backend.place, true),
        }
        let retries = value("retries");
        let never = value("retry-on").is_some_and(|on| on.text == "none");
        match (repeats_requests(backend), never) {
            (true, _) => self.say(on.clone(), "haproxy.retries", retries, &backend.place, true),
            (false, false) => self.say(on.clone(), "haproxy.connect_retries", retries, &backend.place, true),
            (false, true) => {}
        }
        if line.iter().any(|word| word.text == "check") {
            let interval = line.iter().position(|word| word.text == "inter").and_then(|at| line.get(at + 1));
            self.say(on.clone(), "haproxy.inter", interval, &backend.place, interval.is_some());
            self.say(on, "haproxy.timeout_check", value("timeout check"), &backend.place, false);
        }
    }

    /// A setting as it is written; what holds otherwise only where nothing else can say it.
    fn say(&mut self, on: On, id: &str, written: Option<&Word>, block: &Place, default: bool) {
        match written {
            Some(word) => self.inventory.say(on, id, &word.text, word.place.clone()),
            None if default && self.whole => self.inventory.unsaid(on, id, block.clone()),
            None => {}
        }
    }
}

/// Whether what was sent may be sent once more: not just connections that failed.
fn repeats_requests(backend: &Section) -> bool {
    let harmless = ["none", "conn-failure", "0rtt-rejected"];
    backend.values.get("retry-on").is_some_and(|on| on.text.split_whitespace().any(|word| !harmless.contains(&word)))
        && backend.values.get("mode").is_some_and(|mode| mode.text == "http")
}

/// What could not connect was not sent; all else is repeated whatever the method, unless a rule forbids it.
fn spares_unsafe(backend: &Section) -> Option<bool> {
    repeats_requests(backend).then_some(backend.spares_unsafe)
}

/// `host:port`, a socket, an address with its family in front.
fn named(address: &str) -> Option<Name> {
    let plain = address.split_once('@').map_or(address, |(_, plain)| plain);
    if plain.starts_with('/') {
        return (!plain.contains('$')).then(|| Name { host: format!("unix:{plain}"), port: None });
    }
    Name::of(plain)
}

/// The path for which a line chooses its backend, where an `acl` of the frontend says it plainly.
fn path(front: &Section, line: &[Word]) -> Option<String> {
    let at = line.iter().position(|word| word.text == "if")?;
    let [_, condition] = line.get(at..)? else { return None };
    let acl = front.acls.get(&condition.text)?;
    let test = acl.get(2).filter(|word| matches!(word.text.as_str(), "path_beg" | "path"));
    test.and_then(|_| acl.iter().skip(3).find(|word| word.text.starts_with('/'))).map(|word| word.text.clone())
}
