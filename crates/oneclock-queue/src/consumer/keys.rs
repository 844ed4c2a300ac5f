//! One effect for a key, however often its work is delivered: an idempotency store before the handler.
//!
//! Decides what a claim means for a delivery, and what a handler's end means for the record (contract M1, M2, M4). The rules of the
//! record are `oneclock_core::idempotency`'s. The record is written before the broker is told, so that a crash in between makes a
//! delivery that finds the work done.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use oneclock::clock;
use oneclock::events::{Delivery as Told, Event, Keyed, send};
use oneclock_core::expiry::{Handled, Why};
use oneclock_core::idempotency::{Claim, Claimed, Doubt, Fence, Fingerprint, Key, Owner, Scope, State, Takeover};
use oneclock_core::{Effect, Name, Outcome, Tick};
use oneclock_idempotency::{
    self as idempotency, Answer, AnyStore, Kept, Settle, Settled, Store as IdempotencyStore, StoreError,
};

use super::Shared;
use super::builder::ConsumerBuilder;
use super::tenure::Tenure;
use super::walk::{Detailed, Worked};
use crate::{Broker, Message};

/// A store, and for how long it keeps records.
pub(super) struct Store {
    store: AnyStore,
    retention: Duration,
    outage: Mutex<Outage>,
}

/// For how long the store has not answered.
#[derive(Debug, Default)]
struct Outage {
    failures: u32,
    until: Option<Tick>, // it is not asked before
}

/// How long the store may take to answer, and how long it is told what became of a run.
const CLAIM_WITHIN: Duration = Duration::from_secs(5);
const RECORD_WITHIN: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(50);

/// How much longer than its handler a run may be silent, so that what became of it can still be written.
const SLACK: Duration = Duration::from_secs(15);

/// How soon a delivery comes again whose key is somebody else's.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How soon a store is asked again that did not answer; twice that after each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// And no later than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

const DELIVERED: Name = Name::literal("DELIVER");

impl<B: Broker> ConsumerBuilder<B> {
    /// Work has one effect for its key, however often it is delivered: `store` is asked before the handler. The key is its own, else
    /// its message's id. A message that has neither (RabbitMQ takes those) has nothing that it could be recorded under: it is done as
    /// if there were no store, which is counted as the fault `key_missing`, and not again where it [may have
    /// run](crate::Delivery::may_have_run).
    ///
    /// While the store does not answer nothing runs: deliveries come again, uncounted, after a pause that grows to a minute, and
    /// meanwhile one is received at a time.
    ///
    /// `retention` is how long records are kept: longer than anything may still be delivered or redriven (contract M9). What may have
    /// been done is not done again by itself, unless the [`effect`](Self::effect) is idempotent by nature.
    pub fn once(mut self, store: impl IdempotencyStore, retention: Duration) -> Self {
        let outage = Mutex::default();
        self.store = Some(Arc::new(Store { store: AnyStore::new(store), retention, outage }));
        self
    }
}

/// The scope under which work of this queue is recorded: for whom it is (else who sent it), the queue, and its key (else its
/// message's id). Whoever wants to see what became of it looks there.
pub fn scope_of(queue: &Name, message: &Message) -> Option<Scope> {
    let key = match &message.stamp.key {
        Some(key) => key.clone(),
        None => Key::new(&message.id).ok()?,
    };
    let principal = message.principal.clone().unwrap_or_else(|| message.source.as_str().into());
    Some(Scope { principal, method: DELIVERED, route: queue.clone(), key })
}

/// What work of this key asks for.
pub(crate) fn fingerprint_of(message: &Message) -> Fingerprint {
    let content_type = message.content_type.as_deref().unwrap_or_default();
    idempotency::fingerprint_of(&[message.kind.as_str().as_bytes(), content_type.as_bytes(), &message.body])
}

