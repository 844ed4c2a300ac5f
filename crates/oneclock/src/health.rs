//! A destination's health as its callers see it: its throttle, its breaker, and what its answers usually need.
//!
//! Decides the order of the questions, and how a call's end is told exactly once, from a guard (contract N1): by its answer,
//! else by how long it was waited for. What follows from that is decided in `oneclock_core::{throttle, breaker}`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oneclock_core::breaker::{Asked, Breaker, BreakerPolicy, Change, Pass};
use oneclock_core::effect::Seen;
use oneclock_core::throttle::{Had, Sent, Throttle, ThrottlePolicy, Throttled, Told, Usual};
use oneclock_core::time::Legible;
use oneclock_core::{Name, Reason, Stage, Tick};

use crate::events::{self, Event};
use crate::retry::random;
use crate::{DEFAULT_CAP, Operation, clock};

/// The health of one destination, shared by all calls to it. Cheap to clone.
///
/// Adapters ask it by [`Grant::health`](crate::Grant::health). For code without an adapter:
///
/// ```
/// # use oneclock::{Health, Operation}; use oneclock_core::throttle::Told; use std::time::Duration;
/// # fn ask_the_ledger() -> Result<u32, std::io::Error> { Ok(7) }
/// let ledger = Health::of("ledger").build();
///
/// # fn f(ledger: &Health) -> Result<u32, Box<dyn std::error::Error>> {
/// let watch = ledger.ask(Duration::from_millis(300))?; // an error: not made, since the ledger has too much to do
/// let result = ask_the_ledger();
/// watch.told(if result.is_ok() { Told::Well } else { Told::Failed }); // dropped unsaid, its time decides
/// # Ok(result?) }
/// # assert_eq!(f(&ledger).unwrap(), 7);
/// ```
#[derive(Clone)]
pub struct Health(Arc<Shared>);

struct Shared {
    name: Name,
    throttle: Throttle,
    throttles: bool, // else it only counts
    breaker: Option<Breaker>,
    usual: Usual,
    limit: Option<Duration>,
    on: AtomicBool,
    random: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// Builds a [`Health`].
#[must_use = "it is made by `build`"]
pub struct HealthBuilder {
    shared: Shared,
    policy: ThrottlePolicy,
}

/// One call, until its end is told. Dropped before that, the time it was waited for decides what it tells.
#[must_use = "dropped at once, it tells of a call that was never made"]
pub struct Watch {
    health: Health,
    began: Tick,
    granted: Duration,
    sent: Option<Sent>, // none: the throttle knows
    pass: Option<Pass>, // none: the breaker knows, or there is none
    begun: bool,        // a head came
}

/// Why a call to a destination is not made. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeldBack {
    /// Too few calls to it were accepted lately.
    #[error(transparent)]
    Throttled(Throttled),
    /// Too many calls to it failed lately.
    #[error("too many calls to it failed: its breaker is open, and lets one through in {} at the earliest", Legible(*again_in))]
    BreakerOpen {
        /// When it is worth asking again, at the earliest.
        again_in: Duration,
    },
}

// === Health ===

impl Health {
    /// Begins the health of a destination, under the name that log lines show: throttled by the default policy, without a
    /// breaker.
    pub fn of(name: impl Into<Name>) -> HealthBuilder {
        let policy = ThrottlePolicy::default();
        let shared = Shared {
            name: name.into(),
            throttle: Throttle::new(policy),
            throttles: true,
            breaker: None,
            usual: Usual::new(),
            limit: None,
            on: AtomicBool::new(true),
            random: Box::new(random),
        };
        HealthBuilder { shared, policy }
    }

    /// The destination's name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// Whether a call that may take as long as `granted` is made now. If it is not, and an operation is current, its observer is
    /// told so ([`Event::NotCalled`]), under this health's name.
    ///
    /// An error of a handler that has the [`HeldBack`] as its source is answered 503, gRPC's `UNAVAILABLE`.
    ///
    /// # Errors
    /// [`HeldBack`], if it is not. It is final for this call: asked again at once, the answer is the same, and counts against
    /// the destination once more.
    pub fn ask(&self, granted: Duration) -> Result<Watch, HeldBack> {
        match Operation::current() {
            Some(operation) => self.ask_in(&operation, granted),
            None => self.ask_at(granted, clock::now()),
        }
    }

