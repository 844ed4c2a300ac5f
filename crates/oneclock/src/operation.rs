//! The operation: one deadline, one cancel tree, one first ending, one ledger.
//!
//! Decides how the pieces of the core hang together while work runs: who inherits what, and which ending counts. What a
//! child may spend is `oneclock_core::grant`'s decision; waiting until an end is [`Run`]'s.

mod admitted;
mod driver;
mod inner;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use oneclock_core::ending::Life;
use oneclock_core::ledger::EntryId;
use oneclock_core::{Bound, BoundBy, Budget, Cause, Deadline, Ending, Importance, Ledger, Name, Reason, Stage, Tick};
use tokio_util::sync::CancellationToken;

use crate::admission::Place;
use crate::events::{self, AnswerHead, CallBegan, Event, Fields, Late, Observer, RequestBegan, Slot, Target};
use crate::on_end::Left;
use crate::run::{Ended, Run};
use crate::shutdown::Shutdown;
use crate::{clock, scope};

pub(crate) use admitted::HoldsPlace;
pub use driver::{Driver, Polling};

/// The work whose result somebody waits for. It owns exactly one deadline.
///
/// Cheap to clone; all clones are the same operation. Inside a handler it is the [`current`](Self::current) one. What it
/// begins (calls, branches, tasks) never outlives it, except through [`must_finish`](Self::must_finish) and
/// [`detach`](Self::detach), which say so.
///
/// It is over in one of two ways, and only one of them: it *ended early*, with an [`Ending`], or its work is *done*. One
/// whose work is done has no ending: [`ending`](Self::ending) is `None`, [`is_ended`](Self::is_ended) is false and
/// [`checkpoint`](Self::checkpoint) passes, also once its deadline is past. All the same nothing of it begins any more
/// (contract N5, X6): [`run`](Self::run) does not poll and [`grant`](Self::grant) refuses, both as called off, and what
/// it left behind ends as called off too. [`deadline`](Self::deadline), [`remaining`](Self::remaining) and
/// [`ledger`](Self::ledger) answer as ever.
///
/// ```
/// # use oneclock::Operation; use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let nightly = Operation::begin("nightly-reconcile", Duration::from_secs(300));
/// let rows = nightly.run(async {
///     // Anywhere below, however deep:
///     let left = oneclock::remaining().unwrap();
///     assert!(left <= Duration::from_secs(300));
///     42
/// }).await;
/// assert_eq!(rows.unwrap(), 42);
/// # }
/// ```
#[derive(Clone)]
pub struct Operation(pub(crate) Arc<Inner>);

/// What sort of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A request from somebody else.
    Request,
    /// Begun by our own code, outside a request.
    Begun,
    /// Part of another operation; never outlives it.
    Child,
    /// Begun from another operation, with its own deadline and a reason.
    Detached,
    /// A step that runs to its end under its own bound although its caller left.
    MustFinish,
    /// The stream behind the head of a request on a route that was declared streaming.
    Stream,
}

/// What operations hand down to those that they begin.
#[derive(Clone, Default)]
pub(crate) struct Context {
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) shutdown: Option<Shutdown>,
    pub(crate) attempts_before: u32, // of the request that all this is for, by the hop above
    pub(crate) route: Option<Name>,  // of that request
    pub(crate) importance: Importance, // of that request, or of the part that this is
    pub(crate) begun_from: Slot,     // the nearest slot of what this was begun from without being a part of it
}

pub(crate) struct Inner {
    name: Name,
    kind: Kind,
    began: Tick,
    budget: Budget,
    life: Life,
    stage: AtomicU8,
    on_the_way: AtomicU32,              // values of it that are in a queue
    token: OnceLock<CancellationToken>, // made for the first that waits: most operations are over before anybody does
    parent: Option<Operation>,
    context: Context,
    ledger: Mutex<Ledger>,
    driven: bool,                          // whether a `Driver` decides when it is over
    unfinished: AtomicBool,                // whether its last `run` was dropped before its end
    panicked: AtomicBool,                  // whether a panic unwound through its work
    left: OnceLock<Mutex<VecDeque<Left>>>, // hooks that were cut off with its work: due if it ends early
    answered: OnceLock<Reason>,            // what its answer gave as its reason
    gave_up_after: AtomicU32,              // attempts that a call of it made in vain, or a hop below; 0: none did
    told_when_over: AtomicBool,            // whether somebody waits on its token, or it is over
    told: AtomicBool,                      // whether its event was sent
    goes_on: AtomicBool,                   // whether a stream was begun behind its head
    slot: OnceLock<Slot>,                  // what its observer keeps beside it
    step_of: OnceLock<Operation>,          // of a step that must finish: what it is a step of, for the places of that
    place: OnceLock<Place>,                // what it was given at its arrival, of what is scarce
}

