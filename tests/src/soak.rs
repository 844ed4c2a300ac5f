//! Many requests with random cancellations, over both protocols, through two services. At the end nothing may be left,
//! and what the events say has to agree with what the handlers saw; else the exit status is 1.
//!
//! `cargo run --release -p oneclock-tests --bin soak -- [--requests 100000] [--seed 1]`

#[path = "../outside/load/mod.rs"]
mod load;

use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use load::Settings;

/// Many requests with random cancellations; nothing may be left over, and every count has to agree.
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Arguments {
    /// How many requests are made.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,

    /// What the dice begin with. The same seed makes the same requests, though not in the same moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How many callers there are at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    callers: u64,
}

#[tokio::main]
async fn main() -> std::io::Result<ExitCode> {
    let Arguments { requests, seed, callers } = Arguments::parse();
    let callers = usize::try_from(callers).unwrap_or(usize::MAX);
    let bar = ProgressBar::new(requests); // hidden where there is no terminal
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} requests, {per_sec}, {eta} left") {
        bar.set_style(style);
    }
    let progress = bar.clone();
    let report =
        load::run(Settings { callers, ..Settings::new(requests, seed) }, move |done| progress.set_position(done));
    let report = report.await?;
    let took = bar.elapsed();
    bar.finish_and_clear();

    println!("{requests} requests with seed {seed} in {:.1} s", took.as_secs_f64());
    println!("\n{report}");
    let mismatches = report.mismatches().len();
    if mismatches > 0 {
        println!("{mismatches} of {} do not agree", report.rows.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("all {} agree", report.rows.len());
    Ok(ExitCode::SUCCESS)
}
