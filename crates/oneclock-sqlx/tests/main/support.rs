//! A database of its own on the server, a relay that can stop, and an observer that remembers calls.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::Operation;
use oneclock::events::{Called, Event, Observer};
use oneclock_core::Name;
use oneclock_sqlx::sqlx::postgres::{PgConnectOptions, PgConnection};
use oneclock_sqlx::sqlx::{self, AssertSqlSafe, ConnectOptions as _};
use oneclock_sqlx::{Pool, PoolBuilder, SqlxError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Far beyond what anything here takes when it works.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A budget that is never what ends something here.
pub(crate) const PLENTY: Duration = Duration::from_secs(25);

pub(crate) fn server() -> PgConnectOptions {
    let url =
        std::env::var("ONECLOCK_POSTGRES_URL").unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432".to_owned());
    url.parse().unwrap()
}

/// A database that goes away with it.
pub(crate) struct Database {
    name: String,
}

impl Database {
    /// With the table `t (i int PRIMARY KEY)`.
    pub(crate) async fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("oneclock_sqlx_{}_{n}", std::process::id());
        let mut admin = connect(&server().database("postgres")).await;
        run(&mut admin, &format!("CREATE DATABASE {name}")).await;
        let database = Self { name };
        run(&mut database.outside().await, "CREATE TABLE t (i int PRIMARY KEY)").await;
        database
    }

    pub(crate) fn options(&self) -> PgConnectOptions {
        server().database(&self.name)
    }

    pub(crate) fn pool(&self, of: impl FnOnce(PoolBuilder) -> PoolBuilder) -> Pool {
        of(Pool::with_options(self.options())).build().unwrap()
    }

    /// A connection of somebody else's.
    pub(crate) async fn outside(&self) -> PgConnection {
        connect(&self.options()).await
    }

    pub(crate) async fn rows(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(&mut self.outside().await).await.unwrap()
    }

    /// How many backends of this database are busy with a statement whose text has `part`.
    pub(crate) async fn running(&self, part: &str) -> i64 {
        running(&mut self.outside().await, part).await
    }
}

pub(crate) async fn running(outside: &mut PgConnection, part: &str) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' \
               AND pid <> pg_backend_pid() AND query LIKE '%' || $1 || '%'";
    sqlx::query_scalar(sql).bind(part).fetch_one(outside).await.unwrap()
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = std::mem::take(&mut self.name);
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut admin = connect(&server().database("postgres")).await;
                // It waits for every backend of the server, also for those of others that are stuck.
                run(&mut admin, "SET statement_timeout = '20s'").await;
                let drop = AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"));
                if let Err(error) = sqlx::raw_sql(drop).execute(&mut admin).await {
                    eprintln!("the database {name} is left behind: {error}");
                }
            });
        });
        let _ = dropping.join();
    }
}

async fn connect(options: &PgConnectOptions) -> PgConnection {
    options.connect().await.unwrap_or_else(|error| {
        panic!(
            "these tests need a PostgreSQL server on 127.0.0.1:5432 that lets the user postgres in without a password, or \
             another in ONECLOCK_POSTGRES_URL=postgres://…; `cargo xtask test` starts one: {error}"
        )
    })
}

pub(crate) async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.unwrap();
}

/// Opens this many connections of the pool, so that no test waits for that in its budget.
pub(crate) async fn warm(pool: &Pool, connections: usize) {
    let op = operation(PLENTY);
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut guard = pool.get_in(&op, "warm").await.unwrap();
        sqlx::query("SELECT 1").execute(&mut guard).await.unwrap();
        held.push(guard);
    }
}

pub(crate) fn operation(budget: Duration) -> Operation {
    Operation::begin("op", budget)
}

/// The backend that serves it.
pub(crate) async fn pid(guard: &mut oneclock_sqlx::Guard) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(guard).await.unwrap()
}

/// The error of a statement that must have one.
pub(crate) fn error<T>(result: Result<T, sqlx::Error>) -> SqlxError {
    match result {
        Ok(_) => panic!("it was not ended"),
        Err(error) => error.into(),
    }
}

/// Until no place of the pool is taken and nobody waits.
pub(crate) async fn until_idle(pool: &Pool) {
    eventually("an idle pool", async || {
        let status = pool.status();
        (status.busy == 0 && status.waiting == 0 && status.open == status.idle).then_some(())
    })
    .await;
}

/// Asks until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(ms(5)).await;
        }
    };
    tokio::time::timeout(BOUND, asking).await.unwrap_or_else(|_| panic!("not seen within {BOUND:?}: {what}"))
}

/// Remembers what calls came to.
#[derive(Default)]
pub(crate) struct Recorder {
    calls: Mutex<Vec<Called>>,
}

impl Observer for Recorder {
    fn on(&self, event: &Event<'_>) {
        if let Event::Called(called) = event {
            self.calls.lock().unwrap().push((*called).clone());
        }
    }
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What the one call named `name` came to, once its event is there.
    pub(crate) async fn call(&self, name: &str) -> Called {
        eventually("the call's event", async || {
            let calls = self.calls.lock().unwrap();
            let mut found = calls.iter().filter(|called| called.call == Name::from(name.to_owned())).cloned();
            let first = found.next();
            assert!(found.next().is_none(), "two events for the call {name}");
            first
        })
        .await
    }
}

/// Stands between a client and the server. What it relays can be stopped, and it can be told to break.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Nothing comes back from the server any more.
    Deaf,
    /// Nothing moves.
    Stalled,
    Broken,
}

impl Relay {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, watching) = watch::channel(Mode::Open);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = server();
                let to = TcpStream::connect((server.get_host(), server.get_port())).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), to.into_split());
                tokio::spawn(pump(from_client, to_server, watching.clone(), Mode::Stalled));
                tokio::spawn(pump(from_server, to_client, watching.clone(), Mode::Deaf));
            }
        });
        Self { address, mode }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub(crate) fn options(&self, database: &Database) -> PgConnectOptions {
        database.options().host("127.0.0.1").port(self.address.port())
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    stops_at: Mode,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let now = *mode.borrow_and_update();
        let stopped = now == Mode::Stalled || now == stops_at;
        tokio::select! {
            changed = mode.changed() => if changed.is_err() { return },
            read = from.read(&mut buffer), if !stopped => match read {
                Ok(n) if n > 0 && now != Mode::Broken => if to.write_all(&buffer[..n]).await.is_err() { return },
                _ => return,
            },
        }
        if *mode.borrow() == Mode::Broken {
            return;
        }
    }
}
