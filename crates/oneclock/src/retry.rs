//! Trying a call again: waits between attempts, attempts under limits of their own, and the last real error at once when
//! there is no point in another.
//!
//! Whether and when is `oneclock_core::retry`'s decision; this waits, calls and tells. Nothing of it outlives the future: who
//! drops that, stops it (invariant I9, I10; contract R1 to R9).

mod builder;
mod failed;
mod trying;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::Future;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use oneclock_core::retry::{Attempt, RetryPlan, RetryPolicy, Step, Stop, Tokens, Tried};
use oneclock_core::{Ask, Cause, Deadline, Effect, Name, Outcome, Stage, Tick};

use crate::caps::WithoutOperation;
use crate::events::{Event, TriedAgain};
use crate::grant::{NotBegun, WhyNot};
use crate::health::Health;
use crate::run::EndOf;
use crate::{Operation, clock};

pub use builder::RetriesBuilder;
pub use failed::{AttemptFailed, GaveUp, HasOutcome, Known};
pub(crate) use trying::Trying;

/// How calls to one destination are tried again: its policy, the tokens that all its calls share, and a switch. Cheap to
/// clone; clones share tokens and switch.
///
/// ```
/// # use oneclock::{Known, Operation, Retries, retry}; use oneclock_core::{Effect, Outcome, Stage, retry::RetryPolicy};
/// # use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # async fn look_up(attempt: u32) -> Result<u32, std::io::Error> {
/// #     if attempt < 3 { Err(std::io::Error::other("not now")) } else { Ok(7) }
/// # }
/// let policy = RetryPolicy::new().attempts(3).per_try(ms(100)).effect(Effect::ReadOnly).build()?;
/// let inventory = Retries::to("inventory", policy).build()?;
///
/// let op = Operation::begin("order", ms(800));
/// let stock = op.run(retry(&inventory, |attempt| async move {
///     // The current operation is this attempt's. Whoever fails says what is known of the far side.
///     let failed = |error| Known::new(error, Outcome::Unknown { stage: Stage::Wait });
///     look_up(attempt.number).await.map_err(failed)
/// })).await??;
/// assert_eq!(stock, 7);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Retries(Arc<Shared>);

struct Shared {
    name: Name,
    policy: RetryPolicy,
    ask: Ask,
    tokens: Tokens,
    on: AtomicBool,
    without_operation: WithoutOperation,
    warned: AtomicBool,
    health: Option<Health>,
    random: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// What came of a call that may have been tried several times, for drivers of protocols.
#[derive(Debug)]
#[non_exhaustive]
pub struct Driven<T> {
    /// What the last attempt came to.
    pub result: T,
    /// How many attempts were made.
    pub attempts: u32,
    /// Why there was no further one.
    pub why: Stop,
}

/// Sets the stage back when the wait is over, whichever way.
struct BackingOff<'a>(&'a Operation);

/// Tries `work` until it succeeds or there is no point in another attempt, for the current operation, with the effect that
/// the policy declares ([`Effect::Once`] where it declares none). See [`Retries::run`].
///
/// # Errors
/// [`GaveUp`], with what the last attempt came to, and why there was no further one.
///
/// # Cancel safety
/// Dropping it drops the attempt, or the wait, and there is no further one.
pub async fn retry<F, T, E>(retries: &Retries, work: impl FnMut(Attempt) -> F) -> Result<T, GaveUp<E>>
where
    F: Future<Output = Result<T, E>>,
    E: HasOutcome,
{
    let effect = retries.policy().effect().cloned().unwrap_or(Effect::Once);
    retries.run(&effect, work).await
}

/// The same, for `operation`.
///
/// # Errors
/// As [`retry`].
///
/// # Cancel safety
/// As [`retry`].
pub async fn retry_in<F, T, E>(
    operation: &Operation,
    retries: &Retries,
    work: impl FnMut(Attempt) -> F,
) -> Result<T, GaveUp<E>>
where
    F: Future<Output = Result<T, E>>,
    E: HasOutcome,
{
    let effect = retries.policy().effect().cloned().unwrap_or(Effect::Once);
    retries.run_in(operation, &effect, work).await
}

// === Retries ===

impl Retries {
    /// Begins the retries to a destination, under the name that ledgers, errors and metrics show.
    pub fn to(name: impl Into<Name>, policy: RetryPolicy) -> RetriesBuilder {
        RetriesBuilder(Shared {
            name: name.into(),
            policy,
            ask: Ask::new(),
            tokens: Tokens::new(),
            on: AtomicBool::new(true),
            without_operation: WithoutOperation::default(),
            warned: AtomicBool::new(false),
            health: None,
            random: Box::new(random),
        })
    }

