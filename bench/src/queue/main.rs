//! `cargo run --release -p oneclock-bench --bin queue`: what a message costs with its envelope, beside the bare client of its broker.
//!
//! Decides what is compared: the same number of messages with the same body, as many at the same time, published until the broker
//! has them, and received and acknowledged until it knows. Three sides take turns, and the middle one of their ratios counts: the
//! bare client without any header field, the bare client with the fields that ours has, and ours. What lies between the first two
//! is what the broker and its client do with the bytes of an envelope, whoever writes it; between the last two lies what is ours.
//!
//! ```text
//! side.rs    what each side does
//! nats.rs    JetStream: async-nats alone, and oneclock-queue over it
//! rabbitmq.rs  RabbitMQ: lapin alone, and oneclock-queue over it
//! ```

mod nats;
mod rabbitmq;
mod side;

use std::process::ExitCode;

use clap::Parser;
use oneclock_bench::{Failed, record, spread::Spread};

use side::{Pair, Rates, Side};

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
    /// Exit with 1 when a ratio of ours to the bare client with the same fields is below this.
    #[arg(long, value_name = "RATIO")]
    at_least: Option<f64>,
    /// Only this broker.
    #[arg(long, value_name = "BROKER")]
    only: Option<String>,
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
    let (_, bytes) = side::fields("ce-");
    let mut lines = vec![
        format!(
            "{} messages a turn, {} turns each; bodies of {} bytes, header fields of {bytes}; load {} at the beginning",
            options.messages,
            options.rounds,
            side::BODY.len(),
            load()
        ),
        "messages in a second, and ratios: median (worst)".to_owned(),
    ];
    let is_asked = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    let mut rows = Vec::new();
    if is_asked("nats") {
        let pair = nats::pair().await?;
        let measured = measure(&pair, options).await;
        pair.remove().await?;
        rows.extend(measured?);
    }
    if is_asked("rabbitmq") {
        let pair = rabbitmq::pair().await?;
        let measured = measure(&pair, options).await;
        pair.remove().await?;
        rows.extend(measured?);
    }
    let mut lowest = f64::INFINITY;
    for row in rows {
        lowest = lowest.min(row.to_dressed.median);
        let [bare, dressed, ours] = row.rates;
        lines.push(format!(
            "{:<28} bare {bare:>7.0}  with the same fields {dressed:>7.0}  ours {ours:>7.0}   ours/bare {}  ours/same fields {}  \
             same fields/bare {}",
            row.what,
            row.to_bare.shown(2),
            row.to_dressed.shown(2),
            row.of_fields.shown(2)
        ));
    }
    lines.push(format!("load {} at the end", load()));
    let text = lines.join("\n") + "\n";
    print!("{text}");
    if options.write {
        eprintln!("kept in {}", record::keep("queue", &text)?.display());
    }
    let is_missed = options.at_least.is_some_and(|at_least| lowest < at_least);
    Ok(if is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// How busy the machine was in the last minute.
fn load() -> String {
    let said = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    said.split(' ').next().unwrap_or("unknown").to_owned()
}

struct Row {
    what: String,
    /// In the order of [`Side::ALL`].
    rates: [f64; 3],
    to_bare: Spread,
    to_dressed: Spread,
    of_fields: Spread,
}

async fn measure(pair: &impl Pair, options: &Options) -> Result<Vec<Row>, Failed> {
    let mut turns: Vec<[Rates; 3]> = Vec::new();
    for round in 0..=options.rounds {
        let mut turn = [Rates::default(); 3];
        // Whoever goes first changes from round to round.
        for next in 0..3 {
            let at = (round + next) % 3;
            if let (Some(side), Some(rates)) = (Side::ALL.get(at), turn.get_mut(at)) {
                *rates = pair.turn(*side, options.messages).await?;
            }
        }
        if round > 0 {
            turns.push(turn); // the first one warms up
        }
    }
    let row = |what: &str, rate: fn(&Rates) -> f64| {
        let turns: Vec<[f64; 3]> = turns.iter().map(|turn| turn.each_ref().map(rate)).collect();
        let median = |of: fn(&[f64; 3]) -> f64| Spread::of(turns.iter().map(of), false);
        Row {
            what: format!("{}: {what}", pair.name()),
            rates: [
                median(|[bare, ..]| *bare).median,
                median(|[_, dressed, _]| *dressed).median,
                median(|[.., ours]| *ours).median,
            ],
            to_bare: median(|[bare, _, ours]| ours / bare),
            to_dressed: median(|[_, dressed, ours]| ours / dressed),
            of_fields: median(|[bare, dressed, _]| dressed / bare),
        }
    };
    Ok(vec![row("publish", |rates| rates.published), row("receive and settle", |rates| rates.settled)])
}
