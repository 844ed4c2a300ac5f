//! The record, the business write and the completion, in one transaction.
//!
//! Decides the order: the record is claimed inside of the transaction, which makes everybody else with the key wait for its
//! end; then the work; then the completion; then one COMMIT. There is no lease and no moment between work and record, so that
//! nothing is left unknown but a COMMIT whose answer was lost, and the record says what became of that.

use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::idempotency::{Claim, Claimed, Claiming, Record, Refusal, Scope, Step, Stepped, claim, wait};
use oneclock_core::{Name, Outcome};
use oneclock_idempotency::{Answer, StoreError};
use tokio_postgres::IsolationLevel;
use tokio_postgres::error::SqlState;

use super::table::Reads;
use super::{IdempotencyStore, NotDurable, table};
use crate::error::PgError;
use crate::flight::Flight;
use crate::link::Facts;
use crate::session::Session;
use crate::transaction::Transaction;

/// What asking for something [`once`](IdempotencyStore::once) came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once {
    /// The work ran, and its transaction was committed together with this answer.
    Ran(Answer),
    /// It ran before: its answer.
    Replayed(Answer),
    /// It did not run, and there is no answer to give.
    Refused(Refusal),
}

/// It did not come to an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotOnce<E> {
    /// The work gave an error. It was rolled back, its record with it: the next request with the key runs.
    #[error("the work failed and was rolled back")]
    Work(#[source] E),
    /// The record could not be claimed or written. Nothing of the work was committed.
    #[error("no idempotency record, so nothing was committed")]
    Store(#[from] StoreError),
    /// The commit failed, or its answer was lost. Asked again with the key, the record says which.
    #[error("the work and its record were not seen to be committed")]
    Commit(#[source] PgError),
}

/// What is kept back of the caller's time when it waits for another transaction: for the way home of its refusal.
const WAY_HOME: Duration = Duration::from_millis(25);

/// What a claim inside of a transaction came to.
enum Inside {
    /// Claimed: the row is ours until the transaction ends.
    Claimed(Record),
    Told(Once),
}

// === IdempotencyStore ===

impl IdempotencyStore {
    /// Runs `work` in a transaction that also holds its record, as a call named `name` of the current operation: all of it is
    /// committed, once, or nothing.
    ///
    /// `work` gets the transaction and gives the answer that is kept and replayed. What it does elsewhere than in this
    /// database is not protected: that is what the layer with leases is for. An answer that is a definite refusal (a 422) is
    /// kept as well; an error rolls back and leaves no record.
    ///
    /// A duplicate waits for the end of the transaction that has the key, within its caller's time, and gets the replay; or
    /// runs itself if that was rolled back. It holds a connection meanwhile. The deadline of the operation ends the work and
    /// rolls it back, up to the moment of its COMMIT (contract D5): unlike a run under a lease there is nothing that must be
    /// finished. Of `claim` the lease is not used.
    ///
    /// ```no_run
    /// # use oneclock_postgres::{IdempotencyStore, NotOnce, Once, PgError};
    /// # use oneclock_core::idempotency::{Claim, Scope};
    /// # use oneclock_idempotency::Answer;
    /// # async fn charge(store: &IdempotencyStore, scope: Scope, claim: Claim) -> Result<(), NotOnce<PgError>> {
    /// let charged = store.once("charge", &scope, &claim, async |tx| {
    ///     tx.execute("INSERT INTO charges VALUES ($1)", &[&499_i32]).await?;
    ///     Ok::<_, PgError>(Answer::new(http::StatusCode::CREATED, "receipt 7"))
    /// }).await?;
    /// match charged {
    ///     Once::Ran(answer) | Once::Replayed(answer) => println!("{:?}", answer.body()),
    ///     Once::Refused(refusal) => println!("{}: {}", refusal.http_status(), refusal.title()),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`NotOnce`]; its [`outcome`](NotOnce::outcome) says what is known.
    ///
    /// # Cancel safety
    /// Dropped before COMMIT, it is rolled back; after that it goes through. Asked again with the key, it is told which.
    pub async fn once<E>(
        &self,
        name: impl Into<Name>,
        scope: &Scope,
        claim: &Claim,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<Answer, E>,
    ) -> Result<Once, NotOnce<E>> {
        let name = name.into();
        let operation = self.pool.shared().operation(&name).map_err(StoreError::failed)?;
        self.once_in(&operation, name, scope, claim, work).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`once`](Self::once).
    ///
    /// # Cancel safety
    /// As [`once`](Self::once).
    pub async fn once_in<E>(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        scope: &Scope,
        claim: &Claim,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<Answer, E>,
    ) -> Result<Once, NotOnce<E>> {
        let mut client = self.pool.get_in(operation, name).await.map_err(StoreError::failed)?;
        // At this level each statement sees what was committed before it: a record that was waited for, too.
        let begun = client.begin_isolated(IsolationLevel::ReadCommitted).await;
        let mut transaction = begun.map_err(StoreError::failed)?;
        let record = match self.claim_inside(&mut transaction, scope, claim).await? {
            Inside::Claimed(record) => record,
            Inside::Told(told) => {
                let _ = transaction.rollback().await; // it is rolled back whether or not this wait sees the end of it
                return Ok(told);
            }
        };
        let answer = match work(&mut transaction).await {
            Ok(answer) => answer,
            Err(error) => {
                let _ = transaction.rollback().await;
                return Err(NotOnce::Work(error));
            }
        };
        let now = table::now(&mut transaction, self.now()).await?;
        let Stepped::Done(done) = record.step(record.fence, Step::Complete, now) else {
            return Err(StoreError::failed("a claimed record cannot be completed").into());
        };
        if !table::write(&mut transaction, scope, Some(&record), &done, Some(&answer)).await? {
            return Err(StoreError::failed("the record was changed by the work itself").into());
        }
        match transaction.commit().await {
            Ok(()) => {
                self.changes.changed(scope);
                Ok(Once::Ran(answer))
            }
            Err(error) => Err(NotOnce::Commit(error)),
        }
    }

    async fn claim_inside(
        &self,
        transaction: &mut Transaction<'_>,
        scope: &Scope,
        asked: &Claim,
    ) -> Result<Inside, StoreError> {
        let mut waits = false;
        loop {
            let seen = table::read(transaction, scope, Reads::WithAnswer, self.now()).await?;
            if !seen.is_durable {
                return Err(StoreError::failed(NotDurable));
            }
            let Claiming { write, claimed } = claim(seen.found.as_ref(), seen.floor, asked, seen.now);
            if !matches!(claimed, Claimed::Run { .. }) {
                return Ok(Inside::Told(told(claimed, seen.answer)));
            }
            let Some(record) = write.or(seen.found) else {
                return Err(StoreError::failed("a claim that writes nothing")); // not reached: a run has a record
            };
            if !waits {
                let remaining = transaction.deadline().remaining(clock::now());
                let most = wait(remaining, WAY_HOME, self.wait_at_most).unwrap_or_default();
                lock_timeout(transaction, Some(most)).await.map_err(StoreError::failed)?;
                waits = true;
            }
            // Here a duplicate waits for the end of the transaction that has the key.
            match table::write(transaction, scope, seen.found.as_ref(), &record, None).await {
                Ok(true) => {
                    lock_timeout(transaction, None).await.map_err(StoreError::failed)?;
                    return Ok(Inside::Claimed(record));
                }
                Ok(false) => {} // it was committed: look what it says
                Err(StoreError::Failed(error)) if is_lock_timeout(&*error) => {
                    return Ok(Inside::Told(Once::Refused(Refusal::InProgress)));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn told(claimed: Claimed, answer: Option<Answer>) -> Once {
    Once::Refused(match claimed {
        Claimed::Completed => match answer {
            Some(answer) if answer.body().is_some() => return Once::Replayed(answer),
            Some(_) => Refusal::AnswerNotKept,
            None => Refusal::OutcomeUnknown, // a store that lost it
        },
        Claimed::InProgress { .. } => Refusal::InProgress,
        Claimed::Unknown { .. } => Refusal::OutcomeUnknown,
        Claimed::OtherFingerprint => Refusal::OtherFingerprint,
        Claimed::KeyTooOld => Refusal::KeyTooOld,
        Claimed::KeyFromTheFuture => Refusal::KeyMalformed,
        _ => Refusal::StoreUnreachable, // what this version does not know is not run
    })
}

/// How long a statement of this transaction waits for a lock; `None`: as the session does.
async fn lock_timeout(session: &mut Session, wait: Option<Duration>) -> Result<(), PgError> {
    let sql = match wait {
        Some(wait) => format!("SET LOCAL lock_timeout = {}", wait.as_millis().clamp(1, 1_000_000_000)),
        None => "SET LOCAL lock_timeout TO DEFAULT".to_owned(),
    };
    // It ends with the transaction, so that nothing is left behind in the session.
    let flight = Flight::begin(session, Facts::CONTROL)?;
    let conn = flight.conn();
    flight.land(async { conn.client.batch_execute(&sql).await }).await
}

fn is_lock_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let database = error.downcast_ref::<PgError>().and_then(PgError::database);
    database.is_some_and(|error| *error.code() == SqlState::LOCK_NOT_AVAILABLE)
}

// === NotOnce ===

impl<E> NotOnce<E> {
    /// What is known of the work: it was not committed, unless the answer of its COMMIT was lost.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Work(_) | Self::Store(_) => Outcome::Rejected,
            Self::Commit(error) => error.outcome(),
        }
    }
}
