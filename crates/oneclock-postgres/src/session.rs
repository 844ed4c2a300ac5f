//! A borrowed connection: what can be asked of it, and what is known of its call.
//!
//! Decides nothing about ends; each statement is a `Flight`. A statement takes the session for itself until its answer was
//! read, so nothing of one borrower is ever queued behind what it has abandoned.

mod state;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use oneclock::{Call, EndOf, Operation};
use oneclock_core::{Deadline, Name, Outcome, Stage};
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Notification, Row};

use crate::error::PgError;
use crate::flight::Flight;
use crate::link::{Conn, Facts, Held, Query, Statement};
use crate::pool::Shared;
use crate::stream::{CopyIn, CopyOut, Rows};
use crate::transaction::Transaction;

/// A borrowed connection. Its call ends when it is dropped, and the connection goes back then.
///
/// Statements are methods of [`Session`], which a [`Transaction`] has too.
#[derive(Debug)]
pub struct Client(Session);

/// What can be asked of a borrowed connection, in a transaction or not.
///
/// All of it ends with the call: a statement that runs at the deadline is cancelled on the server, and so is one whose
/// future is dropped. The connection goes with it: what is asked afterwards is [`PgError::Gone`], or stopped itself.
pub struct Session {
    pool: Arc<Shared>,
    held: Option<Held>,
    call: Option<Call>, // None once a COMMIT was left to itself, which closes it
    operation: Operation,
    name: Name,
    deadline: Deadline,
    so_far: Outcome,
    open: Option<Open>,
    rollback: Option<Rollback>,
    end: Option<Pin<Box<EndOf>>>, // one timer for all of its statements
}

/// A transaction that is open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open {
    /// A statement of it failed: the server takes nothing but a rollback.
    pub(crate) failed: bool,
    /// Its number, once it has written.
    pub(crate) id: Option<u64>,
    /// Savepoints that are open in it.
    pub(crate) depth: u32,
    /// A statement of the caller's had words that end one: it may be committed in part, and what follows is not inside it.
    pub(crate) may_be_over: bool,
}

/// A rollback that is owed: of a transaction that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rollback {
    All,
    To(u32),
}

/// What a statement of ours does to the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Begin,
    Savepoint,
    Release,
    /// Back to where it was at this depth.
    Back {
        depth: u32,
    },
    RollBack,
}

/// What is sent in front of a statement, in the same breath.
#[derive(Debug, Default)]
pub(crate) struct Before {
    pub(crate) sql: String,
    sets: Option<Duration>,
    rolls_back: Option<Rollback>,
}

// === Open ===

impl Open {
    /// What is known of a transaction that we do not commit, where a rollback makes it `outcome`.
    pub(crate) fn undone(self, outcome: Outcome) -> Outcome {
        if self.may_be_over { Outcome::Unknown { stage: Stage::Wait } } else { outcome }
    }
}

// === Client ===

impl Client {
    pub(crate) fn new(pool: Arc<Shared>, call: Call, held: Held) -> Self {
        Self(Session {
            pool,
            operation: call.operation().clone(),
            name: call.name().clone(),
            deadline: call.deadline(),
            held: Some(held),
            call: Some(call),
            so_far: Outcome::NotSent,
            open: None,
            rollback: None,
            end: None,
        })
    }

