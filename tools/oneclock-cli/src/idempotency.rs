//! `oneclock idempotency`: what a store of idempotency records holds, and settling what is unknown. Parses and prints; what
//! may be settled is decided in `oneclock-idempotency`.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use oneclock::clock;
use oneclock_core::idempotency::{Fence, Key, Record, Scope, State};
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Answer, Kept, Resolution, Store, Wanted, Which, find, resolve};
use oneclock_postgres::Pool;
use oneclock_sqlite::rusqlite;
use serde_json::{Value, json};

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 it ran, 1 it could not (no such record, or one that must not be settled by hand), 2 the \
    command line was wrong."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The records of which nobody knows what became of their run; with --all every one
    List {
        #[command(flatten)]
        place: Place,
        /// Every record, not only the unknown ones
        #[arg(long)]
        all: bool,
        /// The most that are shown
        #[arg(long, default_value_t = 100, value_name = "N")]
        limit: usize,
        #[command(flatten)]
        scope: Parts,
    },
    /// Everything that is known of a key
    Show {
        /// The key, without quotes
        #[arg(value_parser = key)]
        key: Key,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        scope: Parts,
    },
    /// Say what became of a run that nobody knows about: only of an unknown record, or of one whose lease has lapsed
    Resolve {
        /// The key, without quotes
        #[arg(value_parser = key)]
        key: Key,
        /// What became of it
        #[arg(long = "as", value_name = "OUTCOME")]
        outcome: Outcome,
        /// How that is known. It is printed with what was done, and kept nowhere else
        #[arg(long)]
        reason: String,
        /// Only if it is at this run: the fence that list and show print
        #[arg(long, value_name = "N")]
        fence: Option<u64>,
        /// The status that repeated requests get, with --as completed; without it they are told that it is done
        #[arg(long, value_name = "CODE", value_parser = status)]
        status: Option<http::StatusCode>,
        /// The body that goes with the status
        #[arg(long, value_name = "TEXT", requires = "status")]
        body: Option<String>,
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        scope: Parts,
    },
}

/// Where the records are, and how they are printed.
#[derive(Args)]
struct Place {
    /// A store of oneclock-sqlite
    #[arg(long, value_name = "PATH", required_unless_present = "postgres", conflicts_with = "postgres")]
    sqlite: Option<PathBuf>,
    /// A store of oneclock-postgres
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What a scope has beside the key.
#[derive(Args)]
struct Parts {
    /// Only of this principal
    #[arg(long)]
    principal: Option<String>,
    /// Only of this method
    #[arg(long)]
    method: Option<String>,
    /// Only of this route
    #[arg(long)]
    route: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Outcome {
    /// It was done: repeated requests get the answer of --status and --body
    Completed,
    /// It did not happen and cannot happen any more: the next request with the key runs
    Failed,
}

/// What was asked of the store, and what it came to.
enum Told {
    Records(Vec<(Scope, Record)>),
    Shown(Vec<(Scope, Kept)>),
    Resolved { scope: Scope, before: Box<Record>, after: State, reason: String },
}

fn key(text: &str) -> Result<Key, String> {
    Key::new(text).map_err(|error| error.to_string())
}

fn status(text: &str) -> Result<http::StatusCode, String> {
    text.parse().map_err(|_| "a status is a number such as 201".to_owned())
}

/// # Errors
/// Whatever kept it from doing what was asked.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    if let Command::Resolve { outcome: Outcome::Failed, status: Some(_), .. } = &arguments.command {
        refuse("--status goes with --as completed: what did not happen has no answer");
    }
    let place = match &arguments.command {
        Command::List { place, .. } | Command::Show { place, .. } | Command::Resolve { place, .. } => place,
    };
    let json = place.json;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let told = runtime.block_on(async {
        match (&place.sqlite, &place.postgres) {
            (Some(path), _) => on(&sqlite(path)?, &arguments.command).await,
            (None, Some(url)) => {
                let pool = Pool::builder(url.as_str()).size(1).build()?;
                let store = oneclock_postgres::IdempotencyStore::builder(pool).within(PATIENCE).build()?;
                on(&store, &arguments.command).await
            }
            (None, None) => Err("no store was named".into()), // not reached: clap asks for one
        }
    })?;
    let text = if json { told.json().to_string() } else { told.text() };
    match writeln!(anstream::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()), // `list | head` has seen enough
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// How long a server has for each thing that it is asked.
const PATIENCE: Duration = Duration::from_secs(10);

/// The store in an existing file. Whatever else a file is, it is left as it is.
fn sqlite(path: &Path) -> Result<oneclock_sqlite::IdempotencyStore, Box<dyn Error>> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let looked = rusqlite::Connection::open_with_flags(path, flags)
        .and_then(|file| file.prepare("SELECT fence FROM oneclock_idempotency").map(|_| ()));
    looked.map_err(|error| format!("{} is no store of idempotency records: {error}", path.display()))?;
    Ok(oneclock_sqlite::IdempotencyStore::builder(path).busy_for(PATIENCE).build()?)
}

