//! `oneclock explain`: recorded traces in, ledgers out. Parses and prints; what is claimed is decided in `oneclock-trace`.

mod print;

use std::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use oneclock_trace::{Limits, Telling, Told, Total, Trace, explain, page};

#[derive(Args)]
#[command(
    after_help = "Reads OTLP JSON (a document, or a line each, as the collector's file exporter writes it), Jaeger JSON and \
    Zipkin JSON, told apart by content. Of many traces all are counted, and the most telling ones shown.\n\
    Exit codes: 0 it ran, 1 it could not, or some of the input could not be read (all else was counted), 2 the command line \
    was wrong."
)]
pub(crate) struct Arguments {
    /// A file of traces, or - for standard input
    file: PathBuf,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
    /// Also write the picture: one page, complete in itself
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How many traces are shown, the most telling first
    #[arg(long, value_name = "N", default_value_t = 3)]
    traces: usize,
    /// Show this trace, by its id or how that begins
    #[arg(long, value_name = "ID", conflicts_with_all = ["traces", "all"])]
    trace: Option<String>,
    /// Show every trace, as soon as it is complete
    #[arg(long, conflicts_with = "traces")]
    all: bool,
    /// How many traces may wait for more spans; beyond, the one that got none for longest is taken to be complete
    #[arg(long, value_name = "N", default_value_t = Limits::default().open_traces, value_parser = at_least_one)]
    open_traces: usize,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        _ => Err("write a whole number from 1 on".to_owned()),
    }
}

/// # Errors
/// Whatever kept it from reading or printing.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let (input, bytes): (Box<dyn Read>, Option<u64>) = if arguments.file.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), None)
    } else {
        let named = |error: io::Error| format!("{}: {error}", arguments.file.display());
        let file = File::open(&arguments.file).map_err(named)?;
        let about = file.metadata().map_err(named)?;
        if about.is_dir() {
            return Err(format!("{} is a folder: name a file of traces in it", arguments.file.display()).into());
        }
        (Box::new(file), about.is_file().then_some(about.len()))
    };
    match tell(arguments, input, bytes) {
        Err(error) if is_broken_pipe(&*error) => Ok(ExitCode::SUCCESS), // `explain | head` has seen enough
        told => told,
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn tell(arguments: &Arguments, input: Box<dyn Read>, bytes: Option<u64>) -> Result<ExitCode, Box<dyn Error>> {
    let bar = progress_bar(bytes);
    let mut out = anstream::stdout().lock();
    let mut shown = Telling::new(arguments.traces);
    let mut failed: io::Result<()> = Ok(());
    let mut separator = "";
    if arguments.json {
        write!(out, "{{\"traces\":[")?;
    }
    let mut show = |out: &mut dyn Write, trace: &Trace| -> io::Result<()> {
        if arguments.json {
            write!(out, "{separator}")?;
            serde_json::to_writer(&mut *out, trace)?;
        } else {
            print::trace(out, trace)?;
        }
        separator = ",";
        Ok(())
    };
    let limits = Limits { open_traces: arguments.open_traces, ..Limits::default() };
    let total = explain(input, limits, |told| match told {
        Told::Read(bytes) => bar.set_position(bytes),
        Told::Trace(trace) => {
            let wanted = match &arguments.trace {
                Some(id) => trace.id.starts_with(&id.to_ascii_lowercase()) || trace.id.starts_with(id),
                None => true,
            };
            if (arguments.all || arguments.trace.is_some()) && wanted && failed.is_ok() {
                failed = bar.suspend(|| show(&mut out, &trace));
            }
            if wanted {
                shown.take(*trace);
            }
        }
    });
    bar.finish_and_clear();
    let total = total.map_err(|error| format!("{}: {error}", arguments.file.display()))?;
    failed?;
    if !arguments.all && arguments.trace.is_none() {
        for trace in shown.traces() {
            show(&mut out, trace)?;
        }
    }
    if arguments.json {
        write!(out, "],\"total\":")?;
        serde_json::to_writer(&mut out, &total)?;
        writeln!(out, "}}")?;
    } else if total.traces > 0 {
        print::total(&mut out, &total, shown.traces().len())?;
    }
    out.flush()?;
    drop(out);
    if let Some(path) = &arguments.html {
        let text = page::render(shown.traces(), &total)?;
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(ended(arguments, &total, shown.traces().is_empty()))
}

/// What went wrong goes to stderr, with its place.
fn ended(arguments: &Arguments, total: &Total, nothing_shown: bool) -> ExitCode {
    let name =
        if arguments.file == Path::new("-") { "standard input".into() } else { arguments.file.display().to_string() };
    for problem in &total.problems {
        eprintln!("oneclock: {name}: {}: {}", problem.place, problem.text);
    }
    let more = total.problem_count - total.problems.len() as u64;
    if more > 0 {
        eprintln!("oneclock: {name}: {more} more like these");
    }
    for wrong in &total.wrong {
        eprintln!("oneclock: a sum does not hold, which is a defect of ours: {wrong}");
    }
    if let (Some(id), true) = (&arguments.trace, nothing_shown) {
        eprintln!("oneclock: {name}: there is no trace {id}");
        return ExitCode::FAILURE;
    }
    if total.traces == 0 && total.problems.is_empty() {
        eprintln!("oneclock: {name}: there is no trace in it");
        return ExitCode::FAILURE;
    }
    if total.problem_count > 0 || !total.wrong.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// On a terminal only.
fn progress_bar(bytes: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "reading traces: {bar:40} {bytes}/{total_bytes}, {eta} left"),
        None => (ProgressBar::new_spinner(), "reading traces: {spinner} {bytes}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
