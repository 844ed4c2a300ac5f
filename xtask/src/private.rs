//! A server of our own: on a free port of the loopback device, with its data in a temporary directory.
//!
//! Decides how it ends: a shell waits on a pipe from xtask, and when that closes, because xtask let it go, failed or was
//! killed, it stops the server and removes the directory.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, process};

use crate::servers::{NATS, POSTGRES, RABBITMQ, Server};

/// How long one may take from its start to its first answer.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const STOPS_WITHIN: Duration = Duration::from_secs(15);

/// `$1` is a signal, `$2` the server, `$3` its directory. A server that does not end within ten seconds is killed.
const GUARDIAN: &str = r#"
trap : INT TERM HUP
read -r _
kill -s "$1" "$2" 2>/dev/null
tries=0
while kill -0 "$2" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -eq 100 ] && kill -s KILL "$2"
    [ "$tries" -gt 120 ] && break
    sleep 0.1
done
rm -rf "$3"
"#;

/// A server that ends with this value.
pub(crate) struct Private {
    pub(crate) address: SocketAddr,
    server: Child,
    guardian: Child,
    lifeline: Option<ChildStdin>,
}

/// The temporary directory of one server, removed unless its guardian took that over.
struct Directory(Option<PathBuf>);

/// Whom a server runs as.
#[derive(Clone, Copy)]
enum RunsAs {
    Me,
    /// PostgreSQL refuses to run as root.
    Other {
        uid: u32,
        gid: u32,
    },
}

// === Private ===

impl Private {
    /// Starts one and waits until it answers.
    pub(crate) fn start(server: &Server, program: &Path) -> Result<Self, String> {
        let failed = |what: &str| format!("{}: {what}", server.name);
        let is_postgres = server.name == POSTGRES.name;
        let runs_as = if is_postgres { RunsAs::not_root().map_err(|error| failed(&error))? } else { RunsAs::Me };
        let directory = Directory::make(server.name, runs_as).map_err(|error| failed(&error))?;
        let path = directory.path().to_owned();
        let address = free_address().map_err(|error| failed(&format!("no free port: {error}")))?;
        let command = match server.name {
            _ if is_postgres => {
                initialise(program, &path, runs_as).map_err(|error| failed(&error))?;
                postgres(program, &path, address)
            }
            name if name == NATS.name => nats(program, &path, address),
            name if name == RABBITMQ.name => {
                let of_its_own = free_address().map_err(|error| failed(&format!("no free port: {error}")))?;
                rabbitmq(program, &path, address, of_its_own.port())
            }
            _ => redis(program, &path, address),
        };
        let signal = if is_postgres { "QUIT" } else { "TERM" }; // at once: there is nothing to save
        let mut private = Self::run(command, runs_as, signal, directory, address).map_err(|error| failed(&error))?;
        match private.wait_until_it_answers(server) {
            Ok(()) => Ok(private),
            Err(error) => {
                let log = fs::read_to_string(path.join("log")).unwrap_or_default();
                Err(failed(&format!("{} did not start: {error}\n{log}", program.display())))
            }
        }
    }

