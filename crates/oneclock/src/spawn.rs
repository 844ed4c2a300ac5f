//! Tasks and blocking closures of an operation: they begin inside its budget and end with it.
//!
//! Decides that a closure whose deadline passed while it waited for a thread does not run (contract N5), and counts
//! what went on after the end (invariant I14).

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use oneclock_core::{Cause, Ending, Name, Stage};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::events::{Event, RanOn};
use crate::grant::{NotBegun, Stopped, WhyNot};
use crate::run::{EndOf, Ended};
use crate::{MayRunOn, Operation, clock};

/// A task of an operation. Awaiting it gives its result; dropping it lets the task go on until it is done or the
/// operation ends, whichever comes first.
#[derive(Debug)]
pub struct Spawned<T> {
    operation: Operation,
    name: Name,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    Running {
        task: JoinHandle<Result<T, Stopped>>,
        child: Operation,
        end: Option<BlockingEnd>, // for a closure, which does not end by itself when its operation does
    },
    Refused(Option<NotBegun>),
}

/// The end of the wait for a closure.
#[derive(Debug)]
struct BlockingEnd {
    end: Pin<Box<EndOf>>,
    // Why it does not run, or `None` if it does. Decided once: by its thread, or by the end of the wait.
    too_late: Arc<OnceLock<Option<Ending>>>,
    left: CancellationToken, // once the closure was left, by its end or by a panic
}

/// A task of an operation gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskFailed {
    /// It was not begun, or its operation ended.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// It panicked. The panic was printed where it happened.
    #[error("{operation} → {task} panicked")]
    Panicked {
        /// The operation.
        operation: Name,
        /// The task.
        task: Name,
    },
}

/// Counts work that goes on after its operation has ended: as a zombie while it does, and told once, when it is over.
#[derive(Debug)]
pub(crate) struct ZombieWatch {
    operation: Operation,
    work: Name,
    because: RanOn,
    running: Option<(Unguarded, MayRunOn)>,
}

/// One of [`running_unguarded`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Unguarded(());

/// Tells of a panic where it happens, so that one whose handle was dropped is counted too (contract N1).
#[derive(Debug)]
pub(crate) struct PanicWatch {
    operation: Operation,
    work: Name,
}

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// How many must-finish steps and blocking closures are running, in this process, whether or not their operation still
/// lives; the closures of drivers included. A test that leaves none behind sees its baseline again.
pub fn running_unguarded() -> usize {
    RUNNING.load(Ordering::Relaxed)
}

impl Operation {
    /// Runs `work` on a task of its own, in the scope of a child called `name`, until it is done or the operation ends.
    ///
    /// ```
    /// # use oneclock::Operation; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let op = Operation::begin("index", Duration::from_secs(1));
    /// let words = op.spawn("count", async { 7 });
    /// assert_eq!(words.await.unwrap(), 7);
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn<F>(&self, name: impl Into<Name>, work: F) -> Spawned<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let name = name.into();
        let state = match self.grant(name.clone()).driven() {
            Ok(driver) => {
                let child = driver.operation().clone();
                let running = child.clone();
                let panics = PanicWatch::new(self.clone(), name.clone());
                let parent = self.clone();
                let task = self.shutdown().spawn(async move {
                    if let Some(ending) = running.over_at(clock::now()) {
                        return Err(not_begun(&parent, running.name(), ending).into()); // before its first turn
                    }
                    let result = running.run(work).await;
                    if result.is_ok() {
                        driver.finish();
                    }
                    drop(panics);
                    result.map_err(Stopped::from)
                });
                State::Running { task, child, end: None }
            }
            Err(not_begun) => State::Refused(Some(not_begun)),
        };
        Spawned { operation: self.clone(), name, state }
    }

    /// Runs a closure on the blocking threads. Waiting for a thread spends the budget (stage `queue`); if the operation
    /// ends before one is free, the closure does not run.
    ///
    /// That it did not run is proof: then the error is a [`NotBegun`], with the outcome `not sent`.
    ///
    /// Once it runs nothing can stop it but itself: let it ask [`checkpoint`](Self::checkpoint) between its steps. The
    /// wait here ends with the operation all the same.
    ///
    /// ```
    /// # use oneclock::{Operation, Ended}; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let op = Operation::begin("thumbnails", Duration::from_secs(1));
    /// let done = op.spawn_blocking("resize", |op| {
    ///     for _row in 0..10 {
    ///         op.checkpoint()?;
    ///         // … some milliseconds of work
    ///     }
    ///     Ok::<_, Ended>("done")
    /// });
    /// assert_eq!(done.await.unwrap().unwrap(), "done");
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        name: impl Into<Name>,
        work: impl FnOnce(&Operation) -> T + Send + 'static,
    ) -> Spawned<T> {
        let name = name.into();
        let state = match self.grant(name.clone()).driven() {
            Ok(driver) => {
                let child = driver.operation().clone();
                let running = child.clone();
                let parent = self.clone();
                let task = name.clone();
                // In both: the operation's says which task waited, the task's own goes into the error of its wait.
                let queued = (self.spend(name.clone(), Stage::Queue), child.spend("queue", Stage::Queue));
                child.set_stage(Stage::Queue);
                let left = CancellationToken::new();
                let leaving = left.clone().drop_guard();
                let too_late = Arc::new(OnceLock::new());
                let end = Box::pin(EndOf::new(child.clone()));
                let end = Some(BlockingEnd { end, too_late: Arc::clone(&too_late), left });
                let closure = move || {
                    drop(queued);
                    if let Some(ending) = *too_late.get_or_init(|| running.over_at(clock::now())) {
                        return Err(not_begun(&parent, &task, ending).into()); // waited too long: it does not run
                    }
                    running.set_stage(Stage::Work);
                    let _working = parent.spend(task.clone(), Stage::Work);
                    let _panics = PanicWatch::new(parent.clone(), task.clone());
                    let _watch = ZombieWatch::new(parent, task, RanOn::Blocking);
                    let leaving = leaving;
                    let value = running.sync_scope(|| work(&running));
                    drop(leaving); // before the driver goes, also when it panics
                    running.ending(); // what ran past its end has ended early, though it is done now
                    driver.finish();
                    Ok(value)
                };
                State::Running { task: self.shutdown().spawn_uncounted(closure), child, end }
            }
            Err(not_begun) => State::Refused(Some(not_begun)),
        };
        Spawned { operation: self.clone(), name, state }
    }
}

