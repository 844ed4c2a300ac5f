//! What becomes of a delivery when its handler is over.
//!
//! Decides between acknowledging, giving it back, letting somebody look at it, and leaving it alone (contract Q5, R7, R8). What
//! may have been done is never done again unless that was declared safe; nothing ends without a reason.

use std::time::Duration;

use super::judge::certain_of;
use super::{Policy, Stamp, Stop, Why};
use crate::Stage;
use crate::effect::{Effect, Outcome, may_repeat};
use crate::wire::Wall;

/// How a handler came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handled {
    /// It did its work.
    Done,
    /// It failed, and this is known of what it did.
    Failed(Outcome),
    /// It says that it will never succeed.
    Rejected,
    /// It was told that its next step may not begin, and stopped there. What it had done before is known to be this.
    Stopped(Stop, Outcome),
    /// It was cut off at its expiry or its own limit, or it panicked, and this is known of what it did.
    CutOff(Outcome),
    /// Somebody else may have the work by now.
    LeaseLost,
}

/// What becomes of the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is acknowledged.
    Complete,
    /// It is given back, to be delivered again after a while.
    Again {
        /// After this.
        after: Duration,
    },
    /// It is of no use, or perhaps: it is looked at again at this moment.
    Hold {
        /// By our clock.
        until: Wall,
    },
    /// It ends here.
    Discard(Why),
    /// Somebody looks at it.
    DeadLetter(Why),
    /// Nothing is said of it: it is not ours any more.
    Leave,
}

/// How often work is tried, and how much later each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// How often at most, the first included. At least one.
    pub at_most: u32,
    /// How much later the second one comes; twice that before each further one.
    pub first_wait: Duration,
    /// And no later than this.
    pub longest_wait: Duration,
}

/// What becomes of delivery number `attempt` (from one) of this work.
///
/// `effect` is what repeating its handler would do, `under_key` whether an idempotency store stands before it.
///
/// ```
/// # use oneclock_core::{Effect, Outcome, Stage, expiry::*, wire::Wall}; use std::time::Duration;
/// let (stamp, now, half) = (Stamp::default(), Wall::from_nanos(0), Duration::from_millis(500));
/// let over = |handled, attempt| end(handled, &stamp, &Effect::Once, false, attempt, &Attempts::default(), now, half);
/// assert_eq!(over(Handled::Done, 1), End::Complete);
/// assert!(matches!(over(Handled::Failed(Outcome::NotSent), 1), End::Again { .. }));
/// assert_eq!(over(Handled::Failed(Outcome::NotSent), 10), End::DeadLetter(Why::AttemptsExhausted));
/// let unknown = Outcome::Unknown { stage: Stage::Work };
/// assert_eq!(over(Handled::Failed(unknown), 1), End::DeadLetter(Why::OutcomeUnknown)); // never twice by itself
/// assert_eq!(over(Handled::LeaseLost, 1), End::Leave);
/// ```
#[expect(clippy::too_many_arguments, reason = "one decision, and all that it rests on")]
pub fn end(
    handled: Handled,
    stamp: &Stamp,
    effect: &Effect,
    under_key: bool,
    attempt: u32,
    attempts: &Attempts,
    now: Wall,
    ours: Duration,
) -> End {
    let again = |outcome: Outcome| match outcome {
        Outcome::Applied => End::Complete, // it was done; that its handler failed afterwards changes nothing
        Outcome::Failed => End::DeadLetter(Why::Rejected),
        outcome if !may_repeat(effect, outcome, under_key) => End::DeadLetter(Why::OutcomeUnknown),
        _ if attempt >= attempts.at_most => End::DeadLetter(Why::AttemptsExhausted),
        _ => End::Again { after: attempts.wait(attempt) },
    };
    match handled {
        Handled::Done => End::Complete,
        Handled::Rejected => End::DeadLetter(Why::Rejected),
        Handled::LeaseLost | Handled::Stopped(Stop::LeaseLost, _) => End::Leave,
        // What was done of it before is what counts, if anything was: it is not "expired unused".
        Handled::Stopped(stop, Outcome::NotSent | Outcome::Rejected) => {
            match (stamp.policy, stop, certain_of(stamp, ours)) {
                (Policy::Discard, Stop::Uncertain, Some(until)) if until > now => End::Hold { until },
                (Policy::Discard, Stop::Expired | Stop::Uncertain, _) => End::Discard(Why::Expired),
                (_, Stop::Uncertain, _) => End::DeadLetter(Why::ExpiryUncertain),
                (_, Stop::Expired | Stop::LeaseLost, _) => End::DeadLetter(Why::Expired),
            }
        }
        Handled::Stopped(_, outcome) | Handled::Failed(outcome) | Handled::CutOff(outcome) => again(outcome),
    }
}

