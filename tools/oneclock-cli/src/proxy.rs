//! `oneclock proxy`: a configuration in, a running proxy. Parses, prints, and hears signals; what is done with a request is
//! decided in `oneclock-proxy`.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use oneclock_proxy::config::{self, Config, DEFAULT_LISTENER};
use oneclock_proxy::{Proxy, Running};

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a file it forwards everything to one upstream, with defaults:\n\n  \
    oneclock proxy --listen 127.0.0.1:8080 --upstream http://127.0.0.1:3000\n\n\
    It writes the configuration that holds to standard output, as a file to begin with, and where it listens. SIGHUP reads \
    the file again: routes and upstreams change from the next request on; a file with a mistake changes nothing, and is told. \
    SIGTERM and ctrl-c accept nothing more and let requests in flight live until their own deadlines, at most for \
    shutdownGrace; a second one ends everything.\n\n\
    Exit codes: 0 it ran and was told to stop, or the file can be run; 1 it could not (the file has a mistake, an address is \
    taken, a listener broke); 2 the command line was wrong; 130 it was interrupted while it drained."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Listen here
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_LISTENER, conflicts_with = "config")]
    listen: SocketAddr,
    /// Forward everything there: scheme, host and port
    #[arg(long, value_name = "URL", required_unless_present = "config")]
    upstream: Option<String>,
    /// Run what this file says
    #[arg(long, value_name = "FILE", conflicts_with = "upstream")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Say whether a file can be run, and where its mistake is if not; nothing listens and nobody is asked
    Check {
        /// The configuration
        file: PathBuf,
    },
    /// Write the JSON Schema of the configuration, for editors
    Schema,
}

/// What tells a proxy that runs something.
enum Told {
    Stop,
    ReadAgain,
    Broken(io::Error),
}

/// Signals of this process.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

/// # Errors
/// Whatever kept it from running; a mistake in the file, with its place.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Some(Command::Check { file }) => {
            let config = read(file)?;
            Proxy::check(&config).map_err(|why| in_file(file, &said(&why)))?;
            let counted = |count: usize, noun| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
            let (routes, upstreams) =
                (counted(config.routes.len(), "route"), counted(config.upstreams.len(), "upstream"));
            say(&format!("{}: can be run ({routes} to {upstreams})\n", file.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Schema) => {
            say(&format!("{:#}\n", config::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
        None => {
            let config = match (&arguments.config, &arguments.upstream) {
                (Some(file), _) => read(file)?,
                (None, Some(upstream)) => Config::simple(arguments.listen, upstream)?,
                (None, None) => return Err("neither --upstream nor --config is given".into()), // clap asks for one
            };
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(serve(config, arguments.config.as_deref()))
        }
    }
}

async fn serve(config: Config, file: Option<&Path>) -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = Signals::new()?; // before anything is served, so that none is missed
    let mut proxy = Proxy::start(config).await?;
    say(&proxy.config().to_string())?;
    for (listener, address) in proxy.addresses() {
        say(&format!("# {listener} listens on {address}\n"))?;
    }
    loop {
        let told = tokio::select! {
            told = signals.next() => told?,
            broken = proxy.broken() => Told::Broken(broken),
        };
        match told {
            Told::Stop => break,
            Told::ReadAgain => tell(&read_again(&proxy, file)),
            Told::Broken(why) => {
                proxy.shutdown().await;
                return Err(format!("a listener broke: {why}").into());
            }
        }
    }
    tell("stopping: nothing more is accepted");
    tokio::select! {
        drained = proxy.shutdown() => {
            tell(&format!("stopped after {:?}, of at most {:?} that were left to what was in flight", drained.took, drained.grace));
            Ok(ExitCode::SUCCESS)
        }
        again = signals.stop() => {
            again?;
            Ok(ExitCode::from(130))
        }
    }
}

/// What became of it, for who reads along.
fn read_again(proxy: &Running, file: Option<&Path>) -> String {
    let Some(file) = file else { return "SIGHUP: there is no file to read again (--config)".into() };
    let taken = read(file).map_err(|why| why.to_string());
    match taken.and_then(|config| proxy.reload(config).map_err(|why| in_file(file, &said(&why)))) {
        Ok(()) => format!("{}: read again, and holds from the next request on", file.display()),
        Err(why) => format!("{why}; what held before goes on"),
    }
}

fn read(file: &Path) -> Result<Config, Box<dyn Error>> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Config::parse(&text).map_err(|refused| {
        let space = if refused.line.is_some() { "" } else { " " };
        format!("{}:{space}{refused}", file.display())
    })?)
}

fn in_file(file: &Path, why: &str) -> String {
    format!("{}: {why}", file.display())
}

/// An error with its sources, in one line.
fn said(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

/// To standard output, whose reader may have seen enough.
fn say(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// To standard error: what happens while it runs.
fn tell(text: &str) {
    eprintln!("oneclock proxy: {text}");
}

// === Signals ===

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, hang_up: signal(SignalKind::hangup())? })
    }

    async fn next(&mut self) -> io::Result<Told> {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| Told::Stop),
            Some(()) = self.terminate.recv() => Ok(Told::Stop),
            Some(()) = self.hang_up.recv() => Ok(Told::ReadAgain),
        }
    }

    /// Returns at the next one that says stop.
    async fn stop(&mut self) -> io::Result<()> {
        while matches!(self.next().await?, Told::ReadAgain) {}
        Ok(())
    }
}

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    async fn next(&mut self) -> io::Result<Told> {
        tokio::signal::ctrl_c().await.map(|()| Told::Stop)
    }

    async fn stop(&mut self) -> io::Result<()> {
        self.next().await.map(drop)
    }
}
