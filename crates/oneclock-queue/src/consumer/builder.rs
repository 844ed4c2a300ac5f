//! What a consumer is told once.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oneclock::events::Observer;
use oneclock_core::expiry::Attempts;
use oneclock_core::{Effect, Name};

use super::{Consumer, Job, JobError, Keys, Shared};
use crate::{Broker, Uncertainty};

/// Builds a [`Consumer`].
#[must_use]
pub struct ConsumerBuilder<B> {
    broker: B,
    limit: Duration,
    min_useful: Duration,
    attempts: Attempts,
    effect: Option<Effect>,
    handler_enforces: bool,
    #[cfg(feature = "idempotency")]
    pub(super) store: Option<Arc<super::keys::Store>>,
    places: usize,
    late_places: usize,
    uncertainty: Uncertainty,
    observer: Option<Arc<dyn Observer>>,
}

/// A consumer cannot be built. Each is a mistake in the code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadConsumer {
    /// Something of which there must be some.
    #[error("{queue}: {what} of zero would do nothing: give it at least one")]
    Zero {
        /// The queue.
        queue: Name,
        /// What.
        what: &'static str,
    },
    /// The least that is useful is more than the handler may take.
    #[error(
        "{queue}: nothing useful is done in less than {min_useful:?}, and the limit is {limit:?}: raise the one or lower the other"
    )]
    LimitBelowMinimum {
        /// The queue.
        queue: Name,
        /// The limit.
        limit: Duration,
        /// The least.
        min_useful: Duration,
    },
    /// A store before the handler and the handler itself are both to see to it that a key has one effect.
    #[error("{queue}: `once` and `enforces_keys` both say who sees to it that a key has one effect: leave one out")]
    KeptTwice {
        /// The queue.
        queue: Name,
    },
    /// The handler enforces keys, and what doing its work twice would do is said to be something else.
    #[error(
        "{queue}: a handler that enforces keys has one effect for each of them, and `effect` says {effect:?}: leave one out"
    )]
    EffectBesideKeys {
        /// The queue.
        queue: Name,
        /// What was said.
        effect: Effect,
    },
}

impl<B: Broker> ConsumerBuilder<B> {
    pub(super) fn new(broker: B) -> Self {
        Self {
            broker,
            limit: Duration::from_secs(30),
            min_useful: Duration::from_millis(100),
            attempts: Attempts::default(),
            effect: None,
            handler_enforces: false,
            #[cfg(feature = "idempotency")]
            store: None,
            places: 8,
            late_places: 1,
            uncertainty: Uncertainty::default(),
            observer: None,
        }
    }

    /// How long one delivery may be worked on; thirty seconds unless said. It ends earlier when the work expires.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// With less than this left of its life, work is not begun; 100 ms unless said.
    pub const fn min_useful(mut self, min_useful: Duration) -> Self {
        self.min_useful = min_useful;
        self
    }

    /// How often work is tried, and how much later each time; unless said as [`Attempts::default`] says: ten times in eight and a half
    /// minutes, so that what a handler needs may be away for some minutes and nothing becomes a dead letter.
    pub const fn attempts(mut self, attempts: Attempts) -> Self {
        self.attempts = attempts;
        self
    }

    /// What doing the work twice would do; [`Effect::Once`] unless said: then what may have been done is not done again by itself.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// The handler itself sees to it that a key has one effect: it writes the key in the transaction of the effect. That says what
    /// doing it twice would do, so that no other [`effect`](Self::effect) is said beside it.
    pub const fn enforces_keys(mut self) -> Self {
        self.handler_enforces = true;
        self
    }

    /// How many deliveries are worked on at a time; eight unless said.
    pub const fn places(mut self, places: usize) -> Self {
        self.places = places;
        self
    }

    /// How many of what is late; one unless said.
    pub const fn late_places(mut self, places: usize) -> Self {
        self.late_places = places;
        self
    }

    /// By how much this process's clock may be wrong; what the machine says and the broker's clock proves, unless given.
    pub fn uncertainty(mut self, uncertainty: Uncertainty) -> Self {
        self.uncertainty = uncertainty;
        self
    }

    /// Who is told; the process's observer unless said.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// A consumer that has work done by `handler`. What it returns decides what becomes of the delivery: see [`JobError`].
    ///
    /// # Errors
    /// [`BadConsumer`].
    pub fn build<H, F>(self, handler: H) -> Result<Consumer<B>, BadConsumer>
    where
        H: Fn(Job) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), JobError>> + Send + 'static,
    {
        let queue = self.broker.name();
        let counts = [
            ("limit", self.limit.is_zero()),
            ("places", self.places == 0),
            ("late_places", self.late_places == 0),
            ("attempts", self.attempts.at_most == 0),
        ];
        if let Some((what, _)) = counts.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(BadConsumer::Zero { queue: queue.clone(), what });
        }
        if self.limit < self.min_useful {
            let (limit, min_useful) = (self.limit, self.min_useful);
            return Err(BadConsumer::LimitBelowMinimum { queue: queue.clone(), limit, min_useful });
        }
        let (effect, keys) = self.kept()?;
        Ok(Consumer(Arc::new(Shared {
            broker: self.broker,
            handler: Box::new(move |job| Box::pin(handler(job))),
            limit: self.limit,
            min_useful: self.min_useful,
            attempts: self.attempts,
            effect,
            keys,
            places: self.places,
            late_places: self.late_places,
            uncertainty: self.uncertainty,
            observer: self.observer,
        })))
    }

    /// What doing the work twice would do, and who sees to it that a key has one effect, in whichever order that was said.
    fn kept(&self) -> Result<(Effect, Keys), BadConsumer> {
        let effect = self.effect.clone();
        #[cfg(feature = "idempotency")]
        if let Some(store) = &self.store {
            if self.handler_enforces {
                return Err(BadConsumer::KeptTwice { queue: self.broker.name().clone() });
            }
            return Ok((effect.unwrap_or(Effect::Once), Keys::Store(Arc::clone(store))));
        }
        match effect {
            None if self.handler_enforces => Ok((Effect::Keyed(Name::literal("idempotency-key")), Keys::Handler)),
            Some(effect @ Effect::Keyed(_)) if self.handler_enforces => Ok((effect, Keys::Handler)),
            Some(effect) if self.handler_enforces => {
                Err(BadConsumer::EffectBesideKeys { queue: self.broker.name().clone(), effect })
            }
            effect => Ok((effect.unwrap_or(Effect::Once), Keys::Nobody)),
        }
    }
}

impl<B: Broker> std::fmt::Debug for ConsumerBuilder<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerBuilder").field("queue", self.broker.name()).finish_non_exhaustive()
    }
}
