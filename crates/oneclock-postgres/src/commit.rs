//! A COMMIT, from the moment it is sent until it is known what became of it.
//!
//! Decides who waits for what: the COMMIT runs in a task of the pool under its own bound, the caller waits for it as long as
//! its call lives, and whoever is there at the end closes the call with what was found out (contract D5, N1).

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join;
use oneclock::events::{Event, RanOn};
use oneclock::{Call, MayRunOn, Operation, clock};
use oneclock_core::statement::{CommitSeen, XactStatus, backstop, outcome_of_transaction};
use oneclock_core::{Cause, Ending, Outcome, Stage};
use tokio::sync::oneshot;

use crate::error::{PgError, outcome_of};
use crate::link::{Conn, Held, first_value};
use crate::pool::Shared;
use crate::session::{Open, Session};

/// The pause before a server is asked again about a transaction that it is still busy with, doubled each time.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_AT_MOST: Duration = Duration::from_millis(200);

/// What came of a COMMIT.
struct Done {
    held: Option<Held>,
    outcome: Outcome,
    error: Option<tokio_postgres::Error>,
    /// A statement of it had failed before, so the server rolled back.
    had_failed: bool,
}

/// What the task and the wait share: who left his call to whom.
#[derive(Default)]
struct Shelf {
    left: Option<Call>,
    done: Option<Done>,
}

/// The wait for a COMMIT. Dropped before its end, the task closes the call.
struct Waiting<'s> {
    session: &'s mut Session,
    pool: Arc<Shared>,
    shelf: Arc<Mutex<Shelf>>,
    call: Option<Call>,
}

/// Commits the transaction of `session` that was `open`.
pub(crate) async fn commit(session: &mut Session, open: Open) -> Result<(), PgError> {
    let owed = session.owed_rollback();
    let Some((pool, held, call)) = session.take_for_commit() else { return Err(session.gone()) };
    let shelf = Arc::new(Mutex::new(Shelf::default()));
    let (told, mut answer) = oneshot::channel();
    let task = finish(Arc::clone(&pool), held, owed, open, session.operation().clone(), Arc::clone(&shelf), told);
    let runtime = tokio::runtime::Handle::current();
    pool.spawn(session.operation(), &runtime, task);
    let waiting = Waiting { session, pool, shelf, call: Some(call) };
    let mut end = pin!(waiting.session.end());
    tokio::select! {
        biased; // the answer first, then the clock (contract X1)
        _ = &mut answer => return waiting.over(),
        _ = &mut end => {}
    }
    if tokio::time::timeout(waiting.session.settling(), answer).await.is_ok() {
        return waiting.over();
    }
    Err(waiting.given_up())
}

/// Sees a COMMIT through.
async fn finish(
    pool: Arc<Shared>,
    held: Held,
    owed: String,
    open: Open,
    operation: Operation,
    shelf: Arc<Mutex<Shelf>>,
    told: oneshot::Sender<()>,
) {
    let began = clock::now();
    let running = MayRunOn::new(&operation, RanOn::MustFinish);
    let done = send(&pool, held, &owed, open).await;
    drop(running);
    let left = {
        let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
        match shelf.left.take() {
            Some(call) => Some((call, done)),
            None => {
                shelf.done = Some(done);
                None
            }
        }
    };
    let _ = told.send(());
    let Some((call, done)) = left else { return };
    if let Some(held) = done.held {
        pool.settle(held).await;
    }
    let ending = call.ending();
    let for_ = clock::now().since(ending.map_or(began, |ending| ending.at));
    operation.tell(&Event::RanOn { operation: operation.name(), work: call.name(), because: RanOn::MustFinish, for_ });
    call.close(done.outcome);
}

