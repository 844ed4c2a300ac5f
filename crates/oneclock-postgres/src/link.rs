//! One connection of the pool, and what must be done before it may be lent again.
//!
//! Decides the bound in force, which statements are kept prepared, and how a connection is made whole (contract D2, D7).

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use oneclock_core::statement::{Leftovers, XactStatus, is_atomic, is_read, leftovers, may_end_transaction};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, SimpleQueryMessage};

use crate::connect::{Fresh, Peer, SERVER};
use crate::notifications::Inbox;

/// What a session is set back to. In one message, so one implicit transaction.
const RESET: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); \
                     DISCARD SEQUENCES; DISCARD TEMP";

/// What is called with a statement: its text, or the statement prepared from it.
///
/// A text is prepared once for each connection, and kept. Made from `&str`, `&String` and `&Statement`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Query<'a> {
    /// Its text.
    Text(&'a str),
    /// Prepared by [`Session::prepare`](crate::Session::prepare), on the connection that it is used on.
    Prepared(&'a Statement),
}

/// A prepared statement. It belongs to the connection that prepared it.
#[derive(Clone)]
pub struct Statement {
    pub(crate) inner: tokio_postgres::Statement,
    pub(crate) facts: Facts,
}

/// What is known of a statement from its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) is_atomic: bool,
    pub(crate) is_read: bool,
    pub(crate) leftovers: Leftovers,
    pub(crate) may_end_transaction: bool,
}

/// What a statement passes between what prepares it and what runs it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_shut: AtomicBool,
    /// Somebody is on his way to it.
    is_awaited: AtomicBool,
}

/// One session with the server, shared by whoever waits for an answer and whoever ends it.
pub(crate) struct Conn {
    pub(crate) client: ClientWrapper,
    pub(crate) cancel: CancelToken,
    pub(crate) peer: Peer,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) knows_transactions: bool,
    /// What its server calls itself, as long as it has lost nothing, once it has answered.
    pub(crate) server: Arc<OnceLock<String>>,
    pub(crate) gate: Gate,
    statements_kept: usize,
    open: Arc<AtomicUsize>,
}

/// A session and what is known of its state.
pub(crate) struct Link {
    pub(crate) conn: Arc<Conn>,
    /// The bound on the server that we set; `None` is not known.
    pub(crate) in_force: Option<Duration>,
    pub(crate) leftovers: Leftovers,
    pub(crate) in_transaction: bool,
}

/// A connection that is lent: with its place in the pool, and where its tasks run.
pub(crate) struct Held {
    pub(crate) link: Link,
    pub(crate) runtime: Handle,
    pub(crate) place: OwnedSemaphorePermit,
}

// === Query ===

impl Query<'_> {
    pub(crate) fn facts(&self) -> Facts {
        match self {
            Self::Text(sql) => Facts::of(sql),
            Self::Prepared(statement) => statement.facts,
        }
    }
}

impl<'a> From<&'a str> for Query<'a> {
    fn from(sql: &'a str) -> Self {
        Self::Text(sql)
    }
}

impl<'a> From<&'a String> for Query<'a> {
    fn from(sql: &'a String) -> Self {
        Self::Text(sql)
    }
}

impl<'a> From<&'a Statement> for Query<'a> {
    fn from(statement: &'a Statement) -> Self {
        Self::Prepared(statement)
    }
}

// === Statement ===

impl Statement {
    /// The types of its parameters.
    pub fn params(&self) -> &[tokio_postgres::types::Type] {
        self.inner.params()
    }

    /// Its columns.
    pub fn columns(&self) -> &[tokio_postgres::Column] {
        self.inner.columns()
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement").field("params", &self.params()).finish_non_exhaustive()
    }
}

impl Facts {
    /// Of what we send ourselves to begin and end transactions, and keep count of.
    pub(crate) const CONTROL: Self =
        Self { is_atomic: true, is_read: true, leftovers: Leftovers::Nothing, may_end_transaction: false };

    pub(crate) fn of(sql: &str) -> Self {
        Self {
            is_atomic: is_atomic(sql),
            is_read: is_read(sql),
            leftovers: leftovers(sql),
            may_end_transaction: may_end_transaction(sql),
        }
    }
}

// === Gate ===

impl Gate {
    /// Before each statement.
    pub(crate) fn open(&self) {
        self.is_shut.store(false, Ordering::Relaxed);
        self.is_awaited.store(false, Ordering::Relaxed);
    }

