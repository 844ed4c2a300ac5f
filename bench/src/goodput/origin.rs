//! A process of its own that serves the tiers of one system, seen from both sides: the one that runs there, and the one here
//! that starts it and asks what it did. It says its addresses in its first line, answers `meter` with all that was done, and
//! ends with its standard input.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines, Stdout, stdin, stdout};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::Failed;
use crate::meter::{Done, Meter};
use crate::scenario::Scenario;
use crate::system::System;
use crate::systems::{self, Setting};

/// From its start to its first line, and from a question to its answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
const METER: &str = "meter";

/// What an origin is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(value_parser = scenario)]
    scenario: Scenario,
    system: System,
    /// Only the first tier.
    #[arg(long)]
    alone: bool,
    /// Where each tier is reached, if something stands in front of it.
    #[arg(long, value_delimiter = ',')]
    via: Vec<SocketAddr>,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    tiers: Vec<SocketAddr>,
}

fn scenario(name: &str) -> Result<Scenario, String> {
    Scenario::ALL.into_iter().find(|scenario| scenario.name() == name).ok_or_else(|| "no such scenario".to_owned())
}

/// The process that serves.
pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    let Options { scenario, system, alone, via } = options;
    let setting = Setting {
        system,
        tiers: if alone { 1 } else { scenario.tiers() },
        slots: scenario.slots(),
        model: scenario.model(),
        longest: scenario.longest(),
        via,
        manners: crate::caller::Manners { throttled: false, leaves_unannounced: false, ..scenario.manners(system) },
    };
    let meter = Meter::default();
    let tiers = systems::serve(&setting, &meter).await?;
    let mut out = stdout();
    say(&mut out, &Hello { tiers }).await?;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if line == METER {
            say(&mut out, &meter.done()).await?;
        }
    }
    Ok(())
}

async fn say(out: &mut Stdout, what: &impl Serialize) -> Result<(), Failed> {
    let line = format!("{}\n", serde_json::to_string(what)?);
    out.write_all(line.as_bytes()).await?;
    Ok(out.flush().await?)
}

/// One that runs. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) tiers: Vec<SocketAddr>,
    pub(crate) pid: u32,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Origin {
    /// Our own program as an origin.
    pub(crate) async fn start(scenario: Scenario, system: System, via: &[SocketAddr]) -> Result<Self, Failed> {
        let mut command = Self::command(scenario, system)?;
        if !via.is_empty() {
            let via: Vec<String> = via.iter().map(ToString::to_string).collect();
            command.arg("--via").arg(via.join(","));
        }
        Self::of(command).await
    }

    /// One tier without any control, whose capacity is measured.
    pub(crate) async fn bare(scenario: Scenario) -> Result<Self, Failed> {
        let mut command = Self::command(scenario, System::None)?;
        command.arg("--alone");
        Self::of(command).await
    }

    fn command(scenario: Scenario, system: System) -> Result<Command, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("origin").arg(scenario.name()).arg(system.name());
        Ok(command)
    }

    /// Any program that keeps to the lines above.
    pub(crate) async fn of(mut command: Command) -> Result<Self, Failed> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the origin has no pipes".into());
        };
        let pid = child.id().ok_or("the origin ended at once")?;
        let lines = BufReader::new(stdout).lines();
        let mut origin = Self { tiers: Vec::new(), pid, stdin, lines, _child: child };
        let hello: Hello = origin.next().await?;
        origin.tiers = hello.tiers;
        Ok(origin)
    }

    /// All that it has done.
    pub(crate) async fn done(&mut self) -> Result<Done, Failed> {
        self.stdin.write_all(format!("{METER}\n").as_bytes()).await?;
        self.next().await
    }

    async fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, Failed> {
        let line = timeout(ANSWERS_WITHIN, self.lines.next_line()).await.map_err(|_| "the origin does not answer")?;
        Ok(serde_json::from_str(&line?.ok_or("the origin ended")?)?)
    }
}