/// How many hooks an operation keeps of work that was dropped in the middle.
const LEFT_AT_MOST: usize = 64;

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// How many operations of this process are not over. A test that leaves none behind sees its baseline again.
pub fn live_operations() -> usize {
    LIVE.load(Ordering::Relaxed)
}

// === Operation: beginning ===

impl Operation {
    /// Begins an operation outside a request, with a budget of its own.
    ///
    /// It is over when you [`finish`](Self::finish) it, at the latest when its last clone is dropped; [`run`](Self::run)
    /// enforces its deadline. Dropped while a `run` had been
    /// dropped unfinished, it ends with the cause that a drop has (contract X4); otherwise its work was done.
    pub fn begin(name: impl Into<Name>, budget: Duration) -> Self {
        let now = clock::now();
        Self::new(Parts {
            name: name.into(),
            kind: Kind::Begun,
            began: now,
            budget: Budget::begin(BoundBy::Cap, budget, now),
            parent: None,
            context: Context::default(),
            driven: false,
        })
    }

    /// Begins the operation of a request, for a layer that has decided its budget. The driver says when it is over.
    ///
    /// `began` is when the head was read (contract K1). With `within`, an operation that encloses this one (an outer
    /// layer's), it never outlives that. `shutdown` ends it when the grace of a shutdown is over.
    pub fn arrive(
        name: Name,
        began: Tick,
        budget: Budget,
        within: Option<Operation>,
        shutdown: Option<&Shutdown>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Driver {
        let budget = within.as_ref().map_or(budget, |outer| budget.shortened(outer.budget()));
        let outer = within.as_ref().map(|outer| &outer.0.context);
        let context = Context {
            observer: observer.or_else(|| outer?.observer.clone()),
            shutdown: shutdown.or_else(|| outer?.shutdown.as_ref()).cloned(),
            attempts_before: outer.map_or(0, |outer| outer.attempts_before),
            route: outer.and_then(|outer| outer.route.clone()),
            importance: outer.map_or(Importance::Required, |outer| outer.importance),
            begun_from: outer.map_or_else(Slot::default, |outer| outer.begun_from.clone()),
        };
        let parts = Parts { name, kind: Kind::Request, began, budget, parent: within, context, driven: true };
        Driver::of(Self::new(parts))
    }

    /// The same operation, with its events sent to `observer`. What it begins inherits it.
    ///
    /// Call it right after [`begin`](Self::begin). Once the operation was cloned or has a hook, nothing is observed by it: that
    /// is an error in the log.
    ///
    /// # Panics
    /// Then, in debug builds.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        if let Some(inner) = self.unshared("an observer") {
            inner.context.observer = Some(observer);
        }
        self
    }

    /// The same operation, ended when the grace of `shutdown` is over. What it begins inherits it.
    ///
    /// Call it right after [`begin`](Self::begin). Once the operation was cloned or has a hook, **it is not ended by this
    /// shutdown**: that is an error in the log.
    ///
    /// # Panics
    /// Then, in debug builds.
    #[must_use]
    pub fn ended_by(mut self, shutdown: &Shutdown) -> Self {
        if let Some(inner) = self.unshared("a shutdown") {
            inner.token = OnceLock::new();
            inner.context.shutdown = Some(shutdown.clone());
        }
        self
    }

    /// The same operation, shortened to what the platform leaves (a function's own limit, for example). `limit` gives
    /// the time left, or `None` where there is no limit; it never extends (invariant I3).
    ///
    /// ```
    /// # use oneclock::Operation; use std::time::Duration;
    /// let handler = Operation::begin("handler", Duration::from_secs(60)).platform(|| Some(Duration::from_secs(14)));
    /// assert!(handler.remaining() <= Duration::from_secs(14));
    /// ```
    #[must_use]
    pub fn platform(self, limit: impl FnOnce() -> Option<Duration>) -> Self {
        self.shortened(BoundBy::Platform, limit())
    }

    /// The same operation, shortened to what is left of the life of the durable work that it does; `None` where that has no end.
    /// Call it right after [`begin`](Self::begin).
    ///
    /// ```
    /// # use oneclock::{BoundBy, Operation}; use std::time::Duration;
    /// let mail = Operation::begin("mail", Duration::from_secs(30)).expires_in(Some(Duration::from_secs(4)));
    /// assert_eq!(mail.bound().by, BoundBy::Expiry);
    /// ```
    #[must_use]
    pub fn expires_in(self, left: Option<Duration>) -> Self {
        self.shortened(BoundBy::Expiry, left)
    }

    fn shortened(mut self, by: BoundBy, limit: Option<Duration>) -> Self {
        let Some(limit) = limit else { return self };
        let budget = self.budget().shortened(Budget::begin(by, limit, clock::now()));
        match Arc::get_mut(&mut self.0) {
            Some(inner) => {
                inner.budget = budget;
                self
            }
            None => self.child(self.0.name.clone(), budget),
        }
    }

    /// A part of this operation that is over when its last clone is dropped.
    pub(crate) fn child(&self, name: Name, budget: Budget) -> Self {
        self.part(name, budget, false)
    }

    /// A part of this operation that is over when its driver says so.
    pub(crate) fn driven_child(&self, name: Name, budget: Budget) -> Driver {
        Driver::of(self.part(name, budget, true))
    }

    fn part(&self, name: Name, budget: Budget, driven: bool) -> Self {
        Self::new(Parts {
            name,
            kind: Kind::Child,
            began: clock::now(),
            budget: budget.shortened(self.budget()),
            parent: Some(self.clone()),
            context: self.0.context.clone(),
            driven,
        })
    }

    /// A step of this operation under a bound of its own, which this operation's end does not end.
    pub(crate) fn step_apart(&self, name: Name, bound: Duration) -> Driver {
        Driver::of(self.apart(name, Kind::MustFinish, bound, true))
    }

    /// A new operation that shares nothing with this one but who observes it.
    pub(crate) fn detached(&self, name: Name, budget: Duration) -> Self {
        self.apart(name, Kind::Detached, budget, false)
    }

    /// The operation of the stream behind this request's head, which has a total limit of its own (contract S2), or the
    /// caller's where `by` says so (S1). For layers.
    pub fn begin_stream(&self, total: Duration, by: BoundBy) -> Driver {
        let stream = self.apart_by(self.0.name.clone(), Kind::Stream, total, by, true);
        if let Some(slot) = self.slot() {
            stream.keep(slot.clone()); // so that whoever keeps something of the request is told of its stream's end too
        }
        self.0.goes_on.store(true, Ordering::Release);
        Driver::of(stream)
    }

    fn apart(&self, name: Name, kind: Kind, budget: Duration, driven: bool) -> Self {
        self.apart_by(name, kind, budget, BoundBy::Cap, driven)
    }

    fn apart_by(&self, name: Name, kind: Kind, budget: Duration, by: BoundBy, driven: bool) -> Self {
        let now = clock::now();
        Self::new(Parts {
            name,
            kind,
            began: now,
            budget: Budget::begin(by, budget, now),
            parent: None,
            context: Context { begun_from: self.nearest_slot().clone(), ..self.0.context.clone() },
            driven,
        })
    }

    fn new(parts: Parts) -> Self {
        LIVE.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Inner {
            name: parts.name,
            kind: parts.kind,
            began: parts.began,
            budget: parts.budget,
            life: Life::new(),
            stage: AtomicU8::new(Stage::Work.code()),
            on_the_way: AtomicU32::new(0),
            token: OnceLock::new(),
            parent: parts.parent,
            context: parts.context,
            ledger: Mutex::new(Ledger::new(parts.began)),
            driven: parts.driven,
            unfinished: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            left: OnceLock::new(),
            answered: OnceLock::new(),
            gave_up_after: AtomicU32::new(0),
            told_when_over: AtomicBool::new(false),
            told: AtomicBool::new(false),
            goes_on: AtomicBool::new(false),
            slot: OnceLock::new(),
            step_of: OnceLock::new(),
            place: OnceLock::new(),
        }))
    }
}

