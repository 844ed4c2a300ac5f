//! Whether a destination is called at all after too many of its calls failed: a circuit breaker.
//!
//! Decides from failures only, and from timeouts that no short budget of a caller caused ([`Told`] says which those are). As
//! long as nobody was ever answered those count as well: a silent far side looks like that. Refusals for load are none: how many
//! calls are made then is the [`throttle`](crate::throttle)'s decision, and a breaker that counted them would open while the far
//! side does all that it can.
//!
//! ```text
//! closed ──(a share of the calls failed)──▶ open ──(its time is over)──▶ half open: one probe at a time
//!    ▲                                        ▲                             │  │
//!    └────────(three probes went well)────────┼─────────────────────────────┘  │
//!                                             └────────(a probe failed)────────┘
//! ```
//!
//! A probe keeps others from being made for as long as the breaker was open. After that the next one is made beside it, and the
//! end of each counts until the breaker opens again or closes: an answer may well take longer than that.
//!
//! An open breaker is no reason to call the service itself unready: what it cannot reach, its other instances cannot reach
//! either, and most of what it does may need something else.
//!
//! `&self` over atomics, no lock, no clock; random bits come in as an argument.

mod counts;
#[cfg(test)]
mod model;
mod policy;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::Tick;
use crate::throttle::Told;
use crate::time::Legible;
use crate::word::Word;
use counts::Counts;
use state::{Phase, State};

pub use policy::{BreakerPolicy, BreakerPolicyBuilder, NotABreaker};

/// The breaker of one destination, shared by all calls to it.
///
/// ```
/// # use oneclock_core::{breaker::*, throttle::Told, Tick}; use std::time::Duration;
/// # fn at(ms: u64) -> Tick { Tick::default() + Duration::from_millis(ms) }
/// let breaker = Breaker::new(BreakerPolicy::default());
/// for n in 0..20 {
///     let Asked::Pass(pass) = breaker.ask(at(n)) else { panic!("closed until twenty calls were made") };
///     breaker.end(pass, if n >= 16 { Told::Broken } else { Told::Well }, 0, at(n));
/// }
/// let Asked::Open { again_in } = breaker.ask(at(20)) else { panic!("four of twenty failed") };
///
/// let then = at(20) + again_in;
/// let Asked::Pass(probe) = breaker.ask(then) else { panic!("one probe") };
/// assert!(probe.is_probe() && matches!(breaker.ask(then), Asked::Open { .. }), "at a time");
/// breaker.end(probe, Told::Well, 0, then);
/// # for _ in 0..2 { let Asked::Pass(probe) = breaker.ask(then) else { panic!() }; breaker.end(probe, Told::Well, 0, then); }
/// // … and two more:
/// assert!(breaker.is_closed());
/// ```
pub struct Breaker(Shared<AtomicU64>);

struct Shared<W> {
    policy: BreakerPolicy,
    state: W,
    counts: Counts<W>,
    answered: W, // whether anybody ever was
}

/// What a breaker says of one more call.
#[derive(Debug)]
pub enum Asked {
    /// It is made.
    Pass(Pass),
    /// It is not.
    Open {
        /// When it is worth asking again, at the earliest.
        again_in: Duration,
    },
}

/// A call that is made, until its end is told.
#[derive(Debug)]
#[must_use = "a probe whose end is not told keeps others from being made"]
pub struct Pass {
    turn: u64,          // which time of being closed, or of being open, it belongs to
    probe: Option<u64>, // until when it keeps others from being made, if it is a probe
}

/// What has become of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It opened, or opened again: by the end of a call.
    Opened,
    /// It lets a probe through: by a call that [is one](Pass::is_probe).
    HalfOpen,
    /// It closed: by the end of a probe, or [set back](Breaker::set_back).
    Closed,
}

// === Breaker ===

impl Breaker {
    /// Closed.
    pub fn new(policy: BreakerPolicy) -> Self {
        Self(Shared::new(policy))
    }

    /// Whether a call is made at `now`.
    pub fn ask(&self, now: Tick) -> Asked {
        self.0.ask(now)
    }

    /// A call came to its end at `now`. `random` are 64 random bits, for the time that it may open for.
    pub fn end(&self, pass: Pass, told: Told, random: u64, now: Tick) -> Option<Change> {
        self.0.end(&pass, told, random, now)
    }

    /// An answer came, whose end is told later or says nothing of how its sender is. From here on a call that was cut short
    /// counts as nothing. After an [`end`](Self::end) with an answer it need not be said.
    pub fn answered(&self) {
        self.0.mark_answered();
    }

    /// Closes it, if it is not: what was counted, and what is under way, is of no account from here on.
    pub fn set_back(&self, now: Tick) -> Option<Change> {
        self.0.set_back(now)
    }

    /// Whether it is closed: nobody has to be careful.
    pub fn is_closed(&self) -> bool {
        State::of(self.0.state.read()).phase == Phase::Closed
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("state", &State::of(self.0.state.read())).finish_non_exhaustive()
    }
}

impl Pass {
    /// Whether it is a probe: the only call that is made for now.
    pub const fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

impl<W: Word> Shared<W> {
    fn new(policy: BreakerPolicy) -> Self {
        let (state, counts) = (W::holding(State::default().word()), Counts::new(policy.window));
        Self { policy, state, counts, answered: W::holding(0) }
    }

