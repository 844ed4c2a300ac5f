//! The state behind a session: what its flights and its transactions change in it.
//!
//! Decides what goes in front of a statement (contract D2), and what is known of the call as a whole.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use oneclock::clock;
use oneclock::{Call, EndOf, Ended, Operation};
use oneclock_core::grant::settling;
use oneclock_core::statement::{Leftovers, backstop, must_replace};
use oneclock_core::{Cause, Ending, Outcome, Stage, Tick};

use super::{Before, Open, Rollback, Session};
use crate::error::{PgError, outcome_of};
use crate::flight::SETTLE;
use crate::link::{Conn, Facts, Held};
use crate::pool::Shared;
use crate::reaper::{InFlight, Reaping};

impl Session {
    /// The connection for a statement that begins now, if the call is not over and it is still here.
    pub(crate) fn begin_statement(&mut self, facts: Facts, now: Tick) -> Result<Arc<Conn>, PgError> {
        let Some(call) = &mut self.call else { return Err(self.gone()) };
        if let Some(ending) = call.ending_at(now) {
            return Err(PgError::stopped_with(call.cut_off(ending), Outcome::NotSent));
        }
        let Some(held) = &mut self.held else { return Err(self.gone()) };
        if call.stage() != Stage::Wait {
            call.enter_at(Stage::Wait, now);
        }
        held.link.leftovers = held.link.leftovers.max(facts.leftovers);
        let conn = Arc::clone(&held.link.conn);
        if let Some(open) = self.open.as_mut().filter(|_| facts.may_end_transaction) {
            open.may_be_over = true;
            self.came_to(Outcome::Unknown { stage: Stage::Wait });
        }
        Ok(conn)
    }

    /// What must be sent in front of a statement: a rollback that is owed, and the bound if the one in force does not fit
    /// (contract D2). A transaction that has failed takes no bound.
    pub(crate) fn what_goes_before(&self, now: Tick) -> Option<Before> {
        let held = self.held.as_ref()?;
        let mut before = Before { rolls_back: self.rollback, ..Before::default() };
        match self.rollback {
            Some(Rollback::All) => before.sql.push_str("ROLLBACK; "),
            Some(Rollback::To(depth)) => before.sql.push_str(&format!("ROLLBACK TO s{depth}; RELEASE s{depth}; ")),
            None if self.open.is_some_and(|open| open.failed) => return None,
            None => {}
        }
        let (remaining, slack) = (self.deadline.remaining(now), self.pool.slack);
        if must_replace(held.link.in_force, remaining, slack) {
            let bound = backstop(remaining, slack);
            before.sql.push_str(&format!("SET statement_timeout = {}", bound.as_millis()));
            before.sets = Some(bound);
        }
        (!before.sql.is_empty()).then_some(before)
    }

    /// What was sent in front of a statement was answered.
    pub(crate) fn went_before(&mut self, before: &Before, arrived: bool) {
        let Some(held) = &mut self.held else { return };
        held.link.in_force = if arrived { before.sets.or(held.link.in_force) } else { None };
        if !arrived {
            return;
        }
        match before.rolls_back {
            Some(Rollback::All) => held.link.in_transaction = self.open.is_some(),
            Some(Rollback::To(_)) | None => {}
        }
        self.rollback = None;
    }

