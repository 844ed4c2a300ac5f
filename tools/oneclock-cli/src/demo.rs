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
    let patience = 8_000 / scale;
    writeln!(
        out,
        "\
{name}: for one article in three, pricing slows from 200 ms to 12 s for a while, then recovers.
Run {scale} times faster than told: the 8 s that a user waits are {patience} ms in the figures below.

  independent timeouts   the app waits 8 s and tries 3 times, the gateway allows 29 s, the services 30 s,
                         and nobody limits the call to pricing. Each looks reasonable alone.
  one budget             a tap on \"buy\" has 8 s; every hop is told what is left, and nothing begins after that.
"
    )?;
    writeln!(out, "  {:<50} {:>20} {:>12}", "", "independent timeouts", "one budget")?;
    let mut row = |label: &str, value: fn(&Side) -> String| {
        writeln!(out, "  {label:<50} {:>20} {:>12}", value(independent), value(propagated))
    };
    row("taps on \"buy\"", |side| side.taps.to_string())?;
    row(&format!("answered within {patience} ms"), |side| side.answers_in_time.to_string())?;
    row("the user waited for an answer or a refusal, median", |side| format!("{} ms", side.waited_ms_p50))?;
    row("  99th percentile", |side| format!("{} ms", side.waited_ms_p99))?;
    row("how often pricing worked for one tap", |side| format!("{:.2}", side.executions_per_tap))?;
    row("prices worked out after the caller had left", |side| side.finished_after_caller_left.to_string())?;
    row("  time spent on them", |side| format!("{:.1} s", side.finished_after_caller_left_seconds))?;
    row("still working 50 ms after the tap's deadline", |side| side.running_50ms_after_deadline.to_string())?;
    if let Some(ledger) = &propagated.ledger {
        writeln!(
            out,
            "\nOne tap for a slow article, and where its budget went (time spent, what was left after it, what each was told):\n"
        )?;
        for line in ledger.to_string().lines() {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}
