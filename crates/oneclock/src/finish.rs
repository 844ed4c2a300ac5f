//! Outliving a parent, in the two ways that say so: a step that must finish, and a detached operation.
//!
//! Decides who may go on (contract N2, N5, X6): such work has its own bound, its own task, and is counted when it ran
//! on. Nothing of it begins after the operation has ended.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use oneclock_core::{Name, Outcome, Reason};

use crate::events::{Event, RanOn};
use crate::grant::{NotBegun, WhyNot};
use crate::run::{EndOf, Ended};
use crate::spawn::{PanicWatch, ZombieWatch};
use crate::{Operation, clock};

/// A step that must finish did not give its result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unfinished<E> {
    /// The operation had ended before the step began. Nothing happened.
    NotBegun(NotBegun),
    /// The caller's wait ended; the step goes on under its own bound, and its outcome is not known here.
    StillRunning {
        /// The step.
        step: Name,
        /// The step's own bound.
        bound: Duration,
        /// Why the wait ended.
        ended: Ended,
    },
    /// The step itself reached its own bound and was cut off. What happened is not known.
    CutOff(Ended),
    /// The step ended with its own error.
    Failed(E),
    /// The step panicked. What happened is not known.
    Panicked {
        /// The step.
        step: Name,
    },
}

impl Operation {
    /// Runs `step` to its end under its own `bound`, on a task of its own, even if the caller leaves or the deadline
    /// passes; waits for it as long as this operation lives (contract N2).
    ///
    /// For what must not be left half done: a charge, a write that others rely on.
    ///
    /// ```
    /// # use oneclock::{Operation, Unfinished}; use oneclock_core::Outcome; use std::time::Duration;
    /// # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let op = Operation::begin("order", ms(100));
    /// let charge = async { tokio::time::sleep(ms(300)).await; Ok::<_, std::io::Error>("receipt") };
    /// let error = op.must_finish("charge", ms(5_000), charge).await.unwrap_err();
    /// assert!(matches!(error.outcome(), Some(Outcome::Unknown { .. })), "it goes on, and may well succeed");
    /// # op.shutdown().drain(ms(10_000)).await;
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unfinished`]. Its [`outcome`](Unfinished::outcome) is unknown when the wait ended before the step.
    ///
    /// # Cancel safety
    /// Not begun until first polled. Dropped after that, the step goes on; its end is told by an event.
    pub async fn must_finish<F, T, E>(
        &self,
        step: impl Into<Name>,
        bound: Duration,
        work: F,
    ) -> Result<T, Unfinished<E>>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let step = step.into();
        if let Some(ending) = self.over_at(clock::now()) {
            return Err(Unfinished::NotBegun(NotBegun::told(self, step, WhyNot::Ended(ending))));
        }
        let driver = self.step_apart(step.clone(), bound);
        let spending = self.spend(step.clone(), oneclock_core::Stage::Work);
        let watch = ZombieWatch::new(self.clone(), step.clone(), RanOn::MustFinish);
        let panics = PanicWatch::new(self.clone(), step.clone());
        let places = self.hold_places(); // what it needs is in use until it is done, whoever waits
        if !places.is_empty() {
            driver.operation().is_step_of(self);
        }
        let mut task = self.shutdown().spawn(async move {
            let operation = driver.operation().clone();
            let result = operation.run(work).await;
            if result.is_ok() {
                driver.finish();
            }
            drop((watch, panics, places));
            result
        });
        let waited = self.wait_for(&mut task).await;
        drop(spending);
        if waited.is_ok() {
            self.tell_if_late(self.deadline());
        }
        match waited {
            Ok(Ok(Ok(Ok(value)))) => Ok(value),
            Ok(Ok(Ok(Err(error)))) => Err(Unfinished::Failed(error)),
            Ok(Ok(Err(ended))) => Err(Unfinished::CutOff(ended)),
            Ok(Err(_)) => Err(Unfinished::Panicked { step }),
            Err(ended) => Err(Unfinished::StillRunning { step, bound, ended }),
        }
    }

    /// The task's result, or the early end of this operation. Unlike [`run`](Self::run), giving up this wait ends nothing.
    async fn wait_for<F: Future + Unpin>(&self, mut task: F) -> Result<F::Output, Ended> {
        let mut end = pin!(EndOf::new(self.clone()));
        let ending = poll_fn(|cx| match Pin::new(&mut task).poll(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => end.as_mut().poll(cx).map(Err),
        });
        ending.await.map_err(|ending| Ended::of(self, ending))
    }

    /// Begins a *new* operation with its own budget, for a stated reason; the only other way to outlive this one
    /// (contract N5, N4). It is counted.
    ///
    /// ```
    /// # use oneclock::Operation; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let op = Operation::begin("order", Duration::from_millis(800));
    /// let mail = op.detach("confirmation-mail", Duration::from_secs(30), "the order is placed; the mail may be slow");
    /// op.call_off();
    /// assert!(!mail.is_ended());
    /// # }
    /// ```
    pub fn detach(&self, name: impl Into<Name>, budget: Duration, reason: &str) -> Operation {
        let name = name.into();
        self.tell(&Event::Detached { from: self.name(), operation: &name, reason });
        self.detached(name, budget)
    }
}

// === Unfinished ===

impl<E> Unfinished<E> {
    /// What is known of what the step did; `None` where the step's own error says it.
    pub fn outcome(&self) -> Option<Outcome> {
        let unknown = Outcome::Unknown { stage: oneclock_core::Stage::Work };
        match self {
            Self::NotBegun(_) => Some(Outcome::NotSent),
            Self::StillRunning { .. } | Self::CutOff(_) | Self::Panicked { .. } => Some(unknown),
            Self::Failed(_) => None,
        }
    }

    /// What a caller is told (contract section 5).
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotBegun(not_begun) => not_begun.reason(),
            Self::StillRunning { ended, .. } | Self::CutOff(ended) => ended.reason(),
            Self::Failed(_) | Self::Panicked { .. } => Reason::CalledOff,
        }
    }
}

impl<E> fmt::Display for Unfinished<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBegun(not_begun) => not_begun.fmt(f),
            Self::StillRunning { step, bound, ended } => write!(
                f,
                "{} → {step}: the wait ended ({}) and the step goes on under its own bound of {bound:?}, \
                 outcome: unknown",
                ended.operation, ended.ending
            ),
            Self::CutOff(ended) => write!(f, "{ended}, outcome: unknown"),
            Self::Failed(_) => f.write_str("the step failed"),
            Self::Panicked { step } => write!(f, "step {step} panicked, outcome: unknown"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Unfinished<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            Self::NotBegun(_) | Self::StillRunning { .. } | Self::CutOff(_) | Self::Panicked { .. } => None,
        }
    }
}
