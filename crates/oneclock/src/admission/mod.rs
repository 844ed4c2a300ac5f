//! Waiting for a place before something of which there is only so much: a pool, the cores, a service behind.
//!
//! Decides nothing: who starts, waits or is refused is `oneclock_core::admission`'s decision. Here its clock is read, those that
//! wait are woken, and a place is given back whatever becomes of whoever has it.

mod classes;
mod place;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oneclock_core::admission::{self as core, Arrival, Asking};
pub use oneclock_core::admission::{Mode, NotSettings, Refusal, Settings, Why};
use oneclock_core::{Deadline, Importance, Name, Tick};

use crate::events::Event;
use crate::grant::{NotBegun, WhyNot};
use crate::{Operation, clock};
use classes::Classes;
pub use place::Place;
use turn::Sleeper;
pub use turn::{NotAdmitted, Turn};

/// Stands before one resource with a limited number of places. Clones stand before the same one.
///
/// Before a whole service it belongs to the layer that requests arrive at (`IngressLayer::admission` in `oneclock-http`);
/// before something within, ask it for a place:
///
/// ```
/// use oneclock::{Admission, Operation};
/// use oneclock_core::admission::Settings;
/// # use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let renderers = Admission::to("renderers", Settings::fixed(2))?;
/// let op = Operation::begin("report", ms(300));
/// let first = renderers.enter_in(&op, "monthly").await?;
/// let second = renderers.enter_in(&op, "monthly").await?;
/// let third = renderers.enter_in(&op, "monthly").await;
/// assert!(third.is_err(), "it waited to the end of the budget, and not longer");
/// assert_eq!(op.remaining(), ms(0));
/// drop((first, second)); // given back
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Admission(Arc<Shared>);

pub(crate) struct Shared {
    name: Name,
    core: core::Admission<Sleeper>,
    classes: Classes,
}

/// What becomes of one that asks for a place.
#[derive(Debug)]
pub enum Asked {
    /// Here it is. Where nothing is enforced ([`Mode::Shadow`]), with what would have refused it.
    Has(Place, Option<Box<Refusal>>), // boxed: it is rare, and the rest is moved about for every request
    /// It waits.
    Waits(Turn),
    /// It does not start.
    Refused(Refusal),
}

/// What asks for a place, as far as it is not the current operation that says it.
#[derive(Clone, Copy, Debug)]
pub struct Wants<'a> {
    /// What sort of work it is: a route, a method. Each has an estimate of its own, for up to 64 of them.
    pub class: Option<&'a str>,
    /// After this its answer is useless.
    pub deadline: Deadline,
    /// Who is shed first.
    pub importance: Importance,
    /// Whose it is: any number that is the same for all that one caller asks; 0 if that is not known.
    pub peer: u64,
}

// === Admission ===

impl Admission {
    /// Stands before the resource `name`.
    ///
    /// # Errors
    /// [`NotSettings`], if the settings contradict themselves.
    pub fn to(name: impl Into<Name>, settings: Settings) -> Result<Self, NotSettings> {
        let core = core::Admission::new(settings.check()?);
        let classes = Classes::new(&core);
        Ok(Self(Arc::new(Shared { name: name.into(), core, classes })))
    }

    /// What it stands before.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// A place for the current operation, for work of this sort. An operation that has one already, as a request has whose layer
    /// was given this same `Admission`, shares it; after [`Operation::vacate`] it waits for a new one. Waiting for it is stage `queue`, and spends the operation's
    /// budget. Outside of any operation it may take [`DEFAULT_CAP`](crate::DEFAULT_CAP).
    ///
    /// # Errors
    /// [`NotBegun`], if there is none in time, or what would follow would not be done in time: nothing was started.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue at once.
    pub async fn enter(&self, class: &str) -> Result<Place, NotBegun> {
        let operation = Operation::current();
        let operation = operation.unwrap_or_else(|| Operation::begin(self.name().clone(), crate::DEFAULT_CAP));
        self.enter_in(&operation, class).await
    }

