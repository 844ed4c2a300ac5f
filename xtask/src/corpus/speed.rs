//! How fast the audit goes: files per second of a whole folder, beside yamllint, which reads the YAML of it alone. Both run in
//! turn, three times, so that what else the machine does meets both.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::run;

const ROUNDS: usize = 3;
/// Of PyPI. Its version is the one that is measured beside.
const YAMLLINT: &str = "yamllint==1.38.0";

/// # Errors
/// Something could not be built, installed or run.
pub(super) fn speed(root: &Path, folder: &Path) -> Result<(), String> {
    let folder = fs::canonicalize(folder).map_err(|error| format!("corpus: {}: {error}", folder.display()))?;
    let mut build = run::cargo(root);
    build.args(["build", "--release", "--package", "oneclock-cli"]);
    run::run(build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let oneclock = root.join(target).join("release/oneclock");
    let yamllint = installed(root)?;
    let mut files = Vec::new();
    super::traces::walk(&folder, &mut files)?;
    let ends_in = |path: &&PathBuf| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let (all, yaml) = (files.len(), files.iter().filter(ends_in).count());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut audit = run::program(root, oneclock.as_os_str());
        audit.args(["audit", "--quiet", "--fail-on", "never"]).arg(&folder);
        ours.push(timed(audit)?);
        let mut lint = run::program(root, yamllint.as_os_str());
        lint.args(["-d", "{extends: relaxed, locale: C.UTF-8}", "-f", "parsable"]).arg(&folder);
        theirs.push(timed(lint)?);
    }
    for (name, reads, mut times) in [("oneclock audit", all, ours), (YAMLLINT, yaml, theirs)] {
        times.sort();
        let middle = times.get(ROUNDS / 2).copied().unwrap_or_default();
        #[allow(clippy::cast_precision_loss, reason = "nobody has so many files")]
        let rate = reads as f64 / middle.as_secs_f64().max(f64::EPSILON);
        let shown: Vec<String> = times.iter().map(|time| format!("{:.1}", time.as_secs_f64())).collect();
        println!("{name}: {reads} files in {} s: {rate:.0} files/s", shown.join(", "));
    }
    println!("oneclock audit goes through all files; yamllint through .yaml and .yml alone.");
    Ok(())
}

/// Runs to its end. What it says goes nowhere, and whether it found something does not matter.
#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; no test pauses it")]
fn timed(mut command: std::process::Command) -> Result<Duration, String> {
    let shown = run::shown(&command);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let began = Instant::now();
    let status = command.status().map_err(|error| format!("`{shown}` could not be run: {error}"))?;
    // 1 says that something was found; more, or a signal, that it did not get through.
    if status.code().is_some_and(|code| code <= 1) {
        Ok(began.elapsed())
    } else {
        Err(format!("`{shown}` ended with {status}"))
    }
}

fn installed(root: &Path) -> Result<PathBuf, String> {
    let venv = root.join("target/corpus/venv");
    let yamllint = venv.join("bin/yamllint");
    if !yamllint.is_file() {
        let mut python = run::program(root, "python3".as_ref());
        python.args(["-m", "venv"]).arg(&venv);
        run::run(python)?;
        let mut pip = run::program(root, venv.join("bin/pip").as_os_str());
        pip.args(["install", "--quiet", YAMLLINT]);
        run::run(pip)?;
    }
    Ok(yamllint)
}
