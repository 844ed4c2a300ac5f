//! `oneclock-interop envoy`: a real Envoy in front of and behind our services, and the table of docs/guide/envoy.md, measured.
//!
//! Decides what the run prints and when it has failed: when a row is no longer true, or when the guide has another
//! table or other settings than those that were measured. The rows stand in the modules below, each with its claim beside its measurement.
//!
//! ```text
//! world.rs      everything that runs: services, Envoys            told.rs     rows: what arrives behind Envoy
//! proxy.rs      Envoy: the wheel, one process                     ending.rs   rows: who ends it, what is seen of that
//! service.rs    services that write down what arrives             retries.rs  rows: Envoy's retries
//! resets.rs     one that writes down codes of resets              behind.rs   rows: our calls through Envoy
//! caller.rs     callers                                           two.rs      rows: two Envoys in a row
//! client.rs     our client as a caller                            tonic.rs    rows: tonic's client
//! table.rs      the table as text, JSON and Markdown              row.rs      what a row is
//! ```

use std::path::Path;

use self::proxy::Program;
use self::table::Line;
use self::world::World;

mod behind;
pub(crate) mod caller;
mod client;
mod ending;
pub(crate) mod proxy;
mod resets;
mod retries;
mod row;
pub(crate) mod service;
mod table;
mod told;
mod tonic;
mod two;
pub(crate) mod world;

/// What the run is to do.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Print the table as JSON.
    #[arg(long)]
    json: bool,
    /// Only rows whose number begins with this, `T` or `E4` for example.
    #[arg(long, value_name = "ROW")]
    only: Option<String>,
    /// Write the table into docs/guide/envoy.md.
    #[arg(long, conflicts_with = "only")]
    write: bool,
}

/// Measures every row and prints the table.
///
/// # Errors
/// If Envoy cannot be had or started, if a row is not true, or if the guide does not have this table.
pub(crate) async fn run(options: &Options) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let program = Program::install(&root.join("target").join("interop").join("envoy")).await?;
    let world = World::start(&program).await?;
    let rows = [told::ROWS, ending::ROWS, retries::ROWS, behind::ROWS, two::ROWS, tonic::ROWS].concat();
    let only = options.only.as_deref().unwrap_or_default();
    let mut lines = Vec::new();
    for row in rows.iter().filter(|row| row.id.starts_with(only)) {
        let line = Line { row, measured: (row.measure)(&world).await };
        if !options.json {
            table::print(&line);
        }
        lines.push(line);
    }
    if options.json {
        println!("{}", table::json(&lines));
    }
    let wrong = lines.iter().filter(|line| line.measured.is_err()).count();
    if wrong > 0 {
        return Err(format!("envoy: {wrong} of {} rows are not true", lines.len()));
    }
    if !options.json {
        println!("{} rows, all true", lines.len());
    }
    if only.is_empty() {
        let guide = root.join("docs").join("guide").join("envoy.md");
        table::snippets(&guide, world::CONTRACT)?;
        table::guide(&guide, &lines, options.write)?;
    }
    Ok(())
}
