//! The grammar of HAProxy: lines of words in sections, and which `defaults` a section takes over.

use std::collections::{BTreeMap, HashMap};

use crate::source::{Place, Source};

/// What opens a section.
const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "peers",
    "resolvers",
    "mailers",
    "cache",
    "program",
    "userlist",
    "ring",
    "http-errors",
    "fcgi-app",
    "log-forward",
    "log-profile",
    "crt-store",
    "crt-list",
    "traces",
    "acme",
];

/// The timeouts that are read.
const TIMEOUTS: &[&str] =
    &["connect", "server", "client", "queue", "tunnel", "check", "http-request", "http-keep-alive"];

/// A word, without its quotes.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) place: Place,
}

/// What settings a section has: its own, or those of its `defaults`.
pub(super) type Values = BTreeMap<String, Word>;

/// A section.
pub(super) struct Section {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) place: Place,
    /// `timeout server`, `retries`, `retry-on`, `mode`.
    pub(super) values: Values,
    /// `server` and `server-template`.
    pub(super) servers: Vec<Vec<Word>>,
    /// `use_backend` and `default_backend`.
    pub(super) uses: Vec<Vec<Word>>,
    /// `acl`, the first of each name.
    pub(super) acls: HashMap<String, Vec<Word>>,
    /// Whether a rule keeps requests that are not safe from being repeated.
    pub(super) spares_unsafe: bool,
}

/// All of a file.
pub(super) struct Sections {
    pub(super) all: Vec<Section>,
    /// Whether it stands alone: a part of several files takes what it does not say from the others.
    pub(super) whole: bool,
}

/// Takes a file apart.
pub(super) fn sections(source: &Source) -> Sections {
    let mut all: Vec<Section> = Vec::new();
    let mut whole = false;
    let mut latest = Values::new();
    let mut named: HashMap<String, Values> = HashMap::new();
    for (number, line) in source.text.lines().enumerate() {
        let words = words(source, number + 1, line);
        let Some(first) = words.first() else { continue };
        if SECTIONS.contains(&first.text.as_str()) {
            if let Some(closed) = all.last().filter(|section| section.kind == "defaults") {
                latest.clone_from(&closed.values);
                named.insert(closed.name.clone(), closed.values.clone());
            }
            whole |= matches!(first.text.as_str(), "global" | "defaults");
            let from = words.iter().position(|word| word.text == "from").and_then(|at| words.get(at + 1));
            let name = words.get(1).filter(|word| word.text != "from").map_or("", |word| &word.text);
            let values = match (first.text.as_str(), from) {
                (_, Some(from)) => named.get(&from.text).cloned().unwrap_or_default(),
                // Another `defaults` begins anew.
                ("frontend" | "backend" | "listen", None) => latest.clone(),
                _ => Values::new(),
            };
            let (kind, place) = (first.text.clone(), first.place.clone());
            let (servers, uses, acls) = (Vec::new(), Vec::new(), HashMap::new());
            all.push(Section { kind, name: name.to_owned(), place, values, servers, uses, acls, spares_unsafe: false });
        } else if let Some(section) = all.last_mut() {
            section.line(words);
        }
    }
    Sections { all, whole }
}

// === Section ===

impl Section {
    fn line(&mut self, words: Vec<Word>) {
        let text = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
        let (key, value) = match text(0) {
            "timeout" if TIMEOUTS.contains(&text(1)) => (format!("timeout {}", text(1)), words.get(2)),
            "retries" | "mode" => (text(0).to_owned(), words.get(1)),
            "retry-on" => {
                let all: Vec<&str> = words.iter().skip(1).map(|word| word.text.as_str()).collect();
                let place = words.first().map(|word| word.place.clone());
                self.values.extend(place.map(|place| ("retry-on".to_owned(), Word { text: all.join(" "), place })));
                return;
            }
            "server" | "server-template" => return self.servers.push(words),
            "use_backend" | "default_backend" => return self.uses.push(words),
            "acl" => {
                self.acls.entry(text(1).to_owned()).or_insert(words);
                return;
            }
            _ => {
                let says = |part: &str| words.iter().any(|word| word.text.contains(part));
                self.spares_unsafe |= says("disable-l7-retry") && says("METH_POST");
                return;
            }
        };
        if let Some(value) = value.cloned() {
            self.values.insert(key, value);
        }
    }
}

/// The words of a line: quotes and escapes are taken off, what stands behind `#` is left out.
fn words(source: &Source, number: usize, line: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut quote = None;
    let mut chars = line.chars().enumerate();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some('"') | None, '\\') => {
                let (_, text) = open.get_or_insert((at, String::new()));
                text.extend(chars.next().map(|(_, c)| c));
            }
            (Some(mark), c) if c == mark => quote = None,
            (Some(_), c) => open.get_or_insert((at, String::new())).1.push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                open.get_or_insert((at, String::new()));
            }
            (None, '#') => break,
            (None, c) if c.is_whitespace() => words.extend(closed(source, number, open.take())),
            (None, c) => open.get_or_insert((at, String::new())).1.push(c),
        }
    }
    words.extend(closed(source, number, open));
    words
}

fn closed(source: &Source, number: usize, open: Option<(usize, String)>) -> Option<Word> {
    let (at, text) = open?;
    let place = source.place(number, at + 1, text.chars().count());
    Some(Word { text, place })
}