struct Parts {
    name: Name,
    kind: Kind,
    began: Tick,
    budget: Budget,
    parent: Option<Operation>,
    context: Context,
    driven: bool,
}

// === Operation: asking ===

impl Operation {
    /// The operation in whose scope this code runs, if there is one.
    ///
    /// It follows the futures that the operation's own methods run, not `tokio::spawn`: use [`spawn`](Self::spawn), or
    /// [`scope`](Self::scope) a future yourself.
    pub fn current() -> Option<Self> {
        scope::current(Self::clone)
    }

    /// What it is called.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// What sort of operation it is.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What the request that all this is for was matched to, where that is known: a router's pattern.
    pub fn route(&self) -> Option<&Name> {
        self.0.context.route.as_ref()
    }

    /// Puts something of an observer's beside it, which comes back in its last event. The first one stays.
    pub fn keep(&self, slot: Slot) {
        let _ = self.0.slot.set(slot);
    }

    /// What an observer put beside it.
    pub fn slot(&self) -> Option<&Slot> {
        self.0.slot.get()
    }

    /// What an observer put beside it, else beside the nearest operation that it is a part of or was begun from: a step that
    /// must finish and a detached operation have the slot of the request that they serve. Empty if there is none.
    pub fn nearest_slot(&self) -> &Slot {
        self.0.nearest_slot()
    }

