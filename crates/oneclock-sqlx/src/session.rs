//! One borrow of a connection: whose turn it is with the connection, and what came of the borrow as a whole.
//!
//! The connection lies in its seat, is at work for whoever waits, or is away with a reaper. Decides who takes it from
//! where: a statement from the seat; the end of the operation, the leaving of its caller and the watch at the deadline from
//! wherever it is; and the last one of them gives it back to the pool. Contract I6, N1, X6.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use oneclock::{Call, Ended, NotBegun, Operation, Stopped, WhyNot, clock};
use oneclock_core::statement::{Canceller, whose_cancel};
use oneclock_core::{BoundBy, Cause, Deadline, Ending, Name, Outcome, Stage};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::conn::Conn;
use crate::error::{SqlxError, code_of};
use crate::pool::Shared;
use crate::proven::{marked, proven};
use crate::reap::{self, How, What};
use crate::seat::{Place, Seat, Tally};
use crate::work::{Fault, Hand, Item, Kind, Over, Step, Work};

/// A connection that is lent, and the call that it is lent to.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    operation: Operation,
    name: Name,
    deadline: Deadline,
    bound: BoundBy,
    runtime: Handle,
    watch: OnceLock<AbortHandle>,
    seat: Mutex<Seat>,
}

/// Whether the end of a transaction was counted before it was rolled back, by the answer of its COMMIT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Before,
    Now,
}

/// What a reaper does with a connection that it has made ready.
pub(crate) enum Next {
    /// It is back in its seat.
    Seated,
    /// Roll back until it is so deep, then ask again.
    RollBack(Conn, usize),
    /// Nobody holds it any more.
    GiveBack(Conn),
}

/// One turn of the work of whoever waits.
pub(crate) enum Turned {
    Item(Item),
    Over(Result<(), SqlxFault>),
    /// Somebody took it over.
    Taken,
}

/// An error of the work: ours, or sqlx's own, which its caller shall see as it is.
pub(crate) enum SqlxFault {
    Ours(SqlxError),
    Sqlx(sqlx::Error),
}

// === Session ===