    /// At its end: nothing passes any more (contract X6). Whether that proves that the statement was not run.
    pub(crate) fn shut(&self) -> bool {
        self.is_shut.store(true, Ordering::Relaxed);
        self.is_awaited.load(Ordering::Relaxed)
    }

    async fn pass(&self) {
        if self.is_shut.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
        self.is_awaited.store(false, Ordering::Relaxed);
    }
}

// === Conn ===

impl Conn {
    pub(crate) fn new(fresh: Fresh, open: &Arc<AtomicUsize>, statements_kept: usize) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        let cancel = fresh.client.cancel_token();
        let Fresh { client, peer, inbox, knows_transactions, server } = fresh;
        let (gate, open) = (Gate::default(), Arc::clone(open));
        Self { client, cancel, peer, inbox, knows_transactions, server, gate, statements_kept, open }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// The statement of `query`, prepared now if it is not kept.
    async fn statement(&self, query: Query<'_>) -> Result<tokio_postgres::Statement, tokio_postgres::Error> {
        match query {
            Query::Prepared(statement) => Ok(statement.inner.clone()),
            Query::Text(sql) => {
                let kept = &self.client.statement_cache;
                if kept.size() > self.statements_kept {
                    kept.clear(); // texts without an end: parameters written into them
                }
                self.client.prepare_cached(sql).await
            }
        }
    }

    /// The same, to be run at once: comes to no end if its call has come to its own meanwhile.
    pub(crate) async fn prepared(&self, query: Query<'_>) -> Result<tokio_postgres::Statement, tokio_postgres::Error> {
        self.gate.is_awaited.store(true, Ordering::Relaxed);
        let statement = self.statement(query).await?;
        self.gate.pass().await;
        Ok(statement)
    }

    /// Forgets a kept statement that the server would not run any more. True if there was one.
    pub(crate) fn forgets(&self, query: Query<'_>, error: &tokio_postgres::Error) -> bool {
        let Query::Text(sql) = query else { return false };
        let is_stale = error.code().is_some_and(|code| {
            *code == SqlState::FEATURE_NOT_SUPPORTED || *code == SqlState::INVALID_SQL_STATEMENT_NAME
        });
        is_stale && self.client.statement_cache.remove(sql, &[]).is_some()
    }

    /// The number of the open transaction, if it has one: the first write gives it.
    pub(crate) async fn transaction_id(&self) -> Option<u64> {
        let answer = self.client.simple_query("SELECT pg_current_xact_id_if_assigned()::text").await.ok()?;
        first_value(&answer)?.parse().ok()
    }

    /// What the server says about a transaction of the one that calls itself `ours`.
    pub(crate) async fn ask_about(&self, transaction: u64, ours: &str) -> Result<XactStatus, tokio_postgres::Error> {
        let sql = format!("SELECT {SERVER}, pg_xact_status('{transaction}'::xid8)");
        let answer = self.client.simple_query(&sql).await?;
        let asked = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) if row.len() > 1 => row.get(row.len() - 2),
            _ => None,
        });
        Ok(XactStatus::from_answer(first_value(&answer)).told_by(asked, ours))
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The last column of the first row.
pub(crate) fn first_value(answer: &[SimpleQueryMessage]) -> Option<&str> {
    answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(row.len().checked_sub(1)?),
        _ => None,
    })
}

// === Link ===

impl Link {
    pub(crate) fn new(conn: Conn) -> Self {
        Self { conn: Arc::new(conn), in_force: None, leftovers: Leftovers::Nothing, in_transaction: false }
    }

    /// Whether it may be lent as it is.
    pub(crate) fn is_clean(&self) -> bool {
        self.leftovers == Leftovers::Nothing && !self.in_transaction
    }

    /// It must not be lent again.
    pub(crate) fn doom(&mut self) {
        self.leftovers = Leftovers::Statements;
    }

    /// Makes it whole. False if it must be closed.
    pub(crate) async fn clean(&mut self) -> bool {
        let rollback = self.in_transaction || self.leftovers >= Leftovers::Transaction;
        let sql = match (rollback, self.leftovers) {
            (_, Leftovers::Statements) => return false,
            (true, Leftovers::Nothing) => "ROLLBACK".to_owned(),
            (true, _) => format!("ROLLBACK; {RESET}"),
            (false, _) => RESET.to_owned(),
        };
        let is_clean = self.conn.client.batch_execute(&sql).await.is_ok();
        self.conn.inbox.clear();
        *self =
            Self { conn: Arc::clone(&self.conn), in_force: None, leftovers: Leftovers::Nothing, in_transaction: false };
        is_clean
    }
}
