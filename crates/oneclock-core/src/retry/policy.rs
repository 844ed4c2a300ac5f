//! What a destination's owner says of repeating calls to it.
//!
//! Checked when it is built, so that what contradicts itself shows when a service starts.

use std::time::Duration;

use super::Backoff;
use crate::Effect;

/// The most attempts that make sense anywhere: beyond that it is a loop, not a retry.
const MOST_ATTEMPTS: u32 = 10;
/// What is kept of a request's body for another attempt, unless something else is said.
const REPLAY: usize = 64 * 1024;

/// How often a call to a destination is tried, how long each attempt may take, and which answers are worth another.
///
/// It can only make retries fewer: an attempt has to fit the budget (R1), the effect has to allow it (R7), and there has to
/// be a token (R9).
///
/// ```
/// # use oneclock_core::{retry::RetryPolicy, Effect}; use std::time::Duration;
/// # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// let policy = RetryPolicy::new()
///     .attempts(3)                 // the first one included
///     .per_try(ms(100))            // no attempt takes longer
///     .backoff(ms(25), ms(250))    // anything up to 25 ms, then up to 50 ms, …
///     .build()?;
/// assert_eq!(policy.attempts(), 3);
/// assert!(RetryPolicy::new().attempts(0).build().is_err());
/// # Ok::<(), oneclock_core::retry::NotAPolicy>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    attempts: u32,
    per_try: Option<Duration>, // None: all that is left, which is finite
    backoff: Backoff,
    effect: Option<Effect>,
    idempotent_methods: bool,
    enforces_keys: bool,
    statuses: Vec<u16>,
    grpc_statuses: Vec<u8>,
    replay: usize,
}

/// Builds a [`RetryPolicy`].
#[derive(Clone, Debug)]
#[must_use = "a policy is made by `build`"]
pub struct RetryPolicyBuilder(RetryPolicy);

/// These settings make no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAPolicy {
    /// Without an attempt there is no call, and with too many there is a loop.
    #[error("attempts = {attempts}: write 1 (no retry) to {MOST_ATTEMPTS}; the first attempt is counted")]
    Attempts {
        /// The number given.
        attempts: u32,
    },
    /// A limit of zero would end every attempt before it begins.
    #[error(
        "per_try = 0 would end every attempt before it begins; write a duration, or leave it out for all that is left"
    )]
    PerTry,
    /// The longest wait is shorter than the first.
    #[error("backoff: the longest wait of {longest:?} is below the first one of {first:?}")]
    Backoff {
        /// The most that is waited at first.
        first: Duration,
        /// The most that is waited at all.
        longest: Duration,
    },
    /// Only an answer that failed can be worth another attempt.
    #[error("status {status} is no failure that another attempt could change; write statuses from 408 to 599")]
    Status {
        /// The status given.
        status: u16,
    },
}

// === RetryPolicy ===

impl RetryPolicy {
    /// Begins a policy: three attempts, each with all that is left, up to 25 ms in between at first and 250 ms at most,
    /// after 429, 502, 503 and 504 and gRPC's `DEADLINE_EXCEEDED`, `RESOURCE_EXHAUSTED` and `UNAVAILABLE`.
    #[expect(clippy::new_ret_no_self, reason = "a policy is made by `build`, which may refuse")]
    pub fn new() -> RetryPolicyBuilder {
        RetryPolicyBuilder(Self {
            attempts: 3,
            per_try: None,
            backoff: Backoff::default(),
            effect: None,
            idempotent_methods: false,
            enforces_keys: false,
            statuses: vec![429, 502, 503, 504],
            grpc_statuses: vec![4, 8, 14],
            replay: REPLAY,
        })
    }

    /// How many attempts one call may make, the first one included.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The most that one attempt may take, if that is limited.
    pub fn per_try(&self) -> Option<Duration> {
        self.per_try
    }

    /// How long is waited in between.
    pub fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// The effect that every call to this destination was declared to have, if one was.
    pub fn effect(&self) -> Option<&Effect> {
        self.effect.as_ref()
    }

