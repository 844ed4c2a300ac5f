//! `oneclock queue`: what stands in a queue, what of it has expired and why, and putting dead letters back. Parses and prints; what may
//! be put back or ended is decided in `oneclock-queue`.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use oneclock_core::expiry::{NotRedriven, Stamp, Why, Zone};
use oneclock_core::time::Legible;
use oneclock_postgres::{PgQueue, Pool};
use oneclock_queue::nats::{Nats, async_nats};
use oneclock_queue::oncall::{self, Ended, LaneStanding, Redrive, Seen, Standing};
use oneclock_queue::rabbitmq::RabbitMq;
use oneclock_queue::{Inspect, Message, Uncertainty};
use serde_json::{Value, json};

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 it ran, 1 it could not, or some of what was meant was not put back, 2 the command line was wrong."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// How much stands in each lane, what of it has expired, why dead letters are dead and who owns them; nothing is taken (of RabbitMQ's
    /// lanes only the dead one can be looked into)
    Inspect {
        #[command(flatten)]
        place: Place,
        /// The most messages that are looked at in each lane
        #[arg(long, default_value_t = 1_000, value_name = "N")]
        limit: usize,
        /// Watch for so many seconds, to say how much comes and goes and when the queue is empty; 0 for no such figures
        #[arg(long, default_value_t = 5, value_name = "SECONDS")]
        over: u64,
        /// One line for each message that was looked at
        #[arg(long)]
        messages: bool,
    },
    /// Put dead letters back, with their expiry as it was: what has expired, and what has no owner but must be completed, stays
    Redrive {
        #[command(flatten)]
        place: Place,
        /// Only the message with this id; may be said several times
        #[arg(long = "id", value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
        ids: Vec<String>,
        /// Every dead letter
        #[arg(long)]
        all: bool,
        /// Only those that are dead for this reason
        #[arg(long, value_name = "REASON", value_parser = reason)]
        because: Option<Why>,
        /// Who answers for those that must be completed and have no owner
        #[arg(long, value_name = "OWNER")]
        owner: Option<String>,
        /// You know that those of which nobody knows what they did, did nothing (or have a key, and their record is settled)
        #[arg(long)]
        did_nothing: bool,
        /// The most that are looked at
        #[arg(long, default_value_t = 1_000, value_name = "N")]
        limit: usize,
    },
    /// End what waits in the main lane and has certainly expired, as its contract says, without a consumer
    Expire {
        #[command(flatten)]
        place: Place,
        /// The most that are looked at
        #[arg(long, default_value_t = 1_000, value_name = "N")]
        limit: usize,
    },
}

