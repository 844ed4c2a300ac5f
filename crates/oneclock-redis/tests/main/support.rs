//! The server that everybody uses with keys of one's own, a private one, a relay that stops reading, and an observer that
//! remembers calls.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::Operation;
use oneclock::events::{Called, Event, Observer};
use oneclock_core::Name;
use oneclock_redis::redis::{self, Cmd, FromRedisValue};
use oneclock_redis::{Redis, RedisBuilder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Far beyond what anything here takes when it works.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn operation(budget: Duration) -> Operation {
    Operation::begin("op", budget)
}

/// The server that all tests share.
pub(crate) fn address() -> String {
    let address = std::env::var("ONECLOCK_REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let client = redis::Client::open(address.as_str()).unwrap();
    if let Err(error) = client.get_connection_with_timeout(Duration::from_secs(5)) {
        panic!(
            "these tests need a Redis, and none answers at {address} ({error}): start one, name one in ONECLOCK_REDIS_URL, or \
             let `cargo xtask servers -- cargo test -p oneclock-redis` start one"
        );
    }
    address
}

pub(crate) fn client(of: impl FnOnce(RedisBuilder) -> RedisBuilder) -> Redis {
    of(Redis::builder(address())).build().unwrap()
}

/// Keys that only this test has, gone with it.
pub(crate) struct Keys {
    prefix: String,
    made: Mutex<Vec<String>>,
}

impl Keys {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let wall = oneclock::clock::wall();
        Self { prefix: format!("oneclock-test:{}:{number}:{wall:?}", std::process::id()), made: Mutex::default() }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        let key = format!("{}:{name}", self.prefix);
        self.made.lock().unwrap().push(key.clone());
        key
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let made = self.made.lock().unwrap();
        if let Ok(mut connection) = redis::Client::open(address()).and_then(|client| client.get_connection()) {
            let _: Result<(), _> = redis::cmd("DEL").arg(&*made).query(&mut connection);
        }
    }
}

/// Words as one would type them.
pub(crate) fn cmd(text: &str) -> Cmd {
    let mut command = Cmd::new();
    for word in text.split(' ') {
        command.arg(word);
    }
    command
}

/// Asks with plenty of time.
pub(crate) async fn ask<T: FromRedisValue>(redis: &Redis, text: &str) -> T {
    redis.query_in(&operation(BOUND), "ask", &cmd(text)).await.unwrap()
}

// === A server of its own ===

/// A server that a test may stop, kill and start again.
pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
    process: Option<Child>,
}

impl Server {
    pub(crate) fn start() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("oneclock-redis-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // Somebody may take the port that was free a moment ago.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut server = Self { port, folder: folder.clone(), process: None };
            if server.launch() {
                return server;
            }
        }
        panic!("a private redis-server did not start on any of five ports");
    }

    fn launch(&mut self) -> bool {
        let started = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--enable-debug-command", "yes"])
            .args(["--port", &self.port.to_string()])
            .arg("--dir")
            .arg(&self.folder)
            .arg("--unixsocket")
            .arg(self.unix_socket())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.process = Some(started.unwrap_or_else(|error| {
            panic!("`redis-server` cannot be started ({error}): apt-get install redis-server, or let `cargo xtask test` do it")
        }));
        let began = oneclock::clock::now();
        while oneclock::clock::now().since(began) < BOUND {
            if self.process.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            let client = redis::Client::open(self.address()).unwrap();
            if let Ok(mut connection) = client.get_connection_with_timeout(ms(500)) {
                let id: Result<i64, _> = redis::cmd("CONFIG").arg("RESETSTAT").query::<()>(&mut connection).map(|()| 1);
                if id.is_ok() {
                    return true;
                }
            }
            std::thread::sleep(ms(5));
        }
        panic!("a private redis-server did not answer within {BOUND:?}");
    }

    pub(crate) fn address(&self) -> String {
        format!("redis://{}", self.socket())
    }

    pub(crate) fn unix_socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    pub(crate) fn socket(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn client(&self, of: impl FnOnce(RedisBuilder) -> RedisBuilder) -> Redis {
        of(Redis::builder(self.address())).build().unwrap()
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
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

// === A relay ===

/// Passes on what comes, and can stop reading: of the connections it has, or of all.
pub(crate) struct Relay {
    address: SocketAddr,
    accepted: Arc<AtomicU64>,
    stalled: watch::Sender<u64>, // connections up to this number
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicU64::new(0));
        let (stalled, seen) = watch::channel(0);
        let counted = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::AcqRel) + 1;
                let seen = seen.clone();
                connections.spawn(async move {
                    let Ok(far) = TcpStream::connect(server).await else { return };
                    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                    tokio::join!(pass(near_in, far_out, number, seen.clone()), pass(far_in, near_out, number, seen));
                });
            }
        });
        Self { address, accepted, stalled, task }
    }

    pub(crate) fn client(&self, of: impl FnOnce(RedisBuilder) -> RedisBuilder) -> Redis {
        of(Redis::builder(format!("redis://{}", self.address))).build().unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    /// The connections there are pass nothing on any more; new ones do.
    pub(crate) fn stall_those_there_are(&self) {
        self.stalled.send_replace(self.accepted());
    }

    pub(crate) fn stall_all(&self) {
        self.stalled.send_replace(u64::MAX);
    }

    pub(crate) fn go_on(&self) {
        self.stalled.send_replace(0);
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    number: u64,
    mut stalled: watch::Receiver<u64>,
) {
    let mut buffer = [0; 4096];
    loop {
        if stalled.wait_for(|stalled| number > *stalled).await.is_err() {
            return;
        }
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        if stalled.wait_for(|stalled| number > *stalled).await.is_err() || to.write_all(&buffer[..read]).await.is_err()
        {
            return;
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === Watching ===

/// Remembers what calls came to.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<Called>>);

impl Observer for Recorder {
    fn on(&self, event: &Event<'_>) {
        if let Event::Called(called) = event {
            self.0.lock().unwrap().push((*called).clone());
        }
    }
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What the one call named `name` came to, once its event is there.
    pub(crate) async fn call(&self, name: &str) -> Called {
        eventually("the call's event", || {
            let calls = self.0.lock().unwrap();
            let mut found = calls.iter().filter(|called| called.call == Name::from(name.to_owned())).cloned();
            let first = found.next();
            assert!(found.next().is_none(), "two events for the call {name}");
            first
        })
        .await
    }

    pub(crate) fn all(&self) -> Vec<Called> {
        self.0.lock().unwrap().clone()
    }
}

/// Asks until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            tokio::time::sleep(ms(2)).await;
        }
    };
    tokio::time::timeout(BOUND, asking).await.unwrap_or_else(|_| panic!("not seen within {BOUND:?}: {what}"))
}

/// Until a private server holds as many commands as this.
pub(crate) async fn until_held(redis: &Redis, held: usize) {
    let mark = format!("blocked_clients:{held}");
    let asking = async {
        loop {
            let info: String = ask(redis, "INFO clients").await;
            if info.lines().any(|line| line.trim() == mark) {
                return;
            }
            tokio::time::sleep(ms(2)).await;
        }
    };
    tokio::time::timeout(BOUND, asking).await.unwrap_or_else(|_| panic!("the server does not hold {held} commands"));
}