    /// The destination's name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// The policy.
    pub fn policy(&self) -> &RetryPolicy {
        &self.0.policy
    }

    /// The tokens that its calls share.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// Whether calls are tried again.
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Switches retries and hedges to this destination on.
    pub fn switch_on(&self) {
        self.0.on.store(true, Ordering::Relaxed);
    }

    /// Switches retries and hedges to this destination off, from the next decision on: attempts that are under way go on.
    pub fn switch_off(&self) {
        self.0.on.store(false, Ordering::Relaxed);
    }

    /// Whether a second attempt may run beside a slow first one: they are on, and nothing speaks against the destination's
    /// health (contract R10).
    pub(crate) fn may_hedge(&self) -> bool {
        self.is_on() && self.0.health.as_ref().is_none_or(Health::is_well)
    }

    /// Tries `work` until it succeeds or there is no point in another attempt, for the current operation; where none is
    /// current, as [`WithoutOperation`] says (contract C6).
    ///
    /// Each attempt is a part of the operation: one entry in its ledger, one event at its end, and the current operation
    /// while its future is polled. It is cut off at its own limit (R3), and everything below it with it. So read an answer to
    /// its end inside of it.
    ///
    /// # Errors
    /// [`GaveUp`], with what the last attempt came to, and why there was no further one. It comes at once: nobody waits for
    /// an attempt that would not be made (R1).
    ///
    /// # Cancel safety
    /// Dropping it drops the attempt, or the wait, and there is no further one.
    pub async fn run<F, T, E>(&self, effect: &Effect, work: impl FnMut(Attempt) -> F) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
        E: HasOutcome,
    {
        self.run_in(&self.operation()?, effect, work).await
    }