/// Which queue, and how it is printed.
#[derive(Args)]
struct Place {
    /// The queue's name
    queue: String,
    #[command(flatten)]
    broker: Broker,
    /// With --nats: the stream, where it is not called what the queue is
    #[arg(long, value_name = "NAME", requires = "nats")]
    stream: Option<String>,
    /// By how many milliseconds clocks may be wrong; what this machine says unless given
    #[arg(long, value_name = "MILLISECONDS")]
    uncertainty: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Broker {
    /// A queue in NATS JetStream
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// A queue in RabbitMQ
    #[arg(long, value_name = "URL")]
    rabbitmq: Option<String>,
    /// A queue in PostgreSQL
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
}

/// What was asked, and what it came to.
enum Told {
    Standing { standing: Standing, messages: bool },
    Redriven(Vec<(Message, Result<Stamp, NotRedriven>)>),
    Expired(Vec<(Message, Ended)>),
}

/// How long a lane may say nothing before it counts as empty.
const PATIENCE: Duration = Duration::from_secs(2);

fn reason(word: &str) -> Result<Why, String> {
    Why::parse(word).ok_or_else(|| {
        let words: Vec<&str> = Why::ALL.iter().map(|why| why.as_str()).collect();
        format!("a reason is one of {}", words.join(", "))
    })
}

/// # Errors
/// Whatever kept it from doing what was asked.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let place = match &arguments.command {
        Command::Inspect { place, .. } | Command::Redrive { place, .. } | Command::Expire { place, .. } => place,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let told = runtime.block_on(async {
        let Place { queue, broker, stream, .. } = place;
        if let Some(url) = &broker.nats {
            let client = async_nats::connect(url).await?;
            let builder = Nats::builder(client, queue.as_str()).declared_elsewhere(); // looking changes nothing
            let builder = if let Some(stream) = stream { builder.stream(stream.as_str()) } else { builder };
            on(&builder.build().await?, arguments).await
        } else if let Some(url) = &broker.rabbitmq {
            on(&RabbitMq::builder(url.as_str(), queue.as_str()).declared_elsewhere().build().await?, arguments).await
        } else {
            let url = broker.postgres.as_deref().unwrap_or_default();
            let pool = Pool::builder(url).build()?;
            on(&PgQueue::builder(queue.clone(), pool).build()?, arguments).await
        }
    })?;
    let text = if place.json { told.json().to_string() } else { told.text() };
    match writeln!(anstream::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    let kept_back = matches!(&told, Told::Redriven(told) if told.iter().any(|(_, result)| result.is_err()));
    Ok(if kept_back { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn on<B: Inspect>(broker: &B, arguments: &Arguments) -> Result<Told, Box<dyn Error>> {
    let uncertainty = |place: &Place| match place.uncertainty {
        Some(millis) => Uncertainty::assumed(Duration::from_millis(millis)),
        None => Uncertainty::of_this_machine(),
    };
    match &arguments.command {
        Command::Inspect { place, limit, over, messages } => {
            let uncertainty = uncertainty(place);
            uncertainty.measure(broker, PATIENCE).await;
            let over = Duration::from_secs(*over);
            let watching = watching(over);
            let standing = oncall::inspect(broker, &uncertainty, *limit, over).await?;
            watching.finish_and_clear();
            Ok(Told::Standing { standing, messages: *messages })
        }
        Command::Redrive { place, ids, all: _, because, owner, did_nothing, limit } => {
            let uncertainty = uncertainty(place);
            uncertainty.measure(broker, PATIENCE).await;
            let (ids, owner) = (ids.clone(), owner.clone());
            let wanted = Redrive { ids, because: *because, owner, sure: *did_nothing, at_most: *limit };
            Ok(Told::Redriven(oncall::redrive(broker, &uncertainty, &wanted, PATIENCE).await?))
        }
        Command::Expire { place, limit } => {
            let uncertainty = uncertainty(place);
            uncertainty.measure(broker, PATIENCE).await;
            Ok(Told::Expired(oncall::expire(broker, &uncertainty, *limit, PATIENCE).await?))
        }
    }
}

/// Hidden where there is no terminal.
fn watching(over: Duration) -> ProgressBar {
    if over < Duration::from_secs(2) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} watching what comes and goes for {msg}") {
        bar.set_style(style);
    }
    bar.set_message(Legible(over).to_string());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

// === Told ===

impl Told {
    fn text(&self) -> String {
        match self {
            Self::Standing { standing, messages } => {
                let lanes: Vec<String> = standing.lanes.iter().map(|lane| of_lane(lane, *messages)).collect();
                format!("{}\nclocks may be wrong by {}", lanes.join("\n"), Legible(standing.uncertainty))
            }
            Self::Redriven(told) if told.is_empty() => "no dead letter was meant".to_owned(),
            Self::Redriven(told) => {
                let lines = told.iter().map(|(message, result)| match result {
                    Ok(stamp) => format!("{message}: put back, for the {} time", ordinal(stamp.redrives)),
                    Err(why) => format!("{message}: stays: {why}"),
                });
                let back = told.iter().filter(|(_, result)| result.is_ok()).count();
                let lines: Vec<String> = lines.chain([format!("{back} of {} put back", told.len())]).collect();
                lines.join("\n")
            }
            Self::Expired(ended) if ended.is_empty() => "nothing had certainly expired".to_owned(),
            Self::Expired(ended) => {
                let lines: Vec<String> =
                    ended.iter().map(|(message, end)| format!("{message}: {}", of_end(*end))).collect();
                lines.join("\n")
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Standing { standing, messages } => json!({
                "uncertainty_ms": standing.uncertainty.as_millis() as u64,
                "lanes": standing.lanes.iter().map(|lane| lane_document(lane, *messages)).collect::<Vec<_>>(),
            }),
            Self::Redriven(told) => told
                .iter()
                .map(|(message, result)| {
                    let stays = result.as_ref().err().map(|why| why.as_str());
                    json!({ "id": &*message.id, "kind": message.kind.as_str(), "put_back": result.is_ok(), "stays_because": stays })
                })
                .collect(),
            Self::Expired(ended) => ended
                .iter()
                .map(|(message, end)| json!({ "id": &*message.id, "kind": message.kind.as_str(), "end": of_end(*end) }))
                .collect(),
        }
    }
}

const fn of_end(end: Ended) -> &'static str {
    match end {
        Ended::Discarded(_) => "discarded: it had expired",
        Ended::DeadLettered(_) => "moved to the dead lane: it had expired",
        Ended::MovedLate => "moved to the late lane: it had expired, and must be completed",
    }
}

fn ordinal(n: u32) -> String {
    let suffix = match (n % 10, n % 100) {
        (1, n) if n != 11 => "st",
        (2, n) if n != 12 => "nd",
        (3, n) if n != 13 => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

fn of_lane(lane: &LaneStanding, messages: bool) -> String {
    let count = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let mut text =
        format!("{}: {} waiting, {} in work", lane.lane, count(lane.depth.waiting), count(lane.depth.in_flight));
    if let Some(rates) = lane.rates {
        let _ = write!(text, ", {:.1} a second come, {:.1} go", rates.inflow, rates.drain);
        let empty = match lane.time_to_empty() {
            Some(Duration::ZERO) => "empty".to_owned(),
            Some(span) => format!("empty in {}", Legible(span)),
            None => "not empty at this rate, ever".to_owned(),
        };
        let _ = write!(text, ": {empty}");
    }
    for ((zone, policy, owner, because), count) in lane.grouped() {
        let _ = write!(text, "\n  {count:>6}  {zone:9}  {policy:13}  owner {owner}");
        if because != "-" {
            let _ = write!(text, "  because {because}");
        }
    }
    if messages {
        for seen in &lane.looked_at {
            let _ = write!(text, "\n  {}", of_message(seen));
        }
    }
    text
}

fn of_message(seen: &Seen) -> String {
    let expires =
        seen.expires().unwrap_or_else(|| if seen.zone == Zone::Live { "never" } else { "cannot be read" }.to_owned());
    let age = seen.age().map_or_else(|| "unknown".to_owned(), |age| Legible(age).to_string());
    let because = seen.because.map_or_else(String::new, |why| format!(", dead because {why}"));
    format!("{} {}: {}, expires {expires}, age {age}{because}", seen.message.kind, seen.message.id, seen.zone)
}

fn lane_document(lane: &LaneStanding, messages: bool) -> Value {
    let groups: Vec<Value> = lane
        .grouped()
        .into_iter()
        .map(|((zone, policy, owner, because), count)| {
            json!({ "zone": zone, "policy": policy.as_str(), "owner": owner, "because": because, "messages": count })
        })
        .collect();
    let mut document = json!({
        "lane": lane.lane.as_str(),
        "waiting": lane.depth.waiting,
        "in_flight": lane.depth.in_flight,
        "inflow_per_second": lane.rates.map(|rates| rates.inflow),
        "drain_per_second": lane.rates.map(|rates| rates.drain),
        "empty_in_seconds": lane.time_to_empty().map(|span| span.as_secs_f64()),
        "groups": groups,
    });
    if messages {
        let seen = lane.looked_at.iter().map(|seen| {
            json!({
                "id": &*seen.message.id,
                "kind": seen.message.kind.as_str(),
                "zone": seen.zone.as_str(),
                "policy": seen.message.stamp.policy.as_str(),
                "owner": seen.message.stamp.owner.as_deref(),
                "expires": seen.expires(),
                "age_seconds": seen.age().map(|age| age.as_secs_f64()),
                "redrives": seen.message.stamp.redrives,
                "because": seen.because.map(Why::as_str),
            })
        });
        document["messages"] = seen.collect();
    }
    document
}
