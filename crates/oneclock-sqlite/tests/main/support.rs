//! A database in a folder of its own, statements that take long, and an observer that remembers calls.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::Operation;
use oneclock::events::{Called, Event, Observer};
use oneclock_core::Name;
use oneclock_sqlite::rusqlite::{self, Connection};
use oneclock_sqlite::{Pool, PoolBuilder};

/// Far beyond what anything here takes when it works.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A folder that goes away with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("oneclock-sqlite-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join("test.sqlite")
    }

    /// A pool on its database, with the table `t (i INTEGER PRIMARY KEY, of INTEGER REFERENCES t (i))`.
    pub(crate) fn pool(&self, of: impl FnOnce(PoolBuilder) -> PoolBuilder) -> Pool {
        let pool = of(Pool::builder(self.database())).build().unwrap();
        let table = "CREATE TABLE IF NOT EXISTS t (i INTEGER PRIMARY KEY, of INTEGER REFERENCES t (i))";
        self.outside().execute_batch(table).unwrap();
        pool
    }

    /// A connection of somebody else's.
    pub(crate) fn outside(&self) -> Connection {
        let connection = Connection::open(self.database()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection
    }

    pub(crate) fn rows(&self) -> i64 {
        count(&self.outside())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

pub(crate) fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// Counts to `n` in one statement. Some hundred nanoseconds each.
pub(crate) fn count_to(connection: &Connection, n: i64) -> rusqlite::Result<i64> {
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT count(*) FROM n";
    connection.query_row(sql, [n], |row| row.get(0))
}

/// Far more than ten seconds of counting.
pub(crate) const FOR_EVER: i64 = 10_000_000_000;

/// Remembers what calls came to.
#[derive(Default)]
pub(crate) struct Recorder {
    calls: Mutex<Vec<Called>>,
    others: Mutex<Vec<String>>,
}

impl Observer for Recorder {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Called(called) => self.calls.lock().unwrap().push((*called).clone()),
            other => self.others.lock().unwrap().push(format!("{other:?}")),
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
            let calls = self.calls.lock().unwrap();
            let mut found = calls.iter().filter(|called| called.call == Name::from(name.to_owned())).cloned();
            let first = found.next();
            assert!(found.next().is_none(), "two events for the call {name}");
            first
        })
        .await
    }

    pub(crate) fn others(&self, with: &str) -> usize {
        self.others.lock().unwrap().iter().filter(|other| other.contains(with)).count()
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

/// Until no call has a place in the pool, nor waits for one.
pub(crate) async fn until_idle(pool: &Pool) {
    eventually("an idle pool", || {
        let status = pool.status();
        (status.busy == 0 && status.waiting == 0).then_some(())
    })
    .await;
}

pub(crate) fn operation(budget: Duration) -> Operation {
    Operation::begin("op", budget)
}
