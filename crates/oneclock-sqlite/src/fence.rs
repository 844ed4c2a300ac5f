//! Stopping what one borrower runs on a connection, and nothing else.
//!
//! Decides when a connection may be interrupted, how long it waits for a lock and whether it may still commit, for the
//! borrow that is under way (contract D9, D7, X6). An interrupt in SQLite hits whatever runs when it arrives; so each
//! borrow has a generation, and interrupting, beginning and releasing exclude each other.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::Deadline;
use rusqlite::{Connection, InterruptHandle};

/// How many instructions of SQLite's machine pass between two looks at the clock: well below a millisecond of work, and
/// the look costs less than a hundredth of it.
const INSTRUCTIONS_PER_LOOK: i32 = 2_000;

/// How long one wait for a lock lasts before it is tried again: as SQLite's own handler waits, with a lower end.
const LOCK_WAITS_MS: [u64; 7] = [1, 2, 5, 10, 15, 20, 25];

/// What stands between a connection and whoever wants to stop what runs on it.
pub(crate) struct Fence {
    handle: InterruptHandle,
    state: Mutex<State>,
    called_off: Condvar, // ends a wait for a lock
}

/// Which borrow. No two borrows of a connection have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

#[derive(Default)]
struct State {
    generation: u64,
    borrow: Option<Borrow>,
}

/// One borrow under way.
struct Borrow {
    operation: Operation,
    deadline: Deadline,
    called_off: bool,
    interruptible: bool,
    commits: Commits,
    committed: u64,   // begun with our leave; one may still have failed
    rolled_back: u64, // whole transactions
    waited_for_lock: Duration,
}

/// Which commits may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    /// Those of the borrower's own statements.
    Free,
    /// None: it is a transaction that has not been decided.
    Denied,
}

/// A borrow under way on this thread. Dropped, it is over, and what comes too late for it hits nothing.
pub(crate) struct Armed {
    fence: Arc<Fence>,
    generation: Generation,
}

thread_local! {
    // SQLite's handler for locks is a bare function: it finds its borrow here.
    static CURRENT: RefCell<Option<Arc<Fence>>> = const { RefCell::new(None) };
}

// === Fence ===

impl Fence {
    pub(crate) fn new(connection: &Connection) -> Arc<Self> {
        Arc::new(Self {
            handle: connection.get_interrupt_handle(),
            state: Mutex::default(),
            called_off: Condvar::new(),
        })
    }

    /// Begins a borrow: until it is over, everything that runs on the connection ends with `operation` and at `deadline`.
    ///
    /// # Errors
    /// SQLite's, if it takes no handler.
    pub(crate) fn arm(
        self: &Arc<Self>,
        connection: &Connection,
        operation: &Operation,
        deadline: Deadline,
    ) -> rusqlite::Result<Armed> {
        // Anew each time: the borrower before may have put something else in their place (contract D7).
        connection.busy_handler(Some(wait_for_lock))?;
        let looks = Arc::clone(self);
        connection.progress_handler(INSTRUCTIONS_PER_LOOK, Some(move || looks.must_stop()))?;
        let commits = Arc::clone(self);
        connection.commit_hook(Some(move || commits.denies_commit()))?;
        let rollbacks = Arc::clone(self);
        connection.rollback_hook(Some(move || rollbacks.count_rollback()))?;
        let generation = {
            let mut state = self.lock();
            state.generation += 1;
            state.borrow = Some(Borrow {
                operation: operation.clone(),
                deadline,
                called_off: false,
                interruptible: true,
                commits: Commits::Free,
                committed: 0,
                rolled_back: 0,
                waited_for_lock: Duration::ZERO,
            });
            Generation(state.generation)
        };
        CURRENT.set(Some(Arc::clone(self)));
        Ok(Armed { fence: Arc::clone(self), generation })
    }

