//! The `oneclock` command line: parses and prints, nothing else.
//!
//! Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong, 130 it was interrupted.

mod demo;
mod idempotency;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One time budget per operation, spent by every hop.
#[derive(Parser)]
#[command(
    name = "oneclock",
    version,
    after_help = "Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong, 130 it was interrupted."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// See abandoned work stop: a shop on loopback sockets, with independent timeouts and with one budget
    Demo(demo::Arguments),
    /// See the idempotency records of a store, and settle those of which nobody knows what became of their run
    Idempotency(idempotency::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ran = match arguments.command {
        Command::Demo(demo) => demo::run(&demo),
        Command::Idempotency(idempotency) => idempotency::run(&idempotency),
    };
    match ran {
        Ok(code) => code,
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
