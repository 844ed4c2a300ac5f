//! Asking an operation for time: a child operation, a bare duration, or a bounded future.
//!
//! How much is `oneclock_core::grant`'s decision. Nothing begins once the operation has ended (contract X6).

use std::fmt;
use std::future::Future;
use std::time::Duration;

use oneclock_core::admission;
use oneclock_core::name::Hop;
use oneclock_core::retry::{Attempt, Tried};
use oneclock_core::{Ask, Bound, Budget, Ending, Ledger, Name, Outcome, Reason, Refused, Stage, Tick};

use crate::call::Call;
use crate::events::{Downstream, Event};
use crate::health::{Health, HeldBack};
use crate::operation::Driver;
use crate::run::Ended;
use crate::{Operation, clock};

/// A request for time, under a name that ledgers and errors show. Made by [`Operation::grant`].
///
/// ```
/// # use oneclock::Operation; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// # fn main() -> Result<(), oneclock::NotBegun> {
/// let op = Operation::begin("order", ms(800));
/// // For a client that takes only a duration:
/// let timeout = op.grant("dynamodb").cap(ms(400)).reserve(ms(50)).remaining()?;
/// assert!(timeout <= ms(400));
/// # Ok(()) }
/// ```
#[must_use = "a grant does nothing until it is used"]
#[derive(Debug)]
pub struct Grant<'a> {
    operation: &'a Operation,
    name: Name,
    ask: Ask,
    attempt: Option<Attempt>,
    downstream: Downstream,
    health: Option<&'a Health>,
}

/// A child was not begun, because it could not have been useful. Nothing was sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotBegun {
    /// The operation that was asked.
    pub operation: Name,
    /// What was not begun.
    pub call: Name,
    /// Why not.
    pub why: WhyNot,
    /// How the operation stood then, where there is one.
    pub standing: Option<Box<Standing>>,
}

/// How an operation stood when something of it was not begun (invariant I13).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// What had made its deadline.
    pub bound: Bound,
    /// Where it was.
    pub stage: Stage,
    /// How long it had taken.
    pub elapsed: Duration,
    /// Where the time went.
    pub ledger: Ledger,
}

/// Why a child was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNot {
    /// There was too little time.
    Refused(Refused),
    /// The operation had already ended (contract X6).
    Ended(Ending),
    /// The rest is below one unit of the field that would carry it (contract E2).
    BelowTheUnit {
        /// What was left.
        remaining: Duration,
    },
    /// No operation is current, and this destination requires one (contract C6).
    NoOperation,
    /// There was no place for it, or none in time.
    NotAdmitted(admission::Refusal),
    /// What it calls refuses or fails too often (contract R9). Final for this call: nothing is gained by asking again.
    HeldBack(HeldBack),
}

/// A bounded child did not give its result: it was not begun, or it was cut off.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Stopped {
    /// Not begun: proof that nothing happened.
    #[error(transparent)]
    NotBegun(#[from] NotBegun),
    /// Cut off: what happened is not known.
    #[error(transparent)]
    Ended(#[from] Ended),
}

impl Operation {
    /// Asks for time for a child called `name`. See [`Grant`].
    pub fn grant(&self, name: impl Into<Name>) -> Grant<'_> {
        let (name, downstream) = (name.into(), Downstream::default());
        Grant { operation: self, name, ask: Ask::new(), attempt: None, downstream, health: None }
    }
}

// === Grant ===

impl<'a> Grant<'a> {
    /// At most `cap`. It can shorten, never extend (invariant I3).
    pub fn cap(mut self, cap: Duration) -> Self {
        self.ask = self.ask.cap(cap);
        self
    }

