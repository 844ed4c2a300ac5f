//! What the tree says: server blocks, whom they pass requests on to, and which times hold there.

use std::collections::HashMap;

use super::scope::{Around, CALL, FRONT, PASSES, Scope, is_timed};
use super::syntax::{Directive, Word};
use crate::amount::shortened;
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To, Why};
use crate::source::{Place, Source};

/// So many calls of one root are taken.
const MOST_CALLS: usize = 4096;
/// So many servers of an upstream are taken; the others are like them.
const MOST_SERVERS: usize = 16;
/// The location of a call.
#[derive(Default)]
struct Location {
    label: String,
    path: Option<String>,
}

struct Upstream {
    servers: Vec<(Word, Option<Word>)>,
    keepalive: bool,
    keepalive_timeout: Option<Word>,
}

struct Reading<'a> {
    source: &'a Source,
    upstreams: HashMap<String, Upstream>,
    inventory: &'a mut Inventory,
    first_call: usize,
    unread: Option<(Place, usize)>,
    full: bool,
}

/// Reads a root with all that it includes.
pub(super) fn root(source: &Source, directives: &[Directive], around: Around, inventory: &mut Inventory) {
    let first_call = inventory.edges.len();
    let mut reading = Reading { source, upstreams: HashMap::new(), inventory, first_call, unread: None, full: false };
    let scope = Scope::nothing(around).within(directives, &mut reading.unread);
    reading.servers(directives, &scope, false);
    for context in directives {
        let Some(block) = &context.block else { continue };
        if context.is("http") || context.is("stream") {
            let scope = scope.within(block, &mut reading.unread);
            reading.servers(block, &scope, context.is("stream"));
        }
    }
    if let Some((place, number)) = reading.unread {
        let says = format!("{number} includes of what is not here: defaults are not taken for granted behind them");
        inventory.leave_out(Why::NotRead, place, says);
    }
}

