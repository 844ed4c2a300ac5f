//! `oneclock proxy`: a configuration in, a running proxy. Parses, prints, and hears signals; what is done with a request is
//! decided in `oneclock-proxy`.

mod warnings;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::net::{AddrParseError, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use oneclock_proxy::config::{self, Config, DEFAULT_ADMIN, DEFAULT_LISTENER};
use oneclock_proxy::{ConfigFile, Proxy, Running};

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a file it forwards everything to one upstream, with defaults:\n\n  \
    oneclock proxy --listen 127.0.0.1:8080 --upstream http://127.0.0.1:3000\n\n\
    It writes the configuration that holds to standard output, as a file to begin with, and where it listens. When the file \
    changes, or a file of TLS that it names, and on SIGHUP it is read again, and holds from the next request on; with a mistake \
    in it, it changes nothing, and is told. \
    SIGTERM, ctrl-c and POST /drain of the admin pages accept nothing more and let requests in flight live until their own deadlines, at most for \
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
    /// Serve the admin pages here; none for nowhere
    #[arg(long, value_name = "ADDRESS", default_value_t = AdminAt(Some(DEFAULT_ADMIN)), conflicts_with = "config")]
    admin: AdminAt,
    /// Answer /live and /ready there as well, and nothing else, for who asks over a network: a kubelet
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    probes: Option<SocketAddr>,
    /// Run what this file says
    #[arg(long, value_name = "FILE", conflicts_with = "upstream")]
    config: Option<PathBuf>,
    /// How many threads do the work; as many as there are processors, unless said otherwise. In a container with a quota, say
    /// what the quota comes to
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
}

/// How long the end waits for a disk, or for a pipe that it was told to read, that nobody waits for any more.
const DISK: Duration = Duration::from_secs(1);

/// Where the admin pages are, if they are anywhere.
#[derive(Clone, Copy)]
struct AdminAt(Option<SocketAddr>);

#[derive(Subcommand)]
enum Command {
    /// Say whether a file can be run, and where its mistake is if not; nothing listens and nobody is asked
    Check {
        /// The configuration
        file: PathBuf,
        /// Write the configuration that it makes, also what it does not say, as a file without passwords
        #[arg(long)]
        print: bool,
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
        Some(Command::Check { file, print }) => {
            let config = ConfigFile::read_once(file).map_err(|why| why.to_string())?;
            Proxy::check(&config).map_err(|why| in_file(file, &said(&why)))?;
            let counted = |count: usize, noun| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
            let (routes, upstreams) =
                (counted(config.routes.len(), "route"), counted(config.upstreams.len(), "upstream"));
            let can_be_run = format!("{}: can be run ({routes} to {upstreams})", file.display());
            if *print {
                // A file again: what is no part of it is a comment.
                say(&format!("# {can_be_run}, hash {}\n{config}", config.hash()))?;
            } else {
                say(&format!("{can_be_run}\n"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Schema) => {
            say(&format!("{:#}\n", config::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
        None => {
            warnings::told();
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            if let Some(workers) = arguments.workers {
                runtime.worker_threads(workers.get());
            }
            let runtime = runtime.enable_all().build()?;
            let ended = runtime.block_on(serve(arguments));
            runtime.shutdown_timeout(DISK);
            ended
        }
    }
}

/// What it begins with, and the file that says so.
async fn begin(arguments: &Arguments) -> Result<(Config, Option<ConfigFile>), Box<dyn Error>> {
    match (&arguments.config, &arguments.upstream) {
        (Some(path), _) => {
            let (file, config) = ConfigFile::open(path.clone()).await.map_err(|why| why.to_string())?;
            Ok((config, Some(file)))
        }
        (None, Some(upstream)) => {
            let mut config = Config::simple(arguments.listen, upstream)?;
            config.admin = arguments.admin.0;
            config.probes = arguments.probes;
            Ok((config, None))
        }
        (None, None) => Err("neither --upstream nor --config is given".into()), // clap asks for one
    }
}

async fn serve(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let (config, mut file) = begin(arguments).await?;
    let mut signals = Signals::new()?; // before anything is served, so that none is missed
    let mut proxy = tokio::select! {
        started = Proxy::start(config) => started?,
        stop = signals.stop() => {
            stop?;
            tell("stopping: it had not begun");
            return Ok(ExitCode::SUCCESS);
        }
    };
    say(&proxy.config().to_string())?;
    for (listener, address) in proxy.addresses() {
        say(&format!("# {listener} listens on {address}\n"))?;
    }
    if let Some(address) = proxy.admin_address() {
        let open =
            if address.ip().is_loopback() { "" } else { " (not loopback: whoever reaches them can stop this proxy)" };
        say(&format!("# admin pages are on http://{address}/{open}\n"))?;
    }
    if let Some(address) = proxy.probes_address() {
        say(&format!("# probes are answered on http://{address}/\n"))?;
    }
    let mut asked = std::pin::pin!(proxy.asked_to_stop());
    loop {
        let told = tokio::select! {
            told = signals.next() => told?,
            broken = proxy.broken() => Told::Broken(broken),
            () = &mut asked => Told::Stop,
            () = changed(&mut file) => Told::ReadAgain,
        };
        match told {
            Told::Stop => break,
            // Which waits for disks and stores, and may be given up.
            Told::ReadAgain => tokio::select! {
                () = read_again(&mut proxy, &mut file) => {}
                stop = signals.stop() => {
                    stop?;
                    break;
                }
                () = &mut asked => break,
            },
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

/// Returns when there is another content in the file, or in one that it names; never where there is no file.
async fn changed(file: &mut Option<ConfigFile>) {
    match file {
        Some(file) => file.changed().await,
        None => std::future::pending().await,
    }
}

/// Tells what becomes of it.
async fn read_again(proxy: &mut Running, file: &mut Option<ConfigFile>) {
    let Some(file) = file else { return tell("SIGHUP: there is no file to read again (--config)") };
    let before = proxy.addresses().to_vec();
    if let Err(why) = proxy.reload_file(file).await {
        return tell(&format!("{why}; what held before goes on"));
    }
    tell(&format!("{}: read again, and holds from the next request on", file.path().display()));
    for (listener, address) in proxy.addresses().iter().filter(|now| !before.contains(now)) {
        tell(&format!("{listener} listens on {address}"));
    }
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

/// To standard error, which may be closed, and then nobody reads along: what happens while it runs.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "oneclock proxy: {text}");
}

// === AdminAt ===

impl FromStr for AdminAt {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|address| Self(Some(address))) }
    }
}

impl fmt::Display for AdminAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("none"),
        }
    }
}

// === Signals ===

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, hang_up: signal(SignalKind::hangup())? })
    }

    async fn next(&mut self) -> io::Result<Told> {
        let Self { terminate, hang_up } = self;
        tokio::select! {
            stop = stop(terminate) => stop.map(|()| Told::Stop),
            Some(()) = hang_up.recv() => Ok(Told::ReadAgain),
        }
    }

    /// Returns at the next one that says stop. Another one is left to be heard later.
    async fn stop(&mut self) -> io::Result<()> {
        stop(&mut self.terminate).await
    }
}

#[cfg(unix)]
async fn stop(terminate: &mut tokio::signal::unix::Signal) -> io::Result<()> {
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        Some(()) = terminate.recv() => Ok(()),
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
