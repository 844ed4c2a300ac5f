//! Where the audit reads: the files of a folder, and what one of them may open. Keeps to what `.gitignore` says, follows no
//! links, and opens nothing outside of where it began, nor what is larger than [`LARGEST`].

use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use ignore::WalkBuilder;

use crate::readers::Roots;
use crate::readers::topology::FILE;
use crate::source::Source;

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

/// All that lies there, by the path that is shown.
pub(super) struct Files {
    pub(super) found: Vec<(String, PathBuf)>,
    /// What could not be walked, and why.
    pub(super) unread: Vec<(String, String)>,
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

    /// All files, in order, as `.gitignore` leaves them. What is left out of version control is left out
    /// here; hidden files are not (`.env`), but for `.git` itself.
    pub(super) fn files(&self) -> Files {
        let mut walk = walk_of(self.within.first().unwrap_or(&self.root));
        self.within.iter().skip(1).for_each(|path| {
            walk.add(path);
        });
        let walk =
            walk.filter_entry(|entry| !matches!(entry.file_name().to_str(), Some(".git" | "node_modules"))).build();
        let (mut files, mut unread) = (Vec::new(), Vec::new());
        for entry in walk {
            match entry {
                Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => files.push(entry.into_path()),
                Ok(_) => {}
                Err(error) => unread.push(self.unread(&error)),
            }
        }
        files.sort();
        files.dedup();
        unread.sort();
        unread.dedup();
        let own = files.into_iter().map(|file| (self.shown(&file), file)).filter(|(path, _)| self.laid(path).is_none());
        let laid = self.topology.iter().map(|file| (FILE.to_owned(), file.clone()));
        let unread = unread.into_iter().map(|(path, says)| (self.shown(&path), says));
        Files { found: own.chain(laid).collect(), unread: unread.collect() }
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

/// The text of a file: UTF-8, with or without its mark.
pub(super) fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than what is read"));
    }
    Ok(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned))
}
