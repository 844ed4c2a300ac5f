//! `oneclock demo`: runs the shop both ways and prints what happened, side by side.

use std::error::Error;
use std::io::{IsTerminal, Write};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use oneclock_checkout::report::{Report, Scenario, Side};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
    /// The seed of the load: the same seed gives the same taps
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bar = progress_bar();
    let report = runtime.block_on(oneclock_checkout::run(arguments.seed, |done| {
        bar.set_position((done * 1_000.0) as u64);
    }));
    bar.finish_and_clear();
    let report = report?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        print(&mut out, &report)?;
    }
    Ok(())
}

/// On a terminal only.
fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1_000);
    if let Ok(style) = ProgressStyle::with_template("running the shop both ways {bar:40} {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}

fn print(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    for scenario in &report.scenarios {
        print_scenario(out, scenario)?;
    }
    Ok(())
}

fn print_scenario(out: &mut impl Write, scenario: &Scenario) -> std::io::Result<()> {
    let Scenario { name, scale, independent, propagated } = scenario;
    writeln!(
        out,
        "\
{name}: for one article in three, pricing slows from 200 ms to 12 s for a while, then recovers.
Told at full size, run {scale} times faster: 8 s of the story are {} ms here.

  independent timeouts   the app waits 8 s and tries 3 times, the gateway allows 29 s, the services 30 s,
                         and nobody limits the call to pricing. Each looks reasonable alone.
  one budget             the tap has 8 s, and every hop spends from them.
",
        8_000 / scale
    )?;
    writeln!(out, "  {:<46} {:>20} {:>12}", "", "independent timeouts", "one budget")?;
    let mut row = |label: &str, value: fn(&Side) -> String| {
        writeln!(out, "  {label:<46} {:>20} {:>12}", value(independent), value(propagated))
    };
    row("taps", |side| side.taps.to_string())?;
    row("answered in time", |side| side.answers_in_time.to_string())?;
    row("the user waited, median", |side| format!("{} ms", side.waited_ms_p50))?;
    row("the user waited, 99th percentile", |side| format!("{} ms", side.waited_ms_p99))?;
    row("executions per tap", |side| format!("{:.2}", side.executions_per_tap))?;
    row("work finished after its caller had left", |side| side.finished_after_caller_left.to_string())?;
    row("  seconds spent on it", |side| format!("{:.1} s", side.finished_after_caller_left_seconds))?;
    row("work still running 50 ms after the deadline", |side| side.running_50ms_after_deadline.to_string())?;
    if let Some(ledger) = &propagated.ledger {
        writeln!(out, "\nWhere the budget of one tap went while pricing was slow:\n")?;
        for line in ledger.to_string().lines() {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}
