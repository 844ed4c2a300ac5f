//! What is being done on a connection: a future that owns the connection, so that it can go on when its caller has gone.
//!
//! sqlx's own futures borrow the connection, and dropping one leaves its statement running on the server, with answers
//! that somebody must read. So here nothing is dropped: whoever waits polls the work in place, without a task or a
//! channel, and whoever must end it takes it over and polls on.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use oneclock_core::Deadline;
use oneclock_core::statement::{is_atomic, may_end_transaction};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgQueryResult, PgRow, PgStatement, PgTypeInfo, Postgres};
use sqlx::{Connection as _, Describe, Either, Execute, Executor as _, Row as _, SqlStr};

use crate::conn::{Backend, Conn};
use crate::error::is_usable_after;

/// What to do.
pub(crate) enum Kind {
    Fetch(Statement),
    Prepare(SqlStr, Vec<PgTypeInfo>),
    Describe(SqlStr),
    Begin,
    Commit,
    /// Until the connection is so deep.
    RollBack(usize),
}

/// A statement of sqlx's, with all that belongs to it.
pub(crate) struct Statement {
    sql: SqlStr,
    arguments: Option<PgArguments>,
    prepared: Option<PgStatement>,
    persistent: bool,
}

/// What comes of it, piece by piece.
pub(crate) enum Item {
    Row(PgRow),
    Done(PgQueryResult),
    Prepared(PgStatement),
    Described(Describe<Postgres>),
}

/// One turn of it.
pub(crate) enum Step {
    Item(Item),
    Over(Over),
}

/// Its end: the server is ready, or the connection is lost.
pub(crate) struct Over {
    pub(crate) conn: Conn,
    pub(crate) result: Result<(), Fault>,
    pub(crate) usable: bool,
}

pub(crate) enum Fault {
    /// It was stopped before anything of it was sent.
    NotStarted,
    Sqlx(sqlx::Error),
}

/// Work under way.
pub(crate) struct Work {
    future: Pin<Box<dyn Future<Output = Over> + Send>>,
    hand: Arc<Hand>,
}

/// What the work and its owner tell each other.
pub(crate) struct Hand {
    item: Mutex<Option<Item>>,
    phase: AtomicU8,
    stopping: AtomicBool,
    xact: OnceLock<Xact>, // of a transaction that is being committed, if it has a number
    pub(crate) backend: Backend,
    pub(crate) is_commit: bool,
    pub(crate) in_transaction: bool,
    pub(crate) is_statement: bool,
    pub(crate) is_atomic: bool,
    pub(crate) is_single: bool,
}

/// A transaction that has written something, and where: its number alone may be another's, on another server or after a
/// crash, which takes back what was not yet on disk and gives the same numbers out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Xact {
    pub(crate) number: i64,
    /// The start of its server, in microseconds since 1970.
    pub(crate) server: i64,
    /// A moment at which it was open, by its server's clock.
    pub(crate) open_at: i64,
}

/// Asked before a COMMIT. Also without a number a transaction may do something: `NOTIFY` has none before its COMMIT.
const WHICH: &str = "SELECT txid_current_if_assigned(), (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, \
                     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Nothing of what it is for was sent yet.
const FRESH: u8 = 0;
const SENT: u8 = 1;
const STOPPED: u8 = 2;

// === Statement ===

impl Statement {
    /// Takes a query apart: it is `'static` then, and can outlive its caller.
    pub(crate) fn of<'q>(mut query: impl Execute<'q, Postgres>) -> Result<Self, sqlx::Error> {
        let prepared = query.statement().cloned();
        let arguments = query.take_arguments().map_err(sqlx::Error::Encode)?;
        let persistent = query.persistent();
        Ok(Self { sql: query.sql(), arguments, prepared, persistent })
    }

    /// Whether it is one statement for sure: with arguments the server takes no more.
    fn is_single(&self) -> bool {
        self.arguments.is_some() || !self.sql.as_str().trim_end().trim_end_matches(';').contains(';')
    }

    fn again(&self) -> Self {
        let Self { sql, arguments, prepared, persistent } = self;
        Self { sql: sql.clone(), arguments: arguments.clone(), prepared: prepared.clone(), persistent: *persistent }
    }
}

impl Execute<'static, Postgres> for Statement {
    fn sql(self) -> SqlStr {
        self.sql
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.prepared.as_ref()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        Ok(self.arguments.take())
    }

    fn persistent(&self) -> bool {
        self.persistent
    }
}

// === Work ===

impl Work {
    /// Begins it; nothing happens until it is polled.
    pub(crate) fn begin(mut conn: Conn, kind: Kind, deadline: Deadline) -> Self {
        let (is_atomic, is_single) = match &kind {
            Kind::Fetch(statement) => {
                if may_end_transaction(statement.sql.as_str()) {
                    conn.may_end_transaction();
                }
                (is_atomic(statement.sql.as_str()), statement.is_single())
            }
            Kind::Prepare(..) | Kind::Describe(..) | Kind::Begin | Kind::Commit | Kind::RollBack(_) => (true, true),
        };
        let hand = Arc::new(Hand {
            item: Mutex::new(None),
            phase: AtomicU8::new(FRESH),
            stopping: AtomicBool::new(false),
            xact: OnceLock::new(),
            backend: conn.backend,
            is_commit: matches!(kind, Kind::Commit) && conn.depth() == 1,
            in_transaction: conn.in_transaction(),
            is_statement: matches!(kind, Kind::Fetch(_)),
            is_atomic,
            is_single,
        });
        let theirs = Arc::clone(&hand);
        let future = Box::pin(async move {
            let result = perform(&mut conn, kind, deadline, &theirs).await;
            let usable = match &result {
                Ok(()) | Err(Fault::NotStarted) => true,
                // An error is not yet the end of the answer.
                Err(Fault::Sqlx(error)) => is_usable_after(error) && conn.raw.ping().await.is_ok(),
            };
            Over { conn, result, usable }
        });
        Self { future, hand }
    }

