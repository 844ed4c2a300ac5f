//! How many of the calls to a destination are made at all while it refuses some: adaptive throttling at its callers, as in
//! "Handling Overload" of the Site Reliability Engineering book.
//!
//! Decides from what was sent and what was accepted within a window. Of `requests` calls, `accepts` of which the far side
//! accepted, the next is refused here with the probability
//!
//! ```text
//! max(0, (requests - K × accepts) / (requests + 1))
//! ```
//!
//! where what is refused here counts as a request, too. So a far side that accepts everything is never throttled, and one
//! that refuses gets about K times what it accepts (K is 2), however much there is. To refuse costs it something for each
//! call, up to all it has: shedding alone cannot hold ten times the load of cheap calls.
//!
//! # Differences from the formula
//! - A call is refused only if the window and the last second both say so: the lower of the two probabilities counts. Else what
//!   was refused a minute ago would be held against a far side that has recovered.
//! - A call counts from when it is sent, in the cohort of that moment, and so does its answer. While it is young (a quarter of
//!   the window) and under way, the window takes it for accepted: else the first hundred calls at once would be refused for each
//!   other's sake, or for the few refusals that come before any answer. The last second is the last of which more than half is
//!   known, up to 8 s ago.
//! - At most 95 of 100 are refused, and one a second is let through in any case: who is never asked cannot say that it is
//!   well.
//! - What was cut off by a caller in a hurry counts as neither, as long as anybody is answered within the window. Where nobody
//!   is, it counts as not accepted: an overloaded far side may well be silent. Not so where strangers decide when a call ends
//!   ([`for_strangers`](ThrottlePolicy::for_strangers)).
//!
//! `&self` over atomics, no lock, no clock; random bits come in as an argument.

mod cohorts;
#[cfg(test)]
mod tests;
mod told;
mod usual;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::Tick;
use crate::word::{Word, once_in};
use cohorts::{COHORTS, Cohorts, Sums};

pub use told::{Had, Told};
pub use usual::Usual;

/// With fewer requests within the window none is refused.
const LEAST: u64 = 20;
/// The most that are refused, of 100.
const MOST_OF_100: u64 = 95;
/// How often one is let through that would be refused.
const RESERVE: Duration = Duration::from_secs(1);
/// How long the cohorts are of which two are the last second.
const LATELY: Duration = Duration::from_millis(500);
/// For this part of the window a refusal for load keeps others from hedging.
const SHED_FOR: u32 = 8;
/// The shortest window: below it the counts of a cohort say nothing.
const SHORTEST: Duration = Duration::from_secs(1);

/// How the calls to a destination are throttled: over which window, and what multiple of the accepted calls is sent.
///
/// ```
/// # use oneclock_core::throttle::*; use std::time::Duration;
/// let policy = ThrottlePolicy::new().window(Duration::from_secs(120)).multiple(1.5).build()?;
/// assert_eq!(policy.window(), Duration::from_secs(120));
/// assert!(ThrottlePolicy::new().multiple(0.5).build().is_err(), "that would throttle a far side that is well");
/// # Ok::<(), NotAThrottle>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottlePolicy {
    window: Duration,
    tenths: u64, // of K
    for_strangers: bool,
}

/// Builds a [`ThrottlePolicy`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a policy is made by `build`"]
pub struct ThrottlePolicyBuilder {
    window: Duration,
    multiple: f64,
}

/// These settings make no throttle.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAThrottle {
    /// The window is too short to count anything in.
    #[error(
        "window = {window:?}: write at least 1s, and no less than the longest deadline of a call (60s unless said otherwise)"
    )]
    Window {
        /// The window given.
        window: Duration,
    },
    /// The multiple throttles a far side that is well, or none at all.
    #[error("multiple = {multiple}: write 1.1 (throttle soon) to 10 (late); 2 unless said otherwise")]
    Multiple {
        /// The multiple given.
        multiple: f64,
    },
}

/// The throttle of one destination, shared by all calls to it.
///
/// ```
/// # use oneclock_core::{throttle::*, Tick}; use std::time::Duration; fn at(ms: u64) -> Tick { Tick::default() + Duration::from_millis(ms) }
/// let throttle = Throttle::new(ThrottlePolicy::default());
/// // Ten times as much as the far side accepts, for two minutes; the random bits go evenly through their range.
/// let (mut sent, mut accepted) = (0, 0);
/// for n in 0..12_000_u64 {
///     if let Ok(call) = throttle.ask(n.wrapping_mul(0x9E37_79B9_7F4A_7C15), at(n * 10)) {
///         sent += 1;
///         let accepts = accepted * 10 <= n;
///         accepted += u64::from(accepts);
///         throttle.end(call, if accepts { Told::Well } else { Told::Shed });
///     }
/// }
/// let multiple = sent as f64 / accepted as f64;
/// assert!((1.8..3.0).contains(&multiple), "{multiple}");
/// ```
pub struct Throttle(Shared<AtomicU64>);