    /// Calls off the borrow with this generation: what it runs is interrupted, what it waits for is given up. Nothing if
    /// that borrow is over.
    pub(crate) fn interrupt(&self, generation: Generation) {
        let mut state = self.lock(); // held while interrupting: the borrow cannot end in between
        if Generation(state.generation) != generation {
            return;
        }
        let Some(borrow) = &mut state.borrow else { return };
        borrow.called_off = true;
        if borrow.interruptible {
            self.handle.interrupt();
        }
        self.called_off.notify_all();
    }

    /// How long the borrow with this generation has waited for locks; nothing if that borrow is over.
    pub(crate) fn waited_for_lock(&self, generation: Generation) -> Duration {
        let state = self.lock();
        let borrow = state.borrow.as_ref().filter(|_| Generation(state.generation) == generation);
        borrow.map_or(Duration::ZERO, |borrow| borrow.waited_for_lock)
    }

    /// Whether what runs must stop. Asks the clock, since timers fire late (contract K3).
    fn must_stop(&self) -> bool {
        let (operation, deadline) = match &self.lock().borrow {
            Some(borrow) if borrow.called_off => return true,
            Some(borrow) => (borrow.operation.clone(), borrow.deadline),
            None => return false,
        };
        // Outside the lock: what notices the end of an operation runs its hooks.
        let now = clock::now();
        deadline.is_past(now) || operation.ending_at(now).is_some()
    }

    /// SQLite asks before each commit; true turns it into a rollback. After the end none begins (contract X6).
    fn denies_commit(&self) -> bool {
        let must_stop = self.must_stop();
        let mut state = self.lock();
        let Some(borrow) = &mut state.borrow else { return false };
        let denied = must_stop || borrow.called_off || borrow.commits == Commits::Denied;
        if !denied {
            borrow.committed += 1;
        }
        denied
    }

    fn count_rollback(&self) {
        if let Some(borrow) = &mut self.lock().borrow {
            borrow.rolled_back += 1;
        }
    }