    pub(crate) fn hand(&self) -> &Arc<Hand> {
        &self.hand
    }

    /// The next piece, or the end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if let Poll::Ready(over) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Step::Over(over));
        }
        match self.hand.item().take() {
            Some(item) => Poll::Ready(Step::Item(item)),
            None => Poll::Pending,
        }
    }

    /// Its end; what it gives until then is of no use to anybody.
    pub(crate) async fn run_out(&mut self) -> Over {
        poll_fn(|cx| {
            // Not for ever in one turn: a server can be faster than we are.
            for _ in 0..64 {
                match self.poll(cx) {
                    Poll::Ready(Step::Over(over)) => return Poll::Ready(over),
                    Poll::Ready(Step::Item(_)) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

async fn perform(conn: &mut Conn, kind: Kind, deadline: Deadline, hand: &Hand) -> Result<(), Fault> {
    match kind {
        Kind::Fetch(statement) => {
            prepare_server(conn, deadline, hand).await?;
            conn.will_run(statement.sql.as_str());
            fetch(conn, statement, hand).await
        }
        Kind::Prepare(sql, types) => {
            prepare_server(conn, deadline, hand).await?;
            let prepared = (&mut conn.raw).prepare_with(sql, &types).await?;
            hand.give(Item::Prepared(prepared)).await;
            Ok(())
        }
        Kind::Describe(sql) => {
            prepare_server(conn, deadline, hand).await?;
            let described = (&mut conn.raw).describe(sql).await?;
            hand.give(Item::Described(described)).await;
            Ok(())
        }
        Kind::Begin => {
            prepare_server(conn, deadline, hand).await?;
            Ok(conn.begin().await?)
        }
        Kind::Commit => {
            if hand.is_commit {
                // By itself and first: an answer that is lost together with that of COMMIT tells nothing.
                let asked = sqlx::raw_sql(WHICH).fetch_one(&mut conn.raw).await?;
                if let Some(number) = asked.try_get(0)? {
                    let xact = Xact { number, server: asked.try_get(1)?, open_at: asked.try_get(2)? };
                    hand.xact.get_or_init(|| xact);
                }
            }
            hand.sends()?;
            Ok(conn.commit().await?)
        }
        Kind::RollBack(depth) => {
            hand.sends()?;
            Ok(conn.roll_back_to(depth).await?)
        }
    }
}

async fn prepare_server(conn: &mut Conn, deadline: Deadline, hand: &Hand) -> Result<(), Fault> {
    conn.bound(deadline.remaining(oneclock::clock::now())).await?;
    hand.sends()
}

async fn fetch(conn: &mut Conn, statement: Statement, hand: &Hand) -> Result<(), Fault> {
    // A plan that sqlx keeps and whose tables have changed is refused before it is run, once; then it is planned anew.
    // Inside a transaction the refusal has ended that.
    let again = (conn.depth() == 0 && statement.persistent && statement.arguments.is_some()).then(|| statement.again());
    match rows(conn, statement, hand).await {
        Err(error) if is_stale(&error) => {
            conn.raw.ping().await?;
            conn.raw.clear_cached_statements().await?;
            match again {
                Some(_) if hand.stopping.load(Ordering::Acquire) => Err(Fault::NotStarted),
                Some(mut again) => {
                    again.prepared = None; // its columns are those of before
                    Ok(rows(conn, again, hand).await?)
                }
                None => Err(error.into()),
            }
        }
        result => Ok(result?),
    }
}

async fn rows(conn: &mut Conn, statement: Statement, hand: &Hand) -> Result<(), sqlx::Error> {
    let mut rows = (&mut conn.raw).fetch_many(statement);
    while let Some(next) = rows.next().await {
        hand.give(match next? {
            Either::Left(done) => Item::Done(done),
            Either::Right(row) => Item::Row(row),
        })
        .await;
    }
    Ok(())
}

fn is_stale(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>());
    error.is_some_and(|error| match error.code() {
        // Told by the place in the server's code, which is not translated: the code says only "not supported".
        "0A000" => error.routine() == Some("RevalidateCachedQuery"),
        "26000" => true, // somebody said DEALLOCATE
        _ => false,
    })
}

// === Hand ===

impl Hand {
    fn item(&self) -> MutexGuard<'_, Option<Item>> {
        self.item.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a piece over, and goes on when it was taken and the next is wanted.
    async fn give(&self, item: Item) {
        *self.item() = Some(item);
        poll_fn(|_| if self.item().is_some() { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    /// From here on it may have happened; an error if it was stopped before.
    fn sends(&self) -> Result<(), Fault> {
        let sent = self.phase.compare_exchange(FRESH, SENT, Ordering::AcqRel, Ordering::Acquire);
        if sent.is_ok() { Ok(()) } else { Err(Fault::NotStarted) }
    }

    /// Stops it. True is proof that what it is for will not be sent.
    pub(crate) fn stop(&self) -> bool {
        self.stopping.store(true, Ordering::Release);
        match self.phase.compare_exchange(FRESH, STOPPED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(STOPPED) => true,
            Err(_) => false,
        }
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.phase.load(Ordering::Acquire) == SENT
    }

    /// The transaction that is being committed, if it has written anything.
    pub(crate) fn xact(&self) -> Option<Xact> {
        self.xact.get().copied()
    }
}

// === Fault ===

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Self::Sqlx(error)
    }
}
