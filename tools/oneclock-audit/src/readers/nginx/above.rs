//! Who may include a file: what lies in the folders above it.
//!
//! Every file that may is read once, and what it includes is kept, for as long as a walk lasts: each part that stands alone
//! asks the same ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::include::Loader;
use super::syntax::Directive;
use super::{begins, is_mine, is_named, is_whole, tree};
use crate::source::{Source, folder};
use crate::walk::Repository;

/// So many files of a folder are asked whether they include another.
const ASKED: usize = 32;
/// So many folders up.
const UP: usize = 4;

pub(super) enum Above {
    /// Another file includes this one: it is read there.
    IncludesIt,
    /// A whole configuration lies around it, and does not include it as far as can be seen.
    Beside,
    Nothing,
}

/// What is known of the files that may include others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Of a folder, the files that are asked first.
    folders: HashMap<String, Arc<Vec<String>>>,
    files: HashMap<String, Arc<Root>>,
}

/// A file that may include others.
#[derive(Debug)]
struct Root {
    /// It looks like one that nginx begins with.
    looks_whole: bool,
    /// What stands behind its `include`s.
    patterns: Vec<String>,
    read: OnceLock<Read>,
}

/// What a root turns out to be.
#[derive(Debug, Default)]
struct Read {
    whole: bool,
    included: BTreeSet<String>,
}

/// What lies in the folders above that may include this file.
pub(super) fn above(source: &Source, directives: &[Directive], repository: &Repository) -> Above {
    let has_server = directives.iter().any(|one| one.is("server"));
    let mut found = Above::Nothing;
    let mut here = folder(&source.path);
    for _ in 0..UP {
        let files = repository.roots().folder(here, repository);
        for file in files.iter().filter(|file| **file != *source.path).take(ASKED) {
            let Some(root) = repository.roots().root(file, repository) else { continue };
            if !root.looks_whole && (has_server || !root.includes_like(source.name())) {
                continue;
            }
            let read = root.read.get_or_init(|| Read::of(file, repository));
            if read.included.contains(&*source.path) {
                return Above::IncludesIt;
            }
            if read.whole {
                found = Above::Beside;
            }
        }
        if here.is_empty() {
            break;
        }
        here = folder(here);
    }
    found
}

// === Roots ===

impl Roots {
    /// Forgets everything: another walk finds other files.
    pub(crate) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }

    /// The files of a folder that are asked, one more than are: none asks itself.
    fn folder(&self, folder: &str, repository: &Repository) -> Arc<Vec<String>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let files = known.folders.entry(folder.to_owned()).or_insert_with(|| {
            let mut files = repository.folder(folder);
            files.retain(|file| is_named(file));
            files.sort_by_key(|file| !file.rsplit('/').next().unwrap_or(file).contains("nginx"));
            files.truncate(ASKED + 1);
            Arc::new(files)
        });
        Arc::clone(files)
    }

    /// A file; `None` where it cannot be opened.
    fn root(&self, file: &str, repository: &Repository) -> Option<Arc<Root>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = known.files.get(file) {
            return Some(Arc::clone(root));
        }
        let root = Arc::new(Root::of(&repository.open(file).ok()?));
        known.files.insert(file.to_owned(), Arc::clone(&root));
        Some(root)
    }
}

// === Root ===

impl Root {
    fn of(source: &Source) -> Self {
        let patterns = source.text.lines().filter_map(|line| line.split_once("include").map(|(_, behind)| behind));
        Self {
            looks_whole: source.text.lines().any(|line| begins(line.trim_start(), &["http", "stream", "events"])),
            patterns: patterns.map(str::to_owned).collect(),
            read: OnceLock::new(),
        }
    }

    fn includes_like(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.contains(name) || pattern.contains('*'))
    }
}

// === Read ===

impl Read {
    /// What is not read as a root says nothing about what it includes.
    fn of(file: &str, repository: &Repository) -> Self {
        let source = repository.open(file).ok().filter(is_mine);
        let Some(directives) = source.and_then(|source| tree(&source).ok()) else { return Self::default() };
        let whole = is_whole(&directives);
        let mut loader = Loader::new(repository, file, whole);
        loader.expand(directives, &mut vec![file.to_owned()]);
        Self { whole, included: loader.included }
    }
}
