//! A proxy in a process of its own, so that its memory and its descriptors can be told from ours; peers that hold connections
//! open, in processes of their own, since one has not enough descriptors; and somebody who behaves, and wants an answer.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use oneclock_core::Trust;
use oneclock_proxy::Proxy;
use oneclock_proxy::config::{Config, UpstreamProtocol};
use oneclock_test::caller::{Caller, H1Outcome, H2Caller, H2Outcome};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpSocket;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{AMPLE, ms};

/// What a child is to do, in its environment.
const TASK: &str = "ONECLOCK_TEST_HOSTILE";
/// Before the word that a child says, to tell it from the test harness's.
const SAYS: &str = "says: ";

/// A process of this binary that does something else.
pub(crate) struct Apart {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// A proxy in a process of its own.
pub(crate) struct Alone {
    pub(crate) addr: SocketAddr,
    apart: Apart,
}

/// How much memory a process holds, in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

/// Somebody who behaves: a request on a new connection and one on a kept one, again and again.
pub(crate) struct Bystander {
    stop: oneshot::Sender<()>,
    task: AbortOnDropHandle<Served>,
}

/// What the bystander got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    took: Vec<Duration>,
    failed: Vec<String>,
    reconnected: usize,
}

// === Apart ===

impl Apart {
    fn start(test: &str, task: &str) -> Self {
        // With as many descriptors as it may have: most machines give a process fewer, unless it asks.
        let mut child = Command::new("sh")
            .args(["-c", r#"ulimit -n "$(ulimit -H -n)"; exec "$@""#, "sh"])
            .arg(std::env::current_exe().expect("this binary"))
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, lines }
    }

    /// The next word that it says.
    async fn said(&mut self) -> String {
        loop {
            let line = timeout(AMPLE * 3, self.lines.next_line()).await.expect("in time").expect("its output");
            let line = line.expect("it lives");
            if let Some((_, word)) = line.split_once(SAYS) {
                return word.to_owned();
            }
        }
    }
}

fn say(word: impl std::fmt::Display) {
    println!("\n{SAYS}{word}");
}

/// Returns when the parent is gone, or has dropped the pipe.
async fn until_parent_leaves() {
    let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
}

// === Alone ===

impl Alone {
    /// One that has so many connections at once, and lets requests take so long.
    pub(crate) async fn start(upstream: SocketAddr, connections: usize, budget: Duration) -> Self {
        let task = format!("{upstream} {connections} {}", budget.as_millis());
        let mut apart = Apart::start("process::serves", &task);
        let addr = apart.said().await.parse().expect("an address");
        Self { addr, apart }
    }

