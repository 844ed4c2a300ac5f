//! `oneclock queue`: what stands in a queue, what of it has expired and why; putting dead letters back, and ending them. Parses; what
//! may be put back or ended is decided in `oneclock-queue`.

mod place;
mod print;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use oneclock_core::expiry::Why;
use oneclock_core::time::Legible;
use oneclock_queue::oncall::{self, BrokeOff, DropDead, Redrive};
use oneclock_queue::{BrokerError, Inspect};

use self::place::{Opened, Place, Wants};
use self::print::Told;

#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 it ran, and all that was meant was done; 1 it could not (the broker did not answer, refused, or has no such queue: what was \
done until then is printed), or some of what was meant stays where it is; 2 the command line was wrong.

Credentials: a URL may have a user and a password, and is never printed. `env:NAME` in its place is what stands in that environment \
variable, so that it is not in the list of processes.")]
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
        /// One line for each message that was looked at; of dead letters with when and after how many attempts they became one, and
        /// what their handler said
        #[arg(long)]
        messages: bool,
    },
    /// Put dead letters back, with their expiry as it was: what has expired, and what has no owner but must be completed, stays
    Redrive {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        which: Which,
        /// Who answers for those that must be completed and have no owner
        #[arg(long, value_name = "OWNER")]
        owner: Option<String>,
        /// You have asked the far side (the payment provider, the mailbox), and what is dead because of outcome_unknown was not done
        /// there, or has a key and its record is settled (oneclock idempotency). Without this those stay, since put back they might be
        /// done twice
        #[arg(long)]
        checked_not_done: bool,
    },
    /// End dead letters: they are gone, and nobody does them. What must be completed is ended by its --id only
    Drop {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        which: Which,
        /// Why they are ended. It is printed and logged with each
        #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        reason: String,
        /// Only say what would be ended
        #[arg(long)]
        dry_run: bool,
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

/// Which dead letters are meant.
#[derive(Args)]
struct Which {
    /// Only the message with this id; may be said several times
    #[arg(long = "id", value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Every dead letter
    #[arg(long)]
    all: bool,
    /// Only those that are dead for this reason
    #[arg(long, value_name = "REASON", value_parser = reason)]
    because: Option<Why>,
    /// The most that are looked at
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    limit: usize,
}

/// How long a lane may say nothing before it is asked whether it is empty.
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
    let (place, wants) = match &arguments.command {
        Command::Inspect { place, .. } | Command::Drop { place, dry_run: true, .. } => (place, Wants::Look),
        Command::Redrive { place, .. } | Command::Drop { place, .. } | Command::Expire { place, .. } => {
            (place, Wants::Take)
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (told, broke) = runtime.block_on(async {
        let came = match place.open(wants).await? {
            Opened::Nats(nats) => on(&nats, arguments).await?,
            Opened::RabbitMq(rabbitmq) => on(&*rabbitmq, arguments).await?,
            Opened::Postgres(postgres) => on(&postgres, arguments).await?,
        };
        Ok::<_, Box<dyn Error>>(came)
    })?;
    let text = if place.json { told.json().to_string() } else { told.text() };
    match writeln!(anstream::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    if let Some(broke) = broke {
        return Err(broke.into());
    }
    Ok(if told.some_stay() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What it came to, and why no further.
type Came = (Told, Option<BrokerError>);

async fn on<B: Inspect>(broker: &B, arguments: &Arguments) -> Result<Came, BrokerError> {
    match &arguments.command {
        Command::Inspect { place, limit, over, messages } => {
            let uncertainty = place.uncertainty();
            uncertainty.measure(broker, PATIENCE).await;
            let over = Duration::from_secs(*over);
            let watching = watching(over);
            let standing = oncall::inspect(broker, &uncertainty, *limit, over).await?;
            watching.finish_and_clear();
            Ok((Told::Standing { standing, messages: *messages }, None))
        }
        Command::Redrive { place, which, owner, checked_not_done } => {
            let uncertainty = place.uncertainty();
            uncertainty.measure(broker, PATIENCE).await;
            let Which { ids, because, limit, .. } = which;
            let (ids, owner) = (ids.clone(), owner.clone());
            let wanted = Redrive { ids, because: *because, owner, sure: *checked_not_done, at_most: *limit };
            let (told, broke) = parts(oncall::redrive(broker, &uncertainty, &wanted, PATIENCE).await);
            Ok((Told::Redriven(told), broke))
        }
        Command::Drop { which, reason, dry_run, .. } => {
            let Which { ids, because, limit, .. } = which;
            let wanted = DropDead { ids: ids.clone(), because: *because, reason: reason.clone(), at_most: *limit };
            let (told, broke) = match dry_run {
                true => (oncall::would_drop(broker, &wanted).await?, None),
                false => parts(oncall::drop_dead(broker, &wanted, PATIENCE).await),
            };
            Ok((Told::Dropped { told, reason: reason.clone(), dry_run: *dry_run }, broke))
        }
        Command::Expire { place, limit } => {
            let uncertainty = place.uncertainty();
            uncertainty.measure(broker, PATIENCE).await;
            let (ended, broke) = parts(oncall::expire(broker, &uncertainty, *limit, PATIENCE).await);
            Ok((Told::Expired(ended), broke))
        }
    }
}

fn parts<T: std::fmt::Debug>(went: Result<Vec<T>, BrokeOff<T>>) -> (Vec<T>, Option<BrokerError>) {
    match went {
        Ok(done) => (done, None),
        Err(BrokeOff { done, error }) => (done, Some(error)),
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
