//! `cargo xtask peers behaviour`: the proxies of docs/peers.md, then the run itself.
//!
//! Decides where each program comes from: ours is built, Envoy comes from PyPI with the peers of `bench goodput`, HAProxy and
//! nginx are the system's.

use std::path::{Path, PathBuf};

use crate::{goodput, run, servers};

/// From the root of the repository.
const DOCUMENT: &str = "docs/peers.md";
/// These show something without running a proxy.
const NEEDS_NONE: &[&str] = &["--help", "-h"];

/// Installs what is missing, and runs the rows with these arguments.
pub(crate) fn peers(root: &Path, arguments: &[String]) -> Result<(), String> {
    let arguments = match arguments.split_first() {
        Some((what, rest)) if what == "behaviour" => rest,
        Some((other, _)) => return Err(format!("peers: no `{other}`; there is `peers behaviour [ARG...]`")),
        None => return Err("peers: what of them? There is `peers behaviour [ARG...]`".to_owned()),
    };
    let mut command = run::cargo(root);
    command.args(["run", "--quiet", "--package", "oneclock-peers", "--bin", "peers", "--"]);
    command.arg("--write").arg(root.join(DOCUMENT)).args(arguments);
    if arguments.iter().any(|argument| NEEDS_NONE.contains(&argument.as_str())) {
        return run::run(command);
    }
    let named = named(arguments);
    let is_meant = |program: &str| named.is_empty() || named.iter().any(|name| name.starts_with(program));
    if is_meant("oneclock") {
        let mut build = run::cargo(root);
        build.args(["build", "--package", "oneclock-cli"]);
        run::run(build)?;
        command.arg("--oneclock").arg(root.join("target/debug/oneclock"));
    }
    if is_meant("envoy") {
        goodput::peers(root)?;
        command.arg("--envoy").arg(root.join(goodput::FOLDER).join("venv/bin/envoy"));
    }
    for (name, program) in [("HAProxy", "haproxy"), ("nginx", "nginx")] {
        if is_meant(program) {
            command.arg(format!("--{program}")).arg(of_system(name, program)?);
        }
    }
    run::run(command)
}

/// What `--proxy` names.
fn named(arguments: &[String]) -> Vec<&str> {
    let after = arguments.windows(2).filter(|pair| pair[0] == "--proxy").map(|pair| pair[1].as_str());
    after.chain(arguments.iter().filter_map(|argument| argument.strip_prefix("--proxy="))).collect()
}

/// In `PATH` or among the system's programs. Not installed by itself: some systems start a server that is installed.
fn of_system(name: &str, program: &str) -> Result<PathBuf, String> {
    servers::in_path(program).ok_or_else(|| {
        format!(
            "{name}, beside which ours is measured, is not here: apt-get install {program} (or what your system calls it); \
             without it: cargo xtask peers behaviour --proxy oneclock"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_need_not_be_there() {
        let named_in = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            named(&arguments).iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()
        };
        assert!(named_in(&["--json", "--case", "retry"]).is_empty());
        assert_eq!(named_in(&["--proxy", "nginx", "--proxy=envoy-settings"]), ["nginx", "envoy-settings"]);
    }
}
