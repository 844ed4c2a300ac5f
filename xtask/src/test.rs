//! `cargo xtask test`: everything that must hold before a change is handed on, cheap steps first, stopping at the first
//! that fails. People and CI run the same words.
//!
//! A step that could not be run is shown as such in the table at the end; no step is left out in silence.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, process::Command};

use crate::run::{self, Reports};
use crate::servers::{Servers, Use};
use crate::workspace::{Member, Workspace};
use crate::{itself, layers, msrv, ran};

/// One named part of the check.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&Here) -> Result<Done, String>,
}

/// What the steps share.
struct Here<'root> {
    root: &'root Path,
    servers: OnceCell<Servers>,
}

/// How a step ended that did not fail.
enum Done {
    /// It ran; the text is for the table and may be empty.
    Passed(String),
    /// It could not run here; the text says why and how to change that.
    NotRun(String),
}

pub(crate) const STEPS: &[Step] = &[
    Step { name: "fmt", about: "rustfmt has nothing to change", run: fmt },
    Step { name: "layers", about: "arrows between crates point down only", run: arrows },
    Step { name: "speaks-of-itself", about: "no path of one machine, no host of a registry", run: speaks_of_itself },
    Step { name: "msrv", about: "no dependency needs a newer Rust than Cargo.toml states", run: rust_version },
    Step { name: "clippy", about: "no warning in any target with all features", run: clippy },
    Step { name: "tests", about: "all tests (cargo-nextest if it is installed), and at least one ran", run: tests },
    Step { name: "doc-tests", about: "the examples in the documentation, and at least one ran", run: doc_tests },
    Step { name: "docs", about: "rustdoc without a warning", run: docs },
    Step { name: "alone", about: "each crate and each of its features builds alone", run: alone },
    Step { name: "deny", about: "licences, banned crates, sources (cargo-deny)", run: deny },
];

/// The version that CI installs when there is none.
const CARGO_DENY: &str = "0.20.2";

/// Runs every step, or the one named `only`.
pub(crate) fn test(root: &Path, only: Option<&str>) -> Result<(), String> {
    let chosen: Vec<&Step> = STEPS.iter().filter(|step| only.is_none_or(|only| only == step.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no step `{}`; the steps are {}", only.unwrap_or_default(), names.join(", ")));
    }
    let here = Here { root, servers: OnceCell::new() };
    let begun = now();
    let mut table = String::new();
    for (number, step) in chosen.iter().enumerate() {
        eprintln!("\n=== {}/{} {}: {}", number + 1, chosen.len(), step.name, step.about);
        let step_begun = now();
        let done = (step.run)(&here);
        let seconds = step_begun.elapsed().as_secs_f64();
        let note = match &done {
            Ok(Done::Passed(note)) => note.clone(),
            Ok(Done::NotRun(why)) => format!("NOT RUN: {why}"),
            Err(_) => "FAILED".to_owned(),
        };
        let _ = writeln!(table, "{}", format!("{:<17} {seconds:>7.1}  {note}", step.name).trim_end());
        eprintln!("--- {}: {seconds:.1} s {note}", step.name);
        if let Err(error) = done {
            print_table(&table, begun.elapsed(), &chosen[number + 1..]);
            return Err(format!(
                "{error}\n\ntest: step `{name}` failed; to run it alone: cargo xtask test --only {name}",
                name = step.name
            ));
        }
    }
    print_table(&table, begun.elapsed(), &[]);
    Ok(())
}

fn print_table(table: &str, total: Duration, left: &[&Step]) {
    eprintln!("\n{:<17} {:>7}\n{table}{:<17} {:>7.1}", "step", "seconds", "total", total.as_secs_f64());
    if !left.is_empty() {
        let names: Vec<&str> = left.iter().map(|step| step.name).collect();
        eprintln!("not begun: {}", names.join(", "));
    }
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; no test pauses it")]
fn now() -> Instant {
    Instant::now()
}

// === Here ===

impl Here<'_> {
    /// The servers that tests need. Found or started by the first step that asks, stopped after the last one.
    fn servers(&self) -> Result<&Servers, String> {
        if let Some(servers) = self.servers.get() {
            return Ok(servers);
        }
        let servers = Servers::ready(self.root, Use::Running)?;
        Ok(self.servers.get_or_init(|| servers))
    }
}

// === Steps ===

fn fmt(here: &Here) -> Result<Done, String> {
    let root = here.root;
    cargo(root, &["fmt", "--all", "--check"])?;
    // The fuzz targets are a workspace of their own.
    if root.join("fuzz/Cargo.toml").exists() {
        cargo(root, &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])?;
    }
    passed()
}

fn arrows(here: &Here) -> Result<Done, String> {
    check_layers(here.root).map(Done::Passed)
}

/// The whole of `cargo xtask layers`.
pub(crate) fn check_layers(root: &Path) -> Result<String, String> {
    let workspace = Workspace::load(root)?;
    let violations = layers::violations(&workspace);
    if violations.is_empty() {
        return Ok(format!("{} crates", workspace.members.len()));
    }
    Err(violations.iter().map(|violation| format!("layers: {violation}")).collect::<Vec<_>>().join("\n"))
}

