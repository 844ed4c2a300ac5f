//! Runs that are kept, under their date and machine.

use std::path::{Path, PathBuf};

use crate::{Failed, cpu};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Writes `text` to bench/runs, as a run of `bench`.
///
/// # Errors
/// It cannot be written.
pub fn keep(bench: &str, text: &str) -> Result<PathBuf, Failed> {
    let mut machine = cpu::machine().to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    while machine.contains("--") {
        machine = machine.replace("--", "-");
    }
    let date = std::process::Command::new("date").arg("+%Y-%m-%d").output()?;
    let date = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    let path = root().join("bench/runs").join(format!("{date}-{bench}-{machine}.txt"));
    std::fs::write(&path, text)?;
    Ok(path)
}
