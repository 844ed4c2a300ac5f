//! The real `oneclock proxy` as a process: started, told to read another configuration, asked what it holds, stopped.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oneclock::clock;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::Failed;
use crate::memory::Held;
use crate::service::Services;

/// What it says and does is said and done by then.
const SOON: Duration = Duration::from_secs(30);
/// Lines of its standard error that are kept.
const KEPT: usize = 10_000;

pub(super) struct Child {
    pub(super) address: SocketAddr,
    admin: SocketAddr,
    pid: u32,
    process: tokio::sync::Mutex<tokio::process::Child>,
    folder: TempDir,
    app: SocketAddr,
    nobody: SocketAddr,
    told: watch::Receiver<usize>,
    lines: Arc<Mutex<Vec<String>>>,
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) status: ExitStatus,
    pub(super) took: Duration,
    /// What it said on standard error.
    pub(super) lines: Vec<String>,
}

impl Child {
    pub(super) async fn start(program: &Path, services: &Services) -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("proxy.yaml");
        let admin = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?; // nobody else takes it in the next moment
        fs::write(&file, configuration(0, services.app, services.nobody, admin))?;
        let mut command = Command::new(program);
        command
            .args(["proxy", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = command.kill_on_drop(true).spawn();
        let mut process = process.map_err(|error| format!("{}: {error}", program.display()))?;
        let pid = process.id().ok_or("it ended at once")?;
        let (Some(stdout), Some(stderr)) = (process.stdout.take(), process.stderr.take()) else {
            return Err("it has no pipes".into());
        };
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = heard(stderr, Arc::clone(&lines));
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut says = heard(stdout, Arc::clone(&said));
        let place = |said: &Vec<String>| {
            said.iter().find_map(|line| line.strip_prefix("# front listens on ")?.parse::<SocketAddr>().ok())
        };
        let found = async {
            loop {
                if let Some(address) = place(&said.lock().unwrap_or_else(PoisonError::into_inner)) {
                    return Ok::<_, Failed>(address);
                }
                says.changed().await.map_err(|_| "it ended without saying where it listens")?;
            }
        };
        let address = timeout(SOON, found).await.map_err(|_| "it does not say where it listens")?;
        let address =
            address.map_err(|why| format!("{why}: {:?}", lines.lock().unwrap_or_else(PoisonError::into_inner)))?;
        let process = tokio::sync::Mutex::new(process);
        Ok(Self { address, admin, pid, process, folder, app: services.app, nobody: services.nobody, told, lines })
    }

    /// Has it read the configuration of this number, and waits until it says what became of that.
    pub(super) async fn reload(&self, number: u64) -> Result<(), Failed> {
        let file = self.folder.path().join("proxy.yaml");
        let fresh = self.folder.path().join("fresh.yaml");
        fs::write(&fresh, configuration(number, self.app, self.nobody, self.admin))?;
        let mut told = self.told.clone();
        told.mark_unchanged();
        fs::rename(fresh, file)?;
        self.signal("HUP").await?;
        timeout(SOON, told.changed()).await.map_err(|_| "it does not say whether it has read its file again")??;
        Ok(())
    }

    pub(super) fn held(&self) -> Held {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        Held { at: Duration::ZERO, resident: resident.unwrap_or(0_u64) * 1024, descriptors: self.descriptors() }
    }

    pub(super) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count)
    }

    /// How many descriptors are open once there are no more than `before`, or after a while.
    pub(super) async fn settled(&self, before: usize) -> usize {
        let began = clock::now();
        while self.descriptors() > before && clock::now().since(began) < SOON {
            sleep(Duration::from_millis(50)).await; // nobody tells
        }
        self.descriptors()
    }

    /// How many operations are live once there are none, or after a while. Its own probes come and go.
    pub(super) async fn live(&self) -> Result<u64, Failed> {
        let began = clock::now();
        loop {
            let live = timeout(SOON, self.live_now()).await.map_err(|_| "the admin pages do not answer")??;
            if live == 0 || clock::now().since(began) > SOON {
                return Ok(live);
            }
            sleep(Duration::from_millis(50)).await; // nobody tells
        }
    }

    async fn live_now(&self) -> Result<u64, Failed> {
        let mut socket = TcpStream::connect(self.admin).await?;
        let asks = format!("GET /live-operations HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.admin);
        socket.write_all(asks.as_bytes()).await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        let document = answer.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str::<serde_json::Value>(body));
        let live = document.transpose()?.and_then(|document| document.get("live")?.as_u64());
        live.ok_or_else(|| format!("/live-operations says nothing of what is live: {answer}").into())
    }

    pub(super) async fn stop(&self) -> Result<Stopped, Failed> {
        let began = clock::now();
        self.signal("TERM").await?;
        let status = timeout(SOON, async { self.process.lock().await.wait().await });
        let status = status.await.map_err(|_| "it does not stop")??;
        let took = clock::now().since(began);
        let mut told = self.told.clone();
        let _ = timeout(SOON, async { while told.changed().await.is_ok() {} }).await; // until its pipe is read to the end
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Stopped { status, took, lines })
    }

    async fn signal(&self, name: &str) -> Result<(), Failed> {
        let status = Command::new("kill").args(["-s", name, &self.pid.to_string()]).status().await?;
        if status.success() { Ok(()) } else { Err(format!("it is gone: kill -s {name} ended with {status}").into()) }
    }
}

/// Reads a pipe to its end; the count of lines is told. Its last holder is the task, which ends with the pipe.
fn heard(pipe: impl AsyncRead + Send + Unpin + 'static, into: Arc<Mutex<Vec<String>>>) -> watch::Receiver<usize> {
    let (tells, told) = watch::channel(0);
    tokio::spawn(async move {
        let mut lines = BufReader::new(pipe).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT {
                kept.push(line);
            }
            drop(kept);
            tells.send_modify(|count| *count += 1);
        }
    });
    told
}

/// Each differs from the one before: upstreams and routes that change, and at times a mistake, which changes nothing.
fn configuration(number: u64, app: SocketAddr, nobody: SocketAddr, admin: SocketAddr) -> String {
    let (more, upstream, mistake) = match number % 5 {
        0 => ("", "", ""),
        1 => ("retry: { attempts: 1 }, ", "cap: 5s, ", ""),
        2 => ("timeouts: { request: 2s }, ", "", ""),
        3 => ("minUseful: 6ms, ", "", ""),
        _ => ("", "", "retrys: 2, "),
    };
    format!(
        "listeners:\n- {{ name: front, address: 127.0.0.1:0 }}\n\
         upstreams:\n  app: {{ url: http://{app}, {upstream}maxConnections: 1000 }}\n  nobody: {{ url: http://{nobody} }}\n\
         routes:\n- {{ name: all, {more}{mistake}upstream: app }}\n\
         - {{ name: nobody, matches: [{{ path: {{ value: /nobody }} }}, {{ path: {{ value: /soak.Nobody }} }}], upstream: nobody }}\n\
         admin: {admin}\n"
    )
}