fn speaks_of_itself(here: &Here) -> Result<Done, String> {
    itself::check(here.root).map(Done::Passed)
}

fn rust_version(here: &Here) -> Result<Done, String> {
    msrv::check(&Workspace::load(here.root)?).map(Done::Passed)
}

fn clippy(here: &Here) -> Result<Done, String> {
    cargo(here.root, &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])?;
    passed()
}

fn tests(here: &Here) -> Result<Done, String> {
    let mut command = run::cargo(here.root);
    here.servers()?.tell(&mut command);
    if has(here.root, "nextest") {
        command.args(["nextest", "run", "--workspace", "--all-features"]);
        some_ran(command, Reports::Stderr, ran::nextest)
    } else {
        eprintln!("cargo-nextest is not installed, so `cargo test` runs them, one after the other");
        // Some count what the whole process has left behind; nextest gives each a process of its own.
        command.args(["test", "--workspace", "--all-features", "--tests", "--", "--test-threads=1"]);
        some_ran(command, Reports::Stdout, ran::libtest)
    }
}

fn doc_tests(here: &Here) -> Result<Done, String> {
    let mut command = run::cargo(here.root);
    here.servers()?.tell(&mut command);
    command.args(["test", "--workspace", "--all-features", "--doc"]);
    some_ran(command, Reports::Stdout, ran::libtest)
}

fn docs(here: &Here) -> Result<Done, String> {
    let mut command = run::cargo(here.root);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command.args(["doc", "--no-deps", "--workspace", "--all-features"]);
    run::run(command)?;
    passed()
}

/// The workspace builds its crates together, and there one crate's features hide what another forgot to ask for.
fn alone(here: &Here) -> Result<Done, String> {
    let root = here.root;
    let workspace = Workspace::load(root)?;
    let mut checks = 0_usize;
    for member in &workspace.members {
        for features in std::iter::once(None).chain(member.features.iter().map(Some)) {
            check_alone(root, member, features.map(String::as_str))?;
            checks += 1;
        }
    }
    Ok(Done::Passed(format!("{} crates, {checks} checks", workspace.members.len())))
}

fn check_alone(root: &Path, member: &Member, feature: Option<&str>) -> Result<(), String> {
    let mut command = run::cargo(root);
    command.args(["check", "--package", &member.name, "--no-default-features"]);
    if member.has_lib {
        command.arg("--lib");
    }
    if let Some(feature) = feature {
        command.args(["--features", feature]);
    }
    let begun = now();
    run::run(command)?;
    eprintln!("{:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// On CI a missing cargo-deny is installed (three minutes on two cores): nobody would read there that it was not run.
fn deny(here: &Here) -> Result<Done, String> {
    let root = here.root;
    let installed = root.join("target/tools/bin/cargo-deny");
    let mut command = if has(root, "deny") {
        let mut command = run::cargo(root);
        command.arg("deny");
        command
    } else {
        if !installed.exists() {
            if env::var_os("CI").is_none_or(|value| value != "true") {
                return Ok(Done::NotRun(format!(
                    "cargo-deny is not installed: cargo install cargo-deny --locked --version {CARGO_DENY}"
                )));
            }
            let arguments = ["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--root", "target/tools"];
            cargo(root, &arguments)?;
        }
        run::program(root, installed.as_os_str())
    };
    command.args(["--all-features", "check", "bans", "licenses", "sources"]);
    run::run(command)?;
    Ok(Done::Passed("advisories not checked (they need the network): cargo deny check advisories".to_owned()))
}

// === Commands ===

fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = run::cargo(root);
    command.args(arguments);
    run::run(command)
}

/// Whether cargo has this subcommand.
fn has(root: &Path, subcommand: &str) -> bool {
    let mut command = run::cargo(root);
    command.args([subcommand, "--version"]);
    run::succeeds(command)
}

fn some_ran(command: Command, reports: Reports, count: fn(&str) -> Option<usize>) -> Result<Done, String> {
    let shown = run::shown(&command);
    let mut ran = 0;
    run::watch(command, reports, &mut |line| ran += count(line).unwrap_or_default())?;
    if ran == 0 {
        return Err(format!("`{shown}` ran no tests, so nothing was checked"));
    }
    Ok(Done::Passed(format!("{ran} ran")))
}

fn passed() -> Result<Done, String> {
    Ok(Done::Passed(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that succeeds and reports no test, as a runner does when a filter or a feature hides them all.
    #[test]
    fn a_run_of_no_tests_is_refused() {
        let mut command = run::cargo(Path::new("."));
        command.arg("--version");
        let Err(error) = some_ran(command, Reports::Stdout, ran::libtest) else {
            panic!("no tests ran, and it passed")
        };
        assert!(error.ends_with("--version` ran no tests, so nothing was checked"), "{error}");
    }

    #[test]
    fn an_unknown_step_is_named_with_those_that_exist() {
        let error = test(Path::new("."), Some("clipy")).expect_err("no such step");
        assert!(error.starts_with("no step `clipy`; the steps are fmt, "), "{error}");
    }
}