    /// When it began. For a request: when its head was read.
    pub fn began(&self) -> Tick {
        self.0.began
    }

    /// Its deadline and what made it.
    pub fn budget(&self) -> Budget {
        self.0.budget
    }

    /// The moment after which its result is useless.
    pub fn deadline(&self) -> Deadline {
        self.0.budget.deadline
    }

    /// What made its deadline.
    pub fn bound(&self) -> Bound {
        self.0.budget.bound
    }

    /// What is left; zero once the deadline is past, whether or not it is over.
    pub fn remaining(&self) -> Duration {
        self.deadline().remaining(clock::now())
    }

    /// The operation that this one is a part of.
    pub fn parent(&self) -> Option<&Operation> {
        self.0.parent.as_ref()
    }

    /// Which attempt of the hop above the request is that all this is for; one for the first, and where there is no request.
    /// What serves a retry retries nothing itself (contract R9).
    pub fn attempt(&self) -> u32 {
        self.0.context.attempts_before.saturating_add(1)
    }

    /// How many attempts a call of it, or of a part of it, or a hop below, made before giving up; `None` if none did. The
    /// answer tells callers inside the trust boundary, so that they do not multiply (contract R9).
    pub fn gave_up_after(&self) -> Option<u32> {
        let attempts = self.0.gave_up_after.load(Ordering::Relaxed);
        (attempts > 0).then_some(attempts)
    }

    /// Its answer is a problem with this reason: told in its event. The first one stays. For layers.
    pub fn set_answered(&self, reason: Reason) {
        let _ = self.0.answered.set(reason);
    }

    /// A call of it, or a hop below, gave up after so many attempts. For drivers.
    pub fn set_gave_up_after(&self, attempts: u32) {
        for inner in std::iter::once(&*self.0).chain(self.0.above()) {
            inner.gave_up_after.fetch_max(attempts, Ordering::Relaxed);
        }
    }

    /// Whether it ended early or its deadline is past. False for one whose work is done. Cheap: for loops, use
    /// [`checkpoint`](Self::checkpoint).
    pub fn is_ended(&self) -> bool {
        self.ending().is_some()
    }

    /// Why it ended early, if it did; `None` for one that lives, and for one whose work is done. The first cause wins
    /// (contract X4): its own, else that of the operation it is a part of, else the clock's.
    pub fn ending(&self) -> Option<Ending> {
        self.ending_at(clock::now())
    }

    /// The same, for drivers that know the time already.
    pub fn ending_at(&self, now: Tick) -> Option<Ending> {
        self.0.ending_at(now)
    }

    /// Why nothing of it may begin or go on: its early end, or that its work is done (contract N5, X6).
    pub(crate) fn over_at(&self, now: Tick) -> Option<Ending> {
        self.ending_at(now).or_else(|| {
            let done = Ending { cause: Cause::CalledOff, bound: self.bound().by, stage: self.stage(), at: now };
            // It may have ended since it was asked.
            self.is_over().then(|| self.0.life.ending().unwrap_or(done))
        })
    }

