//! One statement on its way: sent with the bound it needs, ended with its operation, and never left alone.
//!
//! Decides the order (contract X1): the answer first, then the clock. Whoever drops it before its end hands the connection
//! to the reaper, so that nobody is queued behind what still runs, and nothing that was queued behind it runs later.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join;
use oneclock::clock;
use oneclock_core::statement::{Canceller, whose_cancel};
use oneclock_core::{Ending, Outcome, Stage, Tick};
use tokio_postgres::error::SqlState;

use crate::error::{PgError, outcome_of};
use crate::link::{Conn, Facts};
use crate::reaper::{InFlight, Reaping};
use crate::session::Session;

/// How long the wait goes on after its end for what the server says: a cancelled statement comes back in less.
pub(crate) const SETTLE: Duration = Duration::from_millis(25);

/// A statement of a session, from before it is sent until its answer was read.
pub(crate) struct Flight<'s> {
    session: &'s mut Session,
    conn: Arc<Conn>,
    facts: Facts,
    sent_at: Tick,
    begun: bool,
    landed: bool,
    /// Its cancel is on its way, and its connection still here.
    reaping: Option<Reaping>,
}

/// What the answer to a step says of its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// That it has begun, or goes on.
    Piece,
    /// That it is over.
    Last,
}

// === Flight ===

impl<'s> Flight<'s> {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// If the call is over, or the connection is gone.
    pub(crate) fn begin(session: &'s mut Session, facts: Facts) -> Result<Self, PgError> {
        let now = clock::now();
        let conn = session.begin_statement(facts, now)?;
        conn.gate.open();
        Ok(Self { session, conn, facts, sent_at: now, begun: false, landed: false, reaping: None })
    }

    pub(crate) fn conn(&self) -> Arc<Conn> {
        Arc::clone(&self.conn)
    }

    pub(crate) fn session(&mut self) -> &mut Session {
        self.session
    }

    /// The only step of a statement whose answer comes as a whole.
    pub(crate) async fn land<T>(
        mut self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgError> {
        self.last(work).await
    }

    /// A part of the answer came, or the statement is over with an error. What comes after the end is no part any more: the
    /// connection is busy with the rest.
    pub(crate) async fn step<T>(
        &mut self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgError> {
        self.drive(work, Part::Piece).await
    }

    /// The last part of the answer came, or the statement is over with an error.
    pub(crate) async fn last<T>(
        &mut self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgError> {
        let result = self.drive(work, Part::Last).await;
        if result.is_ok() && !self.landed {
            self.land_now();
        }
        result
    }

    async fn drive<T>(
        &mut self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
        part: Part,
    ) -> Result<T, PgError> {
        let is_first = !std::mem::replace(&mut self.begun, true);
        let before = if is_first { self.session.what_goes_before(self.sent_at) } else { None };
        // A peer that always takes a piece at once would never let the timer be asked.
        if let Some(ending) = self.is_over().filter(|_| !is_first) {
            return Err(self.cut_off(ending));
        }
        let conn = Arc::clone(&self.conn);
        let both = async {
            // Both are sent at once, in this order: no round trip is added (contract D2).
            let before = async {
                match &before {
                    Some(before) => conn.client.batch_execute(&before.sql).await.is_ok(),
                    None => false,
                }
            };
            join(before, work).await
        };
        let mut both = pin!(both);
        let ending = match self.or_the_end(both.as_mut()).await {
            Ok((arrived, result)) => {
                if let Some(before) = &before {
                    self.session.went_before(before, arrived);
                }
                return result.map_err(|error| self.failed(error));
            }
            Err(ending) => ending,
        };
        // The cancel is on its way; what the server says of it within a moment is worth waiting for.
        let ended = self.session.cut_off(ending);
        self.reaping = self.session.begin_reaping();
        let unanswered = self.unanswered();
        let settled = match unanswered {
            Outcome::NotSent => None, // nor is it sent any more
            _ => tokio::time::timeout(self.session.settling(), both.as_mut()).await.ok(),
        };
        self.landed = true;
        let is_over = part == Part::Last && settled.is_some();
        let in_flight = if is_over { InFlight::Answered } else { InFlight::Busy };
        let open = self.session.hand_over(self.reaping.take(), in_flight);
        let outcome = match (settled, open) {
            (Some((_, Ok(value))), open) if is_over => {
                match open {
                    Some(open) => self.session.came_to(open.undone(Outcome::Rejected)),
                    None => self.session.applied(false),
                }
                return Ok(value); // late, and there
            }
            (_, Some(open)) => open.undone(Outcome::Rejected), // it is rolled back, whatever this statement did
            (Some((_, Err(error))), None) => match self.outcome_of(&error) {
                // Ours, whatever the server says of it (contract X2), so it may well go through another time.
                Outcome::Failed => Outcome::Rejected,
                outcome => outcome,
            },
            (_, None) => unanswered,
        };
        self.session.came_to(outcome);
        Err(PgError::stopped_with(ended, outcome))
    }

    /// The work, or the end of the call.
    async fn or_the_end<F: Future>(&mut self, mut work: Pin<&mut F>) -> Result<F::Output, Ending> {
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => self.session.poll_end(cx).map(Err),
        })
        .await
    }

    /// The whole answer was read.
    pub(crate) fn land_now(&mut self) {
        self.landed = true;
        self.session.applied(self.session.in_transaction());
    }

    /// It came to an end while a part of its answer was waited for elsewhere.
    pub(crate) fn cut_off(&mut self, ending: Ending) -> PgError {
        let ended = self.session.cut_off(ending);
        self.landed = true;
        let outcome = self.abandon();
        PgError::stopped_with(ended, outcome)
    }

    /// Asked before each piece of what comes in pieces.
    pub(crate) fn is_over(&self) -> Option<Ending> {
        self.session.ending()
    }

    /// Ready at the end of the call.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        self.session.poll_end(cx)
    }