impl Reading<'_> {
    /// The servers of `http`, of `stream`, or of a part that stands alone.
    fn servers(&mut self, block: &[Directive], scope: &Scope, stream: bool) {
        self.upstreams = block.iter().filter(|one| one.is("upstream")).filter_map(upstream).collect();
        let loose = |one: &&Directive| one.is("location") || one.name.text.ends_with("_pass");
        for server in block.iter().filter(|one| one.is("server")) {
            let Some(inside) = &server.block else { continue };
            let timed = inside.iter().any(|one| is_timed(&one.name.text));
            if !(timed || passes(inside)) {
                continue;
            }
            let scope = scope.within(inside, &mut self.unread);
            let hosts: Vec<&Word> =
                inside.iter().filter(|one| one.is("server_name")).flat_map(|one| &one.args).collect();
            let names: Vec<Name> =
                hosts.iter().filter(|word| word.text != "_").filter_map(|word| Name::of(&word.text)).collect();
            let called = match hosts.first().filter(|word| word.text != "_" && !word.text.is_empty()) {
                Some(host) => host.text.clone(),
                None => listens(inside).unwrap_or_else(|| self.source.name().to_owned()),
            };
            let label = if stream { format!("nginx stream {called}") } else { format!("nginx {called}") };
            let component = self.inventory.component(label, "nginx", Role::Gateway, server.name.place.clone());
            names.into_iter().for_each(|name| self.inventory.answers_to(component, Some(name)));
            self.front(component, &scope, stream, &server.name.place);
            self.calls(inside, &scope, component, &Location::default(), stream);
        }
        if block.iter().any(|one| loose(&one)) && passes(block) {
            let label = format!("nginx {}", self.source.name());
            let component = self.inventory.component(label, "nginx", Role::Gateway, self.source.place(1, 1, 1));
            let scope = scope.unsure();
            let blocks: Vec<Directive> = block.iter().filter(loose).cloned().collect();
            self.calls(&blocks, &scope, component, &Location::default(), stream);
        }
    }

    /// What bounds the client's side.
    fn front(&mut self, component: ComponentId, scope: &Scope, stream: bool, block: &Place) {
        for key in FRONT.iter().filter(|_| !stream) {
            match scope.values.get(*key) {
                None if scope.around != Around::Whole => {}
                written => self.say(On::Component(component), &format!("nginx.{key}"), written, block),
            }
        }
        if let written @ Some(_) = scope.values.get("worker_shutdown_timeout") {
            self.say(On::Component(component), "nginx.worker_shutdown_timeout", written, block);
        }
    }

    /// Every call of a block and of the blocks in it.
    fn calls(&mut self, block: &[Directive], scope: &Scope, component: ComponentId, location: &Location, stream: bool) {
        for directive in block {
            if let Some(inside) =
                directive.block.as_ref().filter(|_| !directive.is("server") && !directive.is("upstream"))
            {
                let scope = scope.within(inside, &mut self.unread);
                let inner = directive.is("location").then(|| Location::of(directive));
                self.calls(inside, &scope, component, inner.as_ref().unwrap_or(location), stream);
            } else if let Some(target) = directive.first() {
                let module = directive.name.text.strip_suffix("_pass");
                let Some(module) = module.filter(|module| PASSES.contains(module)) else { continue };
                self.call(module, target, scope, component, location, stream);
            }
        }
    }

    fn call(
        &mut self,
        module: &str,
        target: &Word,
        scope: &Scope,
        component: ComponentId,
        location: &Location,
        stream: bool,
    ) {
        let written = scope.filled(&target.text);
        let upstream = self.upstreams.get(authority(&written));
        let number = upstream.map_or(1, |upstream| upstream.servers.len());
        let servers: Vec<(Option<Name>, Option<Word>)> = match upstream {
            Some(upstream) => upstream.called(),
            None => vec![(named(&written), None)],
        };
        let label = if number > servers.len() {
            format!("{} to the {number} servers of {}", location.label, shortened(authority(&written)))
        } else {
            location.label.clone()
        };
        let kept = upstream.filter(|upstream| upstream.keepalive).map(|upstream| upstream.keepalive_timeout.clone());
        let next = scope.next_upstream(module);
        let mut reached = false;
        for (name, failed) in servers {
            let Some(name) = name else { continue };
            if self.inventory.edges.len() - self.first_call >= MOST_CALLS {
                if !std::mem::replace(&mut self.full, true) {
                    let says = format!("more than {MOST_CALLS} calls: the others are not read");
                    self.inventory.leave_out(Why::TooLarge, target.place.clone(), says);
                }
                return;
            }
            let mut edge = Edge::new(component, To::Name(name), label.trim_start(), target.place.clone());
            edge.path.clone_from(&location.path);
            edge.streaming = stream || scope.streaming;
            edge.spares_unsafe = (number > 1 && !next.off && !stream).then_some(!next.repeats_unsafe);
            let edge = On::Edge(self.inventory.edge(edge));
            self.times(&edge, module, scope, stream, &target.place, number);
            if let Some(failed) = failed {
                self.inventory.say(edge.clone(), "nginx.fail_timeout", &failed.text, failed.place);
            }
            if let Some(timeout) = &kept {
                let written = timeout.as_ref().map(|word| (word.text.clone(), word.place.clone()));
                self.say(edge, "nginx.upstream_keepalive_timeout", written.as_ref(), &target.place);
            }
            reached = true;
        }
        if !reached {
            // Nobody knows whom it calls, but what is written bounds that call too.
            let says = format!("{}_pass {}: whom it calls is not known here", module, shortened(&target.text));
            self.inventory.leave_out(Why::NotUnderstood, target.place.clone(), says);
            let scope = scope.unsure();
            self.times(&On::Component(component), module, &scope, stream, &target.place, 1);
        }
    }

    fn times(&mut self, on: &On, module: &str, scope: &Scope, stream: bool, place: &Place, servers: usize) {
        if stream {
            for key in ["proxy_connect_timeout", "proxy_timeout"] {
                self.bound(on, key, scope, place);
            }
        } else {
            for key in CALL {
                self.bound(on, &format!("{module}_{key}"), scope, place);
            }
        }
        // With one server there is no next one.
        if servers < 2 {
            return;
        }
        let tries = format!("{module}_next_upstream_tries");
        let conditions = scope.next_upstream(module);
        let id = conditions.row(&format!("nginx.{tries}"));
        let next = scope.values.get(&format!("{module}_next_upstream"));
        match (next.filter(|_| conditions.off), scope.values.get(&tries)) {
            (Some((_, off)), _) => self.inventory.say(on.clone(), &id, "1", off.clone()),
            (None, Some((text, place))) => {
                // No server is asked twice: zero, and more than there are, is each of them once.
                let each = text.parse::<usize>().is_ok_and(|tries| !(1..=servers).contains(&tries));
                let text = if each { servers.to_string() } else { text.clone() };
                self.inventory.say(on.clone(), &id, &text, place.clone());
            }
            (None, None) if scope.around == Around::Unknown => {}
            (None, None) => self.inventory.follows(on.clone(), &id, &servers.to_string(), place.clone()),
        }
        let key = format!("{module}_next_upstream_timeout");
        if let written @ Some(_) = scope.values.get(&key) {
            self.say(on.clone(), &format!("nginx.{key}"), written, place);
        }
    }

    fn bound(&mut self, on: &On, key: &str, scope: &Scope, place: &Place) {
        match scope.values.get(key) {
            None if scope.around == Around::Unknown => {}
            written => self.say(on.clone(), &format!("nginx.{key}"), written, place),
        }
    }

    fn say(&mut self, on: On, id: &str, written: Option<&(String, Place)>, block: &Place) {
        let written = written.map(|(text, place)| (text.as_str(), place.clone()));
        self.inventory.say_or_default(on, id, written, block);
    }
}

