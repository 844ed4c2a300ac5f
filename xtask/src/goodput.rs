//! `cargo xtask bench goodput`: the peers that come from PyPI, in target/goodput, then the bench itself.
//!
//! Decides when what is there is used again: when it was installed from the same list.

use std::fs;
use std::path::Path;

use crate::run;

/// From the root of the repository.
pub(crate) const FOLDER: &str = "target/goodput";
const REQUIREMENTS: &str = "bench/goodput/requirements.txt";
/// These show something without running a peer.
const NEEDS_NONE: &[&str] = &["--list", "--help", "-h"];

/// Installs what is missing, and runs the bench with these arguments.
pub(crate) fn goodput(root: &Path, arguments: &[String]) -> Result<(), String> {
    if !arguments.iter().any(|argument| NEEDS_NONE.contains(&argument.as_str())) {
        peers(root)?;
    }
    let mut command = run::cargo(root);
    // As most services are built, and as the counts are taken.
    command.args(["run", "--profile", "counts", "--package", "oneclock-bench", "--bin", "goodput", "--"]);
    command.arg(format!("--tools={FOLDER}/venv/bin")).args(arguments);
    run::run(command)
}

/// Envoy and grpcio, in [`FOLDER`].
pub(crate) fn peers(root: &Path) -> Result<(), String> {
    let (folder, requirements) = (root.join(FOLDER), root.join(REQUIREMENTS));
    let wanted = fs::read_to_string(&requirements).map_err(|error| format!("{REQUIREMENTS}: {error}"))?;
    let stamp = folder.join("python.stamp");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    fs::create_dir_all(&folder).map_err(|error| format!("{FOLDER}: {error}"))?;
    eprintln!("goodput: installing Envoy and grpcio in {FOLDER}/venv");
    let mut venv = run::program(root, "python3".as_ref());
    venv.args(["-m", "venv", "--clear"]).arg(folder.join("venv"));
    run::run(venv).map_err(|error| format!("{error}; Python 3.10 or newer with venv: apt-get install python3-venv"))?;
    let python = folder.join("venv/bin/python");
    let mut pip = run::program(root, python.as_os_str());
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--requirement"]).arg(&requirements);
    run::run(pip)?;
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))
}