impl Session {
    /// Lends `conn`.
    pub(crate) fn begin(shared: Arc<Shared>, mut call: Call, conn: Conn) -> Arc<Self> {
        call.enter(Stage::Work);
        let session = Arc::new(Self {
            shared,
            operation: call.operation().clone(),
            name: call.name().clone(),
            deadline: call.deadline(),
            bound: call.budget().bound.by,
            runtime: Handle::current(),
            watch: OnceLock::new(),
            seat: Mutex::new(Seat {
                place: Place::Idle(conn),
                began: call.began(),
                call: Some(call),
                depth: 0,
                rolls_back_to: None,
                left: false,
                unwanted: false,
                ended: None,
                told: None,
                tally: Tally::default(),
                committing: None,
                waker: None,
            }),
        });
        let watching = watch(Arc::downgrade(&session), session.deadline);
        let watching = session.operation.shutdown().spawn(watching).abort_handle();
        session.watch.get_or_init(|| watching);
        session
    }

    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Begins `kind` as soon as the connection is in its seat.
    pub(crate) fn poll_begin(&self, cx: &mut Context<'_>, kind: &mut Option<Kind>) -> Poll<Result<(), SqlxError>> {
        if let Some(ending) = self.ending() {
            return Poll::Ready(Err(self.not_begun(ending)));
        }
        let mut seat = self.seat();
        loop {
            match seat.take() {
                Place::Idle(conn) => {
                    let Some(kind) = kind.take() else { return Poll::Pending };
                    seat.began = clock::now();
                    let began = seat.began;
                    if let Some(call) = &mut seat.call {
                        call.enter_at(Stage::Wait, began);
                    }
                    let work = Work::begin(conn, kind, self.deadline);
                    seat.committing = work.hand().is_commit.then(|| Arc::clone(work.hand()));
                    seat.unwanted = false;
                    seat.place = Place::AtWork(work);
                    return Poll::Ready(Ok(()));
                }
                // Somebody lost interest in it: a stream that was not read to its end.
                Place::AtWork(mut work) => match work.poll(cx) {
                    Poll::Ready(Step::Item(_)) => seat.place = Place::AtWork(work),
                    Poll::Ready(Step::Over(over)) => {
                        let _ = self.over(&mut seat, &work, over);
                    }
                    Poll::Pending => {
                        seat.place = Place::AtWork(work);
                        return Poll::Pending;
                    }
                },
                Place::Away => {
                    seat.place = Place::Away;
                    seat.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Place::Gone => {
                    let (operation, call) = (self.operation.name().clone(), self.name.clone());
                    return Poll::Ready(Err(SqlxError::ConnectionLost { operation, call }));
                }
            }
        }
    }

    /// One turn of the work.
    pub(crate) fn poll_work(&self, cx: &mut Context<'_>) -> Poll<Turned> {
        let mut seat = self.seat();
        match seat.take() {
            Place::AtWork(mut work) => match work.poll(cx) {
                Poll::Ready(Step::Item(item)) => {
                    seat.place = Place::AtWork(work);
                    Poll::Ready(Turned::Item(item))
                }
                Poll::Ready(Step::Over(over)) => {
                    let result = self.over(&mut seat, &work, over);
                    drop(seat);
                    self.operation.tell_if_late(self.deadline);
                    Poll::Ready(Turned::Over(result))
                }
                Poll::Pending => {
                    seat.place = Place::AtWork(work);
                    Poll::Pending
                }
            },
            other => {
                seat.place = other;
                Poll::Ready(Turned::Taken)
            }
        }
    }

    /// Work has come to its end while somebody waited for it.
    fn over(&self, seat: &mut Seat, work: &Work, over: Over) -> Result<(), SqlxFault> {
        let Over { conn, result, usable } = over;
        let elapsed = clock::now().since(seat.began);
        let in_force = conn.in_force();
        let hand = work.hand();
        if usable {
            seat.place = Place::Idle(conn);
        } else {
            drop(self.shared.discard(conn));
            self.shared.doubt_the_idle();
            seat.place = Place::Gone;
        }
        if let Some(call) = &mut seat.call {
            call.enter(Stage::Work);
        }
        let error = match result {
            Ok(()) => {
                seat.tally.saw(hand, Outcome::Applied);
                return Ok(());
            }
            Err(Fault::NotStarted) => return Err(SqlxFault::Ours(self.stopped(seat, Outcome::NotSent))),
            Err(Fault::Sqlx(error)) => error,
        };
        let may_have_run = hand.is_sent() || hand.in_transaction && !hand.is_commit;
        let outcome = if may_have_run { proven(hand, &error) } else { Outcome::NotSent };
        seat.tally.saw(hand, outcome);
        let is_past = self.deadline.is_past(clock::now());
        let ours = match code_of(&error) {
            // The server kept our deadline before we did (contract D4).
            Some("57014") => whose_cancel(None, in_force, elapsed) == Canceller::Backstop && is_past,
            _ => !usable && is_past, // contract X2
        };
        if ours {
            Err(SqlxFault::Ours(self.stopped(seat, outcome)))
        } else {
            Err(SqlxFault::Sqlx(marked(error, outcome)))
        }
    }

    /// The end has come, or the last one who could wait has left: nothing begins any more, and what is at work is taken
    /// over. Says nothing new the second time.
    pub(crate) fn end(self: &Arc<Self>, ending: Ending) {
        let reap = {
            let mut seat = self.seat();
            if seat.ended.is_none() {
                let ended = match &mut seat.call {
                    Some(call) => call.cut_off(ending),
                    None => Ended::of(&self.operation, ending),
                };
                seat.ended = Some(ended);
            }
            self.take_away(&mut seat)
        };
        self.reap(reap);
    }

    /// The guard is gone.
    pub(crate) fn leave(self: &Arc<Self>) {
        if let Some(watch) = self.watch.get() {
            watch.abort();
        }
        let ending = self.ending();
        let reap = {
            let mut seat = self.seat();
            seat.left = true;
            // Left in the middle: whoever waited lost interest, unless the operation had ended.
            if (matches!(seat.place, Place::AtWork(_)) || seat.unwanted) && seat.ended.is_none() {
                let ending = ending.unwrap_or_else(|| self.lost_interest());
                let ended = seat.call.as_mut().map(|call| call.cut_off(ending));
                seat.ended = ended;
            }
            match seat.take() {
                Place::Idle(conn) if conn.is_clean() => {
                    self.shared.give_back(conn);
                    return self.close(seat);
                }
                Place::Gone => return self.close(seat),
                place => seat.place = place,
            }
            self.take_away(&mut seat)
        };
        self.reap(reap);
    }

    /// Whoever waited for the work lost interest, and the guard is still there.
    pub(crate) fn lose_interest(self: &Arc<Self>) {
        let reap = {
            let mut seat = self.seat();
            match &seat.place {
                // A cancel would end the transaction too. The rest of its answer is read by whoever comes next, or cancelled
                // with the transaction.
                Place::AtWork(work) if work.hand().in_transaction && !work.hand().is_commit => None,
                Place::AtWork(_) => {
                    seat.unwanted = true;
                    self.take_away(&mut seat)
                }
                Place::Idle(_) | Place::Away | Place::Gone => None,
            }
        };
        self.reap(reap);
    }

    /// A transaction was begun: rolled back to less than that when it is dropped.
    pub(crate) fn holds(&self, depth: usize) {
        self.seat().depth = depth;
    }

    /// How deep in transactions it is held.
    pub(crate) fn depth(&self) -> usize {
        self.seat().depth
    }

    /// The transaction of `depth` is over by its own word.
    pub(crate) fn is_settled(&self, depth: usize) {
        self.seat().depth = depth.saturating_sub(1);
    }

    /// The transaction of `depth` was dropped: it is rolled back now (contract D5), not when somebody comes next.
    pub(crate) fn roll_back(self: &Arc<Self>, depth: usize, counted: Counted) {
        let reap = {
            let mut seat = self.seat();
            seat.depth = depth.saturating_sub(1);
            if depth == 1 && counted == Counted::Now {
                seat.tally.count(Outcome::Rejected);
            }
            seat.unwanted |= matches!(seat.place, Place::AtWork(_));
            if matches!(&seat.place, Place::Idle(conn) if conn.depth() < depth) {
                return; // it never began
            }
            let to = depth.saturating_sub(1);
            seat.rolls_back_to = Some(seat.rolls_back_to.map_or(to, |already| already.min(to)));
            self.take_away(&mut seat)
        };
        self.reap(reap);
    }

    /// How far the last statement came, if it was a COMMIT.
    pub(crate) fn committed(&self) -> Option<Arc<Hand>> {
        self.seat().committing.clone()
    }

    /// What became of the transaction, found out by whoever waited for its end.
    pub(crate) fn found_out(&self, outcome: Outcome) {
        self.seat().tally.ended(outcome);
    }

    /// The error of whoever waited for work that was taken over, once it is known or will not be soon.
    pub(crate) fn poll_told(&self, cx: &mut Context<'_>) -> Poll<SqlxError> {
        let mut seat = self.seat();
        match seat.told {
            Some(outcome) => Poll::Ready(self.stopped(&mut seat, outcome)),
            None => {
                seat.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The same where nobody has told yet.
    pub(crate) fn not_told(&self) -> SqlxError {
        self.stopped(&mut self.seat(), Outcome::Unknown { stage: Stage::Wait })
    }

    /// Told by the reaper: what the work came to.
    pub(crate) fn tell(&self, hand: &Hand, outcome: Outcome) {
        let mut seat = self.seat();
        seat.tally.saw(hand, outcome);
        seat.told = Some(outcome);
        seat.wake();
    }

    /// Asked by the reaper: what becomes of a connection that is ready.
    pub(crate) fn next(&self, conn: Conn) -> Next {
        let mut seat = self.seat();
        if seat.left || seat.ended.is_some() {
            return Next::GiveBack(conn);
        }
        // Kept by itself: somebody may hold the next transaction already, and wait for this.
        if let Some(depth) = seat.rolls_back_to.take()
            && conn.depth() > depth
        {
            return Next::RollBack(conn, depth);
        }
        seat.place = Place::Idle(conn);
        seat.wake();
        Next::Seated
    }

    /// Told by the reaper: the connection is back in the pool, or lost.
    pub(crate) fn gone(&self) {
        let mut seat = self.seat();
        seat.place = Place::Gone;
        seat.wake();
        if seat.left || seat.ended.is_some() {
            self.close(seat);
        }
    }

    /// The ending that this borrow was cut off for.
    pub(crate) fn cut_off_for(&self) -> Option<Ending> {
        self.seat().ended.as_ref().map(|ended| ended.ending)
    }

    /// Why it must end, if it must.
    pub(crate) fn ending(&self) -> Option<Ending> {
        let now = clock::now();
        // First by itself: what notices the end runs the operation's hooks, which must not happen under our lock.
        let ending = self.operation.ending_at(now);
        let out_of_time = || self.deadline.is_past(now).then(|| Ending::out_of_time(self.bound, Stage::Work, now));
        // The call also knows of an operation whose work is done.
        let of_call = || self.seat().call.as_ref().and_then(|call| call.ending_at(now));
        ending.or_else(out_of_time).or_else(of_call)
    }

    /// Whoever waited has gone, and its operation lives.
    fn lost_interest(&self) -> Ending {
        Ending { cause: Cause::CalledOff, bound: self.bound, stage: Stage::Wait, at: clock::now() }
    }

    pub(crate) fn not_begun(&self, ending: Ending) -> SqlxError {
        SqlxError::stopped(NotBegun::told(&self.operation, self.name.clone(), WhyNot::Ended(ending)))
    }

    fn stopped(&self, seat: &mut Seat, outcome: Outcome) -> SqlxError {
        let ended = seat.ended.clone().unwrap_or_else(|| {
            let now = clock::now();
            let ending = Ending::out_of_time(self.bound, Stage::Wait, now);
            match &mut seat.call {
                Some(call) => call.cut_off(ending),
                None => {
                    let mut ended = Ended::of(&self.operation, ending);
                    ended.call = Some(self.name.clone());
                    ended
                }
            }
        });
        SqlxError::stopped_with(Stopped::Ended(ended), outcome)
    }

    /// The connection leaves its seat with a reaper, if it is there.
    fn take_away(&self, seat: &mut Seat) -> Option<(What, How)> {
        let taken = match seat.take() {
            Place::Idle(conn) => (What::Conn(conn), How::Finish),
            Place::AtWork(work) => {
                let may_cancel = work.hand().stop() || !work.hand().is_commit;
                (What::Work(work), if may_cancel { How::Cancel } else { How::Finish })
            }
            other => {
                seat.place = other;
                return None;
            }
        };
        seat.place = Place::Away;
        seat.told = None;
        Some(taken)
    }

    fn reap(self: &Arc<Self>, reap: Option<(What, How)>) {
        let Some((what, how)) = reap else { return };
        let _entered = self.runtime.enter();
        self.operation.shutdown().spawn(reap::reap(Arc::clone(self), what, how));
    }

    /// Closes the call with what is known of it as a whole.
    fn close(&self, mut seat: MutexGuard<'_, Seat>) {
        let (call, outcome) = (seat.call.take(), seat.tally.outcome());
        drop(seat); // the event runs an observer's code
        if let Some(call) = call {
            call.close(outcome);
        }
        if let Some(watch) = self.watch.get() {
            watch.abort();
        }
    }

    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a borrow at its deadline also when nobody polls it: a stream that is held, a guard that is forgotten. Keeps nothing
/// of it alive.
async fn watch(session: Weak<Session>, deadline: Deadline) {
    loop {
        tokio::time::sleep_until(clock::instant(deadline)).await;
        let Some(session) = session.upgrade() else { return };
        if let Some(ending) = session.ending() {
            return session.end(ending);
        }
        // Fired, and the clock said no: timers have a grain.
    }
}

// === SqlxFault ===

impl SqlxFault {
    pub(crate) fn into_sqlx(self) -> sqlx::Error {
        match self {
            Self::Ours(error) => error.into(),
            Self::Sqlx(error) => error,
        }
    }

    pub(crate) fn into_ours(self) -> SqlxError {
        match self {
            Self::Ours(error) => error,
            Self::Sqlx(error) => error.into(),
        }
    }
}
