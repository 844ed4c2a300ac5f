//! One connection: what the server was told on it, what a borrower may have left on it, and how that is taken away.
//!
//! Decides when a connection needs cleaning before it may be lent again (contract D7).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock_core::statement::{Leftovers, backstop, leftovers, must_replace};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::code_of;

/// How much later than our own cut the server's bound comes. Wide, so that budgets of about the same size need no new one:
/// sqlx cannot send it in front of a statement without a round trip of its own.
pub(crate) const SLACK: Duration = Duration::from_secs(1);

/// How long a connection may take to say that it is still there.
pub(crate) const STILL_THERE: Duration = Duration::from_secs(1);

/// What `DISCARD ALL` does, but for the prepared statements, which sqlx remembers, and in one message.
const AS_NEW: &str = "RESET SESSION AUTHORIZATION; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); \
                      DISCARD TEMP; DISCARD SEQUENCES";

/// A connection, from its opening to its close. Dropping it closes it.
pub(crate) struct Conn {
    pub(crate) raw: PgConnection,
    pub(crate) backend: Backend,
    /// Its place in the pool, while it is lent.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    depth: usize,
    ended_in_sql: bool, // the transaction that it is in may have been ended by a statement of its borrower's
    in_force: Option<Duration>, // the statement_timeout of its session, where known
    left: Leftovers,
    _counted: Counted,
}

/// The backend that serves a connection. Its number alone may be somebody else's: on another server, which the same name
/// leads to after a failover, or on this one after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) pid: i32,
    pub(crate) started: i64, // as `STARTED` has it
}

/// When a backend of `pg_stat_activity` started, as a number that no setting changes: microseconds since 1970.
pub(crate) const STARTED: &str = "(extract(epoch FROM backend_start) * 1000000)::bigint";

/// One of the open connections, for as long as it lives.
pub(crate) struct Counted(Arc<AtomicUsize>);

// === Conn ===

impl Conn {
    /// Opens one.
    pub(crate) async fn open(
        options: &PgConnectOptions,
        permit: Option<OwnedSemaphorePermit>,
        counted: Counted,
    ) -> Result<Self, sqlx::Error> {
        let mut raw = options.connect().await?;
        let backend = Backend::of(&mut raw).await?;
        Ok(Self {
            raw,
            backend,
            permit,
            depth: 0,
            ended_in_sql: false,
            in_force: None,
            left: Leftovers::Nothing,
            _counted: counted,
        })
    }

    /// How deep in transactions it is, savepoints included.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether it is in a transaction for sure, so that what fails there is taken back.
    pub(crate) fn in_transaction(&self) -> bool {
        self.depth > 0 && !self.ended_in_sql
    }

    /// A statement is about to run on it that may end the transaction that it is in.
    pub(crate) fn may_end_transaction(&mut self) {
        self.ended_in_sql = self.depth > 0;
    }

    /// Whether it may be lent again as it is.
    pub(crate) fn is_clean(&self) -> bool {
        self.left == Leftovers::Nothing && self.depth == 0
    }

    /// The bound that the server is known to have for its statements.
    pub(crate) fn in_force(&self) -> Option<Duration> {
        self.in_force
    }

    /// A statement is about to run on it that may leave something behind.
    pub(crate) fn will_run(&mut self, sql: &str) {
        self.left = self.left.max(leftovers(sql));
    }

    /// Gives the server its bound, if the one in force does not fit (contract D1, D2). Inside a transaction it has one
    /// already: a rollback would take back a new one, and a failed transaction refuses it.
    pub(crate) async fn bound(&mut self, remaining: Duration) -> Result<(), sqlx::Error> {
        if self.depth > 0 || self.left != Leftovers::Nothing || !must_replace(self.in_force, remaining, SLACK) {
            return Ok(());
        }
        let bound = backstop(remaining, SLACK);
        self.in_force = None; // until it is answered
        self.say(format!("SET statement_timeout = {}", bound.as_millis())).await?;
        self.in_force = Some(bound);
        Ok(())
    }

    /// Begins a transaction, or a savepoint in one.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        if self.depth == 0 {
            self.ended_in_sql = false;
        }
        let sql = if self.depth == 0 { "BEGIN".to_owned() } else { format!("SAVEPOINT oneclock_{}", self.depth) };
        self.depth += 1; // before it is answered: a rollback too many does no harm
        let begun = self.say(sql).await;
        if begun.is_err() {
            self.depth -= 1;
        }
        begun
    }

    /// Commits the innermost transaction: COMMIT, or the release of a savepoint.
    pub(crate) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        let sql = match self.depth {
            0 => return Ok(()),
            1 => "COMMIT".to_owned(),
            depth => format!("RELEASE SAVEPOINT oneclock_{}", depth - 1),
        };
        self.say(sql).await?;
        self.depth -= 1;
        Ok(())
    }

    /// Rolls back until it is `depth` deep.
    pub(crate) async fn roll_back_to(&mut self, depth: usize) -> Result<(), sqlx::Error> {
        if depth >= self.depth {
            return Ok(());
        }
        let sql = match depth {
            0 => "ROLLBACK".to_owned(),
            // A savepoint is still there after the rollback to it.
            _ => format!("ROLLBACK TO SAVEPOINT oneclock_{depth}; RELEASE SAVEPOINT oneclock_{depth}"),
        };
        self.say(sql).await?;
        self.depth = depth;
        Ok(())
    }

    async fn say(&mut self, sql: String) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.raw).await.map(drop)
    }

    /// Whether the server still answers on it.
    pub(crate) async fn is_there(&mut self) -> bool {
        matches!(tokio::time::timeout(STILL_THERE, self.raw.ping()).await, Ok(Ok(())))
    }

    /// Makes it as good as new, or says that it is not.
    pub(crate) async fn clean(&mut self) -> bool {
        self.cleaned().await.unwrap_or(false)
    }

    async fn cleaned(&mut self) -> Result<bool, sqlx::Error> {
        self.roll_back_to(0).await?;
        match self.left {
            Leftovers::Nothing => return Ok(true),
            // sqlx believes to know what is prepared there.
            Leftovers::Statements => return Ok(false),
            Leftovers::Session | Leftovers::Transaction => {}
        }
        if self.is_in_a_transaction().await? {
            sqlx::raw_sql("ROLLBACK").execute(&mut self.raw).await?;
        }
        self.in_force = None;
        sqlx::raw_sql(AS_NEW).execute(&mut self.raw).await?;
        self.left = Leftovers::Nothing;
        Ok(true)
    }

    /// Whether a transaction is open that was begun in SQL: then it began before this statement did.
    async fn is_in_a_transaction(&mut self) -> Result<bool, sqlx::Error> {
        let asked = sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(&mut self.raw).await;
        match asked {
            Ok(row) => Ok(!row.try_get::<bool, _>(0)?),
            Err(error) if code_of(&error) == Some("25P02") => Ok(true), // a failed one
            Err(error) => Err(error),
        }
    }
}

// === Backend ===

impl Backend {
    /// As the connection says itself.
    async fn of(raw: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let sql = format!("SELECT pid, {STARTED} FROM pg_stat_activity WHERE pid = pg_backend_pid()");
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(raw).await?;
        Ok(Self { pid: row.try_get(0)?, started: row.try_get(1)? })
    }
}

/// The number of the backend of a connection, as it says itself.
pub(crate) async fn backend(raw: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(raw).await?.try_get(0)
}

// === Counted ===

impl Counted {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