    /// Begins a transaction. Dropped without [`commit`](Transaction::commit), it is rolled back.
    ///
    /// # Errors
    /// [`PgError`]; nothing of it happened.
    ///
    /// # Cancel safety
    /// Dropping it rolls back what may have begun, and the connection goes with it.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, PgError> {
        self.begin_with("BEGIN").await
    }

    /// Begins a transaction of this isolation level.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    ///
    /// # Cancel safety
    /// As [`begin`](Self::begin).
    pub async fn begin_isolated(&mut self, level: IsolationLevel) -> Result<Transaction<'_>, PgError> {
        self.begin_with(match level {
            IsolationLevel::ReadUncommitted => "BEGIN ISOLATION LEVEL READ UNCOMMITTED",
            IsolationLevel::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
            IsolationLevel::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ",
            _ => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        })
        .await
    }

    async fn begin_with(&mut self, sql: &str) -> Result<Transaction<'_>, PgError> {
        self.0.control(sql, Change::Begin).await?;
        Ok(Transaction::new(&mut self.0, 0))
    }

    /// Listens to a channel until the connection goes back.
    ///
    /// # Errors
    /// As [`batch_execute`](Session::batch_execute).
    ///
    /// # Cancel safety
    /// As [`batch_execute`](Session::batch_execute).
    pub async fn listen(&mut self, channel: &str) -> Result<(), PgError> {
        self.0.batch_execute(&format!("LISTEN \"{}\"", channel.replace('"', "\"\""))).await
    }

    /// Waits for the next notification of the channels it listens to, as long as the call may take. Of those that nobody takes
    /// the last 1024 are kept.
    ///
    /// # Errors
    /// [`PgError::Stopped`] at the end, [`PgError::Gone`] when the connection broke.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn notification(&mut self) -> Result<Notification, PgError> {
        let session = &mut self.0;
        let (Some(held), Some(call)) = (&session.held, &mut session.call) else { return Err(session.gone()) };
        let inbox = Arc::clone(&held.link.conn.inbox);
        match call.run(inbox.next()).await {
            Ok(Some(notification)) => Ok(notification),
            Ok(None) => Err(session.gone()),
            Err(ended) => Err(PgError::stopped_with(ended, session.so_far)),
        }
    }
}

impl Deref for Client {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0
    }
}

// === Session: what can be asked ===