/// Whether delivery number `attempt` (from one) may run at all. `may_have_run` is whether an earlier one may have ended without a
/// word: its process died, or its lease lapsed. What it did then is not known (contract R7).
///
/// # Errors
/// Why not: it goes where somebody looks at it.
///
/// ```
/// # use oneclock_core::{Effect, expiry::*};
/// let attempts = Attempts::default();
/// assert!(may_run(2, true, &Effect::Idempotent, false, &attempts).is_ok());
/// assert_eq!(may_run(2, true, &Effect::Once, false, &attempts), Err(Why::OutcomeUnknown));
/// assert_eq!(may_run(11, false, &Effect::Idempotent, false, &attempts), Err(Why::AttemptsExhausted));
/// ```
pub fn may_run(
    attempt: u32,
    may_have_run: bool,
    effect: &Effect,
    under_key: bool,
    attempts: &Attempts,
) -> Result<(), Why> {
    let vanished = Outcome::Unknown { stage: Stage::Work };
    if may_have_run && !may_repeat(effect, vanished, under_key) {
        return Err(Why::OutcomeUnknown);
    }
    if attempt > attempts.at_most { Err(Why::AttemptsExhausted) } else { Ok(()) }
}

// === Attempts ===

impl Attempts {
    /// How long after attempt number `attempt` the next one comes.
    pub fn wait(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.checked_pow(attempt.saturating_sub(1)).and_then(|times| self.first_wait.checked_mul(times));
        doubled.unwrap_or(self.longest_wait).min(self.longest_wait)
    }
}

impl Default for Attempts {
    /// Ten, one second apart at first and five minutes at most: together they wait for eight and a half minutes, so that an outage of
    /// some minutes leaves no dead letters.
    fn default() -> Self {
        Self { at_most: 10, first_wait: Duration::from_secs(1), longest_wait: Duration::from_secs(300) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Expires;
    use super::*;

    const HALF: Duration = Duration::from_millis(500);

    fn secs(n: u64) -> Wall {
        Wall::from_nanos(n * 1_000_000_000)
    }

    fn after(handled: Handled, policy: Policy, now: Wall) -> End {
        let stamp = Stamp { expires: Expires::At(secs(2_000)), policy, ..Stamp::default() };
        end(handled, &stamp, &Effect::Once, false, 1, &Attempts::default(), now, HALF)
    }

    #[test]
    fn q5_what_stopped_before_its_effect_ends_as_its_contract_says() {
        let stopped = |stop| Handled::Stopped(stop, Outcome::NotSent);
        assert_eq!(after(stopped(Stop::Expired), Policy::Discard, secs(2_002)), End::Discard(Why::Expired));
        assert_eq!(after(stopped(Stop::Expired), Policy::DeadLetter, secs(2_002)), End::DeadLetter(Why::Expired));
        assert!(matches!(after(stopped(Stop::Uncertain), Policy::Discard, secs(2_000)), End::Hold { .. }));
        assert_eq!(
            after(stopped(Stop::Uncertain), Policy::DeadLetter, secs(2_000)),
            End::DeadLetter(Why::ExpiryUncertain)
        );
    }

    #[test]
    fn what_began_to_take_effect_and_stopped_is_nobodys_discard() {
        let half_done = Handled::Stopped(Stop::Expired, Outcome::Unknown { stage: Stage::Work });
        assert_eq!(after(half_done, Policy::Discard, secs(2_002)), End::DeadLetter(Why::OutcomeUnknown));
    }

    #[test]
    fn an_unknown_outcome_is_repeated_only_where_that_is_safe() {
        let unknown = Handled::CutOff(Outcome::Unknown { stage: Stage::Work });
        let over =
            |effect: &Effect, key| end(unknown, &Stamp::default(), effect, key, 1, &Attempts::default(), secs(1), HALF);
        let key = Effect::Keyed("order".into());
        assert_eq!(over(&Effect::Once, true), End::DeadLetter(Why::OutcomeUnknown));
        assert_eq!(over(&key, false), End::DeadLetter(Why::OutcomeUnknown));
        for (effect, under_key) in [(&key, true), (&Effect::Idempotent, false), (&Effect::ReadOnly, false)] {
            assert!(matches!(over(effect, under_key), End::Again { .. }), "{effect:?}");
        }
    }

    #[test]
    fn the_waits_double_up_to_the_longest() {
        let attempts = Attempts::default();
        let waits: Vec<u64> = [1, 2, 3, 7, 40].into_iter().map(|attempt| attempts.wait(attempt).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 64, 300]);
        let together: u64 = (1..attempts.at_most).map(|attempt| attempts.wait(attempt).as_secs()).sum();
        assert_eq!(together, 511, "a short outage is outlived");
    }
}