/// Where nothing speaks against calls, that is looked at again after this time, or when one is not accepted. The sums are too much
/// for every call.
const CLEAR_FOR: Duration = Duration::from_millis(100);

struct Shared<W> {
    policy: ThrottlePolicy,
    window: Cohorts<W>,
    lately: Cohorts<W>,
    reserve_at: W,  // when the next one may be let through in any case
    shed_until: W,  // until when it is not well, since one was refused for load
    clear_until: W, // nothing spoke against it when last looked, and until then nobody looks again
}

/// A call that is sent, until its end is told. One of which nothing is told was accepted by nobody.
#[derive(Debug)]
#[must_use = "a call whose end is not told counts as not accepted"]
pub struct Sent {
    at: Tick,
}

/// A call that is refused here: too few were accepted lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// How many of a hundred are, right now.
    pub percent: u8,
}

// === ThrottlePolicy ===

impl ThrottlePolicy {
    /// Begins a policy: a window of 60 s, and twice as much as is accepted.
    #[expect(clippy::new_ret_no_self, reason = "a policy is made by `build`, which may refuse")]
    pub fn new() -> ThrottlePolicyBuilder {
        ThrottlePolicyBuilder { window: Duration::from_secs(60), multiple: 2.0 }
    }

    /// Over which time requests and answers are counted.
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The same, for calls that are made in the name of strangers, as a proxy's are: they say how much time there is, and leave when
    /// they like. What was cut short tells nothing then, also where nobody is answered; else a few of them, in a quiet minute,
    /// could have the calls of all others held back.
    #[must_use]
    pub const fn for_strangers(mut self) -> Self {
        self.for_strangers = true;
        self
    }
}

impl Default for ThrottlePolicy {
    fn default() -> Self {
        Self { window: Duration::from_secs(60), tenths: 20, for_strangers: false }
    }
}

impl ThrottlePolicyBuilder {
    /// Over which time requests and answers are counted; 60 s unless said otherwise. No less than the longest deadline of a
    /// call, and four times what answers usually need.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How many calls are sent for each that is accepted; 2 unless said otherwise. Less throttles sooner, and notices later
    /// that the far side accepts more.
    pub fn multiple(mut self, multiple: f64) -> Self {
        self.multiple = multiple;
        self
    }

    /// The policy.
    ///
    /// # Errors
    /// [`NotAThrottle`], if it would throttle nothing, or whatever is well.
    pub fn build(self) -> Result<ThrottlePolicy, NotAThrottle> {
        let Self { window, multiple } = self;
        if window < SHORTEST {
            return Err(NotAThrottle::Window { window });
        }
        if !(1.1..=10.0).contains(&multiple) {
            return Err(NotAThrottle::Multiple { multiple });
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "11 to 100")]
        let tenths = (multiple * 10.0).round() as u64;
        Ok(ThrottlePolicy { window, tenths, for_strangers: false })
    }
}

// === Throttle ===

impl Throttle {
    /// Nothing was sent yet.
    pub fn new(policy: ThrottlePolicy) -> Self {
        Self(Shared::new(policy))
    }

    /// Whether a call is made at `now`, by 64 random bits. It counts from here, either way.
    ///
    /// # Errors
    /// [`Throttled`], if it is not made.
    pub fn ask(&self, random: u64, now: Tick) -> Result<Sent, Throttled> {
        self.ask_with(|| random, now)
    }

    /// The same, with bits that are drawn only where they matter: while all is well they do not.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_with(&self, random: impl FnOnce() -> u64, now: Tick) -> Result<Sent, Throttled> {
        self.0.ask(random, now)
    }

    /// A call is made in any case: a breaker's probe, or where the throttle is switched off. It counts all the same.
    pub fn sent(&self, now: Tick) -> Sent {
        self.0.sent(now)
    }

    /// A call came to its end.
    pub fn end(&self, sent: Sent, told: Told) {
        self.0.end(sent.at, told);
    }

    /// The head of an answer came, and how it went is told behind that: accepted, so far. A stream may be long.
    pub fn begins(&self, sent: &Sent) {
        self.0.each(|cohorts| cohorts.accepted(sent.at));
    }

    /// What had [begun](Self::begins) turned out to be this: a refusal counts as one after all.
    pub fn turned_out(&self, sent: Sent, told: Told) {
        if told == Told::Shed {
            self.0.each(|cohorts| cohorts.not_accepted_after_all(sent.at));
            self.0.look_again();
            self.0.shed(sent.at);
        }
    }

    /// With which probability a call is refused at `now`, from 0 to 1.
    pub fn probability(&self, now: Tick) -> f64 {
        f64::from(self.0.share(now)) / f64::from(u32::MAX)
    }

    /// Whether all is well: none is refused here, and none of those sent lately (within the last eighth of the window) was
    /// refused there for load.
    pub fn is_well(&self, now: Tick) -> bool {
        self.0.shed_until.read() <= now.as_nanos() && self.0.share(now) == 0
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("policy", &self.0.policy).finish_non_exhaustive()
    }
}

