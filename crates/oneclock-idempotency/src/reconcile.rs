//! Finding out what became of runs that nobody knows about, undoing what was done twice, and letting old records go.
//!
//! Decides nothing by guessing: a probe asks the far side, and only what it proved is written (contract M4, N2). A
//! compensation runs before the record is settled and under a key of its own, so that a crash in between repeats it safely.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oneclock::{Operation, Shutdown, clock};
use oneclock_core::Name;
use oneclock_core::idempotency::{Record, Scope};

use oneclock_http::BoxError;

use crate::store::{Settle, Settled, Store, StoreError, Which};
use crate::{Answer, IdempotencyKey};

/// A record that is unknown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unresolved {
    /// Whose key, for what.
    pub scope: Scope,
    /// The record.
    pub record: Record,
}

/// What a probe found out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Probed {
    /// It happened, once. Later requests with the key get this answer.
    Applied(Answer),
    /// It happened more than once. The compensation runs, then later requests get this answer.
    AppliedTwice(Answer),
    /// Proven: it did not happen, **and cannot happen any more**. The next request with the key runs.
    ///
    /// Not having seen it is no proof while a run that was given up may still be on its way: wait longer than the far side
    /// can take.
    Absent,
    /// Not known yet.
    StillUnknown,
}

/// Goes through what is unknown, and asks.
///
/// ```
/// # use oneclock_idempotency::*; use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), StoreError> {
/// # let store = MemoryStore::new();
/// # async fn receipt_for(_: &str) -> Option<String> { None }
/// let reconciler = Reconciler::builder(store)
///     .probe(|unresolved: Unresolved| async move {
///         match receipt_for(unresolved.key().for_step("charge").as_str()).await { // asks the provider
///             Some(receipt) => Probed::Applied(Answer::new(http::StatusCode::CREATED, receipt)),
///             None => Probed::StillUnknown,
///         }
///     })
///     .build();
/// let pass = reconciler.pass().await?;
/// assert_eq!(pass.still_unknown, 0);
/// # Ok(()) }
/// ```
pub struct Reconciler<St> {
    store: St,
    within: Duration,
    youngest: Duration,
    route: Option<Name>,
    probe: Hook<Unresolved, Probed>,
    compensate: Option<Hook<(Unresolved, IdempotencyKey), Result<(), BoxError>>>,
}

/// Builds a [`Reconciler`].
#[must_use = "a reconciler is made by `build`"]
pub struct ReconcilerBuilder<St>(Reconciler<St>);

type Hook<T, R> = Arc<dyn Fn(T) -> Pin<Box<dyn Future<Output = R> + Send>> + Send + Sync>;

/// What one pass came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pass {
    /// Unknown records that the pass saw.
    pub seen: usize,
    /// Of these: found to have happened.
    pub completed: usize,
    /// Of these: proven not to have happened.
    pub retryable: usize,
    /// Of these: done twice, and compensated.
    pub compensated: usize,
    /// Of these: not known yet, or too young to be asked about, or their compensation failed.
    pub still_unknown: usize,
    /// How long the oldest that is still unknown has been so.
    pub oldest: Duration,
    /// Settled records whose time had passed, and that are gone.
    pub reaped: usize,
}

/// How many records are read or reaped at a time.
const BATCH: usize = 256;

/// The step of a key under which a compensation runs.
const COMPENSATE: &str = "compensate";

impl<St: Store> Reconciler<St> {
    /// Begins one over `store`. Unless said otherwise a probe may take 10 s, and everything unknown is asked about; without a
    /// probe nothing is found out, and old records go all the same.
    pub fn builder(store: St) -> ReconcilerBuilder<St> {
        ReconcilerBuilder(Self {
            store,
            within: Duration::from_secs(10),
            youngest: Duration::ZERO,
            route: None,
            probe: Arc::new(|_| Box::pin(std::future::ready(Probed::StillUnknown))),
            compensate: None,
        })
    }

    /// Asks about every unknown record once, then reaps.
    ///
    /// # Errors
    /// [`StoreError`]: the pass is not complete. What it settled stays settled.
    ///
    /// # Cancel safety
    /// Between two records nothing is half done; a compensation that was cut off runs again, under the same key.
    pub async fn pass(&self) -> Result<Pass, StoreError> {
        self.pass_while(|| true).await
    }

    /// A pass that is over early once nobody wants it to go on; it asks between two records.
    async fn pass_while(&self, goes_on: impl Fn() -> bool) -> Result<Pass, StoreError> {
        let mut pass = Pass::default();
        let mut after: Option<Scope> = None;
        loop {
            let batch = self.store.list(Which::Unknown, after.as_ref(), BATCH).await?;
            let is_last = batch.len() < BATCH;
            after = batch.last().map(|(scope, _)| scope.clone());
            for (scope, record) in batch {
                if !goes_on() {
                    return Ok(pass);
                }
                if self.route.as_ref().is_none_or(|route| *route == scope.route) {
                    self.one(Unresolved { scope, record }, &mut pass).await?;
                }
            }
            if is_last {
                break;
            }
        }
        loop {
            let reaped = self.store.reap(BATCH).await?;
            pass.reaped += reaped;
            if reaped < BATCH || !goes_on() {
                return Ok(pass);
            }
        }
    }

