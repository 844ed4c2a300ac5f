//! `cargo xtask soak proxy`: many requests a second through the real `oneclock proxy`, for minutes. Callers leave, upstreams
//! reset, budgets are random, the configuration is read again and again; at the end nothing may be left, and every answer that
//! somebody waited for has to be their own. Else the exit status is 1.
//!
//! ```text
//! plan.rs      what one request does, from its number alone
//! service.rs   the upstreams, which do what the request says
//! caller.rs    the callers, and what they make of their answers; websocket.rs
//! child.rs     the proxy as a process: started, told to read again, asked what it holds, stopped
//! memory.rs    whether what it holds grows
//! report.rs    what came of it
//! ```

mod caller;
mod child;
mod memory;
mod plan;
mod report;
mod service;
mod websocket;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use oneclock::clock;
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use caller::Callers;
use child::Child;
use memory::Held;
use report::Report;
use service::Services;

type Failed = Box<dyn Error + Send + Sync>;

/// Many requests through the sidecar, with random leaving, resets and reloads; nothing may be left over.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask soak proxy")]
struct Arguments {
    /// For how long.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many requests a second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// What the dice begin with. The same seed makes the same requests, though not in the same moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The same as JSON.
    #[arg(long)]
    json: bool,
    /// The program `oneclock`.
    #[arg(long, hide = true, default_value = "target/release/oneclock")]
    oneclock: PathBuf,
}

/// How often the configuration is read again.
const RELOAD_EVERY: Duration = Duration::from_secs(3);
/// How often it is asked what it holds.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// So many requests at a time are more than the rate and the longest budget make.
const AT_A_TIME: usize = 8_000;
/// For how long anything may go on after the last request.
const SHUT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match soak(&arguments).await {
        Ok(report) => {
            if arguments.json {
                println!("{:#}", report.json());
            } else {
                print!("{report}");
            }
            if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("soak proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn soak(arguments: &Arguments) -> Result<Report, Failed> {
    let services = Services::open().await?;
    let child = Arc::new(Child::start(&arguments.oneclock, &services).await?);
    let callers = Arc::new(Callers::new(child.address, arguments.seed));
    let began = clock::now();
    let before = child.descriptors();
    let bar = ProgressBar::new(arguments.seconds * arguments.rate); // hidden where there is no terminal
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} requests, {per_sec}, {eta} left") {
        bar.set_style(style);
    }

    let over = Arc::new(AtomicBool::new(false));
    let reloading = tokio::spawn(reload(Arc::clone(&child), Arc::clone(&over)));
    let sampling = tokio::spawn(sample(Arc::clone(&child), Arc::clone(&over)));
    let made = ask(arguments, &callers, &bar).await?;
    over.store(true, Ordering::Relaxed);
    let (reloads, samples) = (reloading.await??, sampling.await?);
    let asked_for = clock::now().since(began);
    bar.finish_and_clear();

    let mut report = Report::new(arguments, made, asked_for, reloads, samples);
    report.outcomes = callers.outcomes();
    report.findings.extend(callers.findings());
    drop(callers);
    report.findings.extend(services.findings());
    services.close().await;
    report.ended(child, before).await?;
    Ok(report)
}

/// The arrivals: an open loop. Returns how many there were, once all of them are over.
async fn ask(arguments: &Arguments, callers: &Arc<Callers>, bar: &ProgressBar) -> Result<u64, Failed> {
    let turns = Arc::new(Semaphore::new(AT_A_TIME));
    let all = arguments.seconds * arguments.rate;
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(arguments.rate)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst); // the rate is kept, whatever holds us up
    for number in 0..all {
        ticks.tick().await;
        let Ok(turn) = Arc::clone(&turns).try_acquire_owned() else {
            return Err(format!("{AT_A_TIME} requests are under way at a time: they do not end").into());
        };
        let (callers, bar) = (Arc::clone(callers), bar.clone());
        tokio::spawn(async move {
            callers.call(number).await;
            bar.inc(1);
            drop(turn);
        });
    }
    let everything = u32::try_from(AT_A_TIME)?;
    match timeout(SHUT, turns.acquire_many(everything)).await {
        Ok(_) => Ok(all),
        Err(_) => {
            Err(format!("{} requests are not over {SHUT:?} after the last", AT_A_TIME - turns.available_permits())
                .into())
        }
    }
}

/// Reads another configuration every few seconds, at times one with a mistake. Returns how often.
async fn reload(child: Arc<Child>, over: Arc<AtomicBool>) -> Result<u64, Failed> {
    let mut reloads = 0;
    loop {
        sleep(RELOAD_EVERY).await;
        if over.load(Ordering::Relaxed) {
            return Ok(reloads);
        }
        reloads += 1;
        child.reload(reloads).await?;
    }
}

async fn sample(child: Arc<Child>, over: Arc<AtomicBool>) -> Vec<Held> {
    let (mut samples, began) = (Vec::new(), clock::now());
    while !over.load(Ordering::Relaxed) {
        samples.push(Held { at: clock::now().since(began), ..child.held() });
        sleep(SAMPLE_EVERY).await;
    }
    samples
}
