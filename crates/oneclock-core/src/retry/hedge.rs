//! Whether a call that is slow gets a second attempt beside the first (contract R10).

use std::time::Duration;

use super::{Attempt, RetryPolicy, Stop, Tokens};
use crate::effect::{self, Effect};
use crate::{Ask, Budget, Tick};

/// A hedge never begins earlier than this after the first attempt: a smaller delay doubles the load.
pub const HEDGE_LEAST_DELAY: Duration = Duration::from_millis(2);

/// The second attempt beside a first one that goes on, at `now`; it has all that is left of `whole`, since a hedge ends no
/// attempt (contract R4). Takes a spare token.
///
/// `above` is the attempt of the request that this call serves, one for the first: the hop above is at it again already.
///
/// ```
/// # use oneclock_core::{retry::*, Ask, BoundBy, Budget, Effect, Tick}; use std::time::Duration;
/// let (now, policy, tokens) = (Tick::from_nanos(0), RetryPolicy::new().build()?, Tokens::new());
/// let whole = Budget::begin(BoundBy::Caller, Duration::from_millis(300), now);
/// let refused = hedge(&policy, &Effect::Once, Ask::new(), whole, 1, &tokens, now).unwrap_err();
/// assert_eq!(refused.as_str(), "effect");
/// let refused = hedge(&policy, &Effect::ReadOnly, Ask::new(), whole, 1, &tokens, now).unwrap_err();
/// assert_eq!(refused.as_str(), "no_tokens", "the bucket begins with ten of a hundred: none to spare");
/// for _ in 0..500 { tokens.succeeded(); }
/// assert!(hedge(&policy, &Effect::ReadOnly, Ask::new(), whole, 1, &tokens, now).is_ok());
/// # Ok::<(), NotAPolicy>(())
/// ```
///
/// # Errors
/// [`Stop`], with the reason why there is no hedge. Nothing was taken.
pub fn hedge(
    policy: &RetryPolicy,
    effect: &Effect,
    ask: Ask,
    whole: Budget,
    above: u32,
    tokens: &Tokens,
    now: Tick,
) -> Result<Attempt, Stop> {
    if !effect::may_hedge(effect) {
        return Err(Stop::Effect { outcome: crate::Outcome::Unknown { stage: crate::Stage::Wait } });
    }
    if above > 1 {
        return Err(Stop::HopAbove { attempt: above });
    }
    if policy.attempts() < 2 {
        return Err(Stop::AllMade { attempts: 1 });
    }
    let min_useful = ask.min_useful_value();
    let Ok(budget) = Ask::new().min_useful(min_useful).of(whole, now) else {
        let remaining = whole.deadline.remaining(now);
        return Err(Stop::OutOfTime { remaining, wait: Duration::ZERO, min_useful });
    };
    if !tokens.take_spare() {
        return Err(Stop::NoTokens);
    }
    Ok(Attempt { number: 2, budget })
}
