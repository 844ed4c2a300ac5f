//! Any store behind a pointer, for services that choose theirs when they start.
//!
//! Decides nothing: each call is the store's own, in a box.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use oneclock_core::idempotency::{Claim, Enqueue, Enqueued, Fence, Record, Scope};

use crate::Changes;
use crate::store::{Found, Kept, Settle, Settled, Store, StoreError, Which};

/// A store of whatever type. Cheap to clone; all clones are the same store.
///
/// ```
/// use oneclock_idempotency::{AnyStore, Idempotency, MemoryStore};
/// # fn settings_say(_: &str) -> bool { true }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = match settings_say("memory") {
///     true => AnyStore::new(MemoryStore::new()),
///     false => unimplemented!("AnyStore::new(oneclock_sqlite::IdempotencyStore::builder(path).build()?)"),
/// };
/// let once: Idempotency<AnyStore> = Idempotency::builder("charge", store).one_principal().build()?;
/// # let _ = once; Ok(()) }
/// ```
#[derive(Clone)]
pub struct AnyStore(Arc<dyn Boxed>);

/// [`Store`], with futures whose type nobody has to know.
trait Boxed: Send + Sync {
    fn claim<'a>(&'a self, scope: &'a Scope, claim: &'a Claim) -> BoxFuture<'a, Result<Found, StoreError>>;
    fn enqueue<'a>(&'a self, scope: &'a Scope, ask: &'a Enqueue) -> BoxFuture<'a, Result<Enqueued, StoreError>>;
    fn settle<'a>(
        &'a self,
        scope: &'a Scope,
        fence: Fence,
        settle: Settle,
    ) -> BoxFuture<'a, Result<Settled, StoreError>>;
    fn read<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, Result<Option<Kept>, StoreError>>;
    fn list<'a>(
        &'a self,
        which: Which,
        after: Option<&'a Scope>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Scope, Record)>, StoreError>>;
    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>>;
    fn changes(&self) -> Option<&Changes>;
}

impl AnyStore {
    /// `store`, whatever it is.
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(store))
    }
}

impl<S: Store> Boxed for S {
    fn claim<'a>(&'a self, scope: &'a Scope, claim: &'a Claim) -> BoxFuture<'a, Result<Found, StoreError>> {
        Box::pin(Store::claim(self, scope, claim))
    }

    fn enqueue<'a>(&'a self, scope: &'a Scope, ask: &'a Enqueue) -> BoxFuture<'a, Result<Enqueued, StoreError>> {
        Box::pin(Store::enqueue(self, scope, ask))
    }

    fn settle<'a>(
        &'a self,
        scope: &'a Scope,
        fence: Fence,
        settle: Settle,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(Store::settle(self, scope, fence, settle))
    }

    fn read<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, Result<Option<Kept>, StoreError>> {
        Box::pin(Store::read(self, scope))
    }

    fn list<'a>(
        &'a self,
        which: Which,
        after: Option<&'a Scope>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Scope, Record)>, StoreError>> {
        Box::pin(Store::list(self, which, after, limit))
    }

    fn reap(&self, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(Store::reap(self, limit))
    }

    fn changes(&self) -> Option<&Changes> {
        Store::changes(self)
    }
}

impl Store for AnyStore {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        self.0.claim(scope, claim).await
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        self.0.enqueue(scope, ask).await
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        self.0.settle(scope, fence, settle).await
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        self.0.read(scope).await
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        self.0.list(which, after, limit).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.reap(limit).await
    }

    fn changes(&self) -> Option<&Changes> {
        self.0.changes()
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyStore")
    }
}
