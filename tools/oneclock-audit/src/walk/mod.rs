//! Which files of a folder are read, and by whom.
//!
//! A file is offered to every reader. YAML and JSON are parsed once, and only if some word occurs without which no
//! reader could find anything. What is larger than [`LARGEST`] is listed, not read.

mod repository;

use std::path::Path;
use std::{fs, io};

use oneclock_yaml::{DEEPEST, Node};

use crate::inventory::{FileRead, Inventory, Why};
use crate::readers::{How, KNOWN_BY_NAME, READERS, Reader};
use crate::source::{Place, Source};
use repository::{Files, text};
pub use repository::{LARGEST, Repository};

/// What the walk says on its way, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many files lie there.
    Found(usize),
    /// One more is done.
    Done,
}

/// Reads everything.
pub fn walk(repository: &Repository, mut step: impl FnMut(Step)) -> Inventory {
    let mut inventory = Inventory::default();
    repository.roots().clear();
    let Files { found, unread } = repository.files();
    for (path, says) in unread {
        inventory.leave_out(Why::Unreadable, Source::new(path, "").place(1, 1, 1), says);
    }
    step(Step::Found(found.len()));
    for (path, file) in found {
        offer(repository, &file, path, &mut inventory);
        step(Step::Done);
    }
    inventory
}

/// Only what some reader may want is opened.
fn offer(repository: &Repository, file: &Path, path: String, inventory: &mut Inventory) {
    let unopened = Source::new(path, "");
    if is_binary(&unopened) {
        return;
    }
    let start = unopened.place(1, 1, 1);
    match fs::metadata(file).map(|about| about.len()) {
        Ok(bytes) if bytes > LARGEST => {
            if is_claimed(&unopened) {
                let says = format!("{} KiB; files of more than {} KiB are not read", bytes / 1024, LARGEST / 1024);
                inventory.leave_out(Why::TooLarge, start, says);
            }
        }
        Ok(_) => match text(file) {
            Ok(text) => read(repository, &Source::new(unopened.path, text), inventory),
            // A text in another encoding, or no text at all: nothing that a reader could claim by its name.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && !is_claimed(&unopened) => {}
            Err(error) => inventory.leave_out(Why::Unreadable, start, error.to_string()),
        },
        Err(error) => inventory.leave_out(Why::Unreadable, start, error.to_string()),
    }
}

/// Offers a file to every reader.
pub fn read(repository: &Repository, source: &Source, inventory: &mut Inventory) {
    let mut readers = Vec::new();
    for reader in READERS {
        if let How::Text { mine, read } = &reader.how
            && mine(source)
        {
            let before = inventory.components.len();
            read(source, repository, inventory);
            sign(inventory, before, reader.name);
            readers.push(reader.name);
        }
    }
    let wanted: Vec<&Reader> =
        if is_document(source) { READERS.iter().filter(|one| wants(one, source)).collect() } else { Vec::new() };
    if !wanted.is_empty() {
        match documents(source) {
            Ok(documents) => {
                for reader in wanted {
                    let before = inventory.components.len();
                    let took = match &reader.how {
                        // Every one is offered, whoever took one before.
                        How::Document { read, .. } => {
                            documents.iter().filter(|document| read(source, document, inventory)).count() > 0
                        }
                        How::Documents { read, .. } => read(source, &documents, inventory),
                        How::Text { .. } => false,
                    };
                    sign(inventory, before, reader.name);
                    if took {
                        readers.push(reader.name);
                    }
                }
            }
            Err((why, place, says)) => inventory.leave_out(why, place, says),
        }
    }
    if !readers.is_empty() {
        inventory.files.push(FileRead { path: source.path.clone(), readers });
    } else if let Some(known) = KNOWN_BY_NAME.iter().find(|known| (known.is)(source)) {
        inventory.leave_out(Why::NotRead, source.place(1, 1, 1), format!("{}: known, and not read", known.name));
    }
}

/// Writes down who found the components from `before` on.
fn sign(inventory: &mut Inventory, before: usize, reader: &'static str) {
    for component in inventory.components.iter_mut().skip(before) {
        component.reader = reader;
    }
}

fn wants(reader: &Reader, source: &Source) -> bool {
    match &reader.how {
        How::Document { words, .. } | How::Documents { words, .. } => {
            words.iter().any(|word| source.text.contains(word))
        }
        How::Text { .. } => false,
    }
}

/// The documents of a file, or why there are none; for readers of whole texts too.
pub(crate) fn documents(source: &Source) -> Result<Vec<Node>, (Why, Place, String)> {
    oneclock_yaml::documents(&source.text, DEEPEST).map_err(|error| {
        let place = source.at(error.place, 1);
        if ["{{", "{%", "<%"].iter().any(|mark| source.text.contains(mark)) {
            return (Why::Templated, place, "a template that is filled in elsewhere: audit what it becomes".to_owned());
        }
        (Why::Unparsed, place, error.wrong.to_string())
    })
}

/// YAML or JSON, by its name.
fn is_document(source: &Source) -> bool {
    matches!(source.extension().as_str(), "yaml" | "yml" | "json")
}

/// What some reader claims by its name alone, so that it is listed where it cannot be read.
fn is_claimed(source: &Source) -> bool {
    is_document(source) || source.extension() == "proto"
}

/// What is surely no text that anybody configures with.
fn is_binary(source: &Source) -> bool {
    const BINARY: &[&str] = &[
        "png", "jpg", "jpeg", "gif", "ico", "svg", "webp", "pdf", "zip", "gz", "tgz", "jar", "class", "so", "exe",
        "wasm", "woff", "woff2", "ttf", "eot", "mp4", "webm", "bin", "pb", "lock", "sum", "map", "css", "min.js",
    ];
    BINARY.contains(&source.extension().as_str())
}
