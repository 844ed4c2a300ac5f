//! Hooks for what has a handle of its own: a child process, a foreign job, a C library's cancel.

use oneclock_core::Ending;
use tokio_util::task::AbortOnDropHandle;

use crate::Operation;

/// A hook in place. Dropping it takes the hook away: the work it would have ended is done.
#[must_use = "dropping the hook takes it away"]
#[derive(Debug)]
pub struct OnEnd {
    _waiting: AbortOnDropHandle<()>,
}

impl Operation {
    /// Calls `hook` once if this operation ends early, whichever way: deadline, caller gone, called off, shutdown. Not if
    /// its work is done.
    ///
    /// The hook runs on a task of its own; it should be quick.
    ///
    /// ```
    /// # use oneclock::Operation; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let op = Operation::begin("import", Duration::from_millis(100));
    /// let (killed, was_killed) = tokio::sync::oneshot::channel();
    /// let hook = op.on_end(move |ending| { let _ = killed.send(ending.cause); });
    /// assert_eq!(was_killed.await.unwrap(), oneclock_core::Cause::Deadline);
    /// # drop(hook); }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn on_end(&self, hook: impl FnOnce(Ending) + Send + 'static) -> OnEnd {
        let operation = self.clone();
        let waiting = tokio::spawn(async move { hook(operation.ended().await) });
        OnEnd { _waiting: AbortOnDropHandle::new(waiting) }
    }
}
