//! What becomes of work that somebody stopped waiting for: cancelled behind a fence, or brought to its end.
//!
//! Decides with the core's [`Fence`] when the connection may be lent again (contract D3), finds out what became of a COMMIT
//! that was not answered (D5), and sends every ROLLBACK. One task for each, with a bound; it ends with the connection back
//! in the pool, in its seat, or closed.
//!
//! `pg_cancel_backend` only sends a signal. PostgreSQL promises that once its call has returned the backend sees the signal
//! before it looks at its next message, and a cancel that meets an idle backend is dropped there. So the connection is
//! clean when its statement is over, the cancel is answered, and it has answered one more message after that.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::events::{Event as Told, RanOn};
use oneclock::{MayRunOn, clock};
use oneclock_core::statement::{Action, CommitSeen, Event, Fence, outcome_of_transaction};
use oneclock_core::{Outcome, Stage};

use crate::conn::Conn;
use crate::error::{is_usable_after, outcome_of};
use crate::proven::proven;
use crate::reserve::{Asked, Gate, lock};
use crate::session::{Next, Session};
use crate::work::{Fault, Hand, Over, Work, Xact};

/// How long a statement is cancelled before its session is ended instead. A statement that catches its cancel, or one that
/// cannot be interrupted, takes this long.
const GRACE: Duration = Duration::from_secs(3);

/// How long the end of a session may take to be said.
const TERMINATE: Duration = Duration::from_secs(1);

/// How long a server that has its cancel may take before it gets another. The first may have come before the statement
/// did: sqlx sends one in two parts.
const PATIENCE: Duration = Duration::from_millis(50);

/// COMMIT's own bound, and that of a rollback (contract D5).
const FINISH: Duration = Duration::from_secs(5);

/// How long the server is asked about a transaction that is not over.
const ASK: Duration = Duration::from_secs(1);

/// What is taken over.
pub(crate) enum What {
    Work(Work),
    Conn(Conn),
}

/// How.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Cancel,
    Finish,
}

/// Takes over what `session` had, and brings it to its end.
pub(crate) async fn reap(session: Arc<Session>, what: What, how: How) {
    let began = clock::now();
    let because = if how == How::Finish { RanOn::MustFinish } else { RanOn::Statement };
    let _running = MayRunOn::new(session.operation(), because);
    let ready = match what {
        What::Conn(conn) => Some(conn),
        What::Work(work) => {
            let hand = Arc::clone(work.hand());
            let (ready, seen) = match how {
                How::Cancel => cancelled(&session, work, &hand).await,
                How::Finish => finished(&session, work).await,
            };
            let outcome = outcome(&session, &hand, seen).await;
            session.tell(&hand, outcome);
            ready
        }
    };
    let Some(conn) = ready else {
        session.shared.doubt_the_idle();
        return session.gone();
    };
    // Bound once for all that is still to be said on it.
    if tokio::time::timeout(FINISH, settle(&session, conn)).await.is_err() {
        session.shared.count_discarded(); // the connection went with its future, and the server rolls back
        session.gone();
    }
    let for_ = clock::now().since(began);
    if for_ > PATIENCE && session.cut_off_for().is_some() {
        let (operation, work) = (session.operation().name(), session.name());
        session.operation().tell(&Told::RanOn { operation, work, because: RanOn::Statement, for_ });
    }
}

/// Brings a connection that is ready to where it belongs.
async fn settle(session: &Session, mut conn: Conn) {
    loop {
        match session.next(conn) {
            Next::Seated => return,
            Next::RollBack(at, depth) => {
                conn = at;
                if conn.roll_back_to(depth).await.is_err() {
                    drop(session.shared.discard(conn));
                    return session.gone();
                }
            }
            Next::GiveBack(at) => {
                conn = at;
                if conn.clean().await {
                    session.shared.give_back(conn);
                } else {
                    drop(session.shared.discard(conn));
                }
                return session.gone();
            }
        }
    }
}

/// How work came to its end, as far as that was seen.
enum Seen {
    Over(Result<(), Fault>),
    /// No end was seen.
    Nothing,
}