// === Spawned ===

impl<T> Spawned<T> {
    /// Calls the task off: an async one is dropped at its next await, a closure that has not begun does not run, and one
    /// that has begun learns it at its next [`checkpoint`](Operation::checkpoint).
    pub fn abort(&self) {
        if let State::Running { child, .. } = &self.state {
            child.call_off();
        }
    }
}

impl<T> Future for Spawned<T> {
    type Output = Result<T, TaskFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.state {
            State::Running { task, child, end } => {
                if let Poll::Ready(joined) = Pin::new(task).poll(cx) {
                    return Poll::Ready(match joined {
                        Ok(result) => result.map_err(TaskFailed::from),
                        Err(error) if error.is_panic() => {
                            let operation = this.operation.name().clone();
                            Err(TaskFailed::Panicked { operation, task: this.name.clone() })
                        }
                        // Its runtime went away, and the task with it.
                        Err(_) => {
                            child.end(Cause::Shutdown);
                            match child.over_at(clock::now()) {
                                Some(ending) => Err(stopped(&this.operation, child, end.as_ref(), ending).into()),
                                None => return Poll::Pending, // it has just ended, so it is over
                            }
                        }
                    });
                }
                let Some(waiting) = end else { return Poll::Pending };
                let ending = ready!(waiting.end.as_mut().poll(cx));
                if waiting.left.is_cancelled() {
                    *end = None; // its thread is about to hand over what came of it
                    return Poll::Pending;
                }
                Poll::Ready(Err(stopped(&this.operation, child, end.as_ref(), ending).into()))
            }
            State::Refused(not_begun) => match not_begun.take() {
                Some(not_begun) => Poll::Ready(Err(Stopped::NotBegun(not_begun).into())),
                None => Poll::Pending, // polled after it was done
            },
        }
    }
}

/// The error of a task that its `ending` stopped. For a closure that has not begun, and will not, that is proof.
fn stopped(operation: &Operation, child: &Operation, end: Option<&BlockingEnd>, ending: Ending) -> Stopped {
    match end.and_then(|waiting| *waiting.too_late.get_or_init(|| Some(ending))) {
        Some(ending) => not_begun(operation, child.name(), ending).into(),
        None => Stopped::Ended(Ended::of(child, ending)),
    }
}

/// Its own event says that it ended, so none says that it was not begun.
fn not_begun(operation: &Operation, task: &Name, ending: Ending) -> NotBegun {
    NotBegun::of(operation, task.clone(), WhyNot::Ended(ending))
}

// === ZombieWatch ===

impl ZombieWatch {
    pub(crate) fn new(operation: Operation, work: Name, because: RanOn) -> Self {
        let running = Some((Unguarded::new(), MayRunOn::new(&operation, because)));
        Self { operation, work, because, running }
    }
}

impl Drop for ZombieWatch {
    fn drop(&mut self) {
        self.running = None; // before its event, which says that it is over
        let now = clock::now();
        if let Some(over) = self.operation.over_since(now) {
            self.operation.tell(&Event::RanOn {
                operation: self.operation.name(),
                work: &self.work,
                because: self.because,
                for_: now.since(over),
            });
        }
    }
}

// === Unguarded ===

impl Unguarded {
    pub(crate) fn new() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Unguarded {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

// === PanicWatch ===

impl PanicWatch {
    pub(crate) fn new(operation: Operation, work: Name) -> Self {
        Self { operation, work }
    }
}

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.operation.tell(&Event::Panicked { operation: self.operation.name(), work: &self.work });
        }
    }
}