    fn run(
        mut command: Command,
        runs_as: RunsAs,
        signal: &str,
        directory: Directory,
        address: SocketAddr,
    ) -> Result<Self, String> {
        let path = directory.path().to_owned();
        let log = File::create(path.join("log")).and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|error| format!("no log in {}: {error}", path.display()))?;
        runs_as.apply(&mut command);
        let program = command.get_program().to_owned();
        let started = command.current_dir(&path).stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let mut server = started.map_err(|error| format!("`{}` could not be run: {error}", program.display()))?;
        let guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian", signal, &server.id().to_string()])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn();
        let mut guardian = match guardian {
            Ok(guardian) => guardian,
            Err(error) => {
                let _ = server.kill();
                let _ = server.wait();
                return Err(format!("`sh`, which stops it at the end, could not be run: {error}"));
            }
        };
        directory.hand_over();
        let lifeline = guardian.stdin.take();
        Ok(Self { address, server, guardian, lifeline })
    }

    fn wait_until_it_answers(&mut self, server: &Server) -> Result<(), String> {
        let begun = now();
        loop {
            if let Ok(Some(status)) = self.server.try_wait() {
                return Err(format!("it ended with {status}"));
            }
            let answered = TcpStream::connect(self.address)
                .map_err(|error| error.to_string())
                .and_then(|stream| server.answers_on(stream));
            match answered {
                Ok(()) => return Ok(()),
                Err(error) if begun.elapsed() > STARTS_WITHIN => {
                    return Err(format!("{error}, {} s after its start", STARTS_WITHIN.as_secs()));
                }
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let begun = now();
        while matches!(self.server.try_wait(), Ok(None)) {
            if begun.elapsed() > STOPS_WITHIN {
                let _ = self.server.kill(); // the guardian must have been stopped itself
                let _ = self.server.wait();
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.guardian.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a server takes its own time to start; no test pauses it")]
fn now() -> Instant {
    Instant::now()
}

/// Free a moment ago. Should somebody take it meanwhile, the server says so and does not start.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

// === Each server ===

fn initialise(postgres: &Path, directory: &Path, runs_as: RunsAs) -> Result<(), String> {
    // Beside the server itself: `PATH` may only have a link to it.
    let real = fs::canonicalize(postgres).unwrap_or_else(|_| postgres.to_owned());
    let initdb = real.with_file_name("initdb");
    let mut command = Command::new(&initdb);
    command.arg("--pgdata").arg(directory.join("data"));
    command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    runs_as.apply(&mut command);
    let output = command.current_dir(directory).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{}` could not be run: {error}", initdb.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = format!("`{}` ended with {}", initdb.display(), output.status);
    let _ = write!(text, "\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    Err(text)
}

fn postgres(program: &Path, directory: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.arg("-D").arg(directory.join("data")).arg("-p").arg(address.port().to_string());
    // What is lost with the machine is only test data.
    for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"] {
        command.args(["-c", setting]);
    }
    command
}

fn redis(program: &Path, directory: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(directory);
    command
}

fn nats(program: &Path, directory: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", &address.port().to_string(), "-js", "-sd"]).arg(directory.join("jetstream"));
    command
}

/// Everything of its own: its node would meet one of the same name, and its folders belong to somebody else.
fn rabbitmq(program: &Path, directory: &Path, address: SocketAddr, between_nodes: u16) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", directory).env("RABBITMQ_NODENAME", format!("oneclock{}@localhost", address.port()));
    command.env("RABBITMQ_MNESIA_BASE", directory.join("mnesia")).env("RABBITMQ_LOG_BASE", directory.join("logs"));
    command.env("RABBITMQ_ENABLED_PLUGINS_FILE", directory.join("plugins"));
    command.env("RABBITMQ_CONFIG_FILE", directory.join("none"));
    command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1").env("RABBITMQ_NODE_PORT", address.port().to_string());
    command.env("RABBITMQ_DIST_PORT", between_nodes.to_string());
    command
}

// === Directory ===

impl Directory {
    fn make(name: &str, runs_as: RunsAs) -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("oneclock-{}-{}-{number}", name.to_lowercase(), process::id());
        let path = env::temp_dir().join(name);
        let made = fs::create_dir(&path).and_then(|()| match runs_as {
            RunsAs::Me => Ok(()),
            RunsAs::Other { uid, gid } => chown(&path, Some(uid), Some(gid)),
        });
        made.map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
        Ok(Self(Some(path)))
    }

    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    fn hand_over(mut self) {
        self.0 = None;
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

// === RunsAs ===

impl RunsAs {
    /// Whoever runs xtask; for root the user that Debian's package makes, else the one that owns nothing.
    fn not_root() -> Result<Self, String> {
        if !is_root() {
            return Ok(Self::Me);
        }
        let found = ["postgres", "nobody"].into_iter().find_map(|user| Some((id(user, "-u")?, id(user, "-g")?)));
        let (uid, gid) = found.ok_or("it does not run as root, and there is no user postgres or nobody: add one")?;
        Ok(Self::Other { uid, gid })
    }

    fn apply(self, command: &mut Command) {
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
    }
}

fn id(user: &str, what: &str) -> Option<u32> {
    let output = Command::new("id").args([what, user]).stdin(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// By who owns what is ours alone: the process itself.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|itself| itself.uid() == 0)
}