impl Store {
    /// Has `run` done unless the record says that it was.
    pub(super) async fn once<B, R, F>(
        &self,
        shared: &Shared<B>,
        message: &Message,
        tenure: &Tenure,
        run: R,
    ) -> Detailed<Worked>
    where
        B: Broker,
        R: FnOnce(Fence) -> F + Send,
        F: Future<Output = Detailed<Handled>> + Send,
    {
        let queue = shared.broker.name();
        let tell = |what| send(shared.observer.as_ref(), &Event::Keyed { route: queue, what });
        let Some(scope) = scope_of(queue, message) else { return (Worked::Ends(Why::KeyUnreadable), None) };
        let claim = Claim {
            fingerprint: fingerprint_of(message),
            owner: Owner(uuid::Uuid::new_v4().as_u128()),
            made: None,
            lease: shared.limit + SLACK,
            retention: self.retention,
            takeover: match shared.effect {
                Effect::ReadOnly | Effect::Idempotent => Takeover::DeclaredSafe,
                _ => Takeover::Never,
            },
        };
        // Whether a claim is there whose answer was lost is not known. Asked again it is the same one, and gets its answer.
        let claiming = async {
            loop {
                match self.store.claim(&scope, &claim).await {
                    Ok(found) => return found,
                    Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "asking the store again"),
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        let claimed = tokio::time::timeout(CLAIM_WITHIN, claiming).await;
        let again_in = self.answered(claimed.is_ok(), clock::now());
        let fence = match claimed {
            Ok(found) => match found.claimed {
                Claimed::Run { fence, taken_over } => {
                    tell(if taken_over { Keyed::TookOver } else { Keyed::Ran });
                    fence
                }
                Claimed::Completed => {
                    tell(Keyed::Replayed);
                    return (Worked::HadBeenDone, None);
                }
                Claimed::InProgress { lease_left } => {
                    return (Worked::Elsewhere { again_in: lease_left.min(LOOK_AGAIN) }, None);
                }
                Claimed::Unknown { doubt } => {
                    tell(Keyed::Unknown(doubt));
                    return (
                        Worked::Ends(Why::OutcomeUnknown),
                        Some(format!("its record is unknown: {}", doubt.as_str())),
                    );
                }
                Claimed::OtherFingerprint => return (Worked::Ends(Why::KeyReused), None),
                // Keys of work say nothing of when they were made, so a store says neither of these.
                _ => return (Worked::Ends(Why::KeyUnreadable), None),
            },
            // Nothing ran (contract M6).
            Err(_) => return (Worked::Elsewhere { again_in }, None),
        };
        let (handled, detail) = run(fence).await;
        let settle = match handled {
            Handled::LeaseLost if tenure.has_begun() => Settle::Doubt(Doubt::LeaseLapsed),
            Handled::LeaseLost => Settle::Release,
            handled => said_of(handled),
        };
        match self.record(&scope, fence, settle).await {
            Some(Settled::Fenced { .. }) => {
                tell(Keyed::Fenced);
                (Worked::Ran(Handled::LeaseLost), detail)
            }
            Some(_) => (Worked::Ran(handled), detail),
            None => {
                tell(Keyed::NotRecorded);
                tracing::error!(%scope, "the store could not be told what became of work: when its lease lapses it counts as unknown");
                (Worked::Ran(handled), detail)
            }
        }
    }

    /// What is known of the store by now: it answered, or it did not. After how long it is asked again.
    fn answered(&self, it_did: bool, now: Tick) -> Duration {
        let mut outage = self.outage();
        if it_did {
            *outage = Outage::default();
            return Duration::ZERO;
        }
        // Of many that ask at the same time one failure counts.
        if outage.until.is_none_or(|until| until <= now) {
            let doubled = 2_u32.checked_pow(outage.failures).and_then(|times| FIRST_PAUSE.checked_mul(times));
            outage.until = Some(now + doubled.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE));
            outage.failures = outage.failures.saturating_add(1);
        }
        outage.until.map_or(FIRST_PAUSE, |until| until.since(now))
    }

    /// Until when it is not asked, while it is down.
    pub(super) fn is_down_until(&self) -> Option<Tick> {
        self.outage().until
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says of work under a key that it ended without being done, so that who asks is told why: before its broker is told, as of a
    /// run. What is under way, done or unknown says so itself, and what the store cannot be told within this stays as it stands.
    pub(super) async fn ended(&self, queue: &Name, message: &Message, told: Told, within: Duration) {
        let settle = match told {
            // Not completed: another message of the same key, which still lives, would count as done.
            Told::Discarded(why) => Settle::SetAside(Answer::saying(StatusCode::GONE, why.as_str(), why.sentence())),
            Told::DeadLettered(Why::OutcomeUnknown) => Settle::Doubt(Doubt::Failed),
            Told::DeadLettered(why) => {
                Settle::SetAside(Answer::saying(StatusCode::UNPROCESSABLE_ENTITY, why.as_str(), why.sentence()))
            }
            _ => return,
        };
        let Some(scope) = message.stamp.key.as_ref().and_then(|_| scope_of(queue, message)) else { return };
        let saying = async {
            let Some(Kept { record, .. }) = self.store.read(&scope).await? else { return Ok(()) };
            let is_idle = matches!(record.state, State::Queued | State::FailedRetryable);
            if is_idle && record.fingerprint == fingerprint_of(message) {
                self.store.settle(&scope, record.fence, settle).await?;
            }
            Ok::<_, StoreError>(())
        };
        let said = tokio::time::timeout(within, saying).await;
        let Err(error) = said.unwrap_or(Err(StoreError::TooSlow { within })) else { return };
        let error = &error as &dyn std::error::Error;
        tracing::warn!(%scope, error, "the store could not be told that work ended: its record stands as before");
    }

    /// Says so until the store knows, by a bound of its own (contract M2).
    async fn record(&self, scope: &Scope, fence: Fence, settle: Settle) -> Option<Settled> {
        let saying = async {
            loop {
                match self.store.settle(scope, fence, settle.clone()).await {
                    Ok(settled) => return settled,
                    Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "telling the store again"),
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        tokio::time::timeout(RECORD_WITHIN, saying).await.ok()
    }
}

/// What a handler's end says of its run (contract M4).
fn said_of(handled: Handled) -> Settle {
    let outcome = match handled {
        Handled::Done => Outcome::Applied,
        Handled::Rejected => Outcome::Rejected,
        Handled::Failed(outcome) | Handled::CutOff(outcome) | Handled::Stopped(_, outcome) => outcome,
        _ => return Settle::Doubt(Doubt::CutOff),
    };
    match outcome {
        Outcome::Applied => Settle::Complete(Answer::new(StatusCode::OK, bytes::Bytes::new())),
        Outcome::NotSent | Outcome::Rejected | Outcome::Failed => Settle::Release,
        Outcome::Unknown { .. } if matches!(handled, Handled::CutOff(_)) => Settle::Doubt(Doubt::CutOff),
        _ => Settle::Doubt(Doubt::Failed),
    }
}
