//! `cargo xtask corpus DIR`: what the tools say of copies of public repositories, one in each folder of DIR. Nothing of them
//! is kept here: only numbers go into target/corpus.

mod audit;
mod speed;
mod traces;

use std::fs;
use std::path::Path;

/// Explains all traces and audits all repositories, or measures how fast the latter goes.
///
/// # Errors
/// A sum that does not hold, a panic, something missing that is known to be there, or a folder with nothing in it.
pub(crate) fn corpus(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (folder, measures) = match arguments {
        [folder] if !folder.starts_with('-') => (Path::new(folder), false),
        [folder, flag] | [flag, folder] if flag == "--speed" && !folder.starts_with('-') => (Path::new(folder), true),
        _ => return Err("corpus: takes one folder, which holds copies of repositories, and --speed".to_owned()),
    };
    if measures {
        return speed::speed(root, folder);
    }
    let traces = traces::Found::under(folder)?;
    let audits = audit::every(root, folder)?;
    told(root, "explain.md", &traces::table(&traces))?;
    told(root, "audit.md", &audit::table(&audits))?;
    traces.verdict()?;
    audit::verdict(&audits)?;
    if traces.is_empty() && audits.iter().all(audit::Outcome::is_empty) {
        return Err(format!("corpus: nothing to explain and nothing to audit under {}", folder.display()));
    }
    Ok(())
}

fn told(root: &Path, name: &str, table: &str) -> Result<(), String> {
    println!("{table}");
    let target = root.join("target/corpus");
    let written = fs::create_dir_all(&target).and_then(|()| fs::write(target.join(name), table));
    written.map_err(|error| format!("corpus: {}: {error}", target.display()))
}
