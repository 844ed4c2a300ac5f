//! Which files of a folder are read, and by whom. Keeps to what `.gitignore` says, follows no links, and opens nothing
//! outside of where it began.
//!
//! A file is offered to every reader. YAML and JSON are parsed once, and only if some word occurs without which no
//! reader could find anything. What is larger than [`LARGEST`] is listed, not read.

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use ignore::WalkBuilder;
use oneclock_yaml::{DEEPEST, Node};

use crate::inventory::{FileRead, Inventory, Why};
use crate::readers::topology::FILE;
use crate::readers::{How, KNOWN_BY_NAME, READERS, Reader, Roots};
use crate::source::{Place, Source};

/// Larger files are not configuration.
pub const LARGEST: u64 = 4 * 1024 * 1024;

/// Where the audit reads.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
    /// The folders and files below it that are walked; all of it, where there is none.
    within: Vec<PathBuf>,
    /// A topology file from elsewhere.
    topology: Option<PathBuf>,
    /// What a walk has seen of files that include others.
    roots: Roots,
}

/// What the walk says on its way, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many files lie there.
    Found(usize),
    /// One more is done.
    Done,
}

// === Repository ===

impl Repository {
    /// A folder, or a single file.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        match root.parent() {
            Some(above) if root.is_file() => {
                Self { root: above.to_owned(), within: vec![root], topology: None, roots: Roots::default() }
            }
            _ => Self { root, within: Vec::new(), topology: None, roots: Roots::default() },
        }
    }

    /// Some folders and files below one folder, from which paths are shown; each is given with that folder before it.
    #[must_use]
    pub fn within(root: impl Into<PathBuf>, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { root: root.into(), within: paths.into_iter().collect(), topology: None, roots: Roots::default() }
    }

    /// Lays a topology file from elsewhere beside what is audited: it is read, and shown, as if it lay there as
    /// `oneclock.topology.yaml`. One that lies there stays unread.
    #[must_use]
    pub fn with_topology(mut self, file: impl Into<PathBuf>) -> Self {
        self.topology = Some(file.into());
        self
    }

    /// The file from elsewhere that is laid in at a path.
    fn laid(&self, path: &str) -> Option<&Path> {
        self.topology.as_deref().filter(|_| path == FILE)
    }

    /// From where paths are shown.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What is known of files that include others.
    pub(crate) const fn roots(&self) -> &Roots {
        &self.roots
    }

    /// A file by its path from the root; for what a file includes. Nothing outside of the root is opened.
    ///
    /// # Errors
    /// It is not there, is larger than [`LARGEST`], or would lie outside.
    pub fn open(&self, path: &str) -> io::Result<Source> {
        if let Some(file) = self.laid(path) {
            return Ok(Source::new(path, text(file)?));
        }
        let (whole, kind) = self.inside(path)?;
        if !kind.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no file"));
        }
        Ok(Source::new(path, text(&whole)?))
    }

    /// Where a path from the root leads, and to what. A link on any part of the way may lead outside: none is followed.
    fn inside(&self, path: &str) -> io::Result<(PathBuf, fs::FileType)> {
        let denied = |why| io::Error::new(io::ErrorKind::PermissionDenied, why);
        let mut whole = self.root.clone();
        let mut kind = None;
        for part in Path::new(path).components() {
            match part {
                Component::Normal(part) => whole.push(part),
                Component::CurDir => continue,
                _ => return Err(denied("outside of what is audited")),
            }
            let here = fs::symlink_metadata(&whole)?.file_type();
            if here.is_symlink() {
                return Err(denied("links are not followed"));
            }
            kind = Some(here);
        }
        // The root itself is what somebody asked for, link or not.
        let kind = kind.map_or_else(|| fs::metadata(&whole).map(|about| about.file_type()), Ok)?;
        Ok((whole, kind))
    }

    /// The files of a folder, by its path from the root, in order; for `include conf.d/*.conf`.
    #[must_use]
    pub fn folder(&self, path: &str) -> Vec<String> {
        let folder = self.inside(path).ok().filter(|(_, kind)| kind.is_dir());
        let Some(entries) = folder.and_then(|(folder, _)| fs::read_dir(folder).ok()) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| if path.is_empty() { name } else { format!("{path}/{name}") })
            .collect();
        names.sort();
        names
    }

    /// Whether one of the words occurs in a file below a folder, by its path from the root, whose name ends in one of
    /// these: what a reader asks before it takes a default for granted that code may change. Looks at no more than so
    /// many of those files, always the same ones, and follows no links.
    #[must_use]
    pub fn mentions(&self, path: &str, extensions: &[&str], words: &[&str]) -> bool {
        const MOST: usize = 4_000;
        const MOST_ENTRIES: usize = 50 * MOST;
        let Ok((folder, _)) = self.inside(path) else { return false };
        let walk = walk_of(&folder)
            .filter_entry(|entry| !entry.file_name().to_str().is_some_and(|name| NOBODYS.contains(&name)))
            .sort_by_file_name(Ord::cmp)
            .build();
        let is_wanted = |entry: &ignore::DirEntry| {
            entry.file_type().is_some_and(|kind| kind.is_file())
                && entry.path().extension().and_then(|own| own.to_str()).is_some_and(|own| extensions.contains(&own))
        };
        let mut files = walk.filter_map(Result::ok).take(MOST_ENTRIES).filter(is_wanted).take(MOST);
        files.any(|entry| text(entry.path()).is_ok_and(|text| words.iter().any(|word| text.contains(word))))
    }

    /// The paths of all files, in order, as `.gitignore` leaves them. What is left out of version control is left out
    /// here; hidden files are not (`.env`), but for `.git` itself.
    fn files(&self) -> Vec<Result<PathBuf, (PathBuf, String)>> {
        let mut walk = walk_of(self.within.first().unwrap_or(&self.root));
        self.within.iter().skip(1).for_each(|path| {
            walk.add(path);
        });
        let walk =
            walk.filter_entry(|entry| !matches!(entry.file_name().to_str(), Some(".git" | "node_modules"))).build();
        let mut files: Vec<Result<PathBuf, (PathBuf, String)>> = walk
            .filter_map(|entry| match entry {
                Ok(entry) => entry.file_type().is_some_and(|kind| kind.is_file()).then(|| Ok(entry.into_path())),
                Err(error) => Some(Err(self.unread(&error))),
            })
            .collect();
        files.sort();
        files.dedup();
        files
    }

    /// What could not be walked, and why.
    fn unread(&self, error: &ignore::Error) -> (PathBuf, String) {
        let mut inner = error;
        let mut at = self.root.clone();
        loop {
            inner = match inner {
                ignore::Error::WithPath { path, err } => {
                    at.clone_from(path);
                    err
                }
                ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => err,
                _ => break,
            };
        }
        (at, inner.io_error().map_or_else(|| inner.to_string(), ToString::to_string))
    }

    fn shown(&self, file: &Path) -> String {
        let relative = file.strip_prefix(&self.root).unwrap_or(file);
        let relative =
            if relative.as_os_str().is_empty() { Path::new(file.file_name().unwrap_or_default()) } else { relative };
        relative.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
    }
}

