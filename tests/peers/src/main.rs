//! `peers`: what ours and other people's proxies do with time, each a real one before the same backend. `cargo xtask peers
//! behaviour` installs what is missing, and runs this.
//!
//! Decides what a run prints and when it has failed: when ours is not right in a row.
//!
//! ```text
//! proxies/     the columns: programs, configurations, what each has a notion of
//! cases/       the rows: what is sent, what is right, how it is measured and judged
//! backend.rs   the service behind each     log.rs        what reached it, and how that ended
//! caller.rs    callers                     uploader.rs   one that writes first and reads later
//! under.rs     one call from both ends     cell.rs       what was measured, and its mark
//! process.rs   a program and its end       table.rs, document.rs   the table, docs/peers.md
//! ```

mod backend;
mod caller;
mod cases;
mod cell;
mod document;
mod log;
mod process;
mod proxies;
mod table;
mod under;
mod uploader;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use futures_util::future::try_join_all;
use indicatif::{ProgressBar, ProgressStyle};

use crate::backend::Backend;
use crate::cases::Case;
use crate::cell::Cell;
use crate::proxies::{COLUMNS, Column, Program};
use crate::table::Table;
use crate::under::Under;

/// What ours and other people's proxies do with time.
#[derive(Debug, Parser)]
#[command(
    name = "peers",
    after_help = "Exit codes: 0 oneclock is right in every row, 1 it is not, or something did not run."
)]
struct Arguments {
    /// Only this proxy, such as `nginx`; may be repeated
    #[arg(long, value_name = "NAME")]
    proxy: Vec<String>,
    /// Only rows whose name begins with this, such as `retry`; may be repeated
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Print the table as JSON
    #[arg(long)]
    json: bool,
    /// Write the document there, if every row was measured with every proxy
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Our own program
    #[arg(long, value_name = "PROGRAM")]
    oneclock: Option<PathBuf>,
    /// Envoy's program
    #[arg(long, value_name = "PROGRAM")]
    envoy: Option<PathBuf>,
    /// HAProxy's program
    #[arg(long, value_name = "PROGRAM")]
    haproxy: Option<PathBuf>,
    /// nginx's program
    #[arg(long, value_name = "PROGRAM")]
    nginx: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), String> {
    let columns = columns(&arguments.proxy)?;
    let rows = rows(&arguments.case)?;
    let bar = ProgressBar::new((columns.len() * rows.len()) as u64); // hidden where there is no terminal
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} cells, {elapsed}") {
        bar.set_style(style);
    }
    // Each has a backend of its own, and they hardly work: their clocks run side by side.
    let measured = columns.iter().map(|column| measure(column, arguments, &rows, &bar));
    let measured = try_join_all(measured).await?;
    bar.finish_and_clear();

    let (versions, mut cells): (Vec<_>, Vec<_>) =
        measured.into_iter().map(|(version, cells)| (version, cells.into_iter())).unzip();
    let rows = rows.into_iter().map(|case| (case, cells.iter_mut().filter_map(Iterator::next).collect())).collect();
    let columns = columns.into_iter().zip(versions).collect();
    let table = Table { columns, rows, date: date().await?, machine: machine() };
    if arguments.json {
        println!("{:#}", table.json());
    } else {
        table.print();
    }
    let whole = arguments.proxy.is_empty() && arguments.case.is_empty();
    if let Some(file) = arguments.write.as_ref().filter(|_| whole && !arguments.json) {
        document::write(file, &table)?;
        println!("written: {}", file.display());
    }
    match table.wrong(Program::Oneclock.name()).as_slice() {
        [] => Ok(()),
        wrong => Err(format!("oneclock is not right in {}", wrong.join(", "))),
    }
}

