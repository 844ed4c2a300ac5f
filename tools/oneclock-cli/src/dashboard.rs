//! `oneclock dashboard`: JSON for Grafana. Parses and prints; what it shows is decided in `oneclock-alerts`.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use oneclock_alerts::Dashboard;

use crate::alerts::write;

#[derive(Args)]
#[command(
    after_help = "In Grafana: Dashboards, New, Import. It asks for a Prometheus as data source when it is open.\n\
    Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong."
)]
pub(crate) struct Arguments {
    /// Write here instead of to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// # Errors
/// Whatever kept it from writing.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let json = serde_json::to_string_pretty(&Dashboard::new().to_json())?;
    write(arguments.out.as_deref(), &format!("{json}\n"))
}