/// Folders in which nobody's own code lies.
const NOBODYS: &[&str] =
    &[".git", ".gradle", ".venv", "__pycache__", "build", "dist", "node_modules", "out", "target", "vendor", "venv"];

/// A walk that finds the same for everybody: what the one who runs it ignores elsewhere counts for nothing.
fn walk_of(path: &Path) -> WalkBuilder {
    let mut walk = WalkBuilder::new(path);
    walk.hidden(false).follow_links(false).require_git(false).git_global(false).parents(false);
    walk
}

/// Reads everything.
pub fn walk(repository: &Repository, mut step: impl FnMut(Step)) -> Inventory {
    let mut inventory = Inventory::default();
    repository.roots.clear();
    let mut found = Vec::new();
    for file in repository.files() {
        match file {
            Ok(file) => found.push(file),
            Err((path, says)) => {
                inventory.leave_out(Why::Unreadable, Source::new(repository.shown(&path), "").place(1, 1, 1), says);
            }
        }
    }
    let own = found.into_iter().map(|file| (repository.shown(&file), file));
    let own = own.filter(|(path, _)| repository.laid(path).is_none());
    let files: Vec<(String, PathBuf)> =
        own.chain(repository.topology.iter().map(|file| (FILE.to_owned(), file.clone()))).collect();
    step(Step::Found(files.len()));
    for (path, file) in files {
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
            if is_document(&unopened) {
                let says = format!("{} KiB; files of more than {} KiB are not read", bytes / 1024, LARGEST / 1024);
                inventory.leave_out(Why::TooLarge, start, says);
            }
        }
        Ok(_) => match text(file) {
            Ok(text) => read(repository, &Source::new(unopened.path, text), inventory),
            // A text in another encoding, or no text at all: nothing that a reader could claim by its name.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && !is_document(&unopened) => {}
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

/// What is surely no text that anybody configures with.
fn is_binary(source: &Source) -> bool {
    const BINARY: &[&str] = &[
        "png", "jpg", "jpeg", "gif", "ico", "svg", "webp", "pdf", "zip", "gz", "tgz", "jar", "class", "so", "exe",
        "wasm", "woff", "woff2", "ttf", "eot", "mp4", "webm", "bin", "pb", "lock", "sum", "map", "css", "min.js",
    ];
    BINARY.contains(&source.extension().as_str())
}

/// The text of a file: UTF-8, with or without its mark.
fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than what is read"));
    }
    Ok(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned))
}
