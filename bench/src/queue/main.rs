//! `cargo run --release -p oneclock-bench --bin queue`: what a message costs with its envelope, beside the bare client of its broker.
//!
//! Decides what is compared: the same number of messages with the same body, as many at the same time, published until the broker
//! has them, and received and acknowledged until it knows. The two take turns, and the middle one of their ratios counts.
//!
//! ```text
//! side.rs    what either side does
//! nats.rs    JetStream: async-nats alone, and oneclock-queue over it
//! rabbitmq.rs  RabbitMQ: lapin alone, and oneclock-queue over it
//! ```

mod nats;
mod rabbitmq;
mod side;

use std::process::ExitCode;

use clap::Parser;
use oneclock_bench::{Failed, record, spread::Spread};

use side::{Pair, Rates};

/// What a message costs with its envelope, beside the bare client of its broker.
#[derive(Debug, Parser)]
#[command(name = "queue")]
struct Options {
    /// How many messages each turn has.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    messages: usize,
    /// How often each side takes a turn.
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Exit with 1 when a ratio is below this.
    #[arg(long, value_name = "RATIO")]
    at_least: Option<f64>,
    /// Write the table to bench/runs.
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Failed::from).and_then(|runtime| runtime.block_on(bench(&options))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("queue: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(options: &Options) -> Result<ExitCode, Failed> {
    let mut lines = vec![format!(
        "{} messages a turn, {} turns each; ratios of ours to the bare client's: median (worst)",
        options.messages, options.rounds
    )];
    let mut lowest = f64::INFINITY;
    let nats = nats::pair().await?;
    let rows = measure(&nats, options).await;
    nats.remove().await?;
    let rabbitmq = rabbitmq::pair().await?;
    let more = measure(&rabbitmq, options).await;
    rabbitmq.remove().await?;
    for row in rows?.into_iter().chain(more?) {
        lowest = lowest.min(row.ratio.median);
        lines.push(format!(
            "{:<28} {:>9.0}/s bare {:>9.0}/s ours   {}",
            row.what,
            row.bare,
            row.ours,
            row.ratio.shown(2)
        ));
    }
    let text = lines.join("\n") + "\n";
    print!("{text}");
    if options.write {
        eprintln!("kept in {}", record::keep("queue", &text)?.display());
    }
    let is_missed = options.at_least.is_some_and(|at_least| lowest < at_least);
    Ok(if is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Row {
    what: String,
    bare: f64,
    ours: f64,
    ratio: Spread,
}

async fn measure(pair: &impl Pair, options: &Options) -> Result<Vec<Row>, Failed> {
    let mut turns: Vec<(Rates, Rates)> = Vec::new();
    for round in 0..=options.rounds {
        let turn = if round % 2 == 0 {
            let bare = pair.bare(options.messages).await?;
            (bare, pair.ours(options.messages).await?)
        } else {
            let ours = pair.ours(options.messages).await?;
            (pair.bare(options.messages).await?, ours)
        };
        if round > 0 {
            turns.push(turn); // the first one warms up
        }
    }
    let row = |what: &str, rate: fn(&Rates) -> f64| Row {
        what: format!("{}: {what}", pair.name()),
        bare: Spread::of(turns.iter().map(|(bare, _)| rate(bare)), false).median,
        ours: Spread::of(turns.iter().map(|(_, ours)| rate(ours)), false).median,
        ratio: Spread::of(turns.iter().map(|(bare, ours)| rate(ours) / rate(bare)), false),
    };
    Ok(vec![row("publish", |rates| rates.published), row("receive and settle", |rates| rates.settled)])
}
