//! Hooks for what has a handle of its own: a child process, a foreign job, a C library's cancel.
//!
//! Decides who runs a hook, once: whoever sees the early end first. That is the task that waits for it, or, when the end
//! drops the handler that holds the hook before that task has its turn, the drop itself.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use oneclock_core::{Deadline, Ending};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::operation::Inner;
use crate::{Operation, clock};

/// A hook in place. Keep it in the work it belongs to. Dropping it while the operation lives takes the hook away: the
/// work it would have ended is done. Dropped because the operation ended, it runs the hook if that was not run yet.
///
/// Dropped in the middle of that work, because its [`run`](Operation::run) was dropped or by a panic, it stays behind
/// with the operation: the hook runs if that ends early after all. At most 64 stay; of more the oldest runs at once, as called
/// off, since its work was.
#[must_use = "dropping the hook takes it away"]
pub struct OnEnd {
    operation: Operation,
    hook: Arc<Hook>,
    waiting: AbortHandle,
}

/// A hook, until somebody takes it.
struct Hook(Mutex<Option<Due>>);

/// A hook that its [`OnEnd`] left behind, and the task that waits for it.
pub(crate) struct Left {
    hook: Arc<Hook>,
    waiting: AbortHandle,
}

struct Due {
    run: Box<dyn FnOnce(Ending) + Send>,
    _held: TaskTrackerToken, // a drain waits for it
}

thread_local! {
    static CUTTING_OFF: Cell<bool> = const { Cell::new(false) };
}

/// Drops work that has not come to its end.
pub(crate) fn cutting_off(drop_it: impl FnOnce()) {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            CUTTING_OFF.set(self.0);
        }
    }
    let _restore = Restore(CUTTING_OFF.replace(true));
    drop_it();
}

impl Operation {
    /// Calls `hook` once if this operation ends early, whichever way: deadline, caller gone, called off, shutdown. Not if
    /// its work is done.
    ///
    /// The hook runs on a task of its own, or where the [`OnEnd`] is dropped if that comes first; it should be quick and
    /// must not panic. [`Shutdown::drain`](crate::Shutdown::drain) waits for one that is due.
    ///
    /// ```
    /// # use oneclock::Operation; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let op = Operation::begin("import", Duration::from_millis(100));
    /// let (killed, was_killed) = tokio::sync::oneshot::channel();
    /// let import = op.run(async {
    ///     let op = Operation::current().unwrap();
    ///     let _hook = op.on_end(move |ending| { let _ = killed.send(ending.cause); });
    ///     std::future::pending::<()>().await // the job that has a handle of its own
    /// });
    /// assert!(import.await.is_err());
    /// assert_eq!(was_killed.await.unwrap(), oneclock_core::Cause::Deadline);
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn on_end(&self, hook: impl FnOnce(Ending) + Send + 'static) -> OnEnd {
        let shutdown = self.shutdown();
        let due = Due { run: Box::new(hook), _held: shutdown.hold() };
        let hook = Arc::new(Hook(Mutex::new(Some(due))));
        // The task keeps nothing alive: an operation is over with its last clone, also while it waits.
        let waiting = wait(Arc::downgrade(&self.0), self.token().clone(), self.deadline(), Arc::clone(&hook));
        OnEnd { operation: self.clone(), hook, waiting: shutdown.spawn(waiting).abort_handle() }
    }
}

/// Until the operation is over, whichever way.
async fn wait(operation: Weak<Inner>, token: CancellationToken, deadline: Deadline, hook: Arc<Hook>) {
    loop {
        let Some(operation) = operation.upgrade().map(Operation) else {
            return; // it went, and took care of the hooks that were left with it
        };
        let ending = operation.ending();
        if ending.is_some() || operation.is_over() {
            // It may have ended since it was asked.
            return hook.over(ending.or_else(|| operation.ending()));
        }
        drop(operation);
        tokio::select! {
            () = token.cancelled() => {}
            () = tokio::time::sleep_until(clock::instant(deadline)) => {}
        }
    }
}

// === Hook ===

impl Hook {
    /// The operation is over: it runs if that was an early end, and goes either way.
    fn over(&self, ending: Option<Ending>) {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(Due { run, _held }), Some(ending)) = (taken, ending) {
            run(ending);
        }
    }
}

// === Left ===

impl Left {
    /// As [`Hook::over`].
    pub(crate) fn over(self, ending: Option<Ending>) {
        self.hook.over(ending);
        self.waiting.abort();
    }
}

// === OnEnd ===

impl Drop for OnEnd {
    fn drop(&mut self) {
        let ending = self.operation.ending();
        let cut_off = CUTTING_OFF.get() || std::thread::panicking();
        if ending.is_none() && cut_off && !self.operation.is_over() {
            self.operation.leave(Left { hook: Arc::clone(&self.hook), waiting: self.waiting.clone() });
        } else {
            self.hook.over(ending);
            self.waiting.abort();
        }
    }
}

impl fmt::Debug for OnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnEnd").field("operation", &self.operation).finish_non_exhaustive()
    }
}
