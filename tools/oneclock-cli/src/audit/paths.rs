//! From where paths are shown. What lies in the current folder is shown as its shell finds it, and as a repository's
//! tools do that run at its root; all else from the nearest folder that all of it lies in.

use std::error::Error;
use std::path::{Component, Path, PathBuf};

use oneclock_audit::walk::Repository;

/// # Errors
/// A path that is not there.
pub(super) fn repository(paths: &[PathBuf]) -> Result<Repository, Box<dyn Error>> {
    for path in paths {
        std::fs::metadata(path).map_err(|error| format!("{}: {error}; name folders or files", path.display()))?;
    }
    let here = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if paths.is_empty() {
        return Ok(Repository::new("."));
    }
    if paths.iter().all(|path| here(path)) {
        return Ok(Repository::within(".", paths.iter().map(|path| Path::new(".").join(path))));
    }
    if let [path] = paths {
        return Ok(Repository::new(path.clone()));
    }
    let paths = paths.iter().map(|path| path.canonicalize()).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = paths.first() else { return Ok(Repository::new(".")) };
    let root = first.ancestors().skip(1).find(|above| paths.iter().all(|path| path.starts_with(above)));
    Ok(Repository::within(root.unwrap_or(Path::new("/")), paths.clone()))
}
