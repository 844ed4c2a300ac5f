//! What an audit tells, in every form, of one small shop (`data/shop`) and of what is hostile or large.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test without its files says so")]

mod draft;
mod forms;
mod hostile;
mod ignored;
mod known;
mod large;
mod prices;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use oneclock_audit::report::{Detail, Report};
use oneclock_audit::walk::{Repository, walk};
use oneclock_audit::{Audited, audit};

/// Where the shop is.
fn shop() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report/data/shop")
}

fn audited(folder: &Path) -> Audited<'static> {
    let repository = Repository::new(folder);
    // For as long as the tests run: what is audited borrows it.
    let inventory = Box::leak(Box::new(walk(&repository, |_| ())));
    audit(&repository, inventory)
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let file = folder.path().join(path);
        fs::create_dir_all(file.parent().expect("a folder above")).expect("the folder");
        fs::write(file, text).expect("the file");
    }
    folder
}

/// The text, as it is where there is no terminal.
fn plain(audited: &Audited<'_>, detail: Detail) -> String {
    anstream::adapter::strip_str(&coloured(audited, detail)).to_string()
}

fn coloured(audited: &Audited<'_>, detail: Detail) -> String {
    let mut out = Vec::new();
    Report::of(audited).text(&mut out, detail).expect("memory takes it");
    String::from_utf8(out).expect("UTF-8")
}

/// The rules of the findings, with the lines that they are about.
fn found(audited: &Audited<'_>) -> Vec<String> {
    audited.findings.iter().map(|found| format!("{} {}", found.finding.place, found.finding.rule)).collect()
}
