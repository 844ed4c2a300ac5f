//! Readiness: whether the live server keeps what the pool promises.
//!
//! Decides by trying: two sessions of its own look for a transaction pooler (contract D8), and a statement of the pool must
//! be cut off at its budget and leave its connection usable.

use std::fmt;
use std::time::Duration;

use oneclock::{Operation, Stopped, clock};
use oneclock_core::Outcome;
use oneclock_core::statement::{SessionsSeen, pooler_sign};
use tokio_postgres::Client;

use crate::error::{ConnectError, PgError};
use crate::link::first_value;
use crate::pool::Pool;

/// How long the whole test may take.
const BUDGET: Duration = Duration::from_secs(10);

/// The budget of the statement that must be cut off, and how long it would run.
const CUT_AT: Duration = Duration::from_millis(100);
const WOULD_RUN: u32 = 30;

/// What a [self-test](Pool::self_test) found: the server keeps what the pool promises.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SelfTest {
    /// The budget of the statement that was cut off.
    pub budget: Duration,
    /// After how long its caller was told.
    pub told_after: Duration,
    /// After how long its backend was idle again, as the server says.
    pub idle_after: Duration,
}

/// A pool does not keep what it promises.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestFailed {
    /// No session, or a statement failed. [`PgError::Pooler`] is one of these: the pool refuses its calls from then on.
    #[error("the self-test could not be done")]
    Postgres(#[from] PgError),
    /// The two sessions that look for a pooler could not be opened or used.
    #[error("the self-test could not look for a pooler")]
    Sessions(#[source] ConnectError),
    /// The statement was not cut off: it came back with a result.
    #[error("a statement with a budget of {budget:?} was not cut off")]
    NotCutOff {
        /// Its budget.
        budget: Duration,
    },
    /// Its connection was not idle again on the server in time.
    #[error("the backend of a statement that was cut off was {state} after {waited:?}, and not idle")]
    NotUsable {
        /// What the server says of it; `gone` if it is not there any more.
        state: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// It took longer than it may.
    #[error("the self-test took longer than {0:?}")]
    TookTooLong(Duration),
}

impl Pool {
    /// Proves against the live server that a statement is cut off at its budget, that its connection stays usable, and that
    /// no transaction pooler stands in between. For start-up, before a service says that it is ready: it takes some 150 ms, two
    /// sessions more than the pool has, and a place of the pool, and sends events of its own (a call that was cut off) to
    /// observers.
    ///
    /// When a transaction pooler is found, the pool refuses all its calls from then on: there a bound that is set for one
    /// borrower reaches others, and a cancel may hit anybody (contract D8).
    ///
    /// ```no_run
    /// # async fn ready(pool: &oneclock_postgres::Pool) -> Result<(), oneclock_postgres::SelfTestFailed> {
    /// let found = pool.self_test().await?;
    /// println!("cut off after {:?} of {:?}", found.told_after, found.budget);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SelfTestFailed`], which names what is not kept.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing running.
    pub async fn self_test(&self) -> Result<SelfTest, SelfTestFailed> {
        let operation = Operation::begin("self-test", BUDGET);
        match operation.run(self.test(&operation)).await {
            Ok(result) => result,
            Err(_) => Err(SelfTestFailed::TookTooLong(BUDGET)),
        }
    }

    async fn test(&self, operation: &Operation) -> Result<SelfTest, SelfTestFailed> {
        let shared = self.shared();
        let first = shared.aside().await.map_err(SelfTestFailed::Sessions)?;
        let second = shared.aside().await.map_err(SelfTestFailed::Sessions)?;
        look_for_a_pooler(self, &first.client, &second.client)
            .await
            .map_err(|error| SelfTestFailed::Sessions(error.into()))?;
        if let Some(sign) = shared.pooler.get() {
            return Err(PgError::Pooler { sign: *sign }.into());
        }
        let began = clock::now();
        let cut = operation
            .grant("self-test statement")
            .cap(CUT_AT)
            .operation()
            .map_err(|error| PgError::stopped(Stopped::NotBegun(error)))?;
        let mut client = self.get_in(&cut, "self-test").await?;
        let backend: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
        match client.batch_execute(&format!("SELECT pg_sleep({WOULD_RUN})")).await {
            Err(PgError::Stopped { .. }) => {}
            Err(other) => return Err(other.into()),
            Ok(()) => return Err(SelfTestFailed::NotCutOff { budget: CUT_AT }),
        }
        drop(client);
        let told_after = clock::now().since(began);
        let grace = shared.grace;
        loop {
            let state =
                state_of(&first.client, backend).await.map_err(|error| SelfTestFailed::Sessions(error.into()))?;
            let waited = clock::now().since(began);
            if state == "idle" {
                return Ok(SelfTest { budget: CUT_AT, told_after, idle_after: waited });
            }
            if waited > CUT_AT + grace || state == "gone" {
                return Err(SelfTestFailed::NotUsable { state, waited });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Notes a pooler that stands in between.
async fn look_for_a_pooler(pool: &Pool, first: &Client, second: &Client) -> Result<(), tokio_postgres::Error> {
    const MARK: &str = "SELECT set_config('oneclock.self_test', 'here', false), pg_backend_pid()";
    const LOOK: &str = "SELECT coalesce(current_setting('oneclock.self_test', true), ''), pg_backend_pid()";
    let mut ones = vec![backend(&first.simple_query(MARK).await?)];
    // Inside a transaction a pooler cannot take the backend away, so the first session's next statements get another.
    second.batch_execute("BEGIN").await?;
    let answer = second.simple_query(LOOK).await?;
    let setting_leaked = column(&answer, 0) == Some("here");
    let mut others = vec![backend(&answer), backend(&second.simple_query(LOOK).await?)];
    let mut setting_lost = false;
    for _ in 0..3 {
        let answer = first.simple_query(LOOK).await?;
        ones.push(backend(&answer));
        setting_lost |= column(&answer, 0) != Some("here");
    }
    second.batch_execute("ROLLBACK").await?;
    // A pooler with two warm backends gave one to each so far. One that takes turns now gives two statements in a row
    // different ones; one that takes the latest gives both sessions the same.
    for session in [second, first, first, second, second] {
        let answer = session.simple_query(LOOK).await?;
        if std::ptr::eq(session, first) {
            ones.push(backend(&answer));
            setting_lost |= column(&answer, 0) != Some("here");
        } else {
            others.push(backend(&answer));
        }
    }
    if let Some(sign) = pooler_sign(SessionsSeen { first: &ones, second: &others, setting_leaked, setting_lost }) {
        let _ = pool.shared().pooler.set(sign); // once found, it stays found
    }
    Ok(())
}

/// What the server says of a backend.
async fn state_of(client: &Client, backend: i32) -> Result<String, tokio_postgres::Error> {
    let sql = format!("SELECT state FROM pg_stat_activity WHERE pid = {backend}");
    Ok(first_value(&client.simple_query(&sql).await?).unwrap_or("gone").to_owned())
}

fn backend(answer: &[tokio_postgres::SimpleQueryMessage]) -> i32 {
    first_value(answer).and_then(|pid| pid.parse().ok()).unwrap_or_default()
}

fn column(answer: &[tokio_postgres::SimpleQueryMessage], index: usize) -> Option<&str> {
    answer.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(index),
        _ => None,
    })
}

// === SelfTestFailed ===

impl SelfTestFailed {
    /// What is known of the database: a self-test changes nothing.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Postgres(error) => error.outcome(),
            _ => Outcome::NotSent,
        }
    }
}

impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, told_after, idle_after } = self;
        write!(f, "a statement with {budget:?} was cut off after {told_after:?}, its backend idle after {idle_after:?}")
    }
}
