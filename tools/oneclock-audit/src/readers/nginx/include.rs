//! `include`, put in its place: what an included file says is said where it is included.
//!
//! Only files of the repository are opened. A path below the folder where nginx is installed is looked for beside the
//! file that everything begins with. So many files, so deep, and none within itself. What is not there stays in the tree
//! as `include`, so that nobody takes the rest for all there is.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::syntax::Directive;
use crate::source;
use crate::walk::Repository;

/// So many includes are put in place for one root.
const MOST: usize = 512;
/// So many directives come in that way.
const MOST_DIRECTIVES: usize = 100_000;
/// An include within an include, and so on.
const DEEPEST: usize = 6;
/// Where nginx keeps its configuration, in its usual homes.
const HOMES: &[&str] = &[
    "/etc/nginx/",
    "/usr/local/nginx/conf/",
    "/usr/local/etc/nginx/",
    "/usr/local/openresty/nginx/conf/",
    "/opt/nginx/conf/",
    "/config/nginx/",
];
/// What has nothing to do with time: types, parameters of protocols, modules, keys.
const OF_NO_MATTER: &[&str] =
    &["mime.types", "_params", "fastcgi.conf", "modules", "letsencrypt", "ssl", "tls", "koi-", "snakeoil", "dhparam"];

/// Puts includes in their place.
pub(super) struct Loader<'a> {
    repository: &'a Repository,
    /// The folders from which paths are taken.
    bases: Vec<String>,
    parsed: HashMap<String, Option<Rc<Vec<Directive>>>>,
    left: usize,
    left_directives: usize,
    /// What was put in place.
    pub(super) included: BTreeSet<String>,
}

impl<'a> Loader<'a> {
    /// For a root file. `whole` where it is the file that nginx begins with.
    pub(super) fn new(repository: &'a Repository, root: &str, whole: bool) -> Self {
        let folder = source::folder(root);
        let mut bases = vec![folder.to_owned()];
        if !whole && !folder.is_empty() {
            bases.push(source::folder(folder).to_owned());
        }
        let parsed = HashMap::new();
        Self { repository, bases, parsed, left: MOST, left_directives: MOST_DIRECTIVES, included: BTreeSet::new() }
    }

    /// The directives with everything that they include.
    pub(super) fn expand(&mut self, directives: Vec<Directive>, within: &mut Vec<String>) -> Vec<Directive> {
        let mut all = Vec::with_capacity(directives.len());
        for mut directive in directives {
            directive.block = directive.block.map(|block| self.expand(block, within));
            let pattern = if directive.is("include") { directive.first().map(|word| word.text.clone()) } else { None };
            match pattern.and_then(|pattern| self.include(&pattern, within)) {
                Some(included) => all.extend(included),
                None => all.push(directive),
            }
        }
        all
    }

    /// What a pattern stands for; `None` where that is not known.
    fn include(&mut self, pattern: &str, within: &mut Vec<String>) -> Option<Vec<Directive>> {
        self.left = self.left.checked_sub(1)?;
        let files = self.files(pattern);
        if files.is_empty() {
            let of_no_matter = OF_NO_MATTER.iter().any(|word| pattern.contains(word));
            return of_no_matter.then(Vec::new);
        }
        let mut all = Vec::new();
        for file in files {
            self.left = self.left.checked_sub(1)?;
            if within.len() >= DEEPEST || within.contains(&file) {
                return None;
            }
            let parsed = self.parsed(&file)?;
            self.left_directives = self.left_directives.checked_sub(parsed.iter().map(size).sum())?;
            self.included.insert(file.clone());
            within.push(file);
            let expanded = self.expand(parsed.as_ref().clone(), within);
            within.pop();
            all.extend(expanded);
        }
        Some(all)
    }

    fn parsed(&mut self, file: &str) -> Option<Rc<Vec<Directive>>> {
        if let Some(known) = self.parsed.get(file) {
            return known.clone();
        }
        let parsed = self.repository.open(file).ok().and_then(|source| super::tree(&source).ok()).map(Rc::new);
        self.parsed.insert(file.to_owned(), parsed.clone());
        parsed
    }

    /// The files of the repository that a path or a pattern means.
    fn files(&self, pattern: &str) -> Vec<String> {
        let relative = HOMES.iter().find_map(|home| pattern.strip_prefix(home)).unwrap_or(pattern);
        if relative.starts_with('/') || relative.contains('$') {
            return Vec::new();
        }
        // An image may take a file to another folder: then it lies beside the one that includes it.
        let beside = relative.rsplit('/').next().filter(|name| *name != relative && !name.contains('*'));
        let paths = self.bases.iter().map(|base| (base, relative)).chain(self.bases.first().zip(beside));
        for (base, relative) in paths {
            let Some(path) = joined(base, relative) else { continue };
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let found: Vec<String> = if name.contains(['*', '?']) && !folder.contains(['*', '?']) {
                let all = self.repository.folder(folder).into_iter();
                all.filter(|file| fits(name, file.rsplit('/').next().unwrap_or(file))).collect()
            } else if self.repository.open(&path).is_ok() {
                vec![path]
            } else {
                Vec::new()
            };
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }
}

fn size(directive: &Directive) -> usize {
    1 + directive.block.iter().flatten().map(size).sum::<usize>()
}

/// A path below a folder, with `..` taken for what it means; `None` above where the audit began.
fn joined(base: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(relative.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a name fits a pattern of `*` and `?`.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut seen) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = name.get(seen) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, seen));
                at += 1;
            }
            Some(p) if p == c || *p == '?' => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((behind, from)) = star else { return false };
                star = Some((behind, from + 1));
                (at, seen) = (behind, from + 1);
            }
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(fits("*.conf", "a.conf") && fits("*", "") && fits("a?c*", "abcd") && fits("*a*b", "xaxbxb"));
        assert!(!fits("*.conf", "a.conf.off") && !fits("a", "ab") && !fits("?", ""));
    }

    #[test]
    fn a_path_stays_inside() {
        assert_eq!(joined("a/b", "../c.conf").as_deref(), Some("a/c.conf"));
        assert_eq!(joined("a", "../../c.conf"), None);
    }
}