/// The columns of these names; all of them if there are none.
fn columns(names: &[String]) -> Result<Vec<&'static Column>, String> {
    if let Some(unknown) = names.iter().find(|name| !COLUMNS.iter().any(|column| column.is_called(name))) {
        let known: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
        return Err(format!("no proxy is called `{unknown}`; there are {}", known.join(", ")));
    }
    let is_meant = |column: &Column| names.is_empty() || names.iter().any(|name| column.is_called(name));
    Ok(COLUMNS.iter().filter(|column| is_meant(column)).collect())
}

/// The rows whose names begin with one of these; all of them if there are none.
fn rows(names: &[String]) -> Result<Vec<&'static Case>, String> {
    if let Some(unknown) = names.iter().find(|name| !cases::all().any(|case| case.name.starts_with(name.as_str()))) {
        let known: Vec<_> = cases::all().map(|case| case.name).collect();
        return Err(format!("no row is called `{unknown}`; there are {}", known.join(", ")));
    }
    let is_meant = |case: &Case| names.is_empty() || names.iter().any(|name| case.name.starts_with(name.as_str()));
    Ok(cases::all().filter(|case| is_meant(case)).collect())
}

/// One column: its version, and its cells, one after the other.
async fn measure(
    column: &Column,
    arguments: &Arguments,
    rows: &[&Case],
    bar: &ProgressBar,
) -> Result<(String, Vec<Cell>), String> {
    let name = column.program.name();
    let program = match column.program {
        Program::Oneclock => &arguments.oneclock,
        Program::Envoy => &arguments.envoy,
        Program::Haproxy => &arguments.haproxy,
        Program::Nginx => &arguments.nginx,
    };
    let program = program
        .as_ref()
        .ok_or_else(|| format!("where is {name}? `cargo xtask peers behaviour` knows; else --{name} PROGRAM"))?;
    let version = column.program.version(program).await?;
    let backend = Backend::start().await?;
    let proxy = column.start(program, &backend).await?;
    let under = Under { knows: column.knows, proxy: &proxy, backend: &backend };
    let mut cells = Vec::new();
    for case in rows {
        cells.push((case.measure)(under).await.unwrap_or_else(|error| Cell::failed(&error)));
        bar.inc(1);
    }
    Ok((version, cells))
}

async fn date() -> Result<String, String> {
    let output = tokio::process::Command::new("date").args(["-u", "+%F"]).kill_on_drop(true).output().await;
    let output = output.map_err(|error| format!("`date` could not be run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What kind of machine it is.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {} {}", std::env::consts::OS, std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Mark;

    /// The rows of ours, in this process. `cargo xtask peers behaviour` has them of the program, beside the others.
    #[tokio::test(flavor = "multi_thread")]
    async fn ours_is_right_in_every_row() {
        let ours = &COLUMNS[0];
        // Side by side, so each before a backend of its own; all of them are there before the first clock runs.
        let mut worlds = Vec::new();
        for case in cases::all() {
            let backend = Backend::start().await.expect("a backend");
            worlds.push((case, ours.start_here(&backend).await, backend));
        }
        let rows = worlds.iter().map(|(case, proxy, backend)| async move {
            let under = Under { knows: ours.knows, proxy, backend };
            (case.name, (case.measure)(under).await.unwrap_or_else(|error| Cell::failed(&error)))
        });
        let rows = futures_util::future::join_all(rows).await;
        let wrong: Vec<_> = rows.iter().filter(|(_, cell)| cell.mark != Mark::Right).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn names_choose_and_unknown_ones_are_told() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chosen = |names: &[&str]| columns(&named(names)).map(|columns| columns.len());
        assert_eq!(chosen(&[]), Ok(COLUMNS.len()));
        assert_eq!(chosen(&["haproxy"]), Ok(2));
        assert_eq!(chosen(&["envoy-settings", "nginx"]), Ok(2));
        assert!(chosen(&["squid"]).is_err_and(|error| error.contains("haproxy-settings")));
        assert!(rows(&named(&["retry"])).is_ok_and(|rows| rows.len() == 4));
        assert!(rows(&named(&["retries"])).is_err_and(|error| error.contains("retry-told")));
    }
}