    /// Since when it is over, whichever way. A deadline that nobody asked about is noticed here, and was there before.
    pub(crate) fn over_since(&self, now: Tick) -> Option<Tick> {
        match self.ending_at(now) {
            Some(ending) => Some(ending.at.min(self.deadline().tick())),
            None => self.0.life.over(),
        }
    }

    /// Returns once it has ended early, and why. Never returns for an operation whose work is done.
    ///
    /// # Cancel safety
    /// Waits only; dropping it changes nothing.
    pub async fn ended(&self) -> Ending {
        loop {
            if let Some(ending) = self.ending() {
                return ending;
            }
            if !self.0.life.is_live() {
                match self.0.life.ending() {
                    Some(ending) => return ending, // since it was asked above
                    None => std::future::pending::<()>().await,
                }
            }
            tokio::select! {
                () = self.token().cancelled() => {}
                () = tokio::time::sleep_until(clock::instant(self.deadline())) => {}
            }
        }
    }

    /// For long work between awaits, and for blocking closures: whether it is still worth going on (invariant I7).
    ///
    /// # Errors
    /// [`Ended`] once the operation has ended early; not for one whose work is done. Return it with `?`.
    ///
    /// ```
    /// # use oneclock::{Operation, Ended};
    /// fn sum(op: &Operation, rows: &[u64]) -> Result<u64, Ended> {
    ///     let mut sum = 0;
    ///     for chunk in rows.chunks(10_000) {
    ///         op.checkpoint()?;
    ///         sum += chunk.iter().sum::<u64>();
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub fn checkpoint(&self) -> Result<(), Ended> {
        match self.ending() {
            Some(ending) => Err(Ended::of(self, ending)),
            None => Ok(()),
        }
    }

    /// A copy of its ledger so far. What closes later closes in the operation, not in the copy.
    pub fn ledger(&self) -> Ledger {
        self.lock_ledger().clone()
    }
}

// === Operation: ending and running ===

impl Operation {
    /// Calls it off: it and everything below it ends. Returns whether this was the first end.
    pub fn call_off(&self) -> bool {
        self.end(Cause::CalledOff)
    }

    /// Its work is done: nothing of it begins any more, what of it still runs ends as called off (contract N5), and its
    /// event is sent. Returns whether it is the first to say so; one that had ended early stays what it is.
    ///
    /// For work of your own, from [`begin`](Self::begin) and [`detach`](Self::detach). Without this it is done when its last
    /// clone is dropped; with clones in tasks, hooks and queues nobody knows when that is. A request is done when its layer
    /// says so, and a part when whoever began it has its result: there this does nothing, and is an error in the log.
    ///
    /// ```
    /// # use oneclock::Operation; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let op = Operation::begin("cheapest", Duration::from_secs(5));
    /// let slow = op.spawn("ask the slow one", std::future::pending::<u32>());
    /// let cheapest = op.run(async { 7 }).await.unwrap(); // good enough
    /// assert!(op.finish());
    /// assert!(slow.await.is_err(), "it is needed no longer");
    /// assert_eq!((cheapest, op.ending()), (7, None));
    /// # }
    /// ```
    ///
    /// # Panics
    /// For a request or a part, in debug builds.
    pub fn finish(&self) -> bool {
        let is_own = matches!(self.0.kind, Kind::Begun | Kind::Detached);
        debug_assert!(is_own, "{} is done when whoever began it says so", self.name());
        if !is_own {
            tracing::error!(operation = %self.name(), "it is done when whoever began it says so: `finish` has no effect");
            return false;
        }
        let now = clock::now();
        self.ending_at(now); // what is past its deadline has ended early, though it is done now
        let first = self.0.life.finish(now);
        self.0.close(|| now);
        first
    }

    /// Ends it for `cause`, and everything below it. Returns whether this was the first end. For drivers; services use
    /// [`call_off`](Self::call_off).
    pub fn end(&self, cause: Cause) -> bool {
        self.0.end_at(cause, clock::now())
    }

