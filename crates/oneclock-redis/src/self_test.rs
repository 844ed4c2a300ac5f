//! Readiness: shows against the live server that a command is cut off at its budget and nothing is left behind.
//!
//! Decides what counts as shown. It writes nothing: it waits on keys that nobody has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oneclock::{Ended, Operation, clock};
use oneclock_core::{Cause, Ending, Name, Outcome, Stage};
use redis::{Cmd, cmd};

use crate::call::stopped;
use crate::client::Redis;
use crate::error::{Access, RedisError};
use crate::request::Request;

/// The most that the whole test may take.
const TAKES_AT_MOST: Duration = Duration::from_secs(5);

/// The budget of the command that is cut off.
const BUDGET: Duration = Duration::from_millis(50);

/// How long the server is asked to hold it.
const HELD: Duration = Duration::from_secs(4);

/// How long after the cut the server may still know the command.
const FORGETS_WITHIN: Duration = Duration::from_secs(2);

/// What was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelfTest {
    /// How long an answer takes on the shared connection.
    pub round_trip: Duration,
    /// When a command with a budget of 50 ms, which the server would have held for 4 s, was cut off.
    pub cut_after: Duration,
    /// How long an answer took on the shared connection while that command was held.
    pub beside_it: Duration,
    /// How long after the cut the server had forgotten the command; `None` where this user may not ask (`CLIENT LIST`).
    pub forgotten_after: Option<Duration>,
}

/// The server or the way to it does not keep what this client promises.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfTestFailed {
    /// A command of the test failed.
    #[error("the self-test could not ask the server")]
    Call {
        /// How.
        #[from]
        source: RedisError,
    },
    /// A command was not cut off at its budget.
    #[error("a command with a budget of 50ms ended after {after:?}, and not by its budget")]
    NotCut {
        /// When.
        after: Duration,
    },
    /// The server does not read fractions of seconds: it is older than version 6, or something stands in between.
    #[error("the server refused to hold a command for 20ms: timeouts in fractions of seconds need redis 6 or later")]
    NoFractions {
        /// What it said.
        source: RedisError,
    },
    /// A command that was cut off is still held by the server.
    #[error("{after:?} after it was cut off the server still holds the command: something keeps its connection open")]
    StillHeld {
        /// After how long.
        after: Duration,
    },
}

impl Redis {
    /// Shows against the live server that a command is cut off at its budget, that the shared connection answers meanwhile and
    /// afterwards, that the server forgets what was cut off, and that it reads timeouts in fractions of seconds. For start-up,
    /// before a service says that it is ready: it takes about a tenth of a second, writes nothing, and sends events of its own
    /// (calls that were cut off) to observers.
    ///
    /// ```
    /// # use oneclock_redis::Redis;
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let address = oneclock_redis::doc_address();
    /// let redis = Redis::builder(address).build()?;
    /// let shown = redis.self_test().await?;
    /// assert!(shown.cut_after.as_millis() >= 50);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SelfTestFailed`], which says what was not shown.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub async fn self_test(&self) -> Result<SelfTest, SelfTestFailed> {
        let op = Operation::begin("redis-self-test", TAKES_AT_MOST);
        self.query_in::<()>(&op, "connect", &cmd("PING")).await?;
        let round_trip = self.timed(&op).await?;

        let short = self.query_in::<Option<(String, String)>>(&op, "fractions", &pop(&key(), 0.02)).await;
        match short {
            Ok(_) => {}
            Err(source) if source.outcome() == Outcome::Failed => return Err(SelfTestFailed::NoFractions { source }),
            Err(source) => return Err(source.into()),
        }

        let shared = &self.0;
        let mut opening = shared.begin(&op, Name::literal("open"), Access::Reads)?;
        let line = match Box::pin(shared.own_line(&mut opening, shared.target.connect_to_block())).await {
            Ok(line) => line,
            Err(none) => return Err(none.error(opening, Access::Reads).into()),
        };
        opening.close(Outcome::Applied);
        let id = line.id();

        // As its words say, so that nothing but the budget can end it.
        let blocking = pop(&key(), HELD.as_secs_f64());
        let cut = op.grant("cut").cap(BUDGET).call();
        let mut cut = cut.map_err(|not_begun| stopped(not_begun, Access::Reads))?;
        cut.enter(Stage::Wait);
        let began = clock::now();
        let (ended, beside_it) = tokio::join!(
            async {
                let ended = cut.run(Box::pin(line.send(&Request::one(&blocking)))).await;
                (ended.err(), clock::now().since(began))
            },
            self.timed(&op)
        );
        let (Some(Ended { ending: Ending { cause: Cause::Deadline, .. }, .. }), cut_after) = ended else {
            return Err(SelfTestFailed::NotCut { after: ended.1 });
        };
        let beside_it = beside_it?;
        drop(line);
        let forgotten_after = match id {
            Some(id) => self.forgotten(&op, id).await?,
            None => None,
        };
        self.query_in::<()>(&op, "after", &cmd("PING")).await?;
        Ok(SelfTest { round_trip, cut_after, beside_it, forgotten_after })
    }

    async fn timed(&self, op: &Operation) -> Result<Duration, RedisError> {
        let began = clock::now();
        self.query_in::<()>(op, "round-trip", &cmd("PING")).await?;
        Ok(clock::now().since(began))
    }

    /// How long until the server no longer has this connection.
    async fn forgotten(&self, op: &Operation, id: i64) -> Result<Option<Duration>, SelfTestFailed> {
        let began = clock::now();
        let ask = cmd("CLIENT").arg("LIST").arg("ID").arg(id).to_owned();
        loop {
            let listed: String = match self.query_in(op, "forgotten", &ask).await {
                Ok(listed) => listed,
                Err(RedisError::Redis { outcome: Outcome::Failed, .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let after = clock::now().since(began);
            if listed.trim().is_empty() {
                return Ok(Some(after));
            }
            if after >= FORGETS_WITHIN {
                return Err(SelfTestFailed::StillHeld { after });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn pop(key: &str, seconds: f64) -> Cmd {
    cmd("BLPOP").arg(key).arg(seconds).to_owned()
}

/// One that nobody has.
fn key() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let (number, now) = (MADE.fetch_add(1, Ordering::Relaxed), clock::wall());
    format!("oneclock:self-test:{}:{number}:{now:?}", std::process::id())
}