impl Session {
    /// The moment after which its call's answers are useless.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// All rows of one statement.
    ///
    /// # Errors
    /// [`PgError`]; its [`outcome`](PgError::outcome) says what is known of this statement. A result that is there is
    /// delivered, also when it comes a little late.
    ///
    /// # Cancel safety
    /// Dropping it cancels the statement on the server, and the connection goes with it.
    pub async fn query<'a>(
        &mut self,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        self.statement(sql.into(), |conn, statement| async move { conn.client.query(&statement, params).await }).await
    }

    /// The one row of one statement.
    ///
    /// # Errors
    /// As [`query`](Self::query), and [`PgError::Rows`] if it gives none or more.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_one<'a>(
        &mut self,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, PgError> {
        match self.query_opt(sql, params).await? {
            Some(row) => Ok(row),
            None => Err(self.wrong_rows(0)),
        }
    }

    /// The one row of one statement, or none.
    ///
    /// # Errors
    /// As [`query`](Self::query), and [`PgError::Rows`] if it gives more.
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn query_opt<'a>(
        &mut self,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, PgError> {
        let mut rows = self.query(sql, params).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            n => Err(self.wrong_rows(n)),
        }
    }

    /// Runs one statement. How many rows it touched.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn execute<'a>(
        &mut self,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, PgError> {
        self.statement(sql.into(), |conn, statement| async move { conn.client.execute(&statement, params).await }).await
    }

    /// The rows of one statement as they come. Each wait for one ends with the call.
    ///
    /// # Errors
    /// As [`query`](Self::query), now or by the stream.
    ///
    /// # Cancel safety
    /// Dropping it, or the stream before its end, cancels the statement on the server, and the connection goes with it.
    pub async fn query_raw<'a>(
        &mut self,
        sql: impl Into<Query<'a>>,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Rows<'_>, PgError> {
        let query = sql.into();
        let mut flight = Flight::begin(self, query.facts())?;
        let conn = flight.conn();
        let work = async {
            let statement = conn.prepared(query).await?;
            conn.client.query_raw(&statement, params.iter().copied()).await
        };
        let rows = flight.step(work).await?;
        Ok(Rows::new(flight, rows))
    }

    /// Begins `COPY … FROM STDIN`.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    ///
    /// # Cancel safety
    /// Dropping it, or the copy before [`finish`](CopyIn::finish), takes back what was copied, and the connection goes with it.
    pub async fn copy_in<'a>(&mut self, sql: impl Into<Query<'a>>) -> Result<CopyIn<'_>, PgError> {
        let query = sql.into();
        let mut flight = Flight::begin(self, query.facts())?;
        let conn = flight.conn();
        let work = async {
            let statement = conn.prepared(query).await?;
            conn.client.copy_in::<_, Bytes>(&statement).await
        };
        let sink = flight.step(work).await?;
        Ok(CopyIn::new(flight, sink))
    }

    /// Begins `COPY … TO STDOUT`: its data as it comes. Each wait for it ends with the call.
    ///
    /// # Errors
    /// As [`query`](Self::query), now or by the stream.
    ///
    /// # Cancel safety
    /// As [`query_raw`](Self::query_raw).
    pub async fn copy_out<'a>(&mut self, sql: impl Into<Query<'a>>) -> Result<CopyOut<'_>, PgError> {
        let query = sql.into();
        let mut flight = Flight::begin(self, query.facts())?;
        let conn = flight.conn();
        let work = async {
            let statement = conn.prepared(query).await?;
            conn.client.copy_out(&statement).await
        };
        let stream = flight.step(work).await?;
        Ok(CopyOut::new(flight, stream))
    }

    /// Prepares a statement for this connection; a text that was prepared there before is not prepared again.
    ///
    /// Texts that are given to [`query`](Self::query) and the others are kept in the same way, so this is only for what is
    /// needed from the statement itself.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn prepare(&mut self, sql: &str) -> Result<Statement, PgError> {
        let facts = Facts::of(sql);
        let inner = self.statement(Query::Text(sql), |_, statement| async move { Ok(statement) }).await?;
        Ok(Statement { inner, facts })
    }

    /// Runs statements without parameters, separated by semicolons. They are one transaction, unless they say otherwise.
    ///
    /// # Errors
    /// As [`query`](Self::query). Where some of it may be committed and the rest not, the outcome is
    /// [`Unknown`](Outcome::Unknown).
    ///
    /// # Cancel safety
    /// As [`query`](Self::query).
    pub async fn batch_execute(&mut self, sql: &str) -> Result<(), PgError> {
        let flight = Flight::begin(self, Facts::of(sql))?;
        let conn = flight.conn();
        flight.land(async { conn.client.batch_execute(sql).await }).await
    }

    async fn statement<T, F, Fut>(&mut self, query: Query<'_>, run: F) -> Result<T, PgError>
    where
        F: Fn(Arc<Conn>, tokio_postgres::Statement) -> Fut,
        Fut: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let facts = query.facts();
        // Once only: what ran in part would run again, and a transaction takes nothing after an error.
        let may_repeat = facts.is_atomic && self.open.is_none();
        let asks_for_id = !facts.is_read && self.asks_for_id();
        let flight = Flight::begin(self, facts)?;
        let conn = flight.conn();
        let work = async {
            let statement = conn.prepared(query).await?;
            let running = run(Arc::clone(&conn), statement);
            // With the statement, since after a lost COMMIT it is too late to ask (contract D5).
            let (result, id) =
                if asks_for_id { join(running, conn.transaction_id()).await } else { (running.await, None) };
            match result {
                // Its table has changed since it was prepared. Nothing ran, so it is prepared and sent anew.
                Err(error) if conn.forgets(query, &error) && may_repeat => {
                    let statement = conn.prepared(query).await?;
                    Ok((run(Arc::clone(&conn), statement).await?, None))
                }
                result => result.map(|value| (value, id)),
            }
        };
        let (value, id) = flight.land(work).await?;
        if let (Some(open), Some(id)) = (&mut self.open, id) {
            open.id = Some(id);
        }
        Ok(value)
    }

    /// Runs what begins a transaction or moves in it, and keeps count of where it is.
    pub(crate) async fn control(&mut self, sql: &str, change: Change) -> Result<(), PgError> {
        let mut flight = Flight::begin(self, Facts::CONTROL)?;
        let conn = flight.conn();
        let session = flight.session();
        if change == Change::Begin {
            // Before it is sent: it may begin on the server whatever becomes of this wait.
            session.open = Some(Open::default());
            session.set_in_transaction(true);
        }
        let result = flight.land(async { conn.client.batch_execute(sql).await }).await;
        match (&result, change) {
            (Ok(()), Change::Begin) | (Err(_), Change::Savepoint | Change::Back { .. }) => {}
            (Ok(()), Change::Savepoint) => self.deepen(1),
            (Ok(()), Change::Release) => self.deepen(-1),
            (Ok(()), Change::Back { depth }) => self.is_back_at(depth),
            (Ok(()), Change::RollBack) => {
                self.open = None;
                self.set_in_transaction(false);
            }
            (Err(_), Change::Begin) => self.open = None,
            (Err(_), Change::Release | Change::RollBack) => {}
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.pool.give_back(held, &self.operation);
        }
        if let Some(call) = self.call.take() {
            call.close(self.so_far); // after the connection is back: who sees the event finds it
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("call", &self.call).field("open", &self.open).finish_non_exhaustive()
    }
}
