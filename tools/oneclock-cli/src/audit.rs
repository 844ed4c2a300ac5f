//! `oneclock audit`: folders in, what does not fit out. Parses and prints; what is found and judged is decided in
//! `oneclock-audit`.

mod lists;
mod paths;

use std::error::Error;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use oneclock_audit::baseline::Baseline;
use oneclock_audit::report::{Detail, Report};
use oneclock_audit::rules::Severity;
use oneclock_audit::walk::{Step, walk};
use oneclock_audit::{Audited, draft};

#[derive(Args)]
#[command(
    after_help = "Reads files, runs nothing, calls nobody. What .gitignore leaves out is left out; what could not be read is listed.\n\n  \
    oneclock audit                                          what does not fit, here and below\n  \
    oneclock audit --init                                   begin a topology file: who calls whom in code\n  \
    oneclock audit --baseline known.json --write-baseline   take what there is for known\n  \
    oneclock audit --baseline known.json --fail-on warning  fail on what is new; recommended in CI\n  \
    oneclock audit --explain no-limit                       what a rule means, and the way out\n\n\
    In the files: # oneclock-audit: ignore[RULE] why\n\
    An error is what cannot work whatever goes along with a call: without `propagates: none` in a topology file there is hardly \
    ever one, and --fail-on error hardly ever fails.\n\
    Exit codes: 0 nothing as loud as --fail-on, 1 something is (what is ignored or in the baseline does not count), or something \
    was not read and --fail-on-unread is given, 2 it could not run, nothing in the one file named is understood, or the command \
    line was wrong."
)]
#[allow(clippy::struct_excessive_bools, reason = "they are flags")]
pub(crate) struct Arguments {
    /// Folders and files; the current folder, where none is named
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How it is told
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Also draw who calls whom
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// A topology file from elsewhere, read as if it lay here
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// What is in it is known, and fails nobody
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write all that is found into the baseline
    #[arg(long, requires = "baseline")]
    write_baseline: bool,
    /// From how loud on it fails
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    fail_on: FailOn,
    /// Also fail where something of a known format could not be read: templated, unparsed, not understood
    #[arg(long)]
    fail_on_unread: bool,
    /// Only what was found, and what was not read, in numbers
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// All ways, all findings with their lines, all files that were not read
    #[arg(short, long)]
    verbose: bool,
    /// Begin a topology file: who runs, as the files show it; never overwrites one
    #[arg(long, conflicts_with_all = ["rules", "explain", "catalogue", "baseline", "svg"])]
    init: bool,
    /// List the rules
    #[arg(long, conflicts_with_all = ["explain", "catalogue", "paths"])]
    rules: bool,
    /// Say what a rule means
    #[arg(long, value_name = "RULE", conflicts_with_all = ["catalogue", "paths"])]
    explain: Option<String>,
    /// List every setting that is known, with its default, unit and source
    #[arg(long, conflicts_with = "paths")]
    catalogue: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal
    Text,
    /// Everything, for programs
    Json,
    /// For code scanning, SARIF 2.1.0
    Sarif,
    /// For the comment of a pull request
    Markdown,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// What cannot work as it is written
    Error,
    /// And what will surprise as soon as something is slow
    Warning,
    /// And what is worth knowing
    Note,
    /// Nothing
    Never,
}

/// Ends with 2 where it could not run: 1 says that something was found.
///
/// # Errors
/// None: they are told here.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match ran(arguments) {
        Ok(code) => Ok(code),
        Err(error) => {
            crate::tell(&*error);
            Ok(ExitCode::from(2))
        }
    }
}

