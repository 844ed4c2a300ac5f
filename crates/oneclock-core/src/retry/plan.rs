//! One call: attempt, wait, attempt, until it succeeds or there is a reason to stop.
//!
//! Decides the order of the questions (contract R1 to R9): may it be repeated at all, is it worth it, is anybody against it,
//! does it fit, is there a token. The first "no" is the reason. The token is asked for last, so that none is taken for
//! nothing.

use std::time::Duration;

use super::{Pushback, RetryPolicy, Status, Stop, Tokens};
use crate::effect::{self, Effect, Outcome};
use crate::ending::Repeat;
use crate::{Ask, Budget, Reason, Refused, Stage, Tick};

/// The plan of one call. Drivers tell it how each attempt came out, and do what it says.
#[derive(Debug)]
pub struct RetryPlan<'p> {
    policy: &'p RetryPolicy,
    effect: &'p Effect,
    whole: Budget,
    min_useful: Duration,
    above: u32,
    latest: Attempt,
}

/// One attempt and what it may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which: one for the first.
    pub number: u32,
    /// What it may spend: never more than the whole call has left (contract R3).
    pub budget: Budget,
}

/// How an attempt came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tried {
    /// What is known of the far side.
    pub outcome: Outcome,
    /// The status of its answer, if it gave one.
    pub status: Option<Status>,
    /// The reason that one of ours gave, from inside the trust boundary.
    pub reason: Option<Reason>,
    /// What it said of when to come again.
    pub pushback: Pushback,
    /// That a hop below tried this often and gave up: trying again here would multiply (contract R9).
    pub below: Option<u32>,
    /// Whether it was held back here, since too many calls to the destination are refused or fail.
    pub held_back: bool,
    /// Whether the request can be sent once more: its body is still there, and nothing of an answer was handed on.
    pub replayable: bool,
    /// Whether retries to the destination are switched on.
    pub switched_on: bool,
    /// Whether the head of its answer was handed on, and how it went is said behind that: nothing may be repeated any more
    /// (contract R6), and nothing has succeeded yet. Whoever hears it to its end tells the tokens.
    pub to_be_told: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another attempt, now.
    Attempt(Attempt),
    /// Wait, then ask [`RetryPlan::waited`].
    Wait {
        /// Until when.
        until: Tick,
    },
    /// No further attempt.
    Stop(Stop),
}

// === RetryPlan ===

impl<'p> RetryPlan<'p> {
    /// Begins a call at `now`, with its first attempt. `ask` says what the whole call asks of `parent`.
    ///
    /// # Errors
    /// [`Refused`], if there is too little time for one attempt.
    pub fn begin(
        policy: &'p RetryPolicy,
        effect: &'p Effect,
        ask: Ask,
        parent: Budget,
        now: Tick,
    ) -> Result<(Self, Attempt), Refused> {
        let (whole, min_useful) = (ask.of(parent, now)?, ask.min_useful_value());
        let latest = Attempt { number: 1, budget: granted(policy, min_useful, whole, now)? };
        Ok((Self { policy, effect, whole, min_useful, above: 1, latest }, latest))
    }

    /// The request that this call serves is attempt `above` of the hop above; one is the first.
    #[must_use]
    pub const fn serving_attempt(mut self, above: u32) -> Self {
        self.above = above;
        self
    }

    /// What all attempts and waits may spend together.
    pub const fn whole(&self) -> Budget {
        self.whole
    }

    /// How many attempts were begun.
    pub const fn attempts(&self) -> u32 {
        self.latest.number
    }

    /// The latest attempt came out like this at `now`. `random` are 64 random bits, for the jitter.
    pub fn tried(&mut self, tried: Tried, tokens: &Tokens, random: u64, now: Tick) -> Step {
        if tried.outcome == Outcome::Applied {
            tokens.succeeded();
            return Step::Stop(Stop::Done);
        }
        if tried.to_be_told {
            return Step::Stop(Stop::Done);
        }
        let until = match self.may_go_on(&tried, now).and_then(|()| self.next_at(tried.pushback, random, now)) {
            Ok(until) => until,
            Err(stop) => return Step::Stop(stop),
        };
        let gets = self.limit_at(until);
        if tried.reason.is_some_and(|reason| reason.repeat() == Repeat::Safe) && gets < self.latest.budget.bound.limit {
            let had = self.latest.budget.bound.limit;
            return Step::Stop(Stop::NoMoreThanBefore { had, gets });
        }
        if !tokens.take(now) {
            return Step::Stop(Stop::NoTokens);
        }
        if until > now { Step::Wait { until } } else { self.waited(now) }
    }

    /// The wait is over at `now`, which may be later than was asked for.
    pub fn waited(&mut self, now: Tick) -> Step {
        match granted(self.policy, self.min_useful, self.whole, now) {
            Ok(budget) => {
                self.latest = Attempt { number: self.latest.number + 1, budget };
                Step::Attempt(self.latest)
            }
            Err(_) => {
                let (remaining, wait) = (self.whole.deadline.remaining(now), Duration::ZERO);
                Step::Stop(Stop::OutOfTime { remaining, wait, min_useful: self.min_useful })
            }
        }
    }

