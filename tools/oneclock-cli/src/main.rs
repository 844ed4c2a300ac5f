//! The `oneclock` command line: parses and prints, nothing else.
//!
//! Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong, 130 it was interrupted. Those of `audit` are its own:
//! 1 says that something was found.

mod alerts;
mod audit;
mod dashboard;
mod demo;
mod explain;
mod idempotency;
mod playbook;
mod proxy;
mod queue;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Of the whole program; the sidecar is what needs it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One time budget per operation, spent by every hop.
#[derive(Parser)]
#[command(
    name = "oneclock",
    version,
    after_help = "Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong, 130 it was interrupted. `audit` has its own."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Be warned before the cascade: rules for Prometheus from a small policy, and their unit tests
    Alerts(alerts::Arguments),
    /// Find every timeout in a repository, and what does not fit together
    Audit(Box<audit::Arguments>),
    /// See where budgets go: a dashboard for Grafana
    Dashboard(dashboard::Arguments),
    /// See abandoned work stop: a shop on loopback sockets, with independent timeouts and with one budget
    Demo(demo::Arguments),
    /// See where the time of recorded traces went, and what ran on after nobody waited: OTLP, Jaeger or Zipkin JSON
    Explain(explain::Arguments),
    /// See the idempotency records of a store, and settle those of which nobody knows what became of their run
    Idempotency(idempotency::Arguments),
    /// Know what to do when an alert fires: the steps in their order, and how to take each back
    Playbook(playbook::Arguments),
    /// Give a service in any language the contract: a sidecar that every request goes through
    Proxy(Box<proxy::Arguments>),
    /// See what of a queue has expired, why and whose it is; put dead letters back with their expiry as it was
    Queue(queue::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ran = match arguments.command {
        Command::Alerts(alerts) => alerts::run(&alerts),
        Command::Audit(audit) => audit::run(&audit),
        Command::Dashboard(dashboard) => dashboard::run(&dashboard),
        Command::Demo(demo) => demo::run(&demo),
        Command::Explain(explain) => explain::run(&explain),
        Command::Idempotency(idempotency) => idempotency::run(&idempotency),
        Command::Playbook(playbook) => playbook::run(&playbook),
        Command::Proxy(proxy) => proxy::run(&proxy),
        Command::Queue(queue) => queue::run(&queue),
    };
    match ran {
        Ok(code) => code,
        Err(error) => {
            tell(&*error);
            ExitCode::FAILURE
        }
    }
}

/// What went wrong, with what was behind it.
fn tell(error: &dyn std::error::Error) {
    let mut text = format!("oneclock: {error}");
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    eprintln!("{text}");
}