    /// The error of a statement that the server ended, or that the connection did not survive.
    pub(crate) fn failed(&mut self, error: tokio_postgres::Error) -> PgError {
        self.landed = true;
        let is_cancelled = error.code() == Some(&SqlState::QUERY_CANCELED);
        let outcome = match (self.session.open(), self.outcome_of(&error)) {
            // Broken off, or its session was ended: without a COMMIT the server rolls back.
            (Some(open), Outcome::Unknown { .. } | Outcome::NotSent) => open.undone(Outcome::Rejected),
            (Some(open), outcome) => open.undone(outcome),
            (None, outcome) => outcome,
        };
        self.session.statement_failed(&error);
        self.session.came_to(outcome);
        if is_cancelled {
            let now = clock::now();
            let in_force = self.session.in_force();
            // We had sent no cancel, or we would not be here (contract D4).
            if whose_cancel(None, in_force, now.since(self.sent_at)) == Canceller::Backstop {
                let ended = self.session.cut_off_by_backstop(now);
                return PgError::stopped_with(ended, outcome);
            }
        }
        self.session.database_error(outcome, error)
    }

    /// What an error proves of this statement.
    fn outcome_of(&self, error: &tokio_postgres::Error) -> Outcome {
        match outcome_of(error) {
            outcome @ (Outcome::Failed | Outcome::Rejected)
                if !self.facts.is_atomic && !self.session.in_transaction() =>
            {
                // Of a procedure, or of several statements, a part may be there. What cannot be parsed has no parts.
                let is_syntax = error.code().is_some_and(|code| code.code().starts_with("42"));
                if is_syntax && outcome == Outcome::Failed { outcome } else { Outcome::Unknown { stage: Stage::Wait } }
            }
            outcome => outcome,
        }
    }

    fn abandon(&mut self) -> Outcome {
        let reaping = self.reaping.take().or_else(|| self.session.begin_reaping());
        let unanswered = self.unanswered();
        let open = self.session.hand_over(reaping, InFlight::Busy);
        let outcome = open.map_or(unanswered, |open| open.undone(Outcome::Rejected));
        self.session.came_to(outcome);
        outcome
    }

    /// What is known without an answer. From here on nothing more of it is sent.
    fn unanswered(&self) -> Outcome {
        if self.conn.gate.shut() { Outcome::NotSent } else { Outcome::Unknown { stage: Stage::Wait } }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.landed {
            self.session.left();
            self.abandon();
        }
    }
}