async fn on<St: Store>(store: &St, command: &Command) -> Result<Told, Box<dyn Error>> {
    match command {
        Command::List { all, limit, scope, .. } => {
            let which = if *all { Which::All } else { Which::Unknown };
            Ok(Told::Records(find(store, &scope.wanted(which, None), *limit).await?))
        }
        Command::Show { key, scope, .. } => {
            let mut shown = Vec::new();
            for (scope, _) in find(store, &scope.wanted(Which::All, Some(key.clone())), usize::MAX).await? {
                if let Some(kept) = store.read(&scope).await? {
                    shown.push((scope, kept));
                }
            }
            if shown.is_empty() { Err(format!("there is no record of {key}").into()) } else { Ok(Told::Shown(shown)) }
        }
        Command::Resolve { key, outcome, reason, fence, status, body, scope, .. } => {
            let found = find(store, &scope.wanted(Which::All, Some(key.clone())), 2).await?;
            let scope = match found.as_slice() {
                [] => return Err(format!("there is no record of {key}").into()),
                [(scope, _)] => scope.clone(),
                _ => {
                    return Err(
                        format!("{key} has several records: say whose, with --principal, --method, --route").into()
                    );
                }
            };
            let answer = match (status, body) {
                (Some(status), body) => Answer::new(*status, body.clone().unwrap_or_default()),
                (None, _) => Answer::not_kept(http::StatusCode::OK),
            };
            let resolution = match outcome {
                Outcome::Completed => Resolution::Completed(answer),
                Outcome::Failed => Resolution::Failed,
            };
            let resolved = resolve(store, &scope, (*fence).map(Fence), resolution).await;
            let resolved = resolved.map_err(|error| Unresolved { scope: scope.to_string(), error })?;
            Ok(Told::Resolved {
                scope,
                before: Box::new(resolved.before),
                after: resolved.after,
                reason: reason.clone(),
            })
        }
    }
}

/// Which record was not resolved, and why.
#[derive(Debug)]
struct Unresolved {
    scope: String,
    error: oneclock_idempotency::NotResolved,
}

impl std::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.scope, self.error)
    }
}