impl<W: Word> Shared<W> {
    fn new(policy: ThrottlePolicy) -> Self {
        let span = policy.window / COHORTS as u32;
        let (window, lately) = (Cohorts::of(span), Cohorts::of(span.min(LATELY)));
        Self {
            policy,
            window,
            lately,
            reserve_at: W::holding(0),
            shed_until: W::holding(0),
            clear_until: W::holding(0),
        }
    }

    fn ask(&self, random: impl FnOnce() -> u64, now: Tick) -> Result<Sent, Throttled> {
        let share = self.share(now);
        if share == 0 || random() >> 32 >= u64::from(share) || self.take_reserve(now) {
            return Ok(self.sent(now));
        }
        self.each(|cohorts| cohorts.held_back(now));
        let percent = (u64::from(share) * 100).div_ceil(u64::from(u32::MAX));
        Err(Throttled { percent: u8::try_from(percent).unwrap_or(100) })
    }

    fn sent(&self, at: Tick) -> Sent {
        self.each(|cohorts| cohorts.sent(at));
        Sent { at }
    }

    fn end(&self, at: Tick, told: Told) {
        if told == Told::Shed {
            self.shed(at);
        }
        match told.accepted() {
            Some(true) => self.each(|cohorts| cohorts.accepted(at)),
            Some(false) => self.not_accepted(at),
            None if told == Told::CutShort && !self.policy.for_strangers && !self.window.any_accepted(at) => {
                self.not_accepted(at);
            }
            None => self.each(|cohorts| cohorts.not_sent(at)),
        }
    }

    fn not_accepted(&self, at: Tick) {
        self.each(|cohorts| cohorts.not_accepted(at));
        self.look_again();
    }

    fn each(&self, count: impl Fn(&Cohorts<W>)) {
        count(&self.window);
        count(&self.lately);
    }

    fn shed(&self, at: Tick) {
        until(&self.shed_until, at + self.policy.window / SHED_FOR);
    }

    /// The share that is refused at `now`, of `u32::MAX`.
    fn share(&self, now: Tick) -> u32 {
        if now.as_nanos() < self.clear_until.read() {
            return 0;
        }
        let share = self.share_of_all(now);
        if share == 0 {
            until(&self.clear_until, now + CLEAR_FOR);
        }
        share
    }

    /// One was not accepted: what was seen last does not hold any more.
    fn look_again(&self) {
        let mut before = self.clear_until.read();
        while before > 0 {
            match self.clear_until.swap_if(before, 0) {
                Ok(()) => return,
                Err(instead) => before = instead,
            }
        }
    }

    fn share_of_all(&self, now: Tick) -> u32 {
        let in_window = self.window.all(now);
        if in_window.requests < LEAST {
            return 0;
        }
        match share(self.policy, in_window) {
            0 => 0,
            share_in_window => match self.lately.newest(now) {
                Sums { requests: 0, .. } => share_in_window, // nothing is known of it
                lately => share_in_window.min(share(self.policy, lately)),
            },
        }
    }

    fn take_reserve(&self, now: Tick) -> bool {
        once_in(&self.reserve_at, RESERVE, now)
    }
}

/// Brings the moment in `word` to `moment`, if that is later.
fn until<W: Word>(word: &W, moment: Tick) {
    let mut before = word.read();
    while before < moment.as_nanos() {
        match word.swap_if(before, moment.as_nanos()) {
            Ok(()) => return,
            Err(instead) => before = instead,
        }
    }
}

/// What the formula makes of these, of `u32::MAX`.
fn share(policy: ThrottlePolicy, Sums { requests, accepts }: Sums) -> u32 {
    let over = (10 * requests).saturating_sub(policy.tenths * accepts);
    let share = over * u64::from(u32::MAX) / (10 * (requests + 1));
    u32::try_from(share.min(u64::from(u32::MAX) * MOST_OF_100 / 100)).unwrap_or(u32::MAX)
}

impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of 100 calls to it are held back, since it refuses or does not answer", self.percent)
    }
}

impl std::error::Error for Throttled {}
