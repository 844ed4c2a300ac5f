//! Work that an HTTP request accepts and does not wait for: 202, and where to ask what becomes of it.
//!
//! Decides the order: the record first, queued, then the message; so that whoever asks again with the same key finds it, and a crash
//! in between leaves a record whose message is published by the next attempt. Whose the work is, is told by the request alone. What a
//! record may do is `oneclock_core::idempotency`'s; when work may be published is `oneclock_core::expiry`'s.

use std::fmt;
use std::time::Duration;

use http::request::Parts;
use http::{Response, StatusCode};
use oneclock::{Operation, Outcome, clock};
use oneclock_core::Name;
use oneclock_core::expiry::{Expires, NotAccepted, accept, measured};
use oneclock_core::idempotency::{Key, Scope, State};
use oneclock_core::wire::Wall;
use oneclock_http::Problem;
use oneclock_idempotency::{Accepting, Answer, Body, Caller, Idempotency, IdempotencyKey, Queued, Store};

use crate::consumer::{fingerprint_of, scope_of};
use crate::work::Life;
use crate::{Broker, Message, NotPublished, Producer, Work};

/// Accepts work over HTTP. Cheap to clone.
///
/// The consumer of the queue gets the same store, by [`once`](crate::ConsumerBuilder::once), so that the monitor shows what it does.
/// Work goes through an outbox where the producer's broker is one: then the consumer is that of its
/// [destination](Broker::destination).
///
/// ```
/// use oneclock_idempotency::{Idempotency, MemoryStore};
/// use oneclock_queue::{Jobs, MemoryBroker, Producer, Work};
/// use std::time::Duration;
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let once = Idempotency::builder("orders", MemoryStore::new()) // durable: `oneclock_postgres::IdempotencyStore`
///     .one_principal()                                          // or `.principal(|head| …)`: who may ask
///     .retention(DAY * 7)                                       // longer than the work lives and may be redriven
///     .monitor_at("/jobs")                                      // `once.monitor()` is mounted there
///     .build()?;
/// let jobs = Jobs::new(Producer::new("order-service", MemoryBroker::new("mails")), once)?;
///
/// // In a handler, which with axum takes the head as `axum::http::request::Parts`:
/// # let head = http::Request::post("/orders").header("idempotency-key", "tap-7").body(())?.into_parts().0;
/// let mail = Work::new("confirm-order", "order 7").expires_in(DAY).discard();
/// let answer = jobs.accept(&head, mail).await?;
/// assert_eq!(answer.status(), 202);
/// assert!(answer.headers()["location"].to_str()?.starts_with("/jobs/"));
/// # Ok(()) }
/// ```
pub struct Jobs<B, St> {
    producer: Producer<B>,
    once: Idempotency<St>,
    look_in: Duration,
}

/// Nobody said where the monitor is, so that a 202 could not say where to ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{layer}: an answer 202 has to say where to ask what becomes of the work: say `monitor_at`, and mount `monitor()` there"
)]
pub struct NoMonitor {
    /// The layer.
    pub layer: Name,
}

/// The operation of one that accepts work outside of any, and how long it may take.
const ALONE: Name = Name::literal("accept work");
const ALONE_WITHIN: Duration = Duration::from_secs(10);

/// How long it may take to say that nothing was published, whoever has left.
const SAYING_WITHIN: Duration = Duration::from_secs(5);

// === Jobs ===

impl<B: Broker, St: Store> Jobs<B, St> {
    /// Accepts work for the queue of `producer`, with its records, principals and monitor as `once` has them. That layer itself is
    /// needed only around handlers with effects of their own.
    ///
    /// # Errors
    /// [`NoMonitor`].
    pub fn new(producer: Producer<B>, once: Idempotency<St>) -> Result<Self, NoMonitor> {
        if once.monitor_path().is_none() {
            return Err(NoMonitor { layer: once.name().clone() });
        }
        Ok(Self { producer, once, look_in: Duration::from_secs(1) })
    }

    /// When a caller is told to look first, in whole seconds; one unless said otherwise.
    #[must_use]
    pub fn look_in(mut self, after: Duration) -> Self {
        self.look_in = after;
        self
    }