    /// The same, for a call of `operation`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_in(&self, operation: &Operation, granted: Duration) -> Result<Watch, HeldBack> {
        self.ask_at(granted, clock::now()).inspect_err(|held_back| {
            let (name, call, reason) = (operation.name(), self.name(), held_back.reason());
            operation.tell(&Event::NotCalled { operation: name, call, reason });
        })
    }

    /// The same, for drivers that know the time already, and tell themselves of what is not called.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_at(&self, granted: Duration, now: Tick) -> Result<Watch, HeldBack> {
        let shared = &*self.0;
        let watch =
            |sent, pass| Watch { health: self.clone(), began: now, granted, sent: Some(sent), pass, begun: false };
        if !self.is_on() {
            return Ok(watch(shared.throttle.sent(now), None));
        }
        let pass = match &shared.breaker {
            Some(breaker) => match breaker.ask(now) {
                Asked::Pass(pass) => Some(pass),
                Asked::Open { again_in } => return Err(HeldBack::BreakerOpen { again_in }),
            },
            None => None,
        };
        let is_probe = pass.as_ref().is_some_and(Pass::is_probe);
        if is_probe {
            shared.tell(Change::HalfOpen, None);
        }
        // A probe is made in any case: there is only one.
        if !shared.throttles || is_probe {
            return Ok(watch(shared.throttle.sent(now), pass));
        }
        let sent = shared.throttle.ask_with(&shared.random, now).map_err(HeldBack::Throttled)?;
        Ok(watch(sent, pass))
    }

    /// Whether nothing speaks against more than what is needed: its breaker is closed, no call to it is throttled, and none was
    /// refused there for load lately. Hedges ask for it (contract R10).
    pub fn is_well(&self) -> bool {
        !self.is_broken() && self.0.throttle.is_well(clock::now())
    }

    /// With which probability a call is throttled now, from 0 to 1.
    pub fn throttled(&self) -> f64 {
        if self.0.throttles && self.is_on() { self.0.throttle.probability(clock::now()) } else { 0.0 }
    }

    /// Whether it has a breaker, and that is not closed.
    pub fn is_broken(&self) -> bool {
        self.0.breaker.as_ref().is_some_and(|breaker| !breaker.is_closed())
    }

    /// Within which time nine of ten of its answers begin, if that is known.
    pub fn usual(&self) -> Option<Duration> {
        self.0.usual.get()
    }

    /// Whether calls are held back at all.
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Holds calls back again: the throttle by what was counted in the meantime, the breaker by what is from here on.
    pub fn switch_on(&self) {
        self.0.on.store(true, Ordering::Relaxed);
    }

    /// Holds no call back any more, whatever becomes of them: throttle and breaker. The throttle counts them all the same. The
    /// breaker is closed by this, and counts none, nor any that is under way.
    pub fn switch_off(&self) {
        self.0.on.store(false, Ordering::Relaxed);
        let change = self.0.breaker.as_ref().and_then(|breaker| breaker.set_back(clock::now()));
        change.into_iter().for_each(|change| self.0.tell(change, None));
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, breaker, usual, .. } = &*self.0;
        let mut debug = f.debug_struct("Health");
        debug.field("name", name).field("throttled", &self.throttled()).field("breaker", breaker).field("usual", usual);
        debug.field("on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Its breaker has changed, by a call that came to this.
    fn tell(&self, change: Change, last: Option<Told>) {
        let destination = &self.name;
        let last = last.map(Told::as_str);
        match change {
            Change::Opened => tracing::warn!(%destination, last, "its breaker opened"),
            Change::HalfOpen => tracing::debug!(%destination, "its breaker lets a probe through"),
            Change::Closed => tracing::info!(%destination, last, "its breaker closed"),
        }
        let event = Event::Breaker { destination, change };
        match Operation::current() {
            Some(operation) => operation.tell(&event),
            None => events::send(None, &event),
        }
    }
}