    pub(crate) fn memory(&self) -> Memory {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it lives");
        let of = |name| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("Linux has it");
            line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
        };
        Memory { now: of("VmRSS:"), peak: of("VmHWM:") }
    }

    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it lives").count()
    }

    fn pid(&self) -> u32 {
        self.apart.child.id().expect("it runs")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the proxy of the tests beside it, which start it"]
async fn serves() {
    let Ok(task) = std::env::var(TASK) else { return };
    let [upstream, connections, budget] = task.split(' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let mut config =
        Config::simple(([127, 0, 0, 1], 0).into(), &format!("http://{upstream}")).expect("a configuration");
    config.admin = None;
    config.listeners[0].trust = Trust::Inside;
    config.listeners[0].max_connections = connections.parse().expect("a number");
    for upstream in config.upstreams.values_mut() {
        upstream.protocol = UpstreamProtocol::Http1;
    }
    let budget = ms(budget.parse().expect("a number"));
    config.routes[0].when_absent = budget;
    config.routes[0].ceiling = budget;
    let proxy = Proxy::start(config).await.expect("it starts");
    say(proxy.addresses()[0].1);
    until_parent_leaves().await;
    drop(proxy);
}

// === Holding ===

/// Opens so many connections from `source` and holds them; says nothing on them.
pub(crate) struct Holder(Apart);

impl Holder {
    pub(crate) fn start(to: SocketAddr, source: SocketAddr, connections: usize) -> Self {
        Self(Apart::start("process::holds", &format!("{to} {source} {connections}")))
    }

    /// Waits until all are open, and says how many could not be opened.
    pub(crate) async fn opened(&mut self) -> usize {
        self.0.said().await.parse().expect("a number")
    }
}

#[tokio::test]
#[ignore = "a peer of the tests beside it, which start it"]
async fn holds() {
    let Ok(task) = std::env::var(TASK) else { return };
    let [to, source, connections] = task.split(' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let (to, source): (SocketAddr, SocketAddr) = (to.parse().expect("one"), source.parse().expect("one"));
    let connections: usize = connections.parse().expect("a number");
    let (mut held, mut failed) = (Vec::with_capacity(connections), 0);
    let (mut opening, mut begun) = (JoinSet::new(), 0);
    while held.len() + failed < connections {
        // So many at a time, each of which may have to wait until it is noticed.
        while begun < connections && opening.len() < 500 {
            opening.spawn(async move {
                let socket = TcpSocket::new_v4()?;
                socket.bind(source)?;
                timeout(AMPLE, socket.connect(to)).await?
            });
            begun += 1;
        }
        match opening.join_next().await.expect("some are").expect("no panic") {
            Ok(opened) => held.push(opened),
            Err(_) => failed += 1,
        }
    }
    say(failed);
    until_parent_leaves().await;
    drop(held);
}

// === Bystander ===

impl Bystander {
    /// Begins, and returns once it was answered for the first time.
    pub(crate) async fn start(addr: SocketAddr) -> Self {
        let mut kept = Caller::h2(addr).connect().await.expect("a connection");
        let mut served = Served::default();
        served.ask(addr, &mut kept).await;
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            while stopped.try_recv().is_err_and(|empty| empty == oneshot::error::TryRecvError::Empty) {
                tokio::time::sleep(ms(20)).await; // its pace
                served.ask(addr, &mut kept).await;
            }
            served
        });
        Self { stop, task: AbortOnDropHandle::new(task) }
    }

    pub(crate) async fn stop(self) -> Served {
        let _ = self.stop.send(()); // it listens at its next turn
        timeout(AMPLE * 2, self.task).await.expect("it stops").expect("no panic")
    }
}

impl Served {
    /// One request on a new connection, one on the kept one.
    async fn ask(&mut self, addr: SocketAddr, kept: &mut H2Caller) {
        let since = now();
        match timeout(AMPLE, Caller::h1(addr).get("/new").answer()).await {
            Ok(Ok(H1Outcome::Complete { status, .. })) if status == 200 => self.took.push(now() - since),
            other => self.failed.push(format!("new: {other:?}")),
        }
        let since = now();
        let called = async {
            // A connection that was closed while it was idle is replaced, as every client does.
            if let Ok(call) = kept.get("/kept").send().await {
                return Some(call.answer().await);
            }
            *kept = Caller::h2(addr).connect().await.ok()?;
            self.reconnected += 1;
            Some(kept.get("/kept").send().await.ok()?.answer().await)
        };
        match timeout(AMPLE, called).await {
            Ok(Some(H2Outcome::Complete { status, .. })) if status == 200 => self.took.push(now() - since),
            other => self.failed.push(format!("kept: {other:?}")),
        }
    }

    pub(crate) fn answered(&self) -> usize {
        self.took.len()
    }

    /// Every request was answered, and there were some.
    #[track_caller]
    pub(crate) fn assert_all(&self) {
        assert!(self.failed.is_empty() && !self.took.is_empty(), "{self}: {:?}", self.failed);
    }
}

impl std::fmt::Display for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut took = self.took.clone();
        took.sort();
        let at = |share: usize| took.get((took.len() * share / 100).min(took.len().saturating_sub(1))).copied();
        let (half, most) = (at(50).unwrap_or_default(), at(100).unwrap_or_default());
        let asked = self.took.len() + self.failed.len();
        write!(f, "others: {} of {asked} answered, median {half:.1?}, slowest {most:.1?}", self.took.len())?;
        if self.reconnected > 0 { write!(f, ", {} times on a new connection", self.reconnected) } else { Ok(()) }
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} MiB (peak {:.1})", self.now as f64 / 1024.0, self.peak as f64 / 1024.0)
    }
}

#[allow(clippy::disallowed_methods, reason = "how long somebody waited, for people to read")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
