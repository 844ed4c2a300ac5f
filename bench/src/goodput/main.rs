//! `cargo xtask bench goodput`: how much useful work different overload controls let through, over loopback HTTP.
//!
//! Decides nothing but which cells run. What each one is stands in bench/goodput/README.md.
//!
//! ```text
//! cells.rs  scenario.rs  system.rs      what runs: systems, scenarios, their requests
//! load.rs   caller.rs    pool.rs        the callers, open loop, and their connections
//! origin.rs tier.rs      meter.rs       the servers, in a process of their own, and what they did
//! systems/                              each overload control
//! run.rs                                one cell after another
//! figures.rs targets.rs  report.rs  chart.rs   what a run says, what it must say, how it is shown
//! ```

mod caller;
mod cells;
mod chart;
mod figures;
mod load;
mod meter;
mod origin;
mod pool;
mod report;
mod run;
mod scenario;
mod system;
mod systems;
mod tag;
mod targets;
mod tier;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use oneclock_bench::{Failed, clock, cpu, record};

use cells::Cell;
use report::Report;

/// How much useful work different overload controls let through.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench goodput")]
struct Options {
    /// Short phases, one seed, fewer cells: shows that everything works, not how well.
    #[arg(long)]
    smoke: bool,
    /// The same as JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a target is missed, and say which.
    #[arg(long)]
    check: bool,
    /// Name all cells and run none.
    #[arg(long)]
    list: bool,
    /// Only cells whose name begins like this, `s2-300ms` or `s1-steps/ours` for example.
    #[arg(long, value_name = "NAME")]
    cell: Vec<String>,
    /// How often each cell runs, each time with other requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: Option<u64>,
    /// Write the table to bench/runs and the charts to docs.
    #[arg(long)]
    write: bool,
    /// The folder with the programs `envoy` and `python`.
    #[arg(long, hide = true, default_value = "target/goodput/venv/bin")]
    tools: PathBuf,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(Debug, Subcommand)]
enum Child {
    /// The servers of one cell, started by the bench itself.
    #[command(hide = true)]
    Origin(origin::Options),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.child {
        Some(Child::Origin(ref child)) => origin::run(child.clone()).await.map(|()| ExitCode::SUCCESS),
        None => bench(&options).await,
    };
    result.unwrap_or_else(|error| {
        eprintln!("goodput: {error}");
        ExitCode::FAILURE
    })
}

async fn bench(options: &Options) -> Result<ExitCode, Failed> {
    let cells = if options.smoke { Cell::smoke() } else { Cell::all() };
    let wanted = |cell: &Cell| options.cell.is_empty() || options.cell.iter().any(|name| cell.name().starts_with(name));
    let cells: Vec<Cell> = cells.into_iter().filter(wanted).collect();
    if options.list {
        cells.iter().for_each(|cell| println!("{:<26} {}", cell.name(), cell.scenario.about()));
        return Ok(ExitCode::SUCCESS);
    }
    if cells.is_empty() {
        return Err("no cell has such a name; --list names them".into());
    }
    let command = std::env::args().skip(1).filter(|word| !word.starts_with("--tools")).collect::<Vec<_>>().join(" ");
    let mut report = Report { command: format!("cargo xtask bench goodput {command}"), ..Report::default() };
    let seeds = options.seeds.unwrap_or(if options.smoke { 1 } else { 3 });
    let how = run::How { tools: &options.tools, smoke: options.smoke, seeds };
    run::all(&cells, &how, &mut report).await?;
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{report}");
    }
    if options.write {
        write(&report)?;
    }
    let missed = report.missed();
    if !options.check {
        return Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if options.json {
        missed.iter().for_each(|target| eprintln!("missed: {target}")); // the table has them
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The table under its date and machine, and the charts.
fn write(report: &Report) -> Result<(), Failed> {
    eprintln!("{}", record::keep("goodput", &report.to_string())?.display());
    for (name, picture) in chart::all(report) {
        let path = record::root().join("docs").join(format!("goodput-{name}.svg"));
        std::fs::write(&path, picture)?;
        eprintln!("{}", path.display());
    }
    Ok(())
}
