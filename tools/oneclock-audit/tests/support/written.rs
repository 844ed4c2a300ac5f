//! A folder with the files of a case, audited.

use std::fs;

use oneclock_audit::inventory::Inventory;
use oneclock_audit::walk::{Repository, walk};

/// What is found in these files.
#[track_caller]
pub(crate) fn inventory(files: &[(&str, &str)]) -> Inventory {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let file = folder.path().join(path);
        fs::create_dir_all(file.parent().expect("a folder above")).expect("the folder");
        fs::write(file, text).expect("the file");
    }
    walk(&Repository::new(folder.path()), |_| ())
}
