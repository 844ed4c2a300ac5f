//! Where a file lies, and whether somebody above it is the one who starts what it configures: then it is read with that.

use crate::source::Source;
use crate::walk::Repository;

/// The names that compose looks for by itself.
pub(super) const COMPOSE: &[&str] = &["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// What runs in a folder is called like the folder, or the one above it that is called after anything; at the root it is
/// called `otherwise`.
pub(super) fn called(folder: &str, otherwise: &str) -> String {
    const PLAIN: &[&str] =
        &["", "app", "build", "code", "conf", "config", "configs", "deploy", "docker", "env", "etc", "files", "src"];
    folder.rsplit('/').find(|name| !PLAIN.contains(name)).unwrap_or(otherwise).to_owned()
}

/// A path beside a folder: `a/b` and `../c.py` make `a/c.py`. `None` for what lies outside, or is no path in here.
pub(super) fn beside(folder: &str, path: &str) -> Option<String> {
    if path.starts_with(['/', '~', '$']) || path.contains("://") {
        return None;
    }
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
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

/// Whether a Dockerfile, a Procfile or a compose file names a file in a folder: one in it, or one above.
pub(super) fn named(repository: &Repository, folder: &str, file: &str) -> bool {
    speaks(repository, folder, &["Dockerfile", "Procfile"], file) || mounted(repository, folder, file)
}

/// Whether a compose file, in the folder or above it, names a file in it.
pub(super) fn mounted(repository: &Repository, folder: &str, file: &str) -> bool {
    speaks(repository, folder, COMPOSE, file)
}

fn speaks(repository: &Repository, folder: &str, names: &[&str], of: &str) -> bool {
    let whole = within(folder, of);
    above(folder).any(|above| {
        // As it is seen from there: another file of the same name elsewhere is another file.
        let seen = whole.strip_prefix(above).unwrap_or(&whole).trim_start_matches('/');
        let holds = |path: String| repository.open(&path).is_ok_and(|source: Source| source.text.contains(seen));
        names.iter().any(|name| holds(within(above, name)))
    })
}

/// Whether what lies right in a folder is started from it: gunicorn takes its file from where it starts.
pub(super) fn starts(repository: &Repository, folder: &str, program: &str) -> bool {
    let holds = |path: String| repository.open(&path).is_ok_and(|source: Source| source.text.contains(program));
    COMPOSE.iter().chain(&["Dockerfile", "Procfile"]).any(|name| holds(within(folder, name)))
}

/// A name in a folder.
pub(super) fn within(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Whether a compose file in the folder, or in one above it, builds what lies there.
pub(super) fn composed(repository: &Repository, folder: &str) -> bool {
    let own = folder.rsplit('/').next().unwrap_or_default();
    above(folder).any(|above| {
        COMPOSE.iter().any(|name| {
            let builds =
                |source: Source| source.text.contains("build:") && (above == folder || source.text.contains(own));
            repository.open(&within(above, name)).is_ok_and(builds)
        })
    })
}

/// The folder and those above it, the nearest first, not more than a few.
fn above(folder: &str) -> impl Iterator<Item = &str> {
    const FAR: usize = 4;
    std::iter::successors(Some(folder), |folder| {
        if folder.is_empty() { None } else { Some(folder.rsplit_once('/').map_or("", |(above, _)| above)) }
    })
    .take(FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        assert_eq!(beside("a/b", "../c.py").as_deref(), Some("a/c.py"));
        assert_eq!(beside("", "./x/y").as_deref(), Some("x/y"));
        assert_eq!(beside("a", "../../x"), None);
        assert_eq!(beside("a", "/etc/passwd"), None);
        assert_eq!(above("a/b").collect::<Vec<_>>(), ["a/b", "a", ""]);
    }
}
