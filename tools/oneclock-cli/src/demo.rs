//! `oneclock demo`: runs the shop both ways, scenario by scenario, and prints what happened, side by side.

mod chart;
mod overload;
mod print;
mod stale_queue;

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use oneclock_checkout::Shop;
use oneclock_checkout::overload::Spike;
use oneclock_checkout::report::{Report, Scenario};
use oneclock_checkout::stale_queue::{Outage, Queues};
use oneclock_checkout::story::Story;
use oneclock_checkout::transport::Transport;
use print::Trees;

#[derive(Args)]
#[command(
    after_help = "It takes about a minute and three quarters for all scenarios, 42 s of it for overload, and opens loopback sockets only; with --postgres \
    it keeps some records on that server, in schemas of its own, and with --rabbitmq it has queues on that broker. Both go at the end.\n\
    Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong, 130 it was interrupted."
)]
pub(crate) struct Arguments {
    /// Print one JSON object at the end instead of the tables
    #[arg(long)]
    json: bool,
    /// Which story to run
    #[arg(long, default_value = ALL, value_parser = scenarios())]
    scenario: String,
    /// What the order service reaches pricing and payment over
    #[arg(long, default_value = Transport::default().name(), value_parser = transports())]
    transport: Transport,
    /// Keep the records of inventory, order and payment on this server, and run zombie-queries, too
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Have the queues of stale-queue on this broker, not in memory: amqp://user:password@host:5672/%2f
    #[arg(long, value_name = "URL")]
    rabbitmq: Option<String>,
    /// The seed of the load: the same seed gives the same taps
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long a user waits, as run: 500ms, 2s; without it what the story says
    #[arg(long, value_name = "DURATION", value_parser = tap_budget)]
    tap_budget: Option<Duration>,
    /// Afterwards leave the shop open both ways, print its addresses, and wait for ctrl-c; at once with --scenario none
    #[arg(long)]
    keep: bool,
}

const ALL: &str = "all";
const NONE: &str = "none";

fn scenarios() -> PossibleValuesParser {
    PossibleValuesParser::new(Story::all().iter().map(|story| story.name).chain([Outage::NAME, Spike::NAME, ALL, NONE]))
}

fn transports() -> impl TypedValueParser<Value = Transport> {
    PossibleValuesParser::new(Transport::ALL.map(Transport::name))
        .map(|name| Transport::named(&name).unwrap_or_default()) // one of these
}

fn tap_budget(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let whole = || "write a whole number and its unit, such as 800ms or 8s".to_owned();
    if !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(whole()); // Rust would read a sign
    }
    let number: u64 = number.parse().map_err(|_| whole())?;
    let budget = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return Err("the unit is missing or unknown: write 800ms or 8s".to_owned()),
    };
    // Below, the stories' own steps do not fit; above, a run would take minutes.
    if (Duration::from_millis(200)..=Duration::from_secs(10)).contains(&budget) {
        Ok(budget)
    } else {
        Err("it must be from 200ms to 10s".to_owned())
    }
}

/// # Errors
/// Whatever kept it from running. Interrupted, it cleans up first, and says so with exit code 130.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let shop = match &arguments.postgres {
        Some(url) => Shop::on_postgres(url)?,
        None => Shop::on_sqlite(),
    };
    let shop = shop.over(arguments.transport);
    let stories: Vec<Story> = shop
        .stories()
        .into_iter()
        .filter(|story| arguments.scenario == ALL || arguments.scenario == story.name)
        .map(|story| match arguments.tap_budget {
            Some(budget) => story.with_patience(budget),
            None => story,
        })
        .collect();
    let alone = Alone::of(arguments);
    let of_its_own = Story::default();
    if arguments.scenario == NONE && !arguments.keep {
        refuse("nothing to do: --scenario none is for --keep");
    }
    if [Spike::NAME, Outage::NAME].contains(&&*arguments.scenario) && arguments.transport != Transport::default() {
        refuse(format!("{} speaks HTTP only: leave --transport out", arguments.scenario));
    }
    if arguments.scenario == Outage::NAME && arguments.tap_budget.is_some() {
        refuse(format!("{} is about what is done after the answer: leave --tap-budget out", Outage::NAME));
    }
    if arguments.rabbitmq.is_some() && alone.outage.is_none() {
        refuse(format!("--rabbitmq is for --scenario {}", Outage::NAME));
    }
    if stories.is_empty() && alone.count() == 0 && arguments.scenario != NONE {
        refuse(format!("{} needs a PostgreSQL server: add --postgres URL", arguments.scenario));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ran = runtime.block_on(async {
        let told = async {
            tell(arguments, &shop, &stories, &alone).await?;
            if arguments.keep {
                let story = stories.first().unwrap_or(&of_its_own);
                let open = shop.open(story).await?;
                print::addresses(&mut anstream::stderr(), story, arguments.transport, &open)?;
                std::future::pending::<()>().await;
                drop(open); // held until then
            }
            Ok::<_, Box<dyn Error>>(ExitCode::SUCCESS)
        };
        let ran = tokio::select! {
            biased; // it listens before there is anything to clean up
            // With --keep that is how it ends.
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                Ok(if arguments.keep { ExitCode::SUCCESS } else { ExitCode::from(130) })
            }
            told = told => told,
        };
        shop.sweep().await?;
        alone.queues.sweep().await?;
        ran
    });
    // A statement with independent timeouts knows of no end; it is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    match ran {
        Err(error) if is_broken_pipe(&*error) => Ok(ExitCode::SUCCESS), // `demo | head` has seen enough
        ran => ran,
    }
}

