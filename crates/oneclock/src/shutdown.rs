//! Shutting down: stop admitting, give live work a grace, then end it, then wait for what must finish.
//!
//! Decides the order (contract X10). It owns every task that this crate spawns, so that none is lost.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::spawn::Unguarded;

/// One shutdown of one process or server: signalled once, over once. Cheap to clone.
///
/// ```
/// # use oneclock::{Operation, Shutdown}; use oneclock_core::Cause; use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let shutdown = Shutdown::new();
/// let op = Operation::begin("tail", Duration::from_secs(60)).ended_by(&shutdown);
/// let work = op.spawn("copy", std::future::pending::<()>());
/// shutdown.drain(Duration::from_secs(5)).await; // the grace passes, then the work ends
/// assert!(work.await.is_err());
/// assert_eq!(op.ending().unwrap().cause, Cause::Shutdown);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    signalled: CancellationToken,
    grace_over: CancellationToken,
    // The same as flags, set first: every request asks, and a token would take a lock that all of them share.
    is_signalled: AtomicBool,
    is_grace_over: AtomicBool,
    tasks: TaskTracker,
    closures: TaskTracker, // on blocking threads
}

impl Shutdown {
    /// A shutdown that nobody has asked for yet.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            signalled: CancellationToken::new(),
            grace_over: CancellationToken::new(),
            is_signalled: AtomicBool::new(false),
            is_grace_over: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            closures: TaskTracker::new(),
        }))
    }

    /// The one of operations that were given no other: jobs of [`Operation::begin`](crate::Operation::begin), and their
    /// tasks.
    ///
    /// Nothing drains it by itself, a server neither: `serve` of `oneclock-http` has one of its own for its requests, since
    /// there may be several servers, and a process goes on after a server in a test. Where the process ends with its server,
    /// share it: `serve(listener, app).with_shutdown(Shutdown::process()).shutdown(signal, grace)`. Without a server:
    /// `Shutdown::process().drain(grace).await` before `main` returns; what is not drained is dropped with the runtime, in
    /// the middle of whatever it does, steps that must finish too. Once signalled it stays so.
    ///
    /// ```
    /// # use oneclock::{Operation, Shutdown}; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let op = Operation::begin("nightly", Duration::from_secs(60));
    /// let paid = op.spawn("charge", async { tokio::time::sleep(Duration::from_secs(2)).await; "paid" });
    /// Shutdown::process().drain(Duration::from_secs(5)).await; // waits for it
    /// assert_eq!(paid.await.unwrap(), "paid");
    /// # }
    /// ```
    pub fn process() -> &'static Self {
        static PROCESS: OnceLock<Shutdown> = OnceLock::new();
        PROCESS.get_or_init(Self::new)
    }

    /// Stops admitting: servers that watch it accept nothing new. Live work goes on.
    pub fn signal(&self) {
        self.0.is_signalled.store(true, Ordering::Release);
        self.0.signalled.cancel();
    }

    /// Whether it was signalled.
    pub fn is_signalled(&self) -> bool {
        self.0.is_signalled.load(Ordering::Acquire)
    }

    /// Returns once it was signalled.
    pub fn signalled(&self) -> WaitForCancellationFuture<'_> {
        self.0.signalled.cancelled()
    }

    /// Ends all live work of its operations now: the grace is over. Steps that must finish go on.
    pub fn end_grace(&self) {
        self.signal();
        self.0.is_grace_over.store(true, Ordering::Release);
        self.0.grace_over.cancel();
    }

    /// Returns once the grace is over.
    pub fn grace_over(&self) -> WaitForCancellationFuture<'_> {
        self.0.grace_over.cancelled()
    }

    /// Signals, waits until the tasks of its operations are done or `grace` has passed, ends what is left, and waits for
    /// the steps that must finish, each of which has its own bound.
    ///
    /// Returns how many blocking closures are still running then: nothing can stop one that does not ask
    /// [`checkpoint`](crate::Operation::checkpoint), so they are not waited for beyond the grace.
    ///
    /// # Cancel safety
    /// The signal stays given. Dropped during the grace, live work is not ended by it.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.signal();
        self.0.tasks.close();
        self.0.closures.close();
        let done = async {
            self.0.tasks.wait().await;
            self.0.closures.wait().await;
        };
        if tokio::time::timeout(grace, done).await.is_err() {
            self.end_grace();
            self.0.tasks.wait().await;
        }
        self.end_grace();
        self.0.closures.len()
    }

    pub(crate) fn is_grace_over(&self) -> bool {
        self.0.is_grace_over.load(Ordering::Acquire)
    }

    pub(crate) fn child_token(&self) -> CancellationToken {
        self.0.grace_over.child_token()
    }

    /// Cancels `token`, which has another parent, at the end of the grace too. Its task ends when `token` is cancelled,
    /// whichever way, at the latest when the operation it belongs to is over.
    pub(crate) fn also_ends(&self, token: &CancellationToken) {
        let (token, grace_over) = (token.clone(), self.0.grace_over.clone());
        self.spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = grace_over.cancelled() => token.cancel(),
            }
        });
    }

    /// Whether both are the same one.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Held by what [`drain`](Self::drain) waits for and is no task.
    pub(crate) fn hold(&self) -> TaskTrackerToken {
        self.0.tasks.token()
    }

    /// Spawns a task that [`drain`](Self::drain) waits for. For drivers.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.tasks.spawn(task)
    }

    /// Runs a closure on a blocking thread. [`drain`](Self::drain) waits for it within its grace, and
    /// [`running_unguarded`](crate::running_unguarded) counts it once it runs. For drivers, which know by themselves when it
    /// must not begin any more and how to stop it; services use [`Operation::spawn_blocking`](crate::Operation::spawn_blocking).
    ///
    /// ```
    /// # use oneclock::Shutdown; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let shutdown = Shutdown::new();
    /// let sum = shutdown.spawn_blocking(|| (1..=10).sum::<u32>());
    /// assert_eq!(shutdown.drain(Duration::from_secs(5)).await, 0); // it was waited for
    /// assert_eq!(sum.await.unwrap(), 55);
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn_blocking<R: Send + 'static>(&self, task: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
        self.spawn_uncounted(move || {
            let _running = Unguarded::new();
            task()
        })
    }

    /// The same for what counts itself as running.
    pub(crate) fn spawn_uncounted<R: Send + 'static>(
        &self,
        task: impl FnOnce() -> R + Send + 'static,
    ) -> JoinHandle<R> {
        self.0.closures.spawn_blocking(task)
    }

    /// How many of its tasks and blocking closures are alive.
    pub fn tasks(&self) -> usize {
        self.0.tasks.len() + self.0.closures.len()
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}