/// Cancels, and waits until nothing is in flight and nothing on its way. The connection comes back if that is proven.
async fn cancelled(session: &Session, mut work: Work, hand: &Hand) -> (Option<Conn>, Seen) {
    let reserve = &session.shared.reserve;
    let gate: Gate = Arc::new(Mutex::new(Fence::new()));
    let mut action = lock(&gate).on(Event::Ended);
    let mut over: Option<Over> = None;
    let mut cancel = None;
    let mut last = Event::Ended;
    let mut grace = pin!(tokio::time::sleep(GRACE));
    while matches!(action, Action::SendCancel | Action::Wait) {
        if action == Action::SendCancel {
            cancel = Some(Box::pin(reserve.cancel(hand.backend, Arc::clone(&gate))));
        }
        let on_its_way = cancel.is_some();
        last = tokio::select! {
            biased;
            ended = work.run_out(), if over.is_none() => {
                let event = if ended.usable { Event::Ready } else { Event::Lost };
                over = Some(ended);
                event
            }
            answered = async { match &mut cancel { Some(cancel) => cancel.await, None => pending().await } } => {
                cancel = None;
                answered
            }
            () = &mut grace => Event::GraceOver,
            () = tokio::time::sleep(PATIENCE), if !on_its_way && over.is_none() => Event::StillBusy,
        };
        action = lock(&gate).on(last);
    }
    let Some(Over { mut conn, result, usable }) = over else {
        if last == Event::GraceOver {
            // It does not listen to cancels. If the server cannot be told either, its own bound is left.
            let _ = tokio::time::timeout(TERMINATE, reserve.terminate(hand.backend)).await;
        }
        session.shared.count_discarded();
        return (None, Seen::Nothing);
    };
    let is_clean = action == Action::Release && usable;
    // The message that proves that the signal was seen.
    if is_clean && (!lock(&gate).cancel_begun() || conn.is_there().await) {
        return (Some(conn), Seen::Over(result));
    }
    drop(session.shared.discard(conn));
    (None, Seen::Over(result))
}

/// Waits, within a bound of its own: for what must not be cancelled.
async fn finished(session: &Session, mut work: Work) -> (Option<Conn>, Seen) {
    match tokio::time::timeout(FINISH, work.run_out()).await {
        Ok(Over { conn, result, usable: true }) => (Some(conn), Seen::Over(result)),
        Ok(Over { conn, result, usable: false }) => {
            drop(session.shared.discard(conn));
            (None, Seen::Over(result))
        }
        Err(_) => {
            session.shared.count_discarded();
            (None, Seen::Nothing)
        }
    }
}

/// What is known of work that was taken over.
async fn outcome(session: &Session, hand: &Hand, seen: Seen) -> Outcome {
    if !hand.is_sent() {
        // Not even a COMMIT, so that the transaction is rolled back.
        return if hand.is_commit { outcome_of_transaction(CommitSeen::NotSent) } else { Outcome::NotSent };
    }
    if hand.is_commit {
        return of_commit(session, hand, &seen).await;
    }
    match seen {
        _ if hand.in_transaction => outcome_of_transaction(CommitSeen::NotSent),
        Seen::Over(Ok(())) => Outcome::Applied,
        Seen::Over(Err(Fault::Sqlx(error))) => proven(hand, &error),
        Seen::Over(Err(Fault::NotStarted)) => Outcome::NotSent,
        Seen::Nothing => Outcome::Unknown { stage: Stage::Wait },
    }
}

async fn of_commit(session: &Session, hand: &Hand, seen: &Seen) -> Outcome {
    outcome_of_transaction(match seen {
        Seen::Over(Ok(())) => CommitSeen::Committed,
        Seen::Over(Err(Fault::NotStarted)) => CommitSeen::NotSent,
        Seen::Over(Err(Fault::Sqlx(error))) if is_usable_after(error) => CommitSeen::Refused(outcome_of(error)),
        Seen::Over(Err(Fault::Sqlx(_))) | Seen::Nothing => asked(session, hand.xact()).await,
    })
}

/// What the server says of a transaction whose COMMIT was sent and not answered.
///
/// Without a number it wrote no row, and may have done something all the same: its `NOTIFY` gets one with its COMMIT.
pub(crate) async fn asked(session: &Session, xact: Option<Xact>) -> CommitSeen {
    let Some(xact) = xact else { return CommitSeen::Sent };
    let asking = async {
        loop {
            match session.shared.reserve.status(xact).await {
                Asked::Status(status) if !status.is_open() => return CommitSeen::Asked(status),
                Asked::Useless => return CommitSeen::Sent,
                Asked::Status(_) | Asked::Nobody => {} // not over, or it could not be asked
            }
            tokio::time::sleep(PATIENCE).await;
        }
    };
    tokio::time::timeout(ASK, asking).await.unwrap_or(CommitSeen::Sent)
}
