//! One call: between whoever waits for it and the thread that does it.
//!
//! Decides who ends what: a call that has not begun does not begin (contract N5), one that has is interrupted, and the
//! thread, which alone knows what came of it, closes the call and tells its outcome (contract N1).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use oneclock::events::{Event, RanOn};
use oneclock::{Call, EndOf, Ended, MayRunOn, Operation, clock};
use oneclock_core::{Cause, Deadline, Ending, Name, Outcome, Stage};
use rusqlite::Connection;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;

use crate::connection::Slot;
use crate::error::SqliteError;
use crate::fence::{Armed, Fence, Generation};
use crate::pool::Shared;
use crate::transaction::{Done, Failure};

/// How long the wait goes on after its end for what the thread found out: an interrupted statement comes back in less.
const SETTLE: Duration = Duration::from_millis(25);

/// How long what runs on after the end is watched, and interrupted again. Beyond it only the work itself can end.
const WATCHED: Duration = Duration::from_secs(1);

/// A call on its way to a thread and back.
pub(crate) struct Errand {
    operation: Operation,
    name: Name,
    deadline: Deadline,
    progress: Mutex<Progress>,
    ended: Arc<Notify>, // the wait came to its end before the work did
}

struct Progress {
    call: Option<Call>, // closed by the thread, or by the end of a wait for one
    begun: bool,
    left: bool,
    borrow: Option<(Arc<Fence>, Generation)>,
}

/// The wait for an errand. Dropped before its end, whoever waited has left.
struct Waiting<'a> {
    errand: &'a Errand,
    over: bool,
}

/// Why there is no connection.
struct NotOpened {
    source: rusqlite::Error,
    waited_for_lock: Duration,
}

// === NotOpened ===

impl NotOpened {
    fn at_once(source: rusqlite::Error) -> Self {
        Self { source, waited_for_lock: Duration::ZERO }
    }
}

// === Errand ===

