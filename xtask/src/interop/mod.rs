//! `cargo xtask interop`: our layers and clients with peers that nobody here wrote, from the public registries.
//!
//! Decides which parts run, and that each of them is run even if one before it failed. What a part finds is its own business.

mod browser;
mod install;

use std::path::Path;
use std::time::Instant;

use crate::run;

/// One named part.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&Path, &[String]) -> Result<(), String>,
    /// Whether it is a program that takes arguments of its own.
    takes_arguments: bool,
}

pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "grpc",
        about: "grpcio, grpc-js and connect-node: as clients of ours, and as servers",
        run: grpc,
        takes_arguments: true,
    },
    Part {
        name: "clients",
        about: "the reference clients in Python and Node, and the contract's vectors",
        run: clients,
        takes_arguments: false,
    },
    Part {
        name: "browser",
        about: "the TypeScript client in Node and in headless Chromium, against the shop",
        run: browser::run,
        takes_arguments: false,
    },
    Part {
        name: "envoy",
        about: "a real Envoy in front of our services and behind them",
        run: envoy,
        takes_arguments: true,
    },
    Part {
        name: "proxy",
        about: "those libraries through the sidecar, and two in a row: sidecars, and a real Envoy before and behind one",
        run: proxy,
        takes_arguments: true,
    },
];

/// What the command line asks for.
pub(crate) struct Plan<'a> {
    parts: Vec<&'static Part>,
    arguments: &'a [String],
}

impl<'a> Plan<'a> {
    /// `[PART...] [-- ARG...]`. Without a part all of them; arguments need exactly one.
    pub(crate) fn read(arguments: &'a [String]) -> Result<Self, String> {
        let split = arguments.iter().position(|argument| argument == "--");
        let (names, rest) = arguments.split_at(split.unwrap_or(arguments.len()));
        let parts = names.iter().map(|name| {
            PARTS.iter().find(|part| part.name == name).ok_or_else(|| {
                let known: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
                format!(
                    "interop: no part `{name}`; the parts are {}, and what is for one of them stands after `--`",
                    known.join(", ")
                )
            })
        });
        let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
        let rest = rest.get(1..).unwrap_or_default();
        if !rest.is_empty() && !matches!(&parts[..], [part] if part.takes_arguments) {
            return Err("interop: arguments after `--` go to one part, grpc, envoy or proxy: name it".to_owned());
        }
        if parts.is_empty() {
            parts = PARTS.iter().collect();
        }
        Ok(Self { parts, arguments: rest })
    }
}

pub(crate) fn interop(root: &Path, plan: &Plan<'_>) -> Result<(), String> {
    let begun = now();
    let mut failed = Vec::new();
    let mut table = Vec::new();
    for (number, part) in plan.parts.iter().enumerate() {
        eprintln!("\n=== {}/{} {}: {}", number + 1, plan.parts.len(), part.name, part.about);
        let part_begun = now();
        let result = (part.run)(root, plan.arguments);
        let seconds = part_begun.elapsed().as_secs_f64();
        table.push(format!("{:<10} {seconds:>7.1}  {}", part.name, if result.is_ok() { "" } else { "FAILED" }));
        if let Err(error) = result {
            eprintln!("{}: {error}", part.name);
            failed.push(part.name);
        }
    }
    eprintln!("\n{:<10} {:>7}\n{}", "part", "seconds", table.join("\n"));
    eprintln!("{:<10} {:>7.1}", "total", begun.elapsed().as_secs_f64());
    match &failed[..] {
        [] => Ok(()),
        names => {
            Err(format!("interop: {} failed; alone: cargo xtask interop {}", names.join(" and "), names.join(" ")))
        }
    }
}

fn grpc(root: &Path, arguments: &[String]) -> Result<(), String> {
    install::peers(root)?;
    program(root, "grpc", arguments)
}

fn envoy(root: &Path, arguments: &[String]) -> Result<(), String> {
    program(root, "envoy", arguments)
}

fn proxy(root: &Path, arguments: &[String]) -> Result<(), String> {
    install::peers(root)?;
    let mut build = run::cargo(root);
    build.args(["build", "--package", "oneclock-cli"]);
    run::run(build)?;
    program(root, "proxy", arguments)
}

/// `oneclock-interop PART`.
fn program(root: &Path, part: &str, arguments: &[String]) -> Result<(), String> {
    let mut command = run::cargo(root);
    command.args(["run", "--package", "oneclock-interop", "--", part]).args(arguments);
    run::run(command)
}

fn clients(root: &Path, _: &[String]) -> Result<(), String> {
    let mut python = run::program(root, "python3".as_ref());
    python.args(["-m", "unittest", "discover", "clients/python"]);
    let python = run::run(python);
    let mut node = run::program(root, "node".as_ref());
    // Newer ones take no folder as an argument.
    node.current_dir(root.join("clients/node")).arg("--test");
    python.and(run::run(node))
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; no test pauses it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<(Vec<&'static str>, usize), String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let plan = Plan::read(&arguments)?;
        Ok((plan.parts.iter().map(|part| part.name).collect(), plan.arguments.len()))
    }

    #[test]
    fn without_a_name_all_parts_run() {
        assert_eq!(read(&[]), Ok((vec!["grpc", "clients", "browser", "envoy", "proxy"], 0)));
        assert_eq!(read(&["envoy", "grpc"]), Ok((vec!["envoy", "grpc"], 0)));
    }

    #[test]
    fn arguments_go_to_one_part() {
        assert_eq!(read(&["grpc", "--", "--json"]), Ok((vec!["grpc"], 1)));
        for wrong in [&["--", "--json"][..], &["grpc", "envoy", "--", "--json"], &["clients", "--", "-v"]] {
            assert!(read(wrong).is_err_and(|error| error.contains("one part")), "{wrong:?}");
        }
        assert!(read(&["grcp"]).is_err_and(|error| error.contains("grpc, clients, browser, envoy, proxy")));
        assert!(read(&["grpc", "--json"]).is_err_and(|error| error.contains("after `--`")));
    }
}
