//! How each proxy is started: ready once a request through it is answered, gone when it is dropped.
//!
//! Decides what of a configuration is filled in: `@http1@` and `@http2@` are the ports of the proxy, `@app@` is the service's,
//! `@admin@` is another free one, `@folder@` is for what it writes. One worker thread each.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use oneclock_bench::guarded::Guarded;
use oneclock_bench::{Failed, process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::lines::Line;
use crate::system::{Protocol, System};

const STARTS_WITHIN: Duration = Duration::from_secs(30);
const OURS: &str = include_str!("../../proxy/oneclock.yaml");
const ENVOY: &str = include_str!("../../proxy/envoy.yaml");
const HAPROXY: &str = include_str!("../../proxy/haproxy.cfg");
const NGINX: &str = include_str!("../../proxy/nginx.conf");

/// Where programs are that are not in `PATH`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs<'a> {
    pub(crate) tools: &'a Path,
    pub(crate) oneclock: &'a Path,
}

/// One that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its processes.
    pub(crate) pids: Vec<u32>,
    http1: SocketAddr,
    http2: SocketAddr,
    program: Guarded,
}

impl Running {
    /// Where it is asked in this protocol.
    pub(crate) fn at(&self, protocol: Protocol) -> SocketAddr {
        match protocol {
            Protocol::Http1 => self.http1,
            Protocol::Http2 => self.http2,
        }
    }

    /// The service.
    pub(crate) async fn origin() -> Result<Self, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("origin");
        says_where(command).await?.ready().await
    }

    /// A proxy in front of `app`. The service is in front of itself: another one is started.
    pub(crate) async fn start(system: System, programs: Programs<'_>, app: SocketAddr) -> Result<Self, Failed> {
        let running = match system {
            System::Direct => return Self::origin().await,
            System::Bare => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("bare").arg(app.to_string());
                says_where(command).await?
            }
            System::Ours => {
                let mut command = Command::new(programs.oneclock);
                command.args(["proxy", "--workers", "1"]);
                let running = told(command, "--config", OURS, app)?;
                Running { http2: running.http1, ..running } // one port for both
            }
            System::Envoy => {
                let mut command = Command::new(programs.tools.join("envoy"));
                command.args(["--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]);
                told(command, "--config-path", ENVOY, app)?
            }
            System::Haproxy => {
                let mut command = Command::new(found("haproxy")?);
                command.args(["-db", "-q"]);
                told(command, "-f", HAPROXY, app)?
            }
            System::Nginx => {
                let mut command = Command::new(found("nginx")?);
                command.args(["-e", "stderr"]);
                told(command, "-c", NGINX, app)?
            }
        };
        let named = |error| format!("{}: {error}", system.name());
        running.ready().await.map_err(|error| named(error).into())
    }

    /// Once it answers.
    async fn ready(mut self) -> Result<Self, Failed> {
        let began = clock::now();
        loop {
            if let Some(status) = self.program.ended()? {
                return Err(format!("it ended at once: {status}").into());
            }
            let why = match self.asked().await {
                Ok(()) => break,
                Err(why) => why,
            };
            if clock::now() - began > STARTS_WITHIN {
                return Err(format!("it was not ready within {STARTS_WITHIN:?}: {why}").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        self.pids = process::tree(self.program.pid);
        Ok(self)
    }

    async fn asked(&self) -> Result<(), Failed> {
        for protocol in Protocol::ALL {
            Line::connect(self.at(protocol), protocol).await?.ask().await?;
        }
        Ok(())
    }
}

/// A program of the bench's own, whose first line is its address.
async fn says_where(mut command: Command) -> Result<Running, Failed> {
    command.stdout(Stdio::piped());
    let mut program = Guarded::start(command, Path::new(""))?;
    let stdout = program.child.stdout.take().ok_or("it has no pipe")?;
    let mut lines = BufReader::new(stdout).lines();
    let first = timeout(STARTS_WITHIN, lines.next_line()).await.map_err(|_| "it does not say where it listens")??;
    let at = first.ok_or("it ended without saying where it listens")?.parse()?;
    Ok(Running { pids: Vec::new(), http1: at, http2: at, program })
}

/// A program that is told its address in a file.
fn told(mut command: Command, option: &str, text: &str, app: SocketAddr) -> Result<Running, Failed> {
    let free = || TcpListener::bind("127.0.0.1:0");
    let held = [free()?, free()?, free()?];
    let (http1, http2, admin) = (held[0].local_addr()?, held[1].local_addr()?, held[2].local_addr()?);
    drop(held); // nobody else takes them in the next moment
    let folder = std::env::temp_dir().join(format!("bench-proxy-{}-{}", std::process::id(), http1.port()));
    std::fs::create_dir(&folder)?;
    let text = text.replace("@http1@", &http1.port().to_string()).replace("@http2@", &http2.port().to_string());
    let text = text.replace("@app@", &app.port().to_string()).replace("@admin@", &admin.port().to_string());
    let text = text.replace("@folder@", &folder.display().to_string());
    let file = folder.join("configuration.yaml");
    std::fs::write(&file, text)?;
    command.arg(option).arg(&file).stdout(Stdio::null());
    let program = Guarded::start(command, &folder)?;
    Ok(Running { pids: Vec::new(), http1, http2, program })
}

/// In `PATH`, or in the folder of system programs, which is not in everybody's.
fn found(program: &str) -> Result<PathBuf, Failed> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let found = folders.map(|folder| folder.join(program)).find(|program| program.is_file());
    found.ok_or_else(|| format!("{program} is not here: apt-get install {program}").into())
}