    /// The same, for `operation`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_in<F, T, E>(
        &self,
        operation: &Operation,
        effect: &Effect,
        mut work: impl FnMut(Attempt) -> F,
    ) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
        E: HasOutcome,
    {
        let attempt = |attempt| {
            let begun = Trying::begin(self, operation, attempt, &mut work);
            async {
                match begun {
                    Ok(trying) => {
                        let operation = trying.operation().clone();
                        (trying.run().await, operation.gave_up_after())
                    }
                    Err(not_begun) => (Err(AttemptFailed::stopped(not_begun)), None),
                }
            }
        };
        let driven = self.drive(operation, self.0.ask, effect, attempt, tried).await;
        match driven {
            Ok(Driven { result: (Ok(value), _), .. }) => Ok(value),
            Ok(Driven { result: (Err(last), _), attempts, why }) => Err(self.gave_up(operation, attempts, why, last)),
            Err(not_begun) => Err(self.not_begun(operation, not_begun)),
        }
    }

    /// Calls `attempt` until `judge` finds that it succeeded or there is no point in another one: the loop, for drivers of
    /// protocols, which account for each attempt themselves and give it no more than its budget.
    ///
    /// `ask` is what the whole call asks of `operation`.
    ///
    /// # Errors
    /// [`NotBegun`], if there is too little time for one attempt.
    ///
    /// # Cancel safety
    /// Dropping it drops the attempt, or the wait, and there is no further one.
    pub async fn drive<F: Future>(
        &self,
        operation: &Operation,
        ask: Ask,
        effect: &Effect,
        mut attempt: impl FnMut(Attempt) -> F,
        judge: impl Fn(&F::Output) -> Tried,
    ) -> Result<Driven<F::Output>, NotBegun> {
        let now = clock::now();
        if let Some(ending) = operation.over_at(now) {
            return Err(NotBegun::told(operation, self.0.name.clone(), WhyNot::Ended(ending)));
        }
        let (plan, mut next) = RetryPlan::begin(&self.0.policy, effect, ask, operation.budget(), now)
            .map_err(|refused| NotBegun::told(operation, self.0.name.clone(), WhyNot::Refused(refused)))?;
        let mut plan = plan.serving_attempt(operation.attempt());
        loop {
            let result = attempt(next).await;
            let tried = judge(&result).switched_on(self.is_on());
            let now = clock::now();
            let mut step = match Self::ended_early(operation, now) {
                Some(stop) if tried.outcome != Outcome::Applied && !tried.to_be_told => Step::Stop(stop),
                _ => plan.tried(tried, &self.0.tokens, (self.0.random)(), now),
            };
            if let Step::Wait { until } = step {
                self.back_off(operation, until).await;
                let now = clock::now();
                step = Self::ended_early(operation, now).map_or_else(|| plan.waited(now), Step::Stop);
            }
            match step {
                Step::Attempt(again) => {
                    next = again;
                    self.tell_tried_again(operation, again.number, TriedAgain::Retry);
                }
                Step::Stop(why) => {
                    let attempts = plan.attempts();
                    self.tell_gave_up(operation, attempts, why);
                    return Ok(Driven { result, attempts, why });
                }
                // A plan never waits twice; if it did, giving up would be the safe side.
                Step::Wait { .. } => return Ok(Driven { result, attempts: plan.attempts(), why: Stop::ToldNotTo }),
            }
        }
    }

    /// Waits until then, in stage `backoff`, or until the operation ends.
    async fn back_off(&self, operation: &Operation, until: Tick) {
        let _spending = operation.spend("backoff", Stage::Backoff);
        let _staged = BackingOff::begin(operation);
        EndOf::or_at(operation.clone(), Deadline::at(until)).await;
    }

    /// Why nothing of `operation` goes on, if it ended for another reason than its deadline, which the plan knows.
    fn ended_early(operation: &Operation, now: Tick) -> Option<Stop> {
        let ending = operation.over_at(now).filter(|ending| ending.cause != Cause::Deadline)?;
        Some(Stop::Ended { cause: ending.cause })
    }

    /// The current operation, else one of the call's own, or none (contract C6).
    pub(crate) fn operation<E>(&self) -> Result<Operation, GaveUp<E>> {
        if let Some(operation) = Operation::current() {
            return Ok(operation);
        }
        let Shared { name, ask, without_operation, warned, .. } = &*self.0;
        without_operation.operation(name, ask.cap_value(), warned).map_err(|not_begun| GaveUp {
            operation: not_begun.operation.clone(),
            call: name.clone(),
            attempts: 0,
            why: Stop::Ended { cause: Cause::CalledOff },
            last: AttemptFailed::stopped(not_begun),
        })
    }

    pub(crate) fn ask(&self) -> Ask {
        self.0.ask
    }

    pub(crate) fn tell_tried_again(&self, operation: &Operation, attempt: u32, because: TriedAgain) {
        let (operation_name, call) = (operation.name(), &self.0.name);
        operation.tell(&Event::TriedAgain { operation: operation_name, call, attempt, because });
    }

    pub(crate) fn tell_gave_up(&self, operation: &Operation, attempts: u32, why: Stop) {
        if why == Stop::Done {
            return;
        }
        if why.tells_callers_not_to(attempts) {
            let below = if let Stop::HopBelow { attempts } = why { attempts } else { 0 };
            operation.set_gave_up_after(attempts.max(below));
        }
        operation.tell(&Event::GaveUp { operation: operation.name(), call: &self.0.name, attempts, why });
    }

    pub(crate) fn gave_up<E>(
        &self,
        operation: &Operation,
        attempts: u32,
        why: Stop,
        last: AttemptFailed<E>,
    ) -> GaveUp<E> {
        GaveUp { operation: operation.name().clone(), call: self.0.name.clone(), attempts, why, last }
    }

    pub(crate) fn not_begun<E>(&self, operation: &Operation, not_begun: NotBegun) -> GaveUp<E> {
        let why = match not_begun.why {
            WhyNot::Ended(ending) if ending.cause != Cause::Deadline => Stop::Ended { cause: ending.cause },
            _ => Stop::OutOfTime {
                remaining: operation.remaining(),
                wait: std::time::Duration::ZERO,
                min_useful: self.0.ask.min_useful_value(),
            },
        };
        self.gave_up(operation, 0, why, AttemptFailed::stopped(not_begun))
    }
}

/// `below` is how often something within the attempt tried before it gave up: trying that again would multiply.
fn tried<T, E: HasOutcome>((result, below): &(Result<T, AttemptFailed<E>>, Option<u32>)) -> Tried {
    match result {
        Ok(_) => Tried::new(Outcome::Applied),
        Err(failed) => {
            let tried = failed.tried();
            tried.below(tried.below.or(*below))
        }
    }
}

/// 64 random bits, from the keys that the standard library draws for its hash maps.
pub(crate) fn random() -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    KEYS.hash_one(DRAWN.fetch_add(1, Ordering::Relaxed))
}

impl fmt::Debug for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, policy, tokens, .. } = &*self.0;
        let mut debug = f.debug_struct("Retries");
        debug.field("name", name).field("policy", policy).field("tokens", tokens).field("on", &self.is_on());
        debug.finish_non_exhaustive()
    }
}

// === BackingOff ===

impl<'a> BackingOff<'a> {
    fn begin(operation: &'a Operation) -> Self {
        operation.set_stage(Stage::Backoff);
        Self(operation)
    }
}

impl Drop for BackingOff<'_> {
    fn drop(&mut self) {
        self.0.set_stage(Stage::Work);
    }
}
