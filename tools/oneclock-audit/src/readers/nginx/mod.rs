//! nginx: `nginx.conf` and the files that it includes, or a part of one that stands alone (`conf.d/default.conf`).
//!
//! A server block that passes anything on is a component, every `*_pass` a call to each server that it may reach: what is
//! written on the way there (`http`, `server`, `location`) holds for it. What nobody wrote holds by default only where all
//! files that could say otherwise were read: in a part that stands alone nobody knows what else is included, but for
//! `proxy_*` and its like if no other configuration of nginx lies around it (the stock one sets none of them).
//!
//! Not read: variables but for those that `set` gives a fixed value, `map`, `if` conditions, Lua, the control of caches.

mod above;
mod include;
mod scope;
mod serve;
mod syntax;

pub(crate) use above::Roots;
use above::{Above, above};
use include::Loader;
use scope::Around;
use syntax::{Directive, parse};

use crate::inventory::{Inventory, Why};
use crate::source::{Place, Source};
use crate::walk::Repository;

/// Words that only nginx knows.
const WORDS: &[&str] = &[
    "proxy_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "grpc_pass",
    "scgi_pass",
    "server_name",
    "worker_connections",
    "proxy_read_timeout",
    "fastcgi_read_timeout",
];

/// By its name a text that nginx may read, by its words one that it does.
pub(super) fn is_mine(source: &Source) -> bool {
    let says_so = |line: &str| WORDS.iter().any(|word| says(line, word));
    is_named(&source.path) && (source.text.lines().any(says_so) || only_includes(&source.text))
}

/// Blocks of nginx, with nothing but includes in them.
fn only_includes(text: &str) -> bool {
    let includes = |line: &str| line.starts_with("include ") && line.contains(';');
    let mut lines = text.lines().map(str::trim_start);
    lines.clone().any(|line| begins(line, &["http", "stream", "server"])) && lines.any(includes)
}

/// `http {`
fn begins(line: &str, blocks: &[&str]) -> bool {
    blocks.iter().any(|block| line.strip_prefix(block).is_some_and(|rest| rest.trim_start().starts_with('{')))
}

/// `proxy_pass http://…` at the beginning of a line, or behind a brace.
fn says(line: &str, word: &str) -> bool {
    line.find(word).is_some_and(|at| {
        let (before, behind) = (line.get(..at).unwrap_or_default(), line.get(at + word.len()..).unwrap_or_default());
        before.chars().all(|c| c.is_whitespace() || c == '\u{feff}') | before.trim_end().ends_with(['{', ';', '}'])
            && behind.starts_with([' ', '\t'])
            && !before.trim_start().starts_with('#')
    })
}

fn is_named(path: &str) -> bool {
    const EXTENSIONS: &[&str] =
        &["conf", "nginx", "template", "tmpl", "tpl", "sample", "vhost", "j2", "erb", "example", "dist", "in"];
    let lower = path.to_ascii_lowercase();
    let name = lower.rsplit('/').next().unwrap_or(&lower);
    match name.rsplit_once('.') {
        Some((_, extension)) => EXTENSIONS.contains(&extension) || name.starts_with("nginx.conf"),
        None => lower.contains("nginx") || lower.contains("sites-"),
    }
}

/// What a file says; a template that another program fills in says nothing yet.
fn tree(source: &Source) -> Result<Vec<Directive>, (Why, Place, &'static str)> {
    let templated = |place| (Why::Templated, place, "a template that is filled in elsewhere: audit what it becomes");
    match parse(source) {
        Ok(_) if source.text.contains("<%") => Err(templated(source.place(1, 1, 1))),
        Err((place, _)) if ["{{", "{%", "<%"].iter().any(|mark| source.text.contains(mark)) => Err(templated(place)),
        parsed => parsed.map_err(|(place, says)| (Why::Unparsed, place, says)),
    }
}

pub(super) fn read(source: &Source, repository: &Repository, inventory: &mut Inventory) {
    let directives = match tree(source) {
        Ok(directives) => directives,
        Err((why, place, says)) => return inventory.leave_out(why, place, says),
    };
    let whole = is_whole(&directives);
    let around = match () {
        () if whole => Around::Whole,
        () => match above(source, &directives, repository) {
            Above::IncludesIt => return,
            Above::Beside => Around::Unknown,
            Above::Nothing => Around::Stock,
        },
    };
    let mut loader = Loader::new(repository, &source.path, whole);
    let directives = loader.expand(directives, &mut vec![source.path.to_string()]);
    serve::root(source, &directives, around, inventory);
}

/// What nginx begins with.
fn is_whole(directives: &[Directive]) -> bool {
    directives.iter().any(|one| (one.is("http") || one.is("stream") || one.is("events")) && one.block.is_some())
}
