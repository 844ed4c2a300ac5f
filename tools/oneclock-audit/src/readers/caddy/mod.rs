//! Caddy: sites of a Caddyfile and whom they pass requests on to (`reverse_proxy`, `php_fastcgi`, `forward_auth`).
//!
//! A site that passes anything on is a component, with the timeouts of `servers` in the global options. Snippets are put
//! in their place; a block that imports a file gets no defaults, for the file may say otherwise.
//!
//! Not read: Caddy's own JSON, imported files, dynamic upstreams, `stream_timeout`.

mod syntax;

use std::collections::HashMap;

use syntax::{Line, Word, imported, parse};

use crate::inventory::{ComponentId, Edge, EdgeId, Inventory, Name, On, Role, To, Why};
use crate::source::{Place, Source};
use crate::walk::Repository;

/// So many servers of one proxy are taken; the others are like them.
const MOST_SERVERS: usize = 16;
/// So many calls of one file are taken.
const MOST_CALLS: usize = 4096;

/// What the global options say of clients: the key, the setting, whether the product's default is told.
const FRONT: &[(&str, &str, bool)] = &[
    ("read_header", "caddy.read_header", true),
    ("read_body", "caddy.read_body", false),
    ("write", "caddy.write", false),
    ("idle", "caddy.idle", true),
];
/// What a proxy says of its calls.
const PROXY: &[(&str, &str)] = &[
    ("lb_try_duration", "caddy.lb_try_duration"),
    ("lb_try_interval", "caddy.lb_try_interval"),
    ("health_timeout", "caddy.health_timeout"),
    ("health_interval", "caddy.health_interval"),
    ("fail_duration", "caddy.fail_duration"),
];
/// What its transport says: the key, the setting, whether the product's default is told.
const TRANSPORT: &[(&str, &str, bool)] = &[
    ("dial_timeout", "caddy.dial_timeout", true),
    ("response_header_timeout", "caddy.response_header_timeout", true),
    ("read_timeout", "caddy.read_timeout", false),
    ("write_timeout", "caddy.write_timeout", false),
    ("keepalive", "caddy.keepalive", false),
];

pub(super) fn is_mine(source: &Source) -> bool {
    let name = source.name().to_ascii_lowercase();
    name == "caddyfile" || name.starts_with("caddyfile.") || source.extension() == "caddyfile"
}

pub(super) fn read(source: &Source, _: &Repository, inventory: &mut Inventory) {
    let lines = match parse(source) {
        Ok(lines) => imported(lines),
        Err((place, _)) if ["{{", "{%", "<%"].iter().any(|mark| source.text.contains(mark)) => {
            return inventory.leave_out(
                Why::Templated,
                place,
                "a template that is filled in elsewhere: audit what it becomes",
            );
        }
        Err((place, says)) => return inventory.leave_out(Why::Unparsed, place, says),
    };
    let first = inventory.edges.len();
    let global =
        lines.iter().find(|line| line.words.is_empty()).and_then(|line| line.block.as_deref()).unwrap_or_default();
    let mut reading = Reading { global, first, inventory };
    let sites: Vec<&Line> = lines.iter().filter(|line| !line.words.is_empty()).collect();
    match sites.split_first() {
        // A single site needs no braces.
        Some((addresses, directives)) if addresses.block.is_none() && !addresses.is("import") => {
            let directives: Vec<Line> = directives.iter().map(|line| (*line).clone()).collect();
            reading.site(&addresses.words, &directives);
        }
        _ => {
            for site in sites {
                reading.site(&site.words, site.block.as_deref().unwrap_or_default());
            }
        }
    }
}

/// Where in a site a line stands.
#[derive(Clone, Default)]
struct Matched {
    path: Option<String>,
    methods: Vec<String>,
}

struct Reading<'a> {
    global: &'a [Line],
    first: usize,
    inventory: &'a mut Inventory,
}

