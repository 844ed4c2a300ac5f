//! The `oneclock` command line: parses and prints, nothing else.
//!
//! Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong.

mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One time budget per operation, spent by every hop.
#[derive(Parser)]
#[command(
    name = "oneclock",
    version,
    after_help = "Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// See abandoned work stop: a shop on loopback sockets, with independent timeouts and with one budget
    Demo(demo::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ran = match arguments.command {
        Command::Demo(demo) => demo::run(&demo),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = format!("oneclock: {error}");
            let mut source = error.source();
            while let Some(error) = source {
                text.push_str(&format!(": {error}"));
                source = error.source();
            }
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