    /// Why its call must end now, if it must.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.call.as_ref().and_then(Call::ending)
    }

    /// The end of its call, for waits that have a timer of their own.
    pub(crate) fn end(&self) -> EndOf {
        EndOf::or_at(self.operation.clone(), self.deadline)
    }

    /// How long to wait for what the server says after that end.
    pub(crate) fn settling(&self) -> Duration {
        settling(SETTLE, self.operation.remaining())
    }

    /// Ready at the end of its call.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Ending> {
        let (operation, deadline) = (&self.operation, self.deadline);
        let end = self.end.get_or_insert_with(|| Box::pin(EndOf::or_at(operation.clone(), deadline)));
        end.as_mut().poll(cx)
    }

    /// The call ends for this reason; as an error.
    pub(crate) fn cut_off(&mut self, ending: Ending) -> Ended {
        match &mut self.call {
            Some(call) => {
                let ending = call.ending().unwrap_or(ending);
                call.cut_off(ending)
            }
            None => {
                let mut ended = Ended::of(&self.operation, ending);
                ended.call = Some(self.name.clone());
                ended
            }
        }
    }

    /// Whoever waited has left: the call ends for the reason that it has, or because nobody is interested any more.
    pub(crate) fn left(&mut self) {
        let at = clock::now();
        let by = self.call.as_ref().map_or(self.operation.bound().by, |call| call.budget().bound.by);
        drop(self.cut_off(Ending { cause: Cause::CalledOff, bound: by, stage: Stage::Wait, at }));
    }

    /// The server's bound came before we noticed our own end.
    pub(crate) fn cut_off_by_backstop(&mut self, now: Tick) -> Ended {
        let by = self.call.as_ref().map_or(self.operation.bound().by, |call| call.budget().bound.by);
        self.cut_off(Ending::out_of_time(by, Stage::Wait, now))
    }

    pub(crate) fn begin_reaping(&self) -> Option<Reaping> {
        let held = self.held.as_ref()?;
        let conn = Arc::clone(&held.link.conn);
        Some(Reaping::begin(&self.pool, conn, &self.operation, &self.name, &held.runtime))
    }

    /// The connection leaves this session. The transaction that was open, which is rolled back then.
    pub(crate) fn hand_over(&mut self, reaping: Option<Reaping>, in_flight: InFlight) -> Option<Open> {
        self.rollback = None;
        let was_open = self.open.take();
        if let (Some(held), Some(reaping)) = (self.held.take(), reaping) {
            reaping.give(held, in_flight);
        }
        was_open
    }

    /// A statement went through. Inside a transaction nothing is known by that.
    pub(crate) fn applied(&mut self, in_transaction: bool) {
        if !in_transaction && !matches!(self.so_far, Outcome::Unknown { .. }) {
            self.so_far = Outcome::Applied;
        }
        self.forget_bound_if_it_may_have_changed();
    }

    /// What is known of the call after this.
    pub(crate) fn came_to(&mut self, outcome: Outcome) {
        self.so_far = match (self.so_far, outcome) {
            (unknown @ Outcome::Unknown { .. }, _) => unknown,
            (Outcome::Applied, Outcome::NotSent | Outcome::Applied) => Outcome::Applied,
            // A part of it is there, and only the caller knows what the rest would have been.
            (Outcome::Applied, Outcome::Failed | Outcome::Rejected) => Outcome::Unknown { stage: Stage::Wait },
            (_, outcome) => outcome,
        };
    }

    /// The caller took its transaction back, and nothing else is known: it is definitely not done.
    pub(crate) fn rolled_back_by_decision(&mut self) {
        if self.so_far == Outcome::NotSent {
            self.so_far = Outcome::Failed;
        }
    }

    pub(crate) fn statement_failed(&mut self, error: &tokio_postgres::Error) {
        if let (Some(open), Some(_)) = (&mut self.open, error.as_db_error()) {
            open.failed = true;
        }
        let is_lost = matches!(outcome_of(error), Outcome::Unknown { .. });
        if let Some(held) = &mut self.held
            && is_lost
        {
            held.link.doom();
        }
        self.forget_bound_if_it_may_have_changed();
    }

    fn forget_bound_if_it_may_have_changed(&mut self) {
        if let Some(held) = &mut self.held
            && held.link.leftovers != Leftovers::Nothing
        {
            held.link.in_force = None; // the statement may have set its own
        }
    }

    pub(crate) fn in_force(&self) -> Option<Duration> {
        self.held.as_ref().and_then(|held| held.link.in_force)
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn open(&self) -> Option<Open> {
        self.open
    }

    pub(super) fn asks_for_id(&self) -> bool {
        let can_tell = self.held.as_ref().is_some_and(|held| held.link.conn.knows_transactions);
        can_tell && self.open.is_some_and(|open| open.id.is_none() && !open.failed)
    }

    pub(super) fn set_in_transaction(&mut self, is_open: bool) {
        if let Some(held) = &mut self.held {
            held.link.in_transaction = is_open;
            if !is_open {
                held.link.in_force = None; // a rollback takes back what was set inside
            }
        }
    }

    pub(super) fn deepen(&mut self, by: i32) {
        if let Some(open) = &mut self.open {
            open.depth = open.depth.saturating_add_signed(by);
        }
    }

    pub(super) fn is_back_at(&mut self, depth: u32) {
        if let Some(open) = &mut self.open {
            open.depth = depth;
            open.failed = false;
        }
        if let Some(held) = &mut self.held {
            held.link.in_force = None;
        }
    }

    /// A transaction was dropped: its rollback is owed, and sent before anything else.
    pub(crate) fn owe_rollback(&mut self, depth: u32) {
        if self.open.is_none() {
            return;
        }
        if depth == 0 {
            self.open = None;
            self.rolled_back_by_decision();
        } else {
            self.is_back_at(depth - 1);
        }
        let owed = if depth == 0 { Rollback::All } else { Rollback::To(depth) };
        self.rollback = Some(self.rollback.map_or(owed, |earlier| earlier.min(owed)));
        if let Some(held) = &mut self.held {
            held.link.in_force = None;
        }
    }

    /// The rollback to a savepoint that is owed, as what stands in front of a COMMIT.
    pub(crate) fn owed_rollback(&mut self) -> String {
        match self.rollback.take() {
            Some(Rollback::To(depth)) => format!("ROLLBACK TO s{depth}; RELEASE s{depth}; "),
            Some(Rollback::All) | None => String::new(),
        }
    }

    /// A COMMIT without an answer, when its connection said nothing either.
    pub(crate) fn no_answer(&self, outcome: Outcome) -> PgError {
        PgError::NoAnswer { operation: self.operation.name().clone(), call: self.name.clone(), outcome }
    }

    /// What a COMMIT needs, taken out of this session.
    pub(crate) fn take_for_commit(&mut self) -> Option<(Arc<Shared>, Held, Call)> {
        if self.held.is_none() || self.call.is_none() {
            return None;
        }
        self.open = None;
        Some((Arc::clone(&self.pool), self.held.take()?, self.call.take()?))
    }

    /// A COMMIT has come to its end, and this session goes on.
    pub(crate) fn after_commit(&mut self, held: Option<Held>, call: Call, outcome: Outcome) {
        self.held = held;
        self.call = Some(call);
        self.so_far = match self.so_far {
            Outcome::NotSent => outcome,
            unknown @ Outcome::Unknown { .. } => unknown,
            so_far if so_far == outcome => so_far,
            _ if outcome == Outcome::Applied => outcome,
            _ => Outcome::Unknown { stage: Stage::Wait },
        };
    }

    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(crate) fn transaction_lost(&self, outcome: Outcome) -> PgError {
        PgError::TransactionLost { operation: self.operation.name().clone(), call: self.name.clone(), outcome }
    }

    pub(crate) fn database_error(&self, outcome: Outcome, source: tokio_postgres::Error) -> PgError {
        PgError::Database { operation: self.operation.name().clone(), call: self.name.clone(), outcome, source }
    }

    pub(crate) fn gone(&self) -> PgError {
        PgError::Gone { operation: self.operation.name().clone(), call: self.name.clone() }
    }

    pub(super) fn wrong_rows(&self, rows: usize) -> PgError {
        let outcome = match self.open {
            Some(open) => open.undone(Outcome::Failed), // the error takes the transaction back
            None if self.held.is_none() && self.so_far == Outcome::Rejected => Outcome::Rejected, // late, and it is taken back
            None => Outcome::Applied,
        };
        PgError::Rows { operation: self.operation.name().clone(), call: self.name.clone(), rows, outcome }
    }
}