impl Errand {
    /// Sends `work` to a blocking thread and waits for what comes of it, as long as the call may take.
    pub(crate) async fn run<T, F>(
        pool: Arc<Shared>,
        mut call: Call,
        permit: OwnedSemaphorePermit,
        work: F,
    ) -> Result<T, SqliteError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection, &Armed) -> Done<T> + Send + 'static,
    {
        call.enter(Stage::Queue);
        let errand = Arc::new(Self {
            operation: call.operation().clone(),
            name: call.name().clone(),
            deadline: call.deadline(),
            progress: Mutex::new(Progress { call: Some(call), begun: false, left: false, borrow: None }),
            ended: Arc::default(),
        });
        let (sender, mut answer) = oneshot::channel();
        let doing = Arc::clone(&errand);
        let shutdown = errand.operation.shutdown().clone();
        let thread = shutdown.spawn_blocking(move || {
            let result = doing.perform(&pool, permit, work);
            drop(doing); // first, since it holds the operation, and whoever gets the answer may want to see it over
            if let Some(result) = result {
                let _ = sender.send(result); // nobody may be there any more: the event has told
            }
        });
        let watch = watch(Arc::downgrade(&errand), thread, Arc::clone(&errand.ended), errand.deadline);
        shutdown.spawn(watch);

        let mut waiting = Waiting { errand: &errand, over: false };
        let end = EndOf::or_at(errand.operation.clone(), errand.deadline);
        let answered = tokio::select! {
            biased; // the work first, then the clock (contract X1)
            answered = &mut answer => answered,
            _ = end => match errand.stop() {
                Some(not_begun) => {
                    waiting.over = true;
                    return Err(SqliteError::stopped(not_begun));
                }
                None => match tokio::time::timeout(SETTLE, answer).await {
                    Ok(answered) => answered,
                    Err(_) => {
                        waiting.over = true;
                        let (given_up, waited) = (errand.given_up(), errand.waited_for_lock());
                        let outcome = given_up.outcome();
                        return Err(SqliteError::stopped_with(given_up, outcome, waited));
                    }
                },
            },
        };
        waiting.over = true;
        match answered {
            Ok(result) => result,
            // Its runtime went away before a thread was free, or it was too late for one.
            Err(_) => Err(SqliteError::stopped(errand.given_up())),
        }
    }

    /// On the blocking thread. None if it is not begun.
    fn perform<T, F>(&self, pool: &Arc<Shared>, permit: OwnedSemaphorePermit, work: F) -> Option<Result<T, SqliteError>>
    where
        F: FnOnce(&mut Connection, &Armed) -> Done<T>,
    {
        if !self.begins() {
            return None;
        }
        let _running = MayRunOn::new(&self.operation, RanOn::Blocking);
        let (slot, armed) = match self.borrow(pool) {
            Ok(borrowed) => borrowed,
            Err(not_opened) => {
                drop(permit);
                return Some(Err(self.not_opened(not_opened)));
            }
        };
        let Slot { mut connection, fence } = slot;
        self.progress().borrow = Some((Arc::clone(&fence), armed.generation()));
        self.enter(Stage::Work);
        let done = self
            .may_begin()
            .then(|| catch_unwind(AssertUnwindSafe(|| self.operation.sync_scope(|| work(&mut connection, &armed)))));
        let (committed, waited_for_lock) = (armed.committed(), armed.waited_for_lock());
        let disturbed = armed.must_stop() || !matches!(done, Some(Ok(_)));
        drop(armed); // from here on no interrupt of this borrow can hit the connection
        pool.give_back(Slot { connection, fence }, disturbed);
        drop(permit); // after the connection is back: who comes next finds it
        Some(self.settle(done, committed, waited_for_lock))
    }

    /// Whether the thread may begin: it had to wait, and the time may be up (contract N5).
    fn begins(&self) -> bool {
        let may_begin = self.may_begin();
        let mut progress = self.progress();
        progress.begun = may_begin && progress.call.is_some() && !progress.left;
        progress.begun
    }

    fn may_begin(&self) -> bool {
        // First by itself: what notices the end runs the operation's hooks, which must not happen under our lock.
        if self.ending().is_some() {
            return false;
        }
        let progress = self.progress();
        !progress.left && progress.call.as_ref().is_some_and(|call| call.ending().is_none())
    }

    /// A connection whose borrow has begun.
    fn borrow(&self, pool: &Shared) -> Result<(Slot, Armed), NotOpened> {
        if let Some(slot) = pool.take_idle() {
            match slot.fence.arm(&slot.connection, &self.operation, self.deadline) {
                Ok(armed) => return Ok((slot, armed)),
                Err(_) => pool.discard(slot),
            }
        }
        self.enter(Stage::Connect);
        let slot = pool.open().map_err(NotOpened::at_once)?;
        let opened = match slot.fence.arm(&slot.connection, &self.operation, self.deadline) {
            Ok(armed) => match pool.settings.apply(&slot.connection) {
                Ok(()) => Ok(armed),
                Err(source) => Err(NotOpened { source, waited_for_lock: armed.waited_for_lock() }),
            },
            Err(source) => Err(NotOpened::at_once(source)),
        };
        match opened {
            Ok(armed) => Ok((slot, armed)),
            Err(not_opened) => {
                pool.discard(slot);
                Err(not_opened)
            }
        }
    }

    fn not_opened(&self, NotOpened { source, waited_for_lock }: NotOpened) -> SqliteError {
        let call = self.progress().call.take();
        let Some(mut call) = call else { return self.failed(Stage::Connect, Outcome::NotSent, source) };
        if let Some(ending) = call.ending() {
            // It was busy until our end.
            return SqliteError::stopped_with(call.cut_off(ending), Outcome::NotSent, waited_for_lock);
        }
        call.close(Outcome::NotSent);
        self.failed(Stage::Connect, Outcome::NotSent, source)
    }

    /// Closes the call with what came of it. `None` is work that was not begun after all.
    fn settle<T>(
        &self,
        done: Option<std::thread::Result<Done<T>>>,
        committed: u64,
        waited_for_lock: Duration,
    ) -> Result<T, SqliteError> {
        let panicked = if committed == 0 { Outcome::Rejected } else { Outcome::Unknown { stage: Stage::Work } };
        let (mut call, left) = {
            let mut progress = self.progress();
            (progress.call.take(), progress.left)
        };
        // The call also knows of an operation whose work is done; it may be closed already, by a wait that was given up.
        let ending = call.as_ref().map_or_else(|| self.ending(), Call::ending);
        self.tell_if_it_ran_on(ending);
        let is_answer = !left && matches!(&done, Some(Ok(Done { result: Ok(_), .. })));
        let ended = match (&mut call, ending) {
            _ if is_answer => None, // perhaps a late one
            (Some(call), Some(ending)) => Some(call.cut_off(ending)),
            (Some(call), None) if left => Some(call.cut_off(self.lost_interest(call.stage()))),
            _ => None,
        };
        let close = |outcome| {
            if let Some(call) = call {
                call.close(outcome);
            }
        };
        let (operation, name) = (self.operation.name().clone(), self.name.clone());
        match (done, ended) {
            (None, Some(ended)) => {
                close(Outcome::NotSent);
                Err(SqliteError::stopped_with(ended, Outcome::NotSent, waited_for_lock))
            }
            (Some(Ok(Done { result: Ok(value), outcome })), _) => {
                if !left {
                    self.operation.tell_if_late(self.deadline);
                }
                close(outcome);
                Ok(value)
            }
            // Ours, whatever SQLite says of it (contract X2), so it may well go through another time.
            (Some(Ok(Done { result: Err(_), outcome })), Some(ended)) => {
                let outcome = if outcome == Outcome::Failed { Outcome::Rejected } else { outcome };
                close(outcome);
                Err(SqliteError::stopped_with(ended, outcome, waited_for_lock))
            }
            (Some(Ok(Done { result: Err(Failure::Database(error)), outcome })), None) => {
                close(outcome);
                Err(self.failed(Stage::Work, outcome, error))
            }
            (Some(Ok(Done { result: Err(Failure::TransactionLost), outcome })), None) => {
                close(outcome);
                Err(SqliteError::TransactionLost { operation, call: name })
            }
            (Some(Ok(Done { result: Err(Failure::TransactionLeftOpen), outcome })), None) => {
                close(outcome);
                Err(SqliteError::TransactionLeftOpen { operation, call: name, outcome })
            }
            (Some(Err(_)), _) => {
                close(panicked);
                self.operation.tell(&Event::Panicked { operation: &operation, work: &name });
                Err(SqliteError::Panicked { operation, call: name, outcome: panicked })
            }
            (None, None) => {
                close(Outcome::NotSent);
                Err(SqliteError::stopped(self.given_up()))
            }
        }
    }

    fn failed(&self, stage: Stage, outcome: Outcome, source: rusqlite::Error) -> SqliteError {
        let (operation, call) = (self.operation.name().clone(), self.name.clone());
        SqliteError::Database { operation, call, stage, outcome, source }
    }

    /// Work that an interrupt did not end is counted (invariant I14).
    fn tell_if_it_ran_on(&self, ending: Option<Ending>) {
        let Some(ending) = ending else { return };
        let since = if ending.cause == Cause::Deadline { self.deadline.tick().min(ending.at) } else { ending.at };
        let for_ = clock::now().since(since);
        if for_ > SETTLE {
            let (operation, work) = (self.operation.name(), &self.name);
            self.operation.tell(&Event::RanOn { operation, work, because: RanOn::Blocking, for_ });
        }
    }

    /// The time is up: what has begun is interrupted; what has not will not, which is the error.
    fn stop(&self) -> Option<Ended> {
        let waiting = {
            let mut progress = self.progress();
            if progress.begun { None } else { progress.call.take() }
        };
        match waiting {
            Some(mut call) => {
                let ending = call.ending().unwrap_or_else(|| self.lost_interest(call.stage()));
                Some(call.cut_off(ending))
            }
            None => {
                self.interrupt();
                None
            }
        }
    }

    /// The wait is over before the work: what runs for this errand is interrupted, and nothing else.
    fn interrupt(&self) {
        self.ended.notify_one();
        let borrow = self.progress().borrow.clone();
        if let Some((fence, generation)) = borrow {
            fence.interrupt(generation);
        }
    }

    /// The error of a wait that ended before its work did. The thread closes the call.
    fn given_up(&self) -> Ended {
        let mut progress = self.progress();
        match &mut progress.call {
            Some(call) => {
                let ending = call.ending().unwrap_or_else(|| self.lost_interest(call.stage()));
                call.cut_off(ending)
            }
            None => {
                let ending = self.ending().unwrap_or_else(|| self.lost_interest(Stage::Work));
                let mut ended = Ended::of(&self.operation, ending);
                ended.call = Some(self.name.clone());
                ended
            }
        }
    }

    /// How long its borrow, while it is under way, has waited for locks.
    fn waited_for_lock(&self) -> Duration {
        let borrow = self.progress().borrow.clone();
        borrow.map_or(Duration::ZERO, |(fence, generation)| fence.waited_for_lock(generation))
    }

    /// Why it must end, if it must.
    fn ending(&self) -> Option<Ending> {
        let now = clock::now();
        let bound = self.operation.bound().by;
        self.operation
            .ending_at(now)
            .or_else(|| self.deadline.is_past(now).then(|| Ending::out_of_time(bound, Stage::Work, now)))
    }

    /// Whoever waited has gone, and its operation lives.
    fn lost_interest(&self, stage: Stage) -> Ending {
        Ending { cause: Cause::CalledOff, bound: self.operation.bound().by, stage, at: clock::now() }
    }

    fn enter(&self, stage: Stage) {
        if let Some(call) = &mut self.progress().call {
            call.enter(stage);
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what the thread runs when its time is up, also when nobody polls the wait. Owned by the operation's shutdown, and
/// keeps nothing of it alive.
async fn watch(errand: Weak<Errand>, mut thread: JoinHandle<()>, ended: Arc<Notify>, deadline: Deadline) {
    tokio::select! {
        biased;
        _ = &mut thread => return,
        () = ended.notified() => {}
        () = tokio::time::sleep_until(clock::instant(deadline)) => {}
    }
    // Again and again: an interrupt between two statements hits neither.
    let watched = async {
        while let Some(errand) = errand.upgrade() {
            errand.interrupt();
            drop(errand);
            if tokio::time::timeout(SETTLE, &mut thread).await.is_ok() {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(WATCHED, watched).await;
}

// === Waiting ===

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let waiting_for_a_thread = {
            let mut progress = self.errand.progress();
            progress.left = true;
            if progress.begun { None } else { progress.call.take() }
        };
        drop(waiting_for_a_thread); // abandoned; its event says so
        self.errand.interrupt();
    }
}