    fn may_go_on(&self, tried: &Tried, now: Tick) -> Result<(), Stop> {
        let Tried { outcome, .. } = *tried;
        if !effect::may_repeat(self.effect, outcome, self.policy.enforces_keys()) {
            return Err(Stop::Effect { outcome });
        }
        if let Some(attempts) = tried.below {
            return Err(Stop::HopBelow { attempts });
        }
        match tried.status {
            Some(status) if !status.is_retried_by(self.policy) => return Err(Stop::Status { status }),
            _ => {}
        }
        if let Some(reason) = tried.reason.filter(|reason| self.is_final(*reason, now)) {
            return Err(Stop::Reason { reason });
        }
        if tried.held_back {
            return Err(Stop::HeldBack);
        }
        if tried.pushback == Pushback::Never {
            return Err(Stop::ToldNotTo);
        }
        if self.above > 1 {
            return Err(Stop::HopAbove { attempt: self.above });
        }
        if self.latest.number >= self.policy.attempts() {
            return Err(Stop::AllMade { attempts: self.latest.number });
        }
        if !tried.switched_on {
            return Err(Stop::SwitchedOff);
        }
        if !tried.replayable {
            return Err(Stop::NotReplayable);
        }
        Ok(())
    }

    /// Whether one of ours gave a reason that another attempt would not change. That its budget ran out is no such reason
    /// where our own limit for the attempt was that budget: it saw what our timer was about to see, less what it keeps back
    /// for its answer (contract R4).
    fn is_final(&self, reason: Reason, now: Tick) -> bool {
        let Attempt { budget, .. } = self.latest;
        let kept_back = self.min_useful.max(budget.bound.limit / KEPT_BACK);
        let is_our_limit = reason == Reason::Deadline
            && budget.deadline < self.whole.deadline
            && budget.deadline.remaining(now) < kept_back;
        reason.repeat() == Repeat::No && !is_our_limit
    }

    /// When the next attempt would begin, if it fits.
    fn next_at(&self, pushback: Pushback, random: u64, now: Tick) -> Result<Tick, Stop> {
        let remaining = self.whole.deadline.remaining(now);
        let jitter = self.policy.backoff().wait(self.latest.number, random);
        let slack = remaining.checked_sub(self.min_useful).filter(|_| !remaining.is_zero());
        let wait = match (pushback, slack) {
            (Pushback::After(asked), Some(slack)) if asked <= slack => {
                // Not earlier than asked for, and not all at the same moment, as far as that fits.
                asked.saturating_add(jitter).min(slack)
            }
            (Pushback::After(wait), _) => return Err(Stop::PushedBack { wait, remaining }),
            (_, Some(slack)) if jitter <= slack => jitter,
            _ => return Err(Stop::OutOfTime { remaining, wait: jitter, min_useful: self.min_useful }),
        };
        Ok(now + wait)
    }

    fn limit_at(&self, now: Tick) -> Duration {
        let remaining = self.whole.deadline.remaining(now);
        self.policy.per_try().map_or(remaining, |limit| limit.min(remaining))
    }
}

/// The part of an attempt's limit that a far side may keep back for its answer.
const KEPT_BACK: u32 = 8;

/// min(per_try, remaining), if that is useful (contract R3).
fn granted(policy: &RetryPolicy, min_useful: Duration, whole: Budget, now: Tick) -> Result<Budget, Refused> {
    let ask = Ask::new().min_useful(min_useful);
    policy.per_try().map_or(ask, |limit| ask.cap(limit)).of(whole, now)
}

// === Tried ===

impl Tried {
    /// An attempt of which only the outcome is known.
    pub const fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            status: None,
            reason: None,
            pushback: Pushback::Unsaid,
            below: None,
            held_back: false,
            replayable: true,
            switched_on: true,
            to_be_told: false,
        }
    }

    /// An attempt whose answer has begun, and says only at its end how it went.
    ///
    /// ```
    /// # use oneclock_core::{Outcome, Stage, retry::Tried};
    /// let begun = Tried::to_be_told();
    /// assert_eq!((begun.outcome, begun.to_be_told), (Outcome::Unknown { stage: Stage::Body }, true));
    /// ```
    pub const fn to_be_told() -> Self {
        Self { to_be_told: true, ..Self::new(Outcome::Unknown { stage: Stage::Body }) }
    }

    /// The status of its answer.
    #[must_use]
    pub const fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// The reason that one of ours gave.
    #[must_use]
    pub const fn reason(mut self, reason: Option<Reason>) -> Self {
        self.reason = reason;
        self
    }

    /// What it said of when to come again.
    #[must_use]
    pub const fn pushback(mut self, pushback: Pushback) -> Self {
        self.pushback = pushback;
        self
    }

    /// That a hop below tried this often and gave up.
    #[must_use]
    pub const fn below(mut self, attempts: Option<u32>) -> Self {
        self.below = attempts;
        self
    }

    /// Whether it was held back here.
    #[must_use]
    pub const fn held_back(mut self, held_back: bool) -> Self {
        self.held_back = held_back;
        self
    }

    /// Whether the request can be sent once more.
    #[must_use]
    pub const fn replayable(mut self, replayable: bool) -> Self {
        self.replayable = replayable;
        self
    }

    /// Whether retries to the destination are switched on.
    #[must_use]
    pub const fn switched_on(mut self, switched_on: bool) -> Self {
        self.switched_on = switched_on;
        self
    }
}