impl Error for Unresolved {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// As clap does it: with the usage, and exit code 2.
fn refuse(why: &str) -> ! {
    let command = Arguments::augment_args(clap::Command::new("oneclock idempotency"));
    command.clone().error(clap::error::ErrorKind::ArgumentConflict, why).exit()
}

// === Parts ===

impl Parts {
    fn wanted(&self, which: Which, key: Option<Key>) -> Wanted {
        let name = |part: &Option<String>| part.clone().map(Into::into);
        Wanted { which, key, principal: self.principal.clone(), method: name(&self.method), route: name(&self.route) }
    }
}

// === Told ===

impl Told {
    fn json(&self) -> Value {
        match self {
            Self::Records(records) => records.iter().map(|(scope, record)| document(scope, record)).collect(),
            Self::Shown(shown) => shown
                .iter()
                .map(|(scope, kept)| {
                    let mut document = document(scope, &kept.record);
                    if let Some(answer) = &kept.answer {
                        document["answer"] = json!({
                            "status": answer.status().as_u16(),
                            "body_bytes": answer.body().map(|body| body.len()),
                        });
                    }
                    document
                })
                .collect(),
            Self::Resolved { scope, before, after, reason } => {
                let mut document = document(scope, before);
                document["resolved_as"] = after.as_str().into();
                document["reason"] = reason.as_str().into();
                document
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Records(records) if records.is_empty() => "nothing to show".to_owned(),
            Self::Records(records) => table(records),
            Self::Shown(shown) => shown.iter().map(|(scope, kept)| card(scope, kept)).collect::<Vec<_>>().join("\n"),
            Self::Resolved { scope, before, after, reason } => {
                format!("{scope}: {} → {}, run {}; {reason}", state(before.state), after.as_str(), before.fence)
            }
        }
    }
}

fn millis(wall: Wall) -> u64 {
    wall.as_nanos() / 1_000_000
}

/// The same names as the monitor's.
fn document(scope: &Scope, record: &Record) -> Value {
    let mut document = json!({
        "principal": &*scope.principal,
        "method": scope.method.as_str(),
        "route": scope.route.as_str(),
        "key": scope.key.as_str(),
        "state": record.state.as_str(),
        "fence": record.fence.0,
        "first_seen_ms": millis(record.first_seen),
        "since_ms": millis(record.since),
        "expires_ms": millis(record.expires),
    });
    match record.state {
        State::InProgress { lease_until } => document["lease_until_ms"] = millis(lease_until).into(),
        State::Unknown(doubt) => document["because"] = doubt.as_str().into(),
        _ => {}
    }
    document
}

fn state(state: State) -> String {
    match state {
        State::Unknown(doubt) => format!("unknown ({})", doubt.sentence()),
        other => other.as_str().to_owned(),
    }
}

/// How long ago, by this machine's clock, in its two largest units.
fn ago(wall: Wall) -> String {
    let seconds = clock::wall().since(wall).as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s ago"),
        (0, 0, minutes) => format!("{minutes}m {}s ago", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {minutes}m ago"),
        (days, hours, _) => format!("{days}d {hours}h ago"),
    }
}

fn table(records: &[(Scope, Record)]) -> String {
    let head = ["KEY", "PRINCIPAL", "METHOD", "ROUTE", "RUN", "STATE", "SINCE"].map(str::to_owned);
    let rows = records.iter().map(|(scope, record)| {
        [
            scope.key.to_string(),
            scope.principal.to_string(),
            scope.method.to_string(),
            scope.route.to_string(),
            record.fence.to_string(),
            match record.state {
                State::Unknown(doubt) => format!("unknown: {}", doubt.as_str()),
                other => other.as_str().to_owned(),
            },
            ago(record.since),
        ]
    });
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn card(scope: &Scope, kept: &Kept) -> String {
    let record = &kept.record;
    let mut card = format!("{scope}\n  state       {}\n", state(record.state));
    let mut line = |what: &str, text: String| card.push_str(&format!("  {what:11} {text}\n"));
    line("run", record.fence.to_string());
    line("since", ago(record.since));
    line("first seen", ago(record.first_seen));
    if let State::InProgress { lease_until } = record.state {
        line("lease", format!("{}s more", lease_until.since(clock::wall()).as_secs()));
    }
    if let Some(answer) = &kept.answer {
        let body = answer.body().map_or("body not kept".to_owned(), |body| format!("{} bytes", body.len()));
        let what = if record.state == State::Completed { "answer" } else { "because" };
        line(what, format!("{}, {body}", answer.status().as_u16()));
    }
    card
}