impl Reading<'_> {
    fn site(&mut self, addresses: &[Word], directives: &[Line]) {
        let Some(first) = addresses.first() else { return };
        if !passes(directives) {
            return;
        }
        let label = format!("caddy {}", crate::amount::shortened(first.text.trim_end_matches(',')));
        let component = self.inventory.component(label, "Caddy", Role::Gateway, first.place.clone());
        for address in addresses {
            self.inventory.answers_to(component, Name::of(address.text.trim_end_matches(',')));
        }
        let servers = self.global.iter().filter(|line| line.is("servers"));
        let timeouts = servers.filter_map(|line| line.block.as_ref()).flatten().find(|line| line.is("timeouts"));
        let timeouts = timeouts.and_then(|line| line.block.as_deref()).unwrap_or_default();
        for (key, id, default) in FRONT {
            self.say(On::Component(component), id, value(timeouts, key), &first.place, *default);
        }
        self.say(
            On::Component(component),
            "caddy.grace_period",
            value(self.global, "grace_period"),
            &first.place,
            false,
        );
        let mut named = HashMap::new();
        for line in directives {
            if let Some(name) = line.words.first().filter(|word| word.text.starts_with('@')) {
                named.insert(name.text.clone(), matched(line));
            }
        }
        self.block(directives, &named, &Matched::default(), component);
    }

    fn block(&mut self, lines: &[Line], named: &HashMap<String, Matched>, around: &Matched, component: ComponentId) {
        for line in lines {
            let matcher = line.value().map_or("", |word| &word.text);
            let matched = match named.get(matcher) {
                Some(matched) => matched.clone(),
                None if matcher.starts_with('/') => {
                    Matched { path: Some(crate::amount::shortened(matcher)), ..Matched::default() }
                }
                None => around.clone(),
            };
            if line.is("reverse_proxy") || line.is("php_fastcgi") || line.is("forward_auth") {
                self.proxy(line, &matched, component);
            } else if ["handle", "handle_path", "route", "handle_errors"].iter().any(|name| line.is(name)) {
                self.block(line.block.as_deref().unwrap_or_default(), named, &matched, component);
            }
        }
    }

    fn proxy(&mut self, line: &Line, matched: &Matched, component: ComponentId) {
        let block = line.block.as_deref().unwrap_or_default();
        let is_matcher = |word: &Word| word.text.starts_with(['@', '/']) || word.text == "*";
        let here = line
            .words
            .iter()
            .skip(1)
            .enumerate()
            .filter(|(at, word)| *at > 0 || !is_matcher(word))
            .map(|(_, word)| word);
        let below = block.iter().filter(|line| line.is("to")).flat_map(|line| line.words.iter().skip(1));
        for target in here.chain(below).take(MOST_SERVERS) {
            if self.inventory.edges.len() - self.first >= MOST_CALLS {
                return;
            }
            let Some(name) = called(&target.text) else {
                let says = format!("{}: whom it calls is not known here", crate::amount::shortened(&target.text));
                self.inventory.leave_out(Why::NotUnderstood, target.place.clone(), says);
                continue;
            };
            let label = matched.path.as_ref().map_or_else(String::new, |path| format!("path {path}"));
            let mut edge = Edge::new(component, To::Name(name), label, target.place.clone());
            edge.path.clone_from(&matched.path);
            edge.methods.clone_from(&matched.methods);
            edge.streaming = value(block, "flush_interval").is_some_and(|word| word.text == "-1");
            let edge = self.inventory.edge(edge);
            self.times(block, edge, &target.place);
        }
    }

    fn times(&mut self, block: &[Line], edge: EdgeId, place: &Place) {
        let on = On::Edge(edge);
        let inside = block.iter().find(|line| line.is("transport")).and_then(|line| line.block.as_deref());
        // `php_fastcgi` says it without a `transport`.
        let transport = inside.unwrap_or(block);
        let told = !block.iter().chain(transport).any(|line| line.is("import"));
        for (key, id, default) in TRANSPORT {
            // `keepalive off`: no connection is kept, so there is none to keep for a time.
            let written = value(transport, key).filter(|word| *key != "keepalive" || word.text != "off");
            self.say(on.clone(), id, written, place, *default && told);
        }
        for (key, id) in PROXY {
            self.say(on.clone(), id, value(block, key), place, false);
        }
        let duration = value(block, "lb_try_duration");
        let retries = value(block, "lb_retries").filter(|word| word.text != "0");
        match (retries, duration) {
            (Some(retries), _) => self.inventory.say(on, "caddy.lb_retries", &retries.text, retries.place.clone()),
            (None, Some(duration)) => {
                if value(block, "lb_try_interval").is_none() {
                    self.inventory.unsaid(on.clone(), "caddy.lb_try_interval", duration.place.clone());
                }
                // As often as there is time.
                self.inventory.follows(on, "caddy.lb_retries", "unlimited", duration.place.clone());
            }
            (None, None) => return,
        }
        // A request that was sent is sent once more if it is a GET, unless a matcher says which ones are.
        let spares = block.iter().filter(|line| line.is("lb_retry_match")).all(|line| {
            let methods = matched(line).methods;
            !methods.is_empty() && !methods.iter().any(|method| matches!(method.as_str(), "POST" | "PATCH"))
        });
        if let Some(edge) = self.inventory.edges.get_mut(edge.0) {
            edge.spares_unsafe = Some(spares);
        }
    }

    fn say(&mut self, on: On, id: &str, written: Option<&Word>, block: &Place, default: bool) {
        match written {
            Some(word) => self.inventory.say(on, id, &environment(&word.text), word.place.clone()),
            None if default => self.inventory.unsaid(on, id, block.clone()),
            None => {}
        }
    }
}