fn ran(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let json = arguments.json || arguments.format == Format::Json;
    let list = match &arguments.explain {
        Some(rule) => Some(lists::explained(rule)?),
        None if arguments.rules => Some(lists::rules(json)?),
        None if arguments.catalogue => Some(lists::catalogue(json)?),
        None => None,
    };
    if let Some(text) = list {
        print(|out| out.write_all(text.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut repository = paths::repository(&arguments.paths)?;
    if let Some(file) = &arguments.topology {
        fs::metadata(file).map_err(|error| format!("--topology {}: {error}", file.display()))?;
        repository = repository.with_topology(file);
    }
    let before = match &arguments.baseline {
        Some(path) if !arguments.write_baseline => Some(read_baseline(path)?),
        _ => None,
    };
    let bar = Bar::new();
    let inventory = walk(&repository, |step| bar.step(step));
    let mut audited = oneclock_audit::audit(&repository, &inventory);
    bar.end();
    understood(arguments, &audited)?;
    if arguments.init {
        return init(arguments, &audited);
    }
    let written = match &arguments.baseline {
        Some(path) if arguments.write_baseline => Some(write_baseline(path, &audited)?),
        _ => None,
    };
    if let Some(baseline) = before.or(written) {
        audited.compare(&baseline);
    }
    tell(arguments, &audited, json)?;
    let from = match arguments.fail_on {
        FailOn::Error => Some(Severity::Error),
        FailOn::Warning => Some(Severity::Warning),
        FailOn::Note => Some(Severity::Note),
        FailOn::Never => None,
    };
    let unread = arguments.fail_on_unread && audited.unread() > 0;
    if unread {
        eprintln!("oneclock: {} not read or not understood, and --fail-on-unread is given", counted(audited.unread()));
    }
    Ok(ExitCode::from(u8::from(unread || from.is_some_and(|from| audited.fails(from)))))
}

fn counted(places: usize) -> String {
    if places == 1 { "1 place was".to_owned() } else { format!("{places} places were") }
}

/// Whoever names one file means it: that it says nothing is no success.
///
/// # Errors
/// Nothing in it is understood.
fn understood(arguments: &Arguments, audited: &Audited<'_>) -> Result<(), Box<dyn Error>> {
    let [file] = &*arguments.paths else { return Ok(()) };
    if !file.is_file() || arguments.topology.is_some() || !audited.inventory.files.is_empty() {
        return Ok(());
    }
    Err(match audited.left_out.first() {
        Some(left) => format!("{}: nothing in it is understood: {}", left.place, left.says),
        None => format!(
            "{}: nothing in it is understood: it is of no format that is known by its name or its words",
            file.display()
        ),
    }
    .into())
}

fn tell(arguments: &Arguments, audited: &Audited<'_>, json: bool) -> Result<(), Box<dyn Error>> {
    let report = Report::of(audited);
    if let Some(path) = &arguments.svg {
        write(path, &report.svg())?;
    }
    let detail = match (arguments.quiet, arguments.verbose) {
        (true, _) => Detail::Quiet,
        (_, true) => Detail::Verbose,
        _ => Detail::Usual,
    };
    print(|out| match arguments.format {
        _ if json => writeln!(out, "{}", report.json()),
        Format::Text | Format::Json => report.text(out, detail),
        Format::Sarif => writeln!(out, "{}", report.sarif()),
        Format::Markdown => out.write_all(report.markdown().as_bytes()),
    })
}

/// To standard output, whose reader may have seen enough; colours only where it is a terminal.
fn print(telling: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Box<dyn Error>> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    match telling(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

fn read_baseline(path: &Path) -> Result<Baseline, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{}: there is no such baseline; --write-baseline makes one", path.display()),
        _ => format!("{}: {error}", path.display()),
    })?;
    Ok(Baseline::read(&text).map_err(|refused| format!("{}:{refused}", path.display()))?)
}

fn write_baseline(path: &Path, audited: &Audited<'_>) -> Result<Baseline, Box<dyn Error>> {
    let baseline = Baseline::of(&audited.findings);
    write(path, &baseline.to_json())?;
    eprintln!("oneclock: {}: {} findings are known now", path.display(), baseline.len());
    Ok(baseline)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Drafts a topology file where the audit began.
fn init(arguments: &Arguments, audited: &Audited<'_>) -> Result<ExitCode, Box<dyn Error>> {
    let folder = arguments.paths.first().filter(|path| path.is_dir()).map_or(Path::new(""), PathBuf::as_path);
    let path = folder.join(draft::file_name());
    let draft = draft::draft(audited.graph());
    let told = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{}: it is there already, and is not overwritten; delete it first", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    };
    let mut file = fs::File::create_new(&path).map_err(told)?;
    file.write_all(draft.text.as_bytes()).map_err(told)?;
    print(|out| {
        writeln!(
            out,
            "wrote {}: {} services, and {} calls that files show, as comments. Fill in what their code calls, then: oneclock audit",
            path.display(),
            draft.services,
            draft.calls,
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// How far it is, on a terminal, once it takes long enough for anybody to wonder.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("reading files: {bar:40} {pos}/{len}, {eta} left") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn step(&self, step: Step) {
        match step {
            Step::Found(files) => self.0.set_length(files as u64),
            Step::Done => {
                self.0.inc(1);
                if self.0.is_hidden() && self.0.elapsed() > Duration::from_secs(2) && io::stderr().is_terminal() {
                    self.0.set_draw_target(ProgressDrawTarget::stderr());
                }
            }
        }
    }

    fn end(self) {
        self.0.finish_and_clear();
    }
}