    /// Keeps `reserve` back for the operation's later steps and for the way home.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.ask = self.ask.reserve(reserve);
        self
    }

    /// The least that is useful; 5 ms unless said otherwise. With less left, the child is not begun.
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.ask = self.ask.min_useful(min_useful);
        self
    }

    /// Everything at once, for code that keeps an [`Ask`] per destination.
    pub fn ask(mut self, ask: Ask) -> Self {
        self.ask = ask;
        self
    }

    /// It is this attempt of a call that is tried several times, and spends no more than that. For drivers.
    pub fn attempt(mut self, attempt: Attempt) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// What sort of thing a call goes to; a service unless said otherwise. For drivers.
    pub fn to(mut self, downstream: Downstream) -> Self {
        self.downstream = downstream;
        self
    }

    /// Asks the health of what is called before a [`call`](Self::call) is begun, and tells it how that comes out. For drivers,
    /// which tell it what they see by [`Call::saw`].
    pub fn health(mut self, health: &'a Health) -> Self {
        self.health = Some(health);
        self
    }

    /// What this child may spend, for a client that takes only a duration.
    ///
    /// # Errors
    /// [`NotBegun`], if that is too little.
    pub fn remaining(self) -> Result<Duration, NotBegun> {
        let (budget, now) = self.decide()?;
        Ok(budget.deadline.remaining(now))
    }

    /// A child operation, for code that takes one.
    ///
    /// # Errors
    /// [`NotBegun`], if there is too little time.
    pub fn operation(self) -> Result<Operation, NotBegun> {
        let (budget, _) = self.decide()?;
        Ok(self.operation.child(self.name, budget))
    }

    /// A call to something downstream: an entry in the ledger, stages, and one event at its end. For drivers of
    /// protocols.
    ///
    /// # Errors
    /// [`NotBegun`], if there is too little time, or if its destination's health speaks against it.
    pub fn call(self) -> Result<Call, NotBegun> {
        let (budget, now) = self.decide()?;
        let watch = match self.health.map(|health| health.ask_at(budget.deadline.remaining(now), now)).transpose() {
            Ok(watch) => watch,
            Err(held_back) => return Err(NotBegun::told(self.operation, self.name, WhyNot::HeldBack(held_back))),
        };
        let before = self.attempt.map_or(0, |attempt| attempt.number.saturating_sub(1));
        let attempt = self.operation.attempt().saturating_add(before);
        Ok(Call::begin(self.operation.clone(), self.name, budget, now, attempt, self.downstream).watched(watch))
    }

    /// Runs what `work` makes of the child operation until it is done or its time is up.
    ///
    /// ```
    /// # use oneclock::{Operation, Stopped}; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let op = Operation::begin("order", ms(800));
    /// let slow = op.grant("pricing").cap(ms(300)).run(|_| tokio::time::sleep(ms(500))).await;
    /// assert!(matches!(slow, Err(Stopped::Ended(ended)) if ended.elapsed >= ms(300)));
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Stopped`], if it was not begun or was cut off.
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the child has ended.
    pub async fn run<F: Future>(self, work: impl FnOnce(Operation) -> F) -> Result<F::Output, Stopped> {
        let parent = self.operation;
        let driver = self.driven()?;
        let child = driver.operation().clone();
        let spending = parent.spend(child.name().clone(), Stage::Work);
        let running = child.clone();
        let result = child.run(async move { work(running).await }).await; // made in the child's scope, too
        drop(spending);
        if result.is_ok() {
            driver.finish();
        }
        Ok(result?)
    }

    /// A child operation that is over when its driver says so.
    pub(crate) fn driven(self) -> Result<Driver, NotBegun> {
        let (budget, _) = self.decide()?;
        Ok(self.operation.driven_child(self.name, budget))
    }

    /// The budget, and the moment from which it counts.
    fn decide(&self) -> Result<(Budget, Tick), NotBegun> {
        let now = clock::now();
        let why = match self.operation.over_at(now) {
            Some(ending) => WhyNot::Ended(ending),
            None => match self.ask.of(self.operation.budget(), now) {
                Ok(budget) => return Ok((self.attempt.map_or(budget, |one| budget.shortened(one.budget)), now)),
                Err(refused) => WhyNot::Refused(refused),
            },
        };
        Err(NotBegun::told(self.operation, self.name.clone(), why))
    }
}

// === NotBegun ===

impl NotBegun {
    /// The error alone, where another event tells of it already. For drivers.
    pub fn of(operation: &Operation, call: Name, why: WhyNot) -> Self {
        let standing = Standing {
            bound: operation.bound(),
            stage: operation.stage(),
            elapsed: clock::now().since(operation.began()),
            ledger: operation.ledger(),
        };
        Self { operation: operation.name().clone(), call, why, standing: Some(Box::new(standing)) }
    }

    /// The error of a call for which there is no operation. For drivers.
    pub fn without_operation(operation: Name, call: Name) -> Self {
        Self { operation, call, why: WhyNot::NoOperation, standing: None }
    }

    /// Makes the error and sends its event. For drivers.
    pub fn told(operation: &Operation, call: Name, why: WhyNot) -> Self {
        let not_begun = Self::of(operation, call, why);
        operation.tell(&Event::NotCalled {
            operation: &not_begun.operation,
            call: &not_begun.call,
            reason: not_begun.reason(),
        });
        not_begun
    }

    /// What a caller is told (contract section 5).
    pub fn reason(&self) -> Reason {
        self.why.reason()
    }

    /// What is known of another attempt.
    pub(crate) fn tried(&self) -> Tried {
        Tried::new(Outcome::NotSent).held_back(matches!(self.why, WhyNot::HeldBack(_)))
    }
}

impl fmt::Display for NotBegun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hop = Hop(&self.operation, Some(&self.call));
        write!(f, "{hop} not begun: {}, outcome: {}", self.why, Outcome::NotSent)
    }
}

impl std::error::Error for NotBegun {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

// === WhyNot ===

impl WhyNot {
    /// What a caller is told (contract section 5).
    pub fn reason(&self) -> Reason {
        match self {
            Self::Refused(refused) => refused.reason(),
            Self::Ended(ending) => ending.reason(),
            Self::BelowTheUnit { .. } => Reason::InsufficientBudget,
            Self::NoOperation => Reason::CalledOff,
            Self::NotAdmitted(refusal) => refusal.reason(),
            Self::HeldBack(_) => Reason::Shed,
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => write!(f, "{refused}"),
            Self::Ended(ending) => write!(f, "the operation was over: {ending}"),
            Self::BelowTheUnit { remaining } => {
                write!(f, "{remaining:?} left, less than one unit of the field that would carry it")
            }
            Self::NoOperation => {
                f.write_str("no operation is current and this destination requires one; run it in Operation::scope")
            }
            Self::NotAdmitted(refusal) => write!(f, "{refusal}"),
            Self::HeldBack(held_back) => write!(f, "{held_back}"),
        }
    }
}

/// At the end of the source chain of whatever was not begun, so that any wrapper around it still leads here.
impl std::error::Error for WhyNot {}

// === Stopped ===

impl Stopped {
    /// The same, where `outcome` was found out after the end. What was not begun was not sent, whatever is said here. For
    /// drivers.
    #[must_use]
    pub fn knowing(self, outcome: Outcome) -> Self {
        match self {
            Self::Ended(ended) => Self::Ended(Ended { found: Some(outcome), ..ended }),
            not_begun @ Self::NotBegun(_) => not_begun,
        }
    }

    /// What is known of what was stopped.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NotBegun(_) => Outcome::NotSent,
            Self::Ended(ended) => ended.outcome(),
        }
    }

    /// What is known of another attempt. For drivers.
    pub fn tried(&self) -> Tried {
        match self {
            Self::NotBegun(not_begun) => not_begun.tried(),
            Self::Ended(ended) => Tried::new(ended.outcome()),
        }
    }

    /// What a caller is told (contract section 5).
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotBegun(not_begun) => not_begun.reason(),
            Self::Ended(ended) => ended.reason(),
        }
    }
}