/// `{$NAME:default}` as other formats write it.
fn environment(text: &str) -> String {
    match text.strip_prefix("{$").and_then(|rest| rest.strip_suffix('}')) {
        Some(inner) => inner.split_once(':').map_or_else(|| format!("${{{inner}}}"), |(_, default)| default.to_owned()),
        None if text.starts_with('{') => format!("${text}"),
        None => text.to_owned(),
    }
}

fn value<'a>(lines: &'a [Line], key: &str) -> Option<&'a Word> {
    lines.iter().find(|line| line.is(key)).and_then(Line::value)
}

fn passes(lines: &[Line]) -> bool {
    let passes_on = |line: &Line| line.is("reverse_proxy") || line.is("php_fastcgi") || line.is("forward_auth");
    lines.iter().any(|line| passes_on(line) || line.block.as_deref().is_some_and(passes))
}

/// `@api path /api/*`, or the same in a block.
fn matched(line: &Line) -> Matched {
    let mut found = Matched::default();
    let here = line.words.get(1..).unwrap_or_default();
    let below = line.block.iter().flatten().map(|line| line.words.as_slice());
    for words in std::iter::once(here).chain(below) {
        let Some((kind, values)) = words.split_first() else { continue };
        match kind.text.as_str() {
            "path" if found.path.is_none() => {
                found.path = values.first().map(|word| crate::amount::shortened(&word.text))
            }
            "method" => found.methods.extend(values.iter().take(16).map(|word| word.text.to_ascii_uppercase())),
            _ => {}
        }
    }
    found
}

/// The name of a server; a socket of the machine is called by its path.
fn called(target: &str) -> Option<Name> {
    if let Some(path) = target.strip_prefix("unix/").or_else(|| target.strip_prefix("unix+h2c/")) {
        return Some(Name { host: format!("unix:{path}"), port: None });
    }
    // A port alone is one of this machine.
    if target.starts_with(':') { Name::of(&format!("localhost{target}")) } else { Name::of(target) }
}
