//! A second attempt beside a first one that is slow; the first answer of the two counts, and the other is cut off.
//!
//! Whether there is one is `oneclock_core::retry::hedge`'s decision (contract R10): only for what reads or is idempotent,
//! inside the budget, with tokens to spare, and only while the destination is well. No attempt has a limit of its own here: a hedge ends nothing (R4).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use oneclock_core::retry::{self, Attempt, HEDGE_LEAST_DELAY, Stop};
use oneclock_core::{Ask, Cause, Deadline, Effect, Outcome};

use crate::events::TriedAgain;
use crate::grant::{NotBegun, WhyNot};
use crate::retry::{AttemptFailed, GaveUp, HasOutcome, Retries, Trying};
use crate::{Operation, clock};

/// Runs `work`, and a second time beside the first if that has no result `after` this time, for the current operation, with
/// the effect that the policy declares. See [`Retries::hedge`].
///
/// # Errors
/// As [`Retries::hedge`].
///
/// # Cancel safety
/// As [`Retries::hedge`].
pub async fn hedge<F, T, E>(
    retries: &Retries,
    after: impl Into<Option<Duration>>,
    work: impl FnMut(Attempt) -> F,
) -> Result<T, GaveUp<E>>
where
    F: Future<Output = Result<T, E>>,
    E: HasOutcome,
{
    let effect = retries.policy().effect().cloned().unwrap_or(Effect::Once);
    retries.hedge(&effect, after, work).await
}

/// The same, for `operation`.
///
/// # Errors
/// As [`Retries::hedge`].
///
/// # Cancel safety
/// As [`Retries::hedge`].
pub async fn hedge_in<F, T, E>(
    operation: &Operation,
    retries: &Retries,
    after: impl Into<Option<Duration>>,
    work: impl FnMut(Attempt) -> F,
) -> Result<T, GaveUp<E>>
where
    F: Future<Output = Result<T, E>>,
    E: HasOutcome,
{
    let effect = retries.policy().effect().cloned().unwrap_or(Effect::Once);
    retries.hedge_in(operation, &effect, after, work).await
}

/// One of the two.
struct Racing<F> {
    operation: Operation,
    work: Option<Pin<Box<F>>>, // none: it is over
}

impl Retries {
    /// Runs `work`, and a second time beside the first if that has no result `after` this time. The first success counts, or
    /// the first definite error; the other one is called off. `after` is a time that few calls take, such as their 95th
    /// percentile, from whoever measures it; `None`, where nobody knows yet, never hedges. Less than 2 ms is 2 ms.
    ///
    /// The policy's limit per attempt has no say here: the first attempt keeps what it has. A first attempt that fails is not
    /// repeated; that is [`run`](Self::run)'s job.
    ///
    /// ```
    /// # use oneclock::{Known, Operation, Retries, hedge}; use oneclock_core::{Effect, retry::{RetryPolicy}};
    /// # use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = RetryPolicy::new().effect(Effect::ReadOnly).build()?;
    /// let inventory = Retries::to("inventory", policy).build()?;
    /// # for _ in 0..500 { inventory.tokens().succeeded(); }
    ///
    /// let op = Operation::begin("order", ms(800));
    /// let which = op.run(hedge(&inventory, ms(20), |attempt| async move {
    ///     tokio::time::sleep(if attempt.number == 1 { ms(500) } else { ms(10) }).await; // one slow replica
    ///     Ok::<_, Known<std::io::Error>>(attempt.number)
    /// })).await??;
    /// assert_eq!(which, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`GaveUp`], with what the last of the two came to.
    ///
    /// # Cancel safety
    /// Dropping it drops both.
    pub async fn hedge<F, T, E>(
        &self,
        effect: &Effect,
        after: impl Into<Option<Duration>>,
        work: impl FnMut(Attempt) -> F,
    ) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
        E: HasOutcome,
    {
        self.hedge_in(&self.operation()?, effect, after, work).await
    }