    /// The same, for `operation`.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    ///
    /// # Cancel safety
    /// As [`enter`](Self::enter).
    pub async fn enter_in(&self, operation: &Operation, class: &str) -> Result<Place, NotBegun> {
        let now = clock::now();
        let not_begun = |why| NotBegun::told(operation, self.name().clone(), why);
        if let Some(ending) = operation.over_at(now) {
            return Err(not_begun(WhyNot::Ended(ending)));
        }
        // Waiting for a place behind oneself would be waiting for ever.
        if let Some(held) = operation.hold_place_before(self) {
            return Ok(Place::shared(&self.0, self.0.classes.of(Some(class), &self.0.core), held, now));
        }
        let wants =
            Wants { class: Some(class), deadline: operation.deadline(), importance: operation.importance(), peer: 0 };
        let mut turn = match self.ask(&wants, now) {
            Asked::Has(place, would_refuse) => {
                if let Some(refusal) = &would_refuse {
                    let route = operation.route();
                    operation.tell(&Event::WouldRefuse { operation: operation.name(), route, refusal });
                }
                return Ok(place.of_step(operation));
            }
            Asked::Refused(refusal) => return Err(not_begun(WhyNot::NotAdmitted(refusal))),
            Asked::Waits(turn) => turn,
        };
        let _waiting = turn::InQueue::begin(operation, self.name());
        let got = std::future::poll_fn(|cx| turn.poll(operation, cx)).await;
        got.map(|place| place.of_step(operation)).map_err(|why| match why {
            NotAdmitted::Refused(refusal) => not_begun(WhyNot::NotAdmitted(refusal)),
            NotAdmitted::Ended(ending) => not_begun(WhyNot::Ended(ending)),
        })
    }

    /// Asks for a place. For layers, which know the time.
    pub fn ask(&self, wants: &Wants<'_>, now: Tick) -> Asked {
        let Shared { core, classes, .. } = &*self.0;
        let class = classes.of(wants.class, core);
        if !wants.deadline.is_past(now) && core.enter() {
            return Asked::Has(Place::new(&self.0, class, now), None);
        }
        let (sleeper, verdict) = Sleeper::new(&class);
        let asking = Asking::new(&class, wants.deadline).importance(wants.importance).peer(wants.peer);
        match core.arrive(&asking, sleeper, now) {
            Arrival::Runs { would_refuse, .. } => {
                Asked::Has(Place::new(&self.0, class, now), would_refuse.map(Box::new))
            }
            Arrival::Refused(_, refusal) => Asked::Refused(refusal),
            Arrival::Waits { key, start_by, evicted } => {
                if let Some((sleeper, refusal)) = evicted {
                    let _ = sleeper.tell(Err(refusal)); // it may have left
                }
                Asked::Waits(Turn::new(&self.0, key, start_by, verdict))
            }
        }
    }

    /// Whether what is decided is done.
    pub fn mode(&self) -> Mode {
        self.0.core.mode()
    }

    /// From now on, at run time. Where nothing is enforced any more, those that wait are let go at once.
    pub fn set_mode(&self, mode: Mode) {
        place::hand_on_all(&self.0, self.0.core.set_mode(mode, clock::now()), clock::now());
    }

    /// How many places there are: what was said, or what was found so far.
    pub fn places(&self) -> u32 {
        self.0.core.places()
    }

    /// How many are taken.
    pub fn busy(&self) -> u32 {
        self.0.core.busy()
    }

    /// How many wait.
    pub fn waiting(&self) -> u32 {
        self.0.core.waiting()
    }

    /// Whether more comes than goes: the newest are served first, and what is only nice to have is refused.
    pub fn is_standing(&self) -> bool {
        self.0.core.is_standing()
    }

    /// For how long a place is held, of late; zero while that is not known.
    pub fn held(&self) -> Duration {
        self.0.core.held()
    }

    /// What work needs, by its sort, at the quantile of the settings, and the share of it that was cut off; the last one, without
    /// a name, is for all that is beyond the first 64.
    pub fn estimates(&self) -> Vec<(Option<Name>, Duration, f64)> {
        self.0.classes.estimates()
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission").field("name", self.name()).field("core", &self.0.core).finish()
    }
}
