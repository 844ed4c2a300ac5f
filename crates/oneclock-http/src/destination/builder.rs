//! What a destination is made of: limits, what it is told, and the policies of what its calls share.
//!
//! Decides that what contradicts itself shows when a service starts.

use std::sync::Arc;
use std::time::Duration;

use oneclock::{Health, HealthBuilder, Retries, WithoutOperation};
use oneclock_core::breaker::BreakerPolicy;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::throttle::ThrottlePolicy;
use oneclock_core::wire::Conventions;
use oneclock_core::{Refused, Trust};

use super::{Destination, Rules};
use crate::fields::FieldSet;

/// Builds a [`Destination`].
#[derive(Clone, Debug)]
#[must_use = "a destination is made by `build`"]
pub struct DestinationBuilder(Rules, Policies);

/// What `build` makes something of that all calls share.
#[derive(Clone, Debug)]
struct Policies {
    retry: Option<RetryPolicy>,
    throttle: Option<ThrottlePolicy>,
    breaker: Option<BreakerPolicy>,
}

// === DestinationBuilder ===

impl DestinationBuilder {
    pub(super) fn new(rules: Rules) -> Self {
        Self(rules, Policies { retry: None, throttle: Some(ThrottlePolicy::default()), breaker: None })
    }

    /// The most that one call may spend. Without a cap: what its operation leaves, and 10 s where there is none.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.0.ask = self.0.ask.cap(cap);
        self
    }

    /// What the operation keeps back from a call: for its later steps and for the way home.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.0.ask = self.0.ask.reserve(reserve);
        self
    }

    /// The least that is useful; 5 ms unless said otherwise. With less left, the call is not made.
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.0.ask = self.0.ask.min_useful(min_useful);
        self
    }

    /// The fields that it understands; `x-remaining-ms` unless said otherwise. Each carries the same deadline (contract
    /// E7).
    pub fn tells(mut self, conventions: Conventions) -> Self {
        self.0.tells = FieldSet::new(conventions);
        self.0.tells_default = false;
        self
    }

    /// It understands these fields too, beside those of [`tells`](Self::tells); where nothing was said with that, in place of
    /// the default.
    pub fn also_tells(mut self, conventions: &Conventions) -> Self {
        self.0.also_tells(conventions);
        self
    }

    /// Whether it is one of ours, so that the reasons it gives can be built on (contract R8). Outside unless said
    /// otherwise.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.0.trust = trust;
        self
    }

    /// Declares that it enforces idempotency keys: a call repeated with its key has its effect once (contract R7).
    pub fn enforces_keys(mut self) -> Self {
        self.0.enforces_keys = true;
        self
    }

    /// How calls to it are tried again. Without a policy they are not. Used by [`Client`](crate::Client) and
    /// [`RetryLayer`](crate::RetryLayer); the cap bounds all attempts and waits of a call together.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.1.retry = Some(policy);
        self
    }

    /// How its calls are throttled while it refuses some for load: unless said otherwise, to about twice what it accepts, counted
    /// over 60 s. While it accepts more than half of them nothing is held back.
    ///
    /// A call is held back only if the window and the last second both say so, so that a far side which accepts again is not kept
    /// from its callers for a minute. At most 95 of 100 are, and one a second is made in any case. Two knobs, and seldom a reason to
    /// turn them: [`window`](oneclock_core::throttle::ThrottlePolicyBuilder::window), longer for a destination with few calls;
    /// [`multiple`](oneclock_core::throttle::ThrottlePolicyBuilder::multiple), nearer to 1 where a refusal costs the far side almost
    /// as much as the work. More in `docs/guide/overload-clients.md`.
    pub fn throttle(mut self, policy: ThrottlePolicy) -> Self {
        self.1.throttle = Some(policy);
        self
    }

    /// Its calls are not throttled. For a far side whose 503 or 429 is about one user and not about load (a quota for each customer;
    /// a destination for each of them is better), for a proxy in between that answers 503 for a part of what stands behind it, and
    /// for tests and load generators that want to see each refusal. At run time, for an emergency:
    /// [`Health::switch_off`](oneclock::Health::switch_off).
    pub fn unthrottled(mut self) -> Self {
        self.1.throttle = None;
        self
    }

    /// It has a breaker: while too many calls fail, none is made but a probe now and then. Without this it has none, since each
    /// instance of a service sees only its own calls, and with few of them chance opens a breaker.
    pub fn breaker(mut self, policy: BreakerPolicy) -> Self {
        self.1.breaker = Some(policy);
        self
    }

    /// What a call does where no operation is current.
    pub fn without_operation(mut self, without: WithoutOperation) -> Self {
        self.0.without_operation = without;
        self
    }

    /// The destination.
    ///
    /// # Errors
    /// [`Refused::CapBelowMinimum`], if no call could ever be made (contract C1).
    pub fn build(self) -> Result<Destination, Refused> {
        let Self(mut rules, Policies { retry, throttle, breaker }) = self;
        rules.ask.check()?;
        // What its owner allows: one attempt's limit, else that of the whole.
        let per_try = retry.as_ref().and_then(RetryPolicy::per_try);
        let health = Health::of(rules.name.clone()).limit(per_try.into_iter().chain(rules.ask.cap_value()).min());
        let health = if let Some(policy) = throttle { health.throttle(policy) } else { health.unthrottled() };
        let health = breaker.into_iter().fold(health, HealthBuilder::breaker);
        rules.health = health.build();
        if let Some(policy) = retry {
            let policy = if rules.enforces_keys { policy.enforcing_keys() } else { policy };
            rules.retries = Some(
                Retries::to(rules.name.clone(), policy)
                    .ask(rules.ask)
                    .health(rules.health.clone())
                    .without_operation(rules.without_operation)
                    .build()?,
            );
        }
        Ok(Destination(Arc::new(rules)))
    }
}