    /// The same, by another bound than that of its deadline: a limit of its driver's own, such as how long a stream may be quiet,
    /// is never told as the caller's deadline. For drivers.
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_core::{BoundBy, Cause}; use std::time::Duration;
    /// let order = Operation::begin("order", Duration::from_secs(60));
    /// assert!(order.end_by(Cause::Deadline, BoundBy::Platform));
    /// assert_eq!(order.ending().unwrap().bound, BoundBy::Platform);
    /// ```
    pub fn end_by(&self, cause: Cause, bound: BoundBy) -> bool {
        self.0.end(Ending { cause, bound, stage: self.stage(), at: clock::now() })
    }

    /// Runs `future` in the scope of this operation until it is done or the operation ends, whichever comes first.
    ///
    /// The future is polled before the clock is asked, so a result that is there is delivered (contract X1). It is not
    /// polled at all if the operation has already ended (contract X6).
    ///
    /// # Errors
    /// [`Ended`], when the operation ended first. The future was dropped.
    ///
    /// # Cancel safety
    /// Dropping it drops `future`, and does not end the operation: a `select!` over `run` means the same for a request and
    /// for a job. Whoever drives a request ends it; one from [`begin`](Self::begin) whose last clone is dropped after that
    /// ends then, with the cause that a drop has (contract X4).
    pub fn run<F: Future>(&self, future: F) -> Run<F> {
        Run::new(self.clone(), future)
    }

    /// Runs `future` with this as the current operation, and no more: no deadline is enforced. For code that crosses a
    /// `tokio::spawn` or a channel and brings its own end.
    pub fn scope<F: Future>(&self, future: F) -> scope::Scoped<F> {
        scope::scoped(self.clone(), future)
    }

    /// Runs `f` with this as the current operation.
    pub fn sync_scope<R>(&self, f: impl FnOnce() -> R) -> R {
        scope::sync(self.clone(), f)
    }

    /// Where it is, for its ending. Set by calls and layers.
    pub fn set_stage(&self, stage: Stage) {
        self.0.stage.store(stage.code(), Ordering::Relaxed);
    }

    /// Opens a ledger entry that closes when the guard is dropped.
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_core::Stage; use std::time::Duration;
    /// let op = Operation::begin("job", Duration::from_secs(1));
    /// {
    ///     let _parsing = op.spend("parsing", Stage::Work);
    ///     // …
    /// }
    /// assert_eq!(op.ledger().entries().len(), 1);
    /// ```
    pub fn spend(&self, name: impl Into<Name>, stage: Stage) -> Spending {
        let entry = self.lock_ledger().open(name, stage, None, clock::now());
        Spending { operation: self.clone(), entry }
    }

    /// What a call or a layer said last of where it is, to be said again after a wait.
    pub(crate) fn stage_said(&self) -> Stage {
        self.0.stage_said()
    }

    /// A value of it is in a queue, until the guard is dropped.
    pub(crate) fn carries(&self) -> OnTheWay {
        self.0.on_the_way.fetch_add(1, Ordering::Relaxed);
        OnTheWay { operation: self.clone(), _queued: self.spend("queue", Stage::Queue) }
    }

    /// Cancelled once it is over, ended early or done. For whoever waits for that.
    pub(crate) fn token(&self) -> &CancellationToken {
        self.0.token()
    }

    /// Its last `run` was dropped before its end, or came to one.
    pub(crate) fn set_unfinished(&self, unfinished: bool) {
        self.0.unfinished.store(unfinished, Ordering::Release);
        if !unfinished {
            self.0.panicked.store(false, Ordering::Release);
        }
    }