    /// Waits a little for a lock that another connection holds, but no longer than what is left.
    fn waits_for_lock(&self, tried: i32) -> bool {
        if self.must_stop() {
            return false;
        }
        let state = self.lock();
        let Some(borrow) = &state.borrow else { return false };
        if borrow.called_off {
            return false;
        }
        let step = usize::try_from(tried).unwrap_or(0).min(LOCK_WAITS_MS.len() - 1);
        let began = clock::now();
        let wait = Duration::from_millis(LOCK_WAITS_MS[step]).min(borrow.deadline.remaining(began));
        let (mut state, _) = self.called_off.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
        if let Some(borrow) = &mut state.borrow {
            borrow.waited_for_lock += clock::now().since(began);
        }
        drop(state);
        !self.must_stop()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SQLite's handler for locks. It is asked again and again, so what is left counts and not what was left.
fn wait_for_lock(tried: i32) -> bool {
    let fence = CURRENT.with_borrow(Clone::clone);
    fence.is_some_and(|fence| fence.waits_for_lock(tried))
}

// === Armed ===

impl Armed {
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether what runs must stop.
    pub(crate) fn must_stop(&self) -> bool {
        self.fence.must_stop()
    }

    /// From here on nothing is interrupted: what ends a transaction is not cancelled (contract D5).
    pub(crate) fn hold(&self) {
        if let Some(borrow) = &mut self.fence.lock().borrow {
            borrow.interruptible = false;
        }
    }

    /// Which commits may pass.
    pub(crate) fn set_commits(&self, commits: Commits) {
        if let Some(borrow) = &mut self.fence.lock().borrow {
            borrow.commits = commits;
        }
    }

    /// How many commits have begun. None is proof that nothing was applied.
    pub(crate) fn committed(&self) -> u64 {
        self.fence.lock().borrow.as_ref().map_or(0, |borrow| borrow.committed)
    }

    /// How long it has waited for locks that other connections held.
    pub(crate) fn waited_for_lock(&self) -> Duration {
        self.fence.waited_for_lock(self.generation)
    }

    /// How many transactions were rolled back, by whomever.
    pub(crate) fn rolled_back(&self) -> u64 {
        self.fence.lock().borrow.as_ref().map_or(0, |borrow| borrow.rolled_back)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        let over = {
            let mut state = self.fence.lock();
            state.generation += 1;
            state.borrow.take()
        };
        drop(over); // outside the lock: the last clone of an operation tells its observer
        CURRENT.set(None);
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("generation", &self.lock().generation).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ErrorCode;
    use std::sync::mpsc;

    const SECONDS: Duration = Duration::from_secs(20);

    fn count(connection: &Connection, to: i64) -> rusqlite::Result<i64> {
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT count(*) FROM n";
        connection.query_row(sql, [to], |row| row.get(0))
    }

    fn connection() -> (Connection, Arc<Fence>) {
        let connection = Connection::open_in_memory().unwrap();
        let fence = Fence::new(&connection);
        (connection, fence)
    }

    fn arm(connection: &Connection, fence: &Arc<Fence>, budget: Duration) -> Armed {
        let op = Operation::begin("op", budget);
        fence.arm(connection, &op, op.deadline()).unwrap()
    }

    #[track_caller]
    fn is_interrupted(result: &rusqlite::Result<i64>) {
        let code = result.as_ref().err().and_then(rusqlite::Error::sqlite_error_code);
        assert_eq!(code, Some(ErrorCode::OperationInterrupted), "{result:?}");
    }

    #[test]
    fn d9_an_interrupt_of_a_borrow_that_is_over_hits_nothing() {
        let (connection, fence) = connection();
        let over = arm(&connection, &fence, SECONDS).generation();
        fence.interrupt(over); // between two borrows
        let armed = arm(&connection, &fence, SECONDS);
        assert_ne!(armed.generation(), over);
        let (begins, begun) = mpsc::channel();
        let late = Arc::clone(&fence);
        let interrupter = std::thread::spawn(move || {
            begun.recv().unwrap();
            for _ in 0..1_000 {
                late.interrupt(over);
                std::thread::yield_now();
            }
        });
        begins.send(()).unwrap();
        while !interrupter.is_finished() {
            assert_eq!(count(&connection, 2_000).unwrap(), 2_000);
        }
        interrupter.join().unwrap();
        assert!(!armed.must_stop());
    }

    #[test]
    fn d9_an_interrupt_of_the_borrow_under_way_ends_its_statement() {
        let (connection, fence) = connection();
        let armed = arm(&connection, &fence, SECONDS);
        connection.progress_handler(0, None::<fn() -> bool>).unwrap(); // the interrupt alone
        let (generation, stops) = (armed.generation(), Arc::clone(&fence));
        let interrupter = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            stops.interrupt(generation);
        });
        is_interrupted(&count(&connection, i64::MAX));
        interrupter.join().unwrap();
    }

    #[test]
    fn d9_the_clock_alone_ends_a_statement_that_nobody_interrupts() {
        let (connection, fence) = connection();
        let _armed = arm(&connection, &fence, Duration::from_millis(50));
        is_interrupted(&count(&connection, i64::MAX));
    }

    #[test]
    fn d5_what_is_held_is_not_interrupted() {
        let (connection, fence) = connection();
        let armed = arm(&connection, &fence, SECONDS);
        connection.progress_handler(0, None::<fn() -> bool>).unwrap();
        armed.hold();
        let (generation, stops) = (armed.generation(), Arc::clone(&fence));
        let interrupter = std::thread::spawn(move || stops.interrupt(generation));
        while !interrupter.is_finished() {
            assert_eq!(count(&connection, 2_000).unwrap(), 2_000);
        }
        interrupter.join().unwrap();
        assert!(armed.must_stop(), "it is called off all the same: what follows it must know");
    }
}