// === HeldBack ===

impl HeldBack {
    /// What a caller is told: that it was refused for load, of this part of the work.
    pub const fn reason(&self) -> Reason {
        Reason::Shed
    }
}

// === HealthBuilder ===

impl HealthBuilder {
    /// How its calls are throttled, if not as usual.
    pub fn throttle(mut self, policy: ThrottlePolicy) -> Self {
        (self.policy, self.shared.throttles) = (policy, true);
        self
    }

    /// Its calls are not throttled.
    pub fn unthrottled(mut self) -> Self {
        self.shared.throttles = false;
        self
    }

    /// It has a breaker. Without this it has none.
    pub fn breaker(mut self, policy: BreakerPolicy) -> Self {
        self.shared.breaker = Some(Breaker::new(policy));
        self
    }

    /// The most that one call or attempt may take by its owner's will: its cap, its limit per attempt. Who does not answer in
    /// that time has failed, however long it usually needs. Without it that is [`DEFAULT_CAP`], until it is known what is usual.
    pub fn limit(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.shared.limit = limit.into();
        self
    }

    /// Where the random bits come from, for tests and simulations.
    pub fn random(mut self, bits: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.shared.random = Box::new(bits);
        self
    }

    /// The health: nothing is known yet.
    pub fn build(self) -> Health {
        let Self { mut shared, policy } = self;
        shared.throttle = Throttle::new(policy);
        Health(Arc::new(shared))
    }
}

impl fmt::Debug for HealthBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthBuilder").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

// === Watch ===

impl Watch {
    /// How the call came out.
    pub fn told(mut self, told: Told) {
        self.end(told, clock::now());
    }

    /// It came to its own end, and this was seen of it. For drivers.
    pub fn saw(&mut self, seen: Seen, now: Tick) {
        // One of ours that says why is there, also if it tells nothing else.
        if let Seen::Answer { reason: Some(_), .. } | Seen::GrpcAnswer { reason: Some(_), .. } = seen {
            self.answered();
        }
        self.end(Told::by(seen, self.had(now)), now);
    }

    /// The head of its answer came, and how it went is said behind that. For drivers. From here on its time says nothing: a
    /// stream may be as long as it likes.
    pub fn answer_begins(&mut self, now: Tick) {
        if let (false, Some(sent)) = (self.begun, &self.sent) {
            self.begun = true;
            self.health.0.throttle.begins(sent);
            self.health.0.usual.answered_after(now.since(self.began));
            self.answered();
        }
    }

    /// It is over in `stage`, and nothing was seen of its end. For drivers.
    pub fn over(mut self, stage: Stage, now: Tick) {
        self.end_unseen(stage, now);
    }

    fn end_unseen(&mut self, stage: Stage, now: Tick) {
        let told = if self.begun { Told::Well } else { Told::cut_off(stage, self.had(now)) };
        self.end(told, now);
    }

    fn answered(&self) {
        self.health.0.breaker.iter().for_each(Breaker::answered);
    }

    fn had(&self, now: Tick) -> Had {
        let Shared { limit, usual, .. } = &*self.health.0;
        let usual = usual.get();
        let limit = limit.or_else(|| usual.is_none().then_some(DEFAULT_CAP));
        Had { granted: self.granted, taken: now.since(self.began), limit, usual }
    }

    fn end(&mut self, told: Told, now: Tick) {
        let Shared { throttle, breaker, usual, random, .. } = &*self.health.0;
        if let Some(sent) = self.sent.take() {
            if self.begun {
                throttle.turned_out(sent, told);
            } else {
                throttle.end(sent, told);
                if told == Told::Well {
                    usual.answered_after(now.since(self.began));
                }
            }
        }
        if let (Some(breaker), Some(pass)) = (breaker, self.pass.take())
            && let Some(change) = breaker.end(pass, told, random(), now)
        {
            self.health.0.tell(change, Some(told));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.sent.is_some() || self.pass.is_some() {
            self.end_unseen(Stage::Work, clock::now());
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("of", &self.health.0.name).finish_non_exhaustive()
    }
}