    /// Notices a panic in one turn of its work, until it is dropped.
    pub(crate) fn polling(&self) -> Polling<'_> {
        Polling { operation: &self.0, unwinding: std::thread::panicking() }
    }

    /// Keeps a hook until it is over: due if it ends early. Of too many the oldest is due at once: a job of hours whose steps
    /// are dropped one after the other must not collect them.
    pub(crate) fn leave(&self, hook: Left) {
        let mut left = self.0.left.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        left.push_back(hook);
        let oldest = if left.len() > LEFT_AT_MOST { left.pop_front() } else { None };
        drop(left); // hooks are the service's code
        if let Some(ending) = self.0.life.ending() {
            self.0.run_left(Some(ending)); // it may have ended meanwhile
        }
        if let Some(oldest) = oldest {
            let (bound, stage, at) = (self.bound().by, self.stage(), clock::now());
            let dropped = Ending { cause: Cause::CalledOff, bound, stage, at }; // its work was
            oldest.over(Some(self.0.life.ending().unwrap_or(dropped)));
        }
    }

    /// Its inside, while nobody else has any of it. Whoever builds something in later is a mistake that would be silent.
    pub(crate) fn unshared(&mut self, built_in: &'static str) -> Option<&mut Inner> {
        let is_alone = Arc::get_mut(&mut self.0).is_some();
        debug_assert!(is_alone, "{built_in} comes too late for {}: it was cloned, or has a hook, already", self.name());
        if !is_alone {
            tracing::error!(operation = %self.name(), "{built_in} comes too late and has no effect: call it before the first clone");
        }
        Arc::get_mut(&mut self.0)
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.0.driven
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.0.life.is_live()
    }

    /// The shutdown it belongs to, or the process's.
    pub fn shutdown(&self) -> &Shutdown {
        self.0.context.shutdown.as_ref().unwrap_or_else(|| Shutdown::process())
    }

    /// Where it is now. While a value of it is [carried](crate::Carried) through a queue that is the queue, unless a call of
    /// it says where it is.
    pub fn stage(&self) -> Stage {
        self.0.stage()
    }

    /// Whether anybody listens to its events; those that are costly to make ask first.
    pub fn is_observed(&self) -> bool {
        events::is_observed(self.0.context.observer.as_ref())
    }

    /// Sends an event to its observer. For drivers.
    pub fn tell(&self, event: &Event<'_>) {
        events::send(self.0.context.observer.as_ref(), event);
    }

    pub(crate) fn begun(&self, call: &CallBegan<'_>) -> Slot {
        events::begun(self.0.context.observer.as_ref(), call)
    }

    pub(crate) fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
        events::carry(self.0.context.observer.as_ref(), slot, fields);
    }

    /// Asks its observer what to keep beside a request that becomes this operation. For layers, which
    /// [`keep`](Self::keep) that.
    pub fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
        events::request_began(self.0.context.observer.as_ref(), request)
    }

    pub(crate) fn addressed(&self, slot: &Slot, target: &Target<'_>) {
        events::addressed(self.0.context.observer.as_ref(), slot, target);
    }

    /// Tells its observer the head of an answer: of its own, with its own slot, or of a call of it, with that of the call.
    /// For layers and drivers; nothing happens if nothing is kept there.
    pub fn tell_answered(&self, slot: &Slot, answer: &AnswerHead<'_>) {
        events::answered(self.0.context.observer.as_ref(), slot, answer);
    }

    /// Counts the result of a call or of a part that is delivered although `deadline`, its own or the operation's, is past
    /// (contract X1). For drivers; nothing happens if it is not.
    pub fn tell_if_late(&self, deadline: Deadline) {
        self.tell_if_past(deadline, Late::Step);
    }

    /// The same for the answer to a request, by the deadline of its operation. For layers.
    pub fn tell_if_answer_is_late(&self) {
        self.tell_if_past(self.deadline(), Late::Answer);
    }

    fn tell_if_past(&self, deadline: Deadline, result: Late) {
        let now = clock::now();
        if deadline.is_past(now) {
            let (operation, route, by) = (self.name(), self.route(), now.since(deadline.tick()));
            self.tell(&Event::Late { operation, result, route, by });
        }
    }

    pub(crate) fn lock_ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open ledger entry; closes when dropped.
#[must_use = "the entry closes when this is dropped"]
#[derive(Debug)]
pub struct Spending {
    operation: Operation,
    entry: EntryId,
}

impl Drop for Spending {
    fn drop(&mut self) {
        self.operation.lock_ledger().close(self.entry, clock::now());
    }
}

/// A value of an operation that is in a queue.
#[derive(Debug)]
pub(crate) struct OnTheWay {
    operation: Operation,
    _queued: Spending,
}

impl Drop for OnTheWay {
    fn drop(&mut self) {
        self.operation.0.on_the_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("name", &self.0.name)
            .field("kind", &self.0.kind)
            .field("bound", &self.0.budget.bound)
            .field("remaining", &self.remaining())
            .field("ending", &self.0.life.ending())
            .finish_non_exhaustive()
    }
}