// === Upstream ===

impl Upstream {
    /// Whom a call to it is a call to: servers whose names differ in nothing but numbers are one program that runs more
    /// than once, and stand for each other. A request reaches each of them once at the most.
    fn called(&self) -> Vec<(Option<Name>, Option<Word>)> {
        let mut kinds: Vec<String> = Vec::new();
        let mut called = Vec::new();
        for (server, failed) in self.servers.iter().take(MOST_SERVERS) {
            let name = named(&server.text);
            let kind = name.as_ref().map(|name| name.host.split(|c: char| c.is_ascii_digit()).collect::<String>());
            match kind {
                Some(kind) if kinds.contains(&kind) => {}
                kind => {
                    kinds.extend(kind);
                    called.push((name, failed.clone()));
                }
            }
        }
        called
    }
}

// === Location ===

impl Location {
    fn of(directive: &Directive) -> Self {
        let words: Vec<&str> = directive.args.iter().take(2).map(|word| word.text.as_str()).collect();
        let plain = !words.first().is_some_and(|word| word.starts_with(['~', '@']));
        let path = words.last().filter(|_| plain).map(|word| shortened(word));
        Self { label: shortened(&format!("location {}", words.join(" "))), path }
    }
}

fn passes(block: &[Directive]) -> bool {
    let is_pass = |one: &Directive| one.name.text.strip_suffix("_pass").is_some_and(|module| PASSES.contains(&module));
    block.iter().any(|one| is_pass(one) || one.block.as_deref().is_some_and(passes))
}

fn listens(block: &[Directive]) -> Option<String> {
    block
        .iter()
        .find(|one| one.is("listen"))
        .and_then(Directive::first)
        .map(|word| format!(":{}", word.text.rsplit(':').next().unwrap_or_default()))
}

fn upstream(directive: &Directive) -> Option<(String, Upstream)> {
    let name = directive.first()?.text.clone();
    let block = directive.block.as_deref()?;
    let mut servers = Vec::new();
    for server in block.iter().filter(|one| one.is("server") && !one.args.iter().any(|word| word.text == "down")) {
        let failed = server.args.iter().find_map(|word| {
            let text = word.text.strip_prefix("fail_timeout=")?.to_owned();
            Some(Word { text, place: word.place.clone() })
        });
        servers.extend(server.first().map(|word| (word.clone(), failed)));
    }
    let of = |name: &str| block.iter().find(|one| one.is(name));
    let keepalive_timeout = of("keepalive_timeout").and_then(Directive::first).cloned();
    Some((name, Upstream { servers, keepalive: of("keepalive").is_some(), keepalive_timeout }))
}

/// What stands between the scheme and the path.
fn authority(target: &str) -> &str {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

/// The name of a server; a socket of the machine is called by its path.
fn named(target: &str) -> Option<Name> {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    match rest.strip_prefix("unix:") {
        Some(path) => {
            let path = path.split(':').next().filter(|path| !path.contains('$'))?;
            Some(Name { host: format!("unix:{path}"), port: None })
        }
        None => Name::of(target),
    }
}
