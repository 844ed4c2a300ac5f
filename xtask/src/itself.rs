//! The project speaks of itself only: no file names a path of the machine it was written on, or a host that packages
//! were fetched from. Looks at what git tracks and at what could be added; binary files are passed over.

use std::fs;
use std::path::Path;

use crate::run;

/// Built in two parts, so that this file does not find itself.
const PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Where packages come from is the business of whoever builds.
const HOSTS: &[&str] = &[
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("sparse+", "http"),
    concat!("replace", "-with"),
    concat!("registry.", "npmjs.org"),
    concat!("proxy.", "golang.org"),
    concat!("deb.", "debian.org"),
];

/// The one source that Cargo.lock may name: cargo writes it whatever mirror it fetched from.
const LOCK_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Reads every file once. Returns how many there were.
pub(crate) fn check(root: &Path) -> Result<String, String> {
    let mut git = run::program(root, "git".as_ref());
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let names =
        run::output(git).map_err(|error| format!("{error}; this check reads what git tracks: run it in a clone"))?;
    let mut found = Vec::new();
    let mut read = 0_usize;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // Deleted but still tracked, or not text: nothing that a reader could see.
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        read += 1;
        for (number, line) in text.lines().enumerate() {
            if let Some(what) = fault(name, line) {
                found.push(format!("{name}:{}: {what}", number + 1));
            }
        }
    }
    if read == 0 {
        return Err("no file was read, so nothing was checked".to_owned());
    }
    if found.is_empty() { Ok(format!("{read} files")) } else { Err(found.join("\n")) }
}

/// What is wrong with a line, and the way out.
fn fault(name: &str, line: &str) -> Option<String> {
    if let Some(path) = PATHS.iter().find(|path| stands_alone(line, path)) {
        return Some(format!("`{path}` is a path of one machine: name the file from the root of the repository"));
    }
    if let Some(host) = HOSTS.iter().find(|host| line.contains(**host)) {
        return Some(format!(
            "`{host}` says where packages are fetched from: that is set by whoever builds, delete it"
        ));
    }
    let is_lock = name.ends_with("Cargo.lock");
    if is_lock && line.starts_with("source = ") && line != LOCK_SOURCE {
        return Some(format!("{line} is not crates.io: depend on a released version"));
    }
    None
}

/// Whether an absolute path begins here: `a/ho` `me/b` is a part of a relative path or of an address.
fn stands_alone(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "._-~}*".contains(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_found_wherever_it_begins() {
        for path in PATHS {
            for line in [format!("{path}x"), format!("see `{path}x`"), format!("file://{path}x"), format!("A={path}x")]
            {
                assert!(fault("README.md", &line).is_some_and(|what| what.contains(path)), "{line}");
            }
            let relative = format!("docs{path}x");
            assert_eq!(fault("README.md", &relative), None, "{relative}");
        }
    }

    #[test]
    fn a_host_that_packages_come_from_is_found() {
        for host in HOSTS {
            assert!(fault(".cargo/config.toml", &format!("x = \"{host}\"")).is_some(), "{host}");
        }
    }

    #[test]
    fn the_lock_file_names_crates_io_only() {
        assert_eq!(fault("Cargo.lock", LOCK_SOURCE), None);
        assert!(fault("fuzz/Cargo.lock", "source = \"git+https://example.org/fork\"").is_some());
    }
}
