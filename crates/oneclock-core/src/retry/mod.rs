//! Whether a call that failed is tried again, and when: the policy of a destination, the plan of one call, the tokens that
//! all its calls share.
//!
//! Decides only (contract R1 to R10): waiting and calling are the runtime's. What an outcome and an effect allow is
//! [`effect`](crate::effect)'s decision, how much time an attempt gets is [`grant`](crate::grant)'s; nothing here makes
//! either larger. Randomness comes in as an argument.
//!
//! | piece | decides |
//! |---|---|
//! | [`RetryPolicy`] | how often, how long each, how long in between, and which answers are worth another try |
//! | [`RetryPlan`] | what comes next in one call: an attempt, a wait, or the end with its reason |
//! | [`Tokens`] | how many retries all calls to one destination may make together (R9) |
//! | [`Pushback`] | what the far side says of when to come again: `retry-after`, `grpc-retry-pushback-ms` |
//! | [`Backoff`] | how long to wait, with full jitter |
//!
//! ```
//! use oneclock_core::retry::*;
//! use oneclock_core::{Ask, BoundBy, Budget, Effect, Outcome, Stage, Tick};
//! use std::time::Duration;
//! # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
//! # fn at(n: u64) -> Tick { Tick::default() + ms(n) }
//!
//! let policy = RetryPolicy::new().attempts(3).per_try(ms(100)).backoff(ms(0), ms(0)).build()?;
//! let (tokens, budget) = (Tokens::new(), Budget::begin(BoundBy::Caller, ms(250), at(0)));
//! let (mut plan, first) = RetryPlan::begin(&policy, &Effect::ReadOnly, Ask::new(), budget, at(0))?;
//! assert_eq!(first.budget.deadline.remaining(at(0)), ms(100));
//!
//! let cut_off = Tried::new(Outcome::Unknown { stage: Stage::Wait });
//! let Step::Attempt(second) = plan.tried(cut_off, &tokens, 0, at(100)) else { panic!() };
//! assert_eq!(second.budget.deadline.remaining(at(100)), ms(100));
//! let Step::Attempt(third) = plan.tried(cut_off, &tokens, 0, at(200)) else { panic!() };
//! assert_eq!(third.budget.deadline.remaining(at(200)), ms(50), "never beyond the whole (V1)");
//! let Step::Stop(why) = plan.tried(cut_off, &tokens, 0, at(250)) else { panic!() };
//! assert_eq!(why.to_string(), "all 3 attempts were made");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backoff;
mod hedge;
mod plan;
mod policy;
mod pushback;
mod stop;
#[cfg(test)]
mod tests;
mod tokens;

pub use backoff::Backoff;
pub use hedge::{HEDGE_LEAST_DELAY, hedge};
pub use plan::{Attempt, RetryPlan, Step, Tried};
pub use policy::{NotAPolicy, RetryPolicy, RetryPolicyBuilder};
pub use pushback::Pushback;
pub use stop::{Status, Stop};
pub use tokens::Tokens;