    /// Accepts work for the caller of this request, within what the current operation has left; the work lives by its own expiry.
    ///
    /// The answer is 202 with the monitor's address in `Location`. Asked again with the same key (the request's `idempotency-key`,
    /// or the [work's own](Work::key)) it is the same address and the same job: the work's body has to be the same, and its life
    /// counts from the first time. Without a key each request is another job. The work's principal is the request's, whatever was
    /// [said](Work::principal).
    ///
    /// # Errors
    /// The problem, for the handler to return. 401, 400, 412 and 422 as of an [`Idempotency`] layer; 503 if the store did not keep
    /// the record, or the queue did not take the work. Its [outcome](Problem::outcome) says what is known: after an unknown one the
    /// record stays queued, and the same request may be sent again.
    ///
    /// # Cancel safety
    /// Dropped, it may have been accepted.
    pub async fn accept(&self, head: &Parts, work: Work) -> Result<Response<Body>, Problem> {
        let Caller { principal, key, .. } = self.once.caller(head)?;
        let life = work.life;
        let own_id = work.id.is_some();
        let work = work.for_caller(principal, |kind| match key {
            Some(key) => Key::new(key.for_step(kind.as_str()).as_str()).ok(),
            None => Key::new(IdempotencyKey::new().as_str()).ok(),
        });
        let operation = Operation::current().unwrap_or_else(|| Operation::begin(ALONE, ALONE_WITHIN));
        let mut message = operation.sync_scope(|| self.producer.prepare(work)).map_err(Problem::of)?;
        let queue = self.producer.broker().destination();
        let Some(scope) = scope_of(queue, &message) else { return Err(Problem::failed()) }; // not reached: it has a key
        let asked = clock::wall();
        let queued = match self.once.accept(&scope, fingerprint_of(&message)).await? {
            Accepting::Queued(queued) => queued,
            Accepting::Stands { state, first_seen } => {
                return Ok(self.accepted(&scope, state, ends(&message, life, first_seen).at()));
            }
        };
        message.stamp.expires = ends(&message, life, queued.first_seen);
        message.stamp.first_enqueued = Some(queued.first_seen);
        // Its life counts by the store's clock, and ours was seen to be off from that by no more than this.
        let skew = measured(asked, clock::wall(), queued.now);
        message.stamp.uncertainty = message.stamp.uncertainty.max(skew);
        if !own_id {
            // The same for each attempt under this record, and another for the next: a broker drops what it has seen.
            let attempt = IdempotencyKey::of_scope(scope.clone()).for_step(&format!("message {}", queued.fence));
            message.id = attempt.as_str().into();
        }
        let expires = message.stamp.expires.at();
        if let Err(why) = accept(&message.stamp, clock::wall(), Duration::ZERO, None) {
            return self.too_late(&scope, &queued, why).await.map(|state| self.accepted(&scope, state, expires));
        }
        match self.producer.publish_in(&operation, &mut message).await {
            Ok(()) => Ok(self.accepted(&scope, State::Queued, expires)),
            Err(error) => Err(self.not_published(&operation, scope, queued, &error).await),
        }
    }

    fn accepted(&self, scope: &Scope, state: State, expires: Option<Wall>) -> Response<Body> {
        self.once.accepted(scope, state, expires, self.look_in)
    }

    /// It was asked for first so long ago that its life is over: it is not made fresh.
    async fn too_late(&self, scope: &Scope, queued: &Queued, why: NotAccepted) -> Result<State, Problem> {
        if !queued.is_new {
            return Ok(State::Queued); // it may be in the queue: whoever receives it says what became of it
        }
        if queued.first_seen == queued.now {
            let queue = self.producer.broker().name().clone();
            tracing::warn!(%queue, "the store's clock and this process's are further apart than work lives");
            return Err(Problem::of(NotPublished::Refused { queue, why }));
        }
        let expired = Answer::saying(StatusCode::GONE, "expired", "it had expired when it was asked for again");
        if let Err(error) = self.once.set_aside(scope, queued, expired).await {
            tracing::warn!(%scope, error = &error as &dyn std::error::Error, "expired work stands as queued");
        }
        Ok(State::FailedRetryable)
    }

    /// What a caller is told whose work is not in the queue, or perhaps not.
    async fn not_published(
        &self,
        operation: &Operation,
        scope: Scope,
        queued: Queued,
        error: &NotPublished,
    ) -> Problem {
        let outcome = error.outcome();
        let problem = match error {
            NotPublished::Broker(failed) => {
                let problem = Problem::with_status(StatusCode::SERVICE_UNAVAILABLE, "the queue did not take the work");
                problem.typed("not_published", 14).insight(format!("{failed}: {}", failed.source))
            }
            other => Problem::of_error(other),
        };
        let problem = problem.with_outcome(outcome);
        if matches!(outcome, Outcome::Unknown { .. } | Outcome::Applied) {
            let monitor = self.once.monitor_of(&scope).unwrap_or_default();
            return problem.detail(format!(
                "whether the work was accepted is not known: the same request with its key may be sent again, and {monitor} shows \
                 what becomes of it"
            ));
        }
        // An earlier attempt under this record may have been published all the same.
        if queued.is_new {
            let once = self.once.clone();
            let saying = async move {
                let why =
                    Answer::saying(StatusCode::SERVICE_UNAVAILABLE, "not_published", "the queue did not take the work");
                once.set_aside(&scope, &queued, why).await
            };
            if let Err(error) = operation.must_finish("not published", SAYING_WITHIN, saying).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "work that was not published stands as queued"
                );
            }
        }
        problem.come_again(self.look_in)
    }
}

/// When it ends: a life counts from when the work was asked for first, so that asking again makes it no longer.
fn ends(message: &Message, life: Life, first_seen: Wall) -> Expires {
    match life {
        Life::For(life) => Expires::At(first_seen + life),
        Life::Until(_) | Life::Endless | Life::Unsaid => message.stamp.expires,
    }
}

impl<B: Clone, St> Clone for Jobs<B, St> {
    fn clone(&self) -> Self {
        Self { producer: self.producer.clone(), once: self.once.clone(), look_in: self.look_in }
    }
}

impl<B: Broker, St> fmt::Debug for Jobs<B, St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("producer", &self.producer).field("once", &self.once).finish_non_exhaustive()
    }
}