async fn send(pool: &Shared, mut held: Held, owed: &str, open: Open) -> Done {
    let conn = Arc::clone(&held.link.conn);
    // One message in front, in the same breath: the bound of the COMMIT itself, the number of the transaction, and, since a
    // transaction that has failed refuses it, whether there is anything to commit.
    let bound = backstop(pool.commit_bound, pool.slack).as_millis();
    let number = if conn.knows_transactions { "pg_current_xact_id_if_assigned()::text" } else { "NULL" };
    let first = format!("{owed}SELECT set_config('statement_timeout', '{bound}', true), {number}");
    let both = async { join(conn.client.simple_query(&first), conn.client.batch_execute("COMMIT")).await };
    let answered = tokio::time::timeout(pool.commit_bound, both).await;
    let (first, commit) = match answered {
        Ok((first, commit)) => (Some(first), Some(commit)),
        Err(_) => (None, None),
    };
    let known = open.id.filter(|_| !open.may_be_over); // else it may be the number of one before
    let mut id = known;
    let mut had_failed = false;
    let mut error = None;
    match first {
        Some(Ok(answer)) => id = first_value(&answer).and_then(|id| id.parse().ok()).or(known),
        // The transaction takes nothing any more, this neither. A session that was ended says something else.
        Some(Err(refused)) if !matches!(outcome_of(&refused), Outcome::Unknown { .. }) => {
            had_failed = true;
            error = Some(refused);
        }
        Some(Err(_)) | None => {}
    }
    let mut seen = match commit {
        Some(Ok(())) if had_failed => CommitSeen::Refused(Outcome::Failed),
        Some(Ok(())) => CommitSeen::Committed,
        Some(Err(refused)) => match outcome_of(&refused) {
            Outcome::Unknown { .. } => {
                error = Some(refused);
                CommitSeen::Sent
            }
            outcome => {
                error = Some(refused);
                CommitSeen::Refused(outcome)
            }
        },
        None => CommitSeen::Sent,
    };
    held.link.in_transaction = false;
    if seen != CommitSeen::Committed {
        held.link.in_force = None; // a rollback takes back what was set inside
    }
    let came_to = |seen| match outcome_of_transaction(seen) {
        Outcome::Applied => Outcome::Applied,
        _ if had_failed => open.undone(Outcome::Failed),
        outcome => open.undone(outcome),
    };
    if seen != CommitSeen::Sent {
        return Done { held: Some(held), outcome: came_to(seen), error, had_failed };
    }
    // No answer. Its connection is of no use any more, and the server knows by the number.
    let server = Arc::clone(&conn.server);
    drop(conn);
    pool.discard(Some(held));
    if let (Some(id), Some(ours)) = (id, server.get()) {
        seen = CommitSeen::Asked(ask(pool, id, ours).await);
    }
    Done { held: None, outcome: came_to(seen), error, had_failed }
}

/// What became of a transaction, asked on other connections for as long as the server is still busy with it. One that knows no
/// such number is another, or has lost it: what it says later would be about somebody else's.
async fn ask(pool: &Shared, id: u64, ours: &str) -> XactStatus {
    let mut pause = PAUSE;
    let asking = async {
        let mut aside: Option<Conn> = None;
        loop {
            if aside.is_none() {
                aside = pool.aside().await.ok();
            }
            if let Some(conn) = &aside {
                match conn.ask_about(id, ours).await {
                    Ok(status) if !status.is_open() => return status,
                    Ok(_) => {}
                    Err(error) if error.as_db_error().is_some() && !conn.is_closed() => return XactStatus::Unknown,
                    Err(_) => aside = None,
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_AT_MOST);
        }
    };
    tokio::time::timeout(pool.commit_bound, asking).await.unwrap_or(XactStatus::Unknown)
}

// === Waiting ===

impl Waiting<'_> {
    /// The answer is there.
    fn over(mut self) -> Result<(), PgError> {
        let done = self.shelf.lock().unwrap_or_else(PoisonError::into_inner).done.take();
        let Some(call) = self.call.take() else { return Err(self.session.gone()) };
        let done = done.unwrap_or(Done {
            // Its task went without a word, with its runtime. It may have been sent before.
            held: None,
            outcome: Outcome::Unknown { stage: Stage::Wait },
            error: None,
            had_failed: false,
        });
        let Done { held, outcome, error, had_failed } = done;
        self.session.after_commit(held, call, outcome);
        match (outcome, error) {
            (Outcome::Applied, _) => Ok(()),
            (_, _) if had_failed => Err(self.session.transaction_lost(outcome)),
            (outcome, Some(error)) => Err(self.session.database_error(outcome, error)),
            (outcome, None) => Err(self.session.no_answer(outcome)),
        }
    }

    /// The call came to its end before the answer. The task closes it.
    fn given_up(mut self) -> PgError {
        let ending = Ending::out_of_time(self.session.operation().bound().by, Stage::Wait, clock::now());
        let ended = match &mut self.call {
            Some(call) => {
                let ending = call.ending().unwrap_or(ending);
                call.cut_off(ending)
            }
            None => self.session.cut_off(ending),
        };
        PgError::stopped_with(ended, Outcome::Unknown { stage: Stage::Wait })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut call) = self.call.take() else { return };
        let at = clock::now();
        let left = Ending { cause: Cause::CalledOff, bound: call.budget().bound.by, stage: Stage::Wait, at };
        let ending = call.ending().unwrap_or(left);
        drop(call.cut_off(ending));
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        match shelf.done.take() {
            // It came while nobody looked.
            Some(done) => {
                drop(shelf);
                if let Some(held) = done.held {
                    self.pool.give_back(held, self.session.operation());
                }
                call.close(done.outcome);
            }
            None => shelf.left = Some(call),
        }
    }
}