    /// Whether PUT and DELETE were declared to be idempotent there (contract R7).
    pub fn idempotent_methods(&self) -> bool {
        self.idempotent_methods
    }

    /// Whether the destination was declared to enforce idempotency keys (contract R7).
    pub fn enforces_keys(&self) -> bool {
        self.enforces_keys
    }

    /// Whether an answer with this HTTP status is worth another attempt.
    pub fn retries_status(&self, status: u16) -> bool {
        self.statuses.contains(&status)
    }

    /// Whether an answer with this gRPC status is worth another attempt.
    pub fn retries_grpc_status(&self, status: u8) -> bool {
        self.grpc_statuses.contains(&status)
    }

    /// How many bytes of a request's body are kept for another attempt (contract R6).
    pub fn replay(&self) -> usize {
        self.replay
    }

    /// The same policy for a destination that enforces keys.
    #[must_use]
    pub fn enforcing_keys(mut self) -> Self {
        self.enforces_keys = true;
        self
    }
}

// === RetryPolicyBuilder ===

impl RetryPolicyBuilder {
    /// How many attempts one call may make, the first one included; 3 unless said otherwise. One means no retry.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    /// The most that one attempt may take, head and body. It ends the attempt, not the call (contract R3, R4). Without it
    /// an attempt may use all that is left, and then nothing is left for another.
    pub fn per_try(mut self, limit: Duration) -> Self {
        self.0.per_try = Some(limit);
        self
    }

    /// How long is waited in between: anything up to `first`, then up to twice that, and so on, `longest` at most.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.0.backoff = Backoff::new(first, longest);
        self
    }

    /// Declares what repeating *any* call to this destination does. Without it the method of a request says so, and what
    /// says nothing is [`Effect::Once`].
    pub fn effect(mut self, effect: Effect) -> Self {
        self.0.effect = Some(effect);
        self
    }

    /// Declares that PUT and DELETE are what HTTP asks them to be at this destination: idempotent (contract R7).
    pub fn idempotent_methods(mut self) -> Self {
        self.0.idempotent_methods = true;
        self
    }

    /// Declares that the destination enforces idempotency keys (contract R7).
    pub fn enforces_keys(mut self) -> Self {
        self.0.enforces_keys = true;
        self
    }

    /// The HTTP statuses that are worth another attempt, where effect and outcome allow one.
    pub fn statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.0.statuses = statuses.into_iter().collect();
        self
    }

    /// The gRPC statuses that are worth another attempt, where effect and outcome allow one.
    pub fn grpc_statuses(mut self, statuses: impl IntoIterator<Item = u8>) -> Self {
        self.0.grpc_statuses = statuses.into_iter().collect();
        self
    }

    /// How many bytes of a request's body are kept for another attempt; 64 KiB unless said otherwise. A call that sent more
    /// is not repeated (contract R6).
    pub fn replay(mut self, bytes: usize) -> Self {
        self.0.replay = bytes;
        self
    }

    /// The policy.
    ///
    /// # Errors
    /// [`NotAPolicy`], if it contradicts itself.
    pub fn build(self) -> Result<RetryPolicy, NotAPolicy> {
        let policy = self.0;
        if !(1..=MOST_ATTEMPTS).contains(&policy.attempts) {
            return Err(NotAPolicy::Attempts { attempts: policy.attempts });
        }
        if policy.per_try.is_some_and(|limit| limit.is_zero()) {
            return Err(NotAPolicy::PerTry);
        }
        let (first, longest) = (policy.backoff.first(), policy.backoff.longest());
        if longest < first {
            return Err(NotAPolicy::Backoff { first, longest });
        }
        if let Some(status) = policy.statuses.iter().find(|status| !(408..=599).contains(*status)) {
            return Err(NotAPolicy::Status { status: *status });
        }
        if policy.grpc_statuses.contains(&0) {
            return Err(NotAPolicy::Status { status: 0 });
        }
        Ok(policy)
    }
}
