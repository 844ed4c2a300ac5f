//! A database of its own, an eye on the server from outside, and an observer that remembers calls.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::Operation;
use oneclock::events::{Called, Event, Observer};
use oneclock_core::{Cause, Name, Outcome};
use oneclock_postgres::tokio_postgres::{self, Config, NoTls};
use oneclock_postgres::{Pool, PoolBuilder};

/// Far beyond what anything here takes when it works.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A database that goes away with it, on the server of the tests.
pub(crate) struct Database {
    pub(crate) name: String,
    server: Config,
}

/// The server of the tests.
pub(crate) fn server() -> Config {
    let url = std::env::var("ONECLOCK_POSTGRES_URL");
    let mut config: Config = url.as_deref().unwrap_or("postgres://postgres@127.0.0.1:5432/postgres").parse().unwrap();
    config.application_name("oneclock-postgres tests");
    config
}

pub(crate) async fn connect(config: &Config) -> tokio_postgres::Client {
    let connected = tokio::time::timeout(BOUND, config.connect(NoTls)).await.expect("a server that answers");
    let (client, connection) = connected.unwrap_or_else(|error| {
        panic!(
            "these tests need a PostgreSQL server that lets the user postgres in: on 127.0.0.1:5432, or the one of \
             ONECLOCK_POSTGRES_URL. `cargo xtask test` starts one. ({error}: {:?})",
            std::error::Error::source(&error)
        )
    });
    tokio::spawn(connection);
    client
}

impl Database {
    pub(crate) async fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("oneclock_pg_{}_{n}", std::process::id());
        let server = server();
        let admin = connect(&server).await;
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await.unwrap();
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
        Self { name, server }
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = self.server.clone();
        config.dbname(&self.name);
        config
    }

    /// A pool on it, with the table `t (i int primary key, n int)`.
    pub(crate) async fn pool(&self, of: impl FnOnce(PoolBuilder) -> PoolBuilder) -> Pool {
        self.outside().await.batch_execute("CREATE TABLE IF NOT EXISTS t (i int primary key, n int)").await.unwrap();
        of(Pool::configured(self.config())).build().unwrap()
    }

    /// A connection of somebody else's.
    pub(crate) async fn outside(&self) -> tokio_postgres::Client {
        let mut config = self.config();
        config.application_name("outside");
        connect(&config).await
    }

    /// A connection to the server, outside of the database and its limits.
    pub(crate) async fn admin(&self) -> tokio_postgres::Client {
        connect(&self.server).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (name, server) = (self.name.clone(), self.server.clone());
        // On a thread of its own: the runtime of the test may be busy, or gone.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let admin = connect(&server).await;
                let _ = admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            });
        });
        let _ = dropping.join();
    }
}

/// How many backends of the database run a statement that contains `part`.
pub(crate) async fn running(outside: &tokio_postgres::Client, database: &Database, part: &str) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND state = 'active' AND query LIKE $2 \
               AND pid <> pg_backend_pid()";
    outside.query_one(sql, &[&database.name, &format!("%{part}%")]).await.unwrap().get(0)
}

/// Waits for `what`, which is asked again and again.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let asking = async {
        while !is().await {
            tokio::time::sleep(ms(5)).await;
        }
    };
    tokio::time::timeout(BOUND, asking).await.unwrap_or_else(|_| panic!("never happened: {what}"));
}

/// Waits until nothing of the pool is lent or being settled.
pub(crate) async fn at_rest(pool: &Pool) {
    until("the pool at rest", || {
        let status = pool.status();
        std::future::ready(status.busy == 0 && status.settling == 0)
    })
    .await;
}

pub(crate) async fn rows(outside: &tokio_postgres::Client, table: &str) -> i64 {
    outside.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
}

/// An operation with a generous budget.
pub(crate) fn patient() -> Operation {
    Operation::begin("test", BOUND)
}

/// Remembers the calls that are over.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Vec<(Name, Outcome)>>, Mutex<Vec<Option<Cause>>>);

impl Calls {
    pub(crate) fn operation(self: &Arc<Self>, budget: Duration) -> Operation {
        Operation::begin("test", budget).observed_by(self.clone())
    }

    pub(crate) fn seen(&self) -> Vec<(Name, Outcome)> {
        self.0.lock().unwrap().clone()
    }

    /// What ended each of them, if it did not end by itself.
    pub(crate) fn causes(&self) -> Vec<Option<Cause>> {
        self.1.lock().unwrap().clone()
    }

    pub(crate) fn outcome_of(&self, call: &str) -> Option<Outcome> {
        self.seen().iter().rev().find(|(name, _)| name.as_str() == call).map(|(_, outcome)| *outcome)
    }
}

impl Observer for Calls {
    fn on(&self, event: &Event<'_>) {
        if let Event::Called(Called { call, outcome, ending, .. }) = event {
            self.1.lock().unwrap().push(ending.map(|ending| ending.cause));
            self.0.lock().unwrap().push((call.clone(), *outcome));
        }
    }
}

/// Polls a future until it waits, for a while: then it has been sent. Gives it back, to be dropped or awaited.
pub(crate) async fn sent<F: Future>(work: F, is_there: impl AsyncFn() -> bool) -> Pin<Box<F>>
where
    F::Output: std::fmt::Debug,
{
    let mut work = Box::pin(work);
    let there = async {
        while !is_there().await {
            tokio::time::sleep(ms(2)).await;
        }
    };
    tokio::select! {
        done = &mut work => panic!("it was over before it was seen: {done:?}"),
        seen = tokio::time::timeout(BOUND, there) => seen.expect("seen on the server"),
    }
    work
}