    fn ask(&self, now: Tick) -> Asked {
        let mut before = self.state.read();
        loop {
            let state = State::of(before);
            let at = state::at(now);
            let probing = match state.phase {
                Phase::Closed => return Asked::Pass(Pass { turn: state.turn, probe: None }),
                Phase::Open | Phase::Probing if at < state.at => {
                    return Asked::Open { again_in: Duration::from_millis(state.at - at) };
                }
                // Its time is over, or that of a probe of which nothing was heard so far.
                Phase::Open | Phase::Probing => State { phase: Phase::Probing, ..self.waiting(state, u64::MAX, now) },
            };
            match self.state.swap_if(before, probing.word()) {
                Ok(()) => return Asked::Pass(Pass { turn: probing.turn, probe: Some(probing.at) }),
                Err(instead) => before = instead,
            }
        }
    }

    fn end(&self, pass: &Pass, told: Told, random: u64, now: Tick) -> Option<Change> {
        if matches!(told, Told::Well | Told::Failed | Told::Shed) {
            self.mark_answered();
        }
        let Some(until) = pass.probe else {
            return self.ended(pass.turn, self.failed(told)?, random, now);
        };
        let mut before = self.state.read();
        loop {
            let state = State::of(before);
            if state.phase == Phase::Closed || state.turn != pass.turn {
                return None; // it has closed or opened since
            }
            // Of two that are under way the later began when the other's time was over: no two have the same.
            let is_last = state.phase == Phase::Probing && state.at == until;
            let (after, change) = self.probed(state, is_last, told, random, now);
            match self.state.swap_if(before, after.word()) {
                Ok(()) => return change,
                Err(instead) => before = instead,
            }
        }
    }

    fn set_back(&self, now: Tick) -> Option<Change> {
        let mut before = self.state.read();
        loop {
            let state = State::of(before);
            let new = State { at: state::at(now), turn: state.turn, ..State::default() }.next_turn();
            match self.state.swap_if(before, new.word()) {
                Ok(()) => return (state.phase != Phase::Closed).then_some(Change::Closed),
                Err(instead) => before = instead,
            }
        }
    }

    fn mark_answered(&self) {
        while self.answered.read() == 0 && self.answered.swap_if(0, 1).is_err() {}
    }

    /// Whether a call failed. `None` if it says nothing.
    fn failed(&self, told: Told) -> Option<bool> {
        match told {
            Told::CutShort => (self.answered.read() == 0).then_some(true),
            _ => told.failed(),
        }
    }

    /// A call was over that had begun when it was closed.
    fn ended(&self, turn: u64, failed: bool, random: u64, now: Tick) -> Option<Change> {
        let before = self.state.read();
        let state = State::of(before);
        if state.phase != Phase::Closed || state.turn != turn {
            return None; // old news
        }
        self.counts.add(turn, failed, now);
        if !failed {
            return None;
        }
        let (calls, failures) = self.counts.sums(turn, now);
        let is_share = failures * 1_000 >= calls * u64::from(self.policy.permille);
        if calls < u64::from(self.policy.least) || !is_share {
            return None;
        }
        let opened = self.opened(state, random, now).word();
        loop {
            match self.state.swap_if(before, opened) {
                Ok(()) => return Some(Change::Opened),
                Err(instead) if instead == before => {} // a weak one may fail for nothing
                Err(_) => return None,                  // another one has opened it
            }
        }
    }

    /// A probe was over. Only of the last one others wait for the end.
    fn probed(&self, state: State, is_last: bool, told: Told, random: u64, now: Tick) -> (State, Option<Change>) {
        let next_at_once = State { phase: Phase::Open, at: state::at(now), ..state };
        match self.failed(told) {
            Some(true) => (self.opened(state, random, now), Some(Change::Opened)),
            // A refusal for load is the word of one that is there.
            well if well == Some(false) || told == Told::Shed => {
                self.went_well(if is_last { next_at_once } else { state }, now)
            }
            _ if !is_last => (state, None),
            // It reached the far side, to no end. The next caller may be in no less of a hurry.
            _ if told == Told::CutShort => (self.waiting(state, random, now), None),
            _ => (next_at_once, None),
        }
    }

    fn went_well(&self, state: State, now: Tick) -> (State, Option<Change>) {
        let probed = state.probed + 1;
        if probed < self.policy.probes {
            return (State { probed, ..state }, None);
        }
        // It keeps in mind how often it has opened, until it was closed for a whole window.
        let closed = State { phase: Phase::Closed, at: state::at(now), probed: 0, ..state };
        (closed.next_turn(), Some(Change::Closed))
    }

    /// Open for as long as the last time.
    fn waiting(&self, state: State, random: u64, now: Tick) -> State {
        let until = state::at(now + self.policy.open_for(state.again, random));
        State { phase: Phase::Open, at: until.max(state::at(now) + 1), ..state }
    }

    fn opened(&self, state: State, random: u64, now: Tick) -> State {
        let closed_for = Duration::from_millis(state::at(now).saturating_sub(state.at));
        let again = match state.phase {
            Phase::Closed if !state.has_opened || closed_for >= self.policy.window => 0,
            Phase::Closed | Phase::Probing | Phase::Open => (state.again + 1).min(state::MOST_AGAIN),
        };
        self.waiting(State { again, probed: 0, has_opened: true, ..state }, random, now).next_turn()
    }
}

// === Change ===

impl Change {
    /// The word for logs and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::HalfOpen => "half_open",
            Self::Closed => "closed",
        }
    }
}

// === Asked ===

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(pass) if pass.is_probe() => f.write_str("one probe"),
            Self::Pass(_) => f.write_str("closed"),
            Self::Open { again_in } => write!(f, "open, next probe in {}", Legible(*again_in)),
        }
    }
}
