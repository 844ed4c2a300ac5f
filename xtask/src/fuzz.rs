//! `cargo xtask fuzz`: every target of fuzz/Cargo.toml, or the named ones, one after the other, each for the same time.
//! Targets are read from cargo, so that a new one needs no word here.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::run;

const DEFAULT_SECONDS: u64 = 60;

/// What to run and for how long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    seconds: u64,
    /// Empty means all.
    targets: Vec<String>,
}

// === Plan ===

impl Plan {
    pub(crate) fn read(arguments: &[String]) -> Result<Self, String> {
        let mut plan = Self { seconds: DEFAULT_SECONDS, targets: Vec::new() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let seconds = match argument.strip_prefix("--seconds") {
                Some("") => arguments.next().map(String::as_str),
                Some(rest) => rest.strip_prefix('='),
                None if argument.starts_with('-') => {
                    return Err(format!("fuzz: unknown option `{argument}`; there is --seconds N"));
                }
                None => {
                    plan.targets.push(argument.clone());
                    continue;
                }
            };
            plan.seconds = match seconds.and_then(|seconds| seconds.parse().ok()) {
                // libFuzzer reads zero as no limit.
                None | Some(0) => return Err("fuzz: --seconds takes a whole number of seconds, at least 1".to_owned()),
                Some(seconds) => seconds,
            };
        }
        Ok(plan)
    }
}

// === Running ===

pub(crate) fn fuzz(root: &Path, plan: &Plan) -> Result<(), String> {
    let targets = chosen(all_targets(root)?, &plan.targets)?;
    let toolchain = Toolchain::find(root);
    match toolchain {
        Toolchain::Nightly => {}
        Toolchain::Stable => {
            eprintln!("no nightly toolchain: the stable one, with RUSTC_BOOTSTRAP=1 for the sanitizer")
        }
    }
    install_cargo_fuzz(root)?;
    for (number, target) in targets.iter().enumerate() {
        eprintln!("\n=== {}/{} {target}: {} s", number + 1, targets.len(), plan.seconds);
        // What a run finds is kept in the corpus, out of git; the seeds are in git, and are only read.
        let corpus = format!("fuzz/corpus/{target}");
        fs::create_dir_all(root.join(&corpus)).map_err(|error| format!("{corpus} cannot be made: {error}"))?;
        let seeds = format!("fuzz/seeds/{target}");
        let mut command = toolchain.cargo(root);
        command.args(["fuzz", "run", "--fuzz-dir", "fuzz", target, &corpus]);
        if root.join(&seeds).is_dir() {
            command.arg(&seeds);
        } else {
            eprintln!("{seeds} does not exist: the target begins from nothing");
        }
        command.args(["--", &format!("-max_total_time={}", plan.seconds)]);
        run::run(command).map_err(|error| {
            format!("{error}\nfuzz: target `{target}`; what it found is in fuzz/artifacts/{target}, see above")
        })?;
    }
    eprintln!("\nfuzz: nothing found, {} s each: {}", plan.seconds, targets.join(", "));
    Ok(())
}

fn all_targets(root: &Path) -> Result<Vec<String>, String> {
    let manifest = "fuzz/Cargo.toml";
    if !root.join(manifest).exists() {
        return Err(format!("{manifest} does not exist: there are no fuzz targets in this checkout"));
    }
    let mut command = run::cargo(root);
    command.args(["metadata", "--format-version", "1", "--no-deps", "--manifest-path", manifest]);
    let metadata: Value =
        serde_json::from_str(&run::output(command)?).map_err(|error| format!("{manifest}: {error}"))?;
    let targets = bins(&metadata);
    if targets.is_empty() { Err(format!("{manifest} has no [[bin]]: there is nothing to run")) } else { Ok(targets) }
}

fn bins(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let bins = targets.filter(|target| target["kind"][0] == "bin");
    bins.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect()
}

fn chosen(all: Vec<String>, named: &[String]) -> Result<Vec<String>, String> {
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        return Err(format!("fuzz: no target `{unknown}` in fuzz/Cargo.toml; there are {}", all.join(", ")));
    }
    Ok(if named.is_empty() { all } else { named.to_vec() })
}

fn install_cargo_fuzz(root: &Path) -> Result<(), String> {
    let mut version = run::cargo(root);
    version.args(["fuzz", "--version"]);
    if run::succeeds(version) {
        return Ok(());
    }
    eprintln!("cargo-fuzz is not installed: installing it, which takes a minute or two");
    let mut install = run::cargo(root);
    install.args(["install", "cargo-fuzz", "--locked"]);
    run::run(install)
}

/// The sanitizers need unstable compiler flags.
#[derive(Clone, Copy)]
enum Toolchain {
    Nightly,
    Stable,
}

// === Toolchain ===

impl Toolchain {
    fn find(root: &Path) -> Self {
        let mut version = Self::Nightly.cargo(root);
        version.arg("--version");
        if run::succeeds(version) { Self::Nightly } else { Self::Stable }
    }

    fn cargo(self, root: &Path) -> Command {
        match self {
            // `+nightly` is read by rustup's own `cargo`, which is the one in PATH.
            Self::Nightly => {
                let mut command = run::program(root, "cargo".as_ref());
                command.env_remove("RUSTUP_TOOLCHAIN").arg("+nightly");
                command
            }
            Self::Stable => {
                let mut command = run::cargo(root);
                command.env("RUSTC_BOOTSTRAP", "1");
                command
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn plan(arguments: &[&str]) -> Result<Plan, String> {
        Plan::read(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn seconds_and_targets_in_any_order() {
        let want = Plan { seconds: 5, targets: vec!["wire".to_owned()] };
        for arguments in [["--seconds", "5", "wire"].as_slice(), &["wire", "--seconds", "5"], &["--seconds=5", "wire"]]
        {
            assert_eq!(plan(arguments).as_ref(), Ok(&want), "{arguments:?}");
        }
        assert_eq!(plan(&[]), Ok(Plan { seconds: DEFAULT_SECONDS, targets: Vec::new() }));
    }

    #[test]
    fn zero_seconds_is_refused_since_libfuzzer_reads_it_as_no_limit() {
        for arguments in [["--seconds", "0"].as_slice(), &["--seconds"], &["--seconds", "-1"], &["--seconds=soon"]] {
            assert!(plan(arguments).is_err(), "{arguments:?}");
        }
        assert!(plan(&["--second", "5"]).is_err());
        assert!(plan(&["--seconds5"]).is_err());
    }

    #[test]
    fn the_targets_are_the_bins() {
        let metadata = json!({ "packages": [{ "targets": [
            { "kind": ["lib"], "name": "shared" }, { "kind": ["bin"], "name": "wire" }, { "kind": ["bin"], "name": "head" },
        ] }] });
        assert_eq!(bins(&metadata), ["wire", "head"]);
    }

    #[test]
    fn an_unknown_target_is_named_with_those_that_exist() {
        let all = vec!["wire".to_owned(), "head".to_owned()];
        assert_eq!(chosen(all.clone(), &[]), Ok(all.clone()));
        assert_eq!(chosen(all.clone(), &["head".to_owned()]), Ok(vec!["head".to_owned()]));
        let error = chosen(all, &["wyre".to_owned()]).unwrap_err();
        assert_eq!(error, "fuzz: no target `wyre` in fuzz/Cargo.toml; there are wire, head");
    }
}
