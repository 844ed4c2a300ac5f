//! `cargo xtask`: the commands of this repository. People and CI run the same words.
//! Parses and hands on; what each command does stands in its own module.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::servers::{Servers, Use};

mod bench_proxy;
mod corpus;
mod fuzz;
mod goodput;
mod interop;
mod itself;
mod layers;
mod msrv;
mod peers;
mod picture;
mod private;
mod ran;
mod run;
mod scenarios;
mod servers;
mod test;
mod workspace;

const HELP: &str = "\
usage: cargo xtask COMMAND

  test [--only STEP]                  everything that must hold before a change is handed on
  layers                              arrows between crates point down only
  servers                             what is there of what the tests need
  servers [--private] -- COMMAND      runs COMMAND with these servers, started if necessary; --private: ignores running ones
  fuzz [--seconds N] [TARGET...]      every fuzz target, or these, for N seconds each (60)
  bench [ARG...]                      instruction and allocation counts beside peers (needs valgrind)
  bench goodput [ARG...]              what overload controls let through, beside Envoy, tower, tonic, grpcio (half an hour)
  bench proxy [ARG...]                what the sidecar costs, beside bare hyper, Envoy, HAProxy, nginx (7 minutes)
  interop [PART...] [-- ARG...]       with peers that nobody here wrote: gRPC, Connect, a browser, Envoy, the sidecar
  peers behaviour [ARG...]            what the sidecar does with time, beside Envoy, HAProxy, nginx; writes docs/peers.md
  picture                             the README's picture and table of the demo, from its real output
  corpus DIR [--speed]                copies of public repositories: every trace explained, every folder of DIR audited;
                                      --speed: files per second of `audit`, beside yamllint
  scenarios [NAME...]                 the demo's scenarios under a real Prometheus: figures, and which alerts fire
  soak [--requests N] [--seed S]      many requests with random cancellations; nothing may be left over
  soak proxy [ARG...]                 the same through the sidecar, with resets and reloads, for ten minutes
  help                                this text

steps of test, in their order:
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", arguments.as_slice()),
    };
    let root = root();
    let result = match command {
        // `bench --help`, `peers --help` and `soak --help` belong to those programs.
        "test" | "layers" | "fuzz" | "servers" | "interop" | "corpus" | "scenarios"
            if before_command(rest).iter().any(|argument| argument == "--help") =>
        {
            print_help();
            Ok(())
        }
        "help" | "--help" | "-h" => {
            print_help();
            Ok(())
        }
        "test" => only(rest).and_then(|only| test::test(&root, only)),
        "layers" => {
            nothing(command, rest).and_then(|()| test::check_layers(&root)).map(|what| println!("layers: {what}"))
        }
        "servers" => servers(&root, rest),
        "fuzz" => fuzz::Plan::read(rest).and_then(|plan| fuzz::fuzz(&root, &plan)),
        "interop" => interop::Plan::read(rest).and_then(|plan| interop::interop(&root, &plan)),
        "bench" => bench(&root, rest),
        "peers" => peers::peers(&root, rest),
        "picture" => nothing(command, rest).and_then(|()| picture::draw(&root)),
        "corpus" => corpus::corpus(&root, rest),
        "scenarios" => scenarios::scenarios(&root, rest),
        "soak" => soak(&root, rest),
        other => Err(format!("no command `{other}`; `cargo xtask help` lists them")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Where this source stands, so that `cargo xtask` works from any folder of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn print_help() {
    print!("{HELP}");
    for step in test::STEPS {
        println!("  {:<17} {}", step.name, step.about);
    }
    println!("\nparts of interop:");
    for part in interop::PARTS {
        println!("  {:<17} {}", part.name, part.about);
    }
}

fn only(arguments: &[String]) -> Result<Option<&str>, String> {
    match arguments {
        [] => Ok(None),
        [flag, step] if flag == "--only" => Ok(Some(step)),
        [flag] if flag.starts_with("--only=") => Ok(flag.strip_prefix("--only=")),
        _ => Err("test: takes only --only STEP; `cargo xtask help` lists the steps".to_owned()),
    }
}

fn nothing(command: &str, arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => Ok(()),
        [first, ..] => Err(format!("{command}: takes no arguments, found `{first}`")),
    }
}

/// What stands before `--`.
fn before_command(arguments: &[String]) -> &[String] {
    arguments.split(|argument| argument == "--").next().unwrap_or_default()
}

fn servers(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = before_command(arguments);
    let which = match options {
        [] => Use::Running,
        [option] if option == "--private" => Use::Private,
        [other, ..] => return Err(format!("servers: unknown argument `{other}`; there is [--private] -- COMMAND")),
    };
    let (program, rest) = match (arguments.get(options.len() + 1..).and_then(<[String]>::split_first), which) {
        (Some(command), _) => command,
        (None, Use::Running) if arguments.is_empty() => {
            println!("{}", servers::report()?);
            return Ok(());
        }
        (None, _) => return Err("servers: a command is missing after `--`".to_owned()),
    };
    let servers = Servers::ready(root, which)?;
    let mut command = run::program(root, program.as_ref());
    command.args(rest);
    servers.tell(&mut command);
    run::run(command)
}

fn bench(root: &Path, arguments: &[String]) -> Result<(), String> {
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("goodput", rest)) => return goodput::goodput(root, rest),
        Some(("proxy", rest)) => return bench_proxy::bench(root, rest),
        _ => {}
    }
    let mut valgrind = run::program(root, "valgrind".as_ref());
    valgrind.arg("--version");
    if !run::succeeds(valgrind) {
        return Err("bench: valgrind is missing, and it counts the instructions: apt-get install valgrind".to_owned());
    }
    delegate(root, &["--profile", "counts", "--package", "oneclock-bench"], arguments)
}

fn soak(root: &Path, arguments: &[String]) -> Result<(), String> {
    let Some(("proxy", rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) else {
        return delegate(root, &["--release", "--package", "oneclock-tests", "--bin", "soak"], arguments);
    };
    let mut oneclock = run::cargo(root);
    oneclock.args(["build", "--release", "--package", "oneclock-cli"]);
    run::run(oneclock)?;
    delegate(root, &["--release", "--package", "oneclock-tests", "--bin", "soak-proxy"], rest)
}

/// Builds one of our own programs and runs it with these arguments.
fn delegate(root: &Path, program: &[&str], arguments: &[String]) -> Result<(), String> {
    let mut command = run::cargo(root);
    command.arg("run").args(program).arg("--").args(arguments);
    run::run(command)
}