    /// Makes a pass every `every`, until `shutdown` is signalled: that of the server, which
    /// [`Serve::with_shutdown`](oneclock_http::Serve::with_shutdown) shares. Spawn it: [`Shutdown::spawn`].
    ///
    /// A pass under way then begins with no further record, and is cut off where it is when the grace is over.
    ///
    /// # Cancel safety
    /// As [`pass`](Self::pass).
    pub async fn run(&self, every: Duration, shutdown: &Shutdown) {
        loop {
            let pass = tokio::select! {
                biased;
                () = shutdown.grace_over() => return,
                pass = self.pass_while(|| !shutdown.is_signalled()) => pass,
            };
            match pass {
                Ok(pass) if pass.still_unknown > 0 => {
                    tracing::warn!(still_unknown = pass.still_unknown, oldest = ?pass.oldest, "what became of them is not known");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a pass was not completed");
                }
            }
            tokio::select! {
                () = shutdown.signalled() => return,
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    async fn one(&self, unresolved: Unresolved, pass: &mut Pass) -> Result<(), StoreError> {
        pass.seen += 1;
        let unknown_for = clock::wall().since(unresolved.record.since);
        let (scope, fence) = (unresolved.scope.clone(), unresolved.record.fence);
        let probed = if unknown_for < self.youngest {
            Probed::StillUnknown
        } else {
            let asking = Operation::begin("probe", self.within);
            asking.run((self.probe)(unresolved.clone())).await.unwrap_or(Probed::StillUnknown)
        };
        let is_twice = matches!(probed, Probed::AppliedTwice(_));
        let settle = match probed {
            Probed::Applied(answer) => Settle::Complete(answer),
            Probed::AppliedTwice(answer) if self.compensated(unresolved).await => Settle::Complete(answer),
            Probed::Absent => Settle::Release,
            Probed::AppliedTwice(_) | Probed::StillUnknown => {
                pass.still_unknown += 1;
                pass.oldest = pass.oldest.max(unknown_for);
                return Ok(());
            }
        };
        let count = match settle {
            Settle::Complete(_) if is_twice => &mut pass.compensated,
            Settle::Complete(_) => &mut pass.completed,
            _ => &mut pass.retryable,
        };
        // What was settled meanwhile, by the run itself or by another pass, is settled.
        if self.store.settle(&scope, fence, settle).await? == Settled::Done {
            *count += 1;
        }
        Ok(())
    }

    /// Runs the compensation, under its own key.
    async fn compensated(&self, unresolved: Unresolved) -> bool {
        let Some(compensate) = &self.compensate else { return false };
        let scope = unresolved.scope.clone();
        let key = unresolved.key().for_step(COMPENSATE);
        let undoing = Operation::begin("compensate", self.within);
        match undoing.run(compensate((unresolved, key))).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%scope, error = &*error as &dyn std::error::Error, "a duplicate is not compensated yet");
                false
            }
            Err(ended) => {
                tracing::error!(%scope, error = &ended as &dyn std::error::Error, "a duplicate is not compensated yet");
                false
            }
        }
    }
}

impl Unresolved {
    /// The key as the handler had it: its steps have the same keys, by which the far side is asked.
    pub fn key(&self) -> IdempotencyKey {
        IdempotencyKey::of_scope(self.scope.clone())
    }
}

// === ReconcilerBuilder ===

impl<St: Store> ReconcilerBuilder<St> {
    /// What finds out: asks the far side about one record. It runs inside an operation of its own, so its calls have a budget.
    pub fn probe<F>(mut self, probe: impl Fn(Unresolved) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Probed> + Send + 'static,
    {
        self.0.probe = Arc::new(move |unresolved| Box::pin(probe(unresolved)));
        self
    }

    /// What undoes a proven duplicate, under the key it is given, which is the same each time it is tried (contract N2).
    pub fn compensate<F, E>(
        mut self,
        compensate: impl Fn(Unresolved, IdempotencyKey) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.0.compensate = Some(Arc::new(move |(unresolved, key)| {
            let undoing = compensate(unresolved, key);
            Box::pin(async move { undoing.await.map_err(Into::into) })
        }));
        self
    }

    /// Only records of this route.
    pub fn route(mut self, route: impl Into<Name>) -> Self {
        self.0.route = Some(route.into());
        self
    }

    /// How long one probe, and one compensation, may take.
    pub fn within(mut self, within: Duration) -> Self {
        self.0.within = within;
        self
    }

    /// Asks only about what has been unknown for this long: a run that was given up may still be on its way.
    pub fn unknown_for(mut self, youngest: Duration) -> Self {
        self.0.youngest = youngest;
        self
    }

    /// The reconciler.
    pub fn build(self) -> Reconciler<St> {
        self.0
    }
}

impl<St> fmt::Debug for Reconciler<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciler").field("within", &self.within).field("route", &self.route).finish_non_exhaustive()
    }
}

impl<St> fmt::Debug for ReconcilerBuilder<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReconcilerBuilder").field(&self.0).finish()
    }
}
