//! `cargo xtask bench proxy`: what the sidecar costs beside other proxies, over loopback sockets.
//!
//! Decides nothing but what runs when. How it is measured stands in bench/proxy/README.md.
//!
//! ```text
//! system.rs  peers.rs  bare.rs   the proxies, and how each is started
//! origin.rs                      the service behind them
//! load.rs    lines.rs            the callers: as fast as answers come, and at a fixed rate
//! run.rs                         the rounds, and memory
//! report.rs  targets.rs          what a run says, and what it must say
//! ```

mod bare;
mod lines;
mod load;
mod origin;
mod peers;
mod report;
mod run;
mod system;
mod targets;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use oneclock_bench::{Failed, clock, record};

use report::Report;

/// What the sidecar costs beside other proxies.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench proxy")]
struct Options {
    /// One short round: shows that everything works, not how well.
    #[arg(long)]
    smoke: bool,
    /// The same as JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a target is missed, and say which.
    #[arg(long)]
    check: bool,
    /// Write the table to bench/runs.
    #[arg(long)]
    write: bool,
    /// How often everything is measured, in turn.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Only these, beside the service alone.
    #[arg(long, value_name = "NAME")]
    system: Vec<system::System>,
    /// The folder with the program `envoy`.
    #[arg(long, hide = true, default_value = "target/goodput/venv/bin")]
    tools: PathBuf,
    /// The program `oneclock`.
    #[arg(long, hide = true, default_value = "target/release/oneclock")]
    oneclock: PathBuf,
    #[command(subcommand)]
    child: Option<Child>,
}

/// Programs of the bench's own, which it starts itself.
#[derive(Debug, Subcommand)]
enum Child {
    /// The service.
    #[command(hide = true)]
    Origin,
    /// The proxy that is hyper and little else.
    #[command(hide = true)]
    Bare { upstream: SocketAddr },
}

fn main() -> ExitCode {
    let options = Options::parse();
    let ran = match options.child {
        Some(Child::Bare { upstream }) => bare::run(upstream).map(|()| ExitCode::SUCCESS),
        Some(Child::Origin) => on_one_thread(origin::run()).map(|()| ExitCode::SUCCESS),
        None => on_one_thread(bench(&options)),
    };
    ran.unwrap_or_else(|error| {
        eprintln!("bench proxy: {error}");
        ExitCode::FAILURE
    })
}

fn on_one_thread<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

async fn bench(options: &Options) -> Result<ExitCode, Failed> {
    let hidden = |word: &String| word.starts_with("--tools") || word.starts_with("--oneclock");
    let command = std::env::args().skip(1).filter(|word| !hidden(word)).collect::<Vec<_>>().join(" ");
    let rounds = options.rounds.unwrap_or(if options.smoke { 1 } else { 7 });
    let how = run::How {
        programs: peers::Programs { tools: &options.tools, oneclock: &options.oneclock },
        systems: system::System::ALL.into_iter().filter(|system| options.wants(*system)).collect(),
        smoke: options.smoke,
        rounds,
    };
    let mut report = Report::new(format!("cargo xtask bench proxy {command}"), rounds);
    run::all(&how, &mut report).await?;
    if options.json {
        println!("{:#}", report.json());
    } else {
        print!("{report}");
    }
    if options.write {
        eprintln!("{}", record::keep("proxy", &report.to_string())?.display());
    }
    let missed = if options.check { report.missed() } else { report.failed.clone() };
    if options.json {
        missed.iter().for_each(|target| eprintln!("missed: {target}")); // the table has them
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    fn wants(&self, system: system::System) -> bool {
        self.system.is_empty() || system == system::System::Direct || self.system.contains(&system)
    }
}