/// What is told beside the stories, where it is asked for. It is not about what the services speak: over gRPC the stories are told alone.
struct Alone {
    outage: Option<Outage>,
    queues: Queues,
    spike: Option<Spike>,
}

impl Alone {
    fn of(arguments: &Arguments) -> Self {
        let asked =
            |name: &str| [ALL, name].contains(&&*arguments.scenario) && arguments.transport == Transport::default();
        let spike = Spike::default();
        let spike = arguments.tap_budget.map_or(spike, |budget| spike.with_patience(budget));
        let queues = arguments.rabbitmq.as_deref().map_or_else(Queues::in_memory, Queues::on_rabbitmq);
        Self { outage: asked(Outage::NAME).then(Outage::default), queues, spike: asked(Spike::NAME).then_some(spike) }
    }

    fn count(&self) -> usize {
        usize::from(self.outage.is_some()) + usize::from(self.spike.is_some())
    }
}

/// As clap does it: with the usage, and exit code 2.
fn refuse(why: impl std::fmt::Display) -> ! {
    let command = Arguments::augment_args(clap::Command::new("oneclock demo"));
    command.clone().error(clap::error::ErrorKind::ArgumentConflict, why).exit()
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

async fn tell(arguments: &Arguments, shop: &Shop, stories: &[Story], alone: &Alone) -> Result<(), Box<dyn Error>> {
    let bar = progress_bar(stories.len() + alone.count());
    let mut out = anstream::stdout();
    let mut scenarios: Vec<Scenario> = Vec::new();
    if !arguments.json {
        bar.suspend(|| print::opening(&mut out, arguments.postgres.is_some(), arguments.transport))?;
    }
    let told = |index: usize, done: f64| bar.set_position(((index as f64 + done) * WHOLE as f64) as u64);
    for (index, story) in stories.iter().enumerate() {
        bar.set_message(story.name);
        let scenario = shop.run(story, arguments.seed, |done| told(index, done)).await?;
        if !arguments.json {
            // Of all stories the first is told with its trees, so that the others can be read in a minute.
            let trees = if index == 0 { Trees::Shown } else { Trees::LeftOut };
            bar.suspend(|| print::scenario(&mut out, story, arguments.transport, &scenario, trees))?;
        }
        scenarios.push(scenario);
    }
    let (mut overload, mut stale_queue, mut failed) = (None, None, None);
    if let Some(outage) = &alone.outage {
        bar.set_message(Outage::NAME);
        match outage.run(&alone.queues, arguments.seed, |done| told(stories.len(), done)).await {
            Ok(seen) if arguments.json => stale_queue = Some(seen),
            Ok(seen) => bar.suspend(|| stale_queue::told(&mut out, outage, &seen))?,
            Err(closed) if scenarios.is_empty() => return Err(closed.into()),
            Err(closed) => failed = Some(closed),
        }
    }
    if let Some(spike) = &alone.spike {
        bar.set_message(Spike::NAME);
        let before = stories.len() + usize::from(alone.outage.is_some());
        match overload::run(spike, arguments.seed, &bar, |done| told(before, done)).await {
            Ok(seen) if arguments.json => overload = Some(seen),
            Ok(seen) => bar.suspend(|| overload::told(&mut out, spike, &seen))?,
            // What has been told by then is not lost with it.
            Err(closed) if scenarios.is_empty() => return Err(closed.into()),
            Err(closed) => failed = Some(closed),
        }
    }
    bar.finish_and_clear();
    if arguments.json {
        let (seed, transport) = (arguments.seed, arguments.transport);
        let report = Report { seed, transport, scenarios, overload, stale_queue };
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else if scenarios.len() > 1 {
        print::summary(&mut out, &scenarios)?;
    }
    out.flush()?;
    failed.map_or(Ok(()), |closed| Err(closed.into()))
}

/// The steps of one scenario.
const WHOLE: u64 = 1_000;

/// On a terminal only.
fn progress_bar(scenarios: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(WHOLE * scenarios as u64);
    if let Ok(style) = ProgressStyle::with_template("running the shop both ways: {msg:16} {bar:40} {percent:>3} %") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_budget_is_a_number_and_its_unit_within_bounds() {
        assert_eq!(tap_budget("800ms"), Ok(Duration::from_millis(800)));
        assert_eq!(tap_budget("8s"), Ok(Duration::from_secs(8)));
        for wrong in ["", "8", "ms", "-1s", "1.5s", "8m", "1ms", "11s", "99999999999999999999s", "8 s", "+8s"] {
            assert!(tap_budget(wrong).is_err(), "{wrong}");
        }
    }
}
