//! What sqlx's own functions take: a guard, a transaction and a pool, as executors.
//!
//! Decides nothing; `turn` does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, TryFutureExt as _, TryStreamExt as _, stream};
use oneclock::Operation;
use oneclock_core::{Deadline, Name};
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo, Postgres};
use sqlx::{Describe, Either, Execute, Executor, SqlStr};

use crate::error::SqlxError;
use crate::pool::Pool;
use crate::session::Session;
use crate::transaction::Transaction;
use crate::turn::Turn;
use crate::work::{Item, Kind, Statement};

/// What `&Pool` calls its statements.
const STATEMENT: Name = Name::literal("statement");

/// A connection that is lent to one call. `&mut guard` is an [`Executor`].
///
/// All that is done with it ends at the call's deadline or when it is dropped, whichever comes first: what is running is
/// cancelled, what is open is rolled back, and the connection goes back when it is clean.
///
/// A stream that is dropped before its end is cancelled; inside a transaction the rest of it is read when the connection is
/// used next, since a cancel would end the transaction too.
///
/// ```no_run
/// # async fn f(pool: oneclock_sqlx::Pool) -> Result<(), oneclock_sqlx::SqlxError> {
/// let mut guard = pool.get("report").await?;
/// sqlx::query("SET work_mem = '64MB'").execute(&mut guard).await?;
/// let rows = sqlx::query("SELECT 1").fetch_all(&mut guard).await?;
/// # Ok(()) }
/// ```
#[must_use = "dropping the guard gives the connection back"]
pub struct Guard {
    session: Arc<Session>,
}

/// An executor for one statement: takes a connection, runs it, gives the connection back. Made by [`Pool::named`].
#[must_use = "an executor does nothing by itself"]
#[derive(Debug)]
pub struct Named {
    pool: Pool,
    name: Name,
    operation: Option<Operation>,
}

// === Guard ===

impl Guard {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Begins a transaction. See [`Transaction`].
    ///
    /// # Errors
    /// [`SqlxError`]; nothing was done.
    ///
    /// # Cancel safety
    /// What was begun is rolled back.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, SqlxError> {
        Transaction::start(Arc::clone(&self.session)).await
    }

    /// The moment at which all of it ends.
    pub fn deadline(&self) -> Deadline {
        self.session.deadline()
    }

    /// What is left until then.
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining(oneclock::clock::now())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.session.leave();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("operation", self.session.operation().name())
            .field("call", self.session.name())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

// === Named ===

impl Named {
    pub(crate) fn new(pool: Pool, name: Name, operation: Option<Operation>) -> Self {
        Self { pool, name, operation }
    }

    async fn guard(self) -> Result<Guard, sqlx::Error> {
        let operation = match self.operation {
            Some(operation) => operation,
            None => self.pool.operation(&self.name)?,
        };
        Ok(self.pool.get_in(&operation, self.name).await?)
    }
}

// === Executor ===

/// What the executors have in common.
pub(crate) fn fetch_many<'e>(
    session: &Arc<Session>,
    statement: Result<Statement, sqlx::Error>,
) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>> {
    match statement {
        Err(error) => Box::pin(stream::once(std::future::ready(Err(error)))),
        Ok(statement) => {
            Box::pin(Turn::new(session, Kind::Fetch(statement)).into_stream().try_filter_map(async |item| {
                Ok(match item {
                    Item::Done(done) => Some(Either::Left(done)),
                    Item::Row(row) => Some(Either::Right(row)),
                    Item::Prepared(_) | Item::Described(_) => None,
                })
            }))
        }
    }
}

/// The first row, and all the rest is read: an error may come after it.
pub(crate) async fn first_row(
    mut steps: BoxStream<'_, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>,
) -> Result<Option<PgRow>, sqlx::Error> {
    let mut first = None;
    while let Some(step) = steps.try_next().await? {
        if let (Either::Right(row), None) = (step, &first) {
            first = Some(row);
        }
    }
    Ok(first)
}

pub(crate) async fn prepare(
    session: Arc<Session>,
    sql: SqlStr,
    types: Vec<PgTypeInfo>,
) -> Result<PgStatement, sqlx::Error> {
    let mut items = Turn::new(&session, Kind::Prepare(sql, types)).into_stream();
    let mut prepared = None;
    while let Some(item) = items.try_next().await? {
        if let Item::Prepared(statement) = item {
            prepared = Some(statement);
        }
    }
    prepared.ok_or(sqlx::Error::WorkerCrashed)
}

pub(crate) async fn describe(session: Arc<Session>, sql: SqlStr) -> Result<Describe<Postgres>, sqlx::Error> {
    let mut items = Turn::new(&session, Kind::Describe(sql)).into_stream();
    let mut described = None;
    while let Some(item) = items.try_next().await? {
        if let Item::Described(describe) = item {
            described = Some(describe);
        }
    }
    described.ok_or(sqlx::Error::WorkerCrashed)
}

/// The two that have a session already.
macro_rules! executor_of_a_session {
    ($executor:ty) => {
        impl<'c> Executor<'c> for &'c mut $executor {
            type Database = Postgres;

            fn fetch_many<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, Postgres>,
            {
                $crate::guard::fetch_many(self.session(), Statement::of(query))
            }

            fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, Postgres>,
            {
                Box::pin($crate::guard::first_row(self.fetch_many(query)))
            }

            fn prepare_with<'e>(
                self,
                sql: SqlStr,
                parameters: &'e [PgTypeInfo],
            ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
            where
                'c: 'e,
            {
                Box::pin($crate::guard::prepare(Arc::clone(self.session()), sql, parameters.to_vec()))
            }

            fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
            where
                'c: 'e,
            {
                Box::pin($crate::guard::describe(Arc::clone(self.session()), sql))
            }
        }
    };
}

executor_of_a_session!(Guard);
executor_of_a_session!(Transaction<'_>);

impl<'c> Executor<'c> for Named {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let statement = Statement::of(query);
        let begun = async move {
            let guard = self.guard().await?;
            let steps = fetch_many(guard.session(), statement);
            // The guard goes with the stream, whichever way.
            Ok(steps.inspect(move |_| {
                let _ = &guard;
            }))
        };
        Box::pin(begun.try_flatten_stream())
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(first_row(self.fetch_many(query)))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        Box::pin(async move { (&mut self.guard().await?).prepare_with(sql, parameters).await })
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        Box::pin(async move { (&mut self.guard().await?).describe(sql).await })
    }
}

/// As [`Named`], under the name `statement`.
impl<'p> Executor<'p> for &'p Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.named(STATEMENT).fetch_many(query)
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.named(STATEMENT).fetch_optional(query)
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'p: 'e,
    {
        self.named(STATEMENT).prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'p: 'e,
    {
        self.named(STATEMENT).describe(sql)
    }
}