    /// The same, for `operation`.
    ///
    /// # Errors
    /// As [`hedge`](Self::hedge).
    ///
    /// # Cancel safety
    /// As [`hedge`](Self::hedge).
    pub async fn hedge_in<F, T, E>(
        &self,
        operation: &Operation,
        effect: &Effect,
        after: impl Into<Option<Duration>>,
        mut work: impl FnMut(Attempt) -> F,
    ) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
        E: HasOutcome,
    {
        let began = clock::now();
        let whole = match operation.over_at(began) {
            Some(ending) => Err(WhyNot::Ended(ending)),
            None => self.ask().of(operation.budget(), began).map_err(WhyNot::Refused),
        };
        let whole =
            whole.map_err(|why| self.not_begun(operation, NotBegun::told(operation, self.name().clone(), why)))?;
        let mut begin = |attempt| match Trying::begin(self, operation, attempt, &mut work) {
            Ok(trying) => Ok(Racing { operation: trying.operation().clone(), work: Some(Box::pin(trying.run())) }),
            Err(not_begun) => Err(self.not_begun(operation, not_begun)),
        };
        let mut first = begin(Attempt { number: 1, budget: whole })?;

        if let Some(after) = after.into() {
            let due = Deadline::after(began, after.max(HEDGE_LEAST_DELAY));
            let mut timer = pin!(tokio::time::sleep_until(clock::instant(due)));
            let early = poll_fn(|cx| match first.poll(cx) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
            });
            if let Some(result) = early.await {
                return self.settled(operation, 1, result);
            }
            let least = Ask::new().min_useful(self.ask().min_useful_value());
            let hedged = |attempt| {
                let policy = self.policy();
                retry::hedge(policy, effect, least, whole, attempt, self.tokens(), clock::now())
            };
            if self.may_hedge()
                && let Ok(attempt) = hedged(operation.attempt())
                && let Ok(mut second) = begin(attempt)
            {
                self.tell_tried_again(operation, 2, TriedAgain::Hedge);
                let result = poll_fn(|cx| race(&mut first, &mut second, cx)).await;
                first.lose();
                second.lose();
                return self.settled(operation, 2, result);
            }
        }
        let result = poll_fn(|cx| first.poll(cx)).await;
        self.settled(operation, 1, result)
    }

    fn settled<T, E: HasOutcome>(
        &self,
        operation: &Operation,
        attempts: u32,
        result: Result<T, AttemptFailed<E>>,
    ) -> Result<T, GaveUp<E>> {
        let last = match result {
            Ok(value) => {
                self.tokens().succeeded();
                return Ok(value);
            }
            Err(last) => last,
        };
        let why = match operation.over_at(clock::now()) {
            Some(ending) if ending.cause != Cause::Deadline => Stop::Ended { cause: ending.cause },
            _ => Stop::AllMade { attempts },
        };
        self.tell_gave_up(operation, attempts, why);
        Err(self.gave_up(operation, attempts, why, last))
    }
}

/// The first success or definite error of the two, else what the last one came to. The older one is asked first.
fn race<F, T, E>(
    first: &mut Racing<F>,
    second: &mut Racing<F>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, AttemptFailed<E>>>
where
    F: Future<Output = Result<T, AttemptFailed<E>>>,
    E: HasOutcome,
{
    match first.poll(cx) {
        Poll::Ready(result) if decides(&result) || second.is_over() => Poll::Ready(result),
        Poll::Ready(_) | Poll::Pending => match second.poll(cx) {
            Poll::Ready(result) if decides(&result) || first.is_over() => Poll::Ready(result),
            Poll::Ready(_) | Poll::Pending => Poll::Pending,
        },
    }
}

fn decides<T, E: HasOutcome>(result: &Result<T, AttemptFailed<E>>) -> bool {
    result.as_ref().err().is_none_or(|failed| failed.outcome() == Outcome::Failed)
}

// === Racing ===

impl<F: Future> Racing<F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F> Racing<F> {
    fn is_over(&self) -> bool {
        self.work.is_none()
    }

    /// The other one won: everything below this one ends as called off, not as if its caller had left.
    fn lose(&mut self) {
        if let Some(work) = self.work.take() {
            self.operation.call_off();
            drop(work);
        }
    }
}
