//! The stores of keys: opened once for each URL, shared among routes, kept by a reload that finds the same roots, and looked
//! after.
//!
//! Decides what a start does about a store that cannot be used. A file that cannot be opened, or a server that refuses, ends
//! the start: nobody mends that by waiting. A server that cannot be reached does not, since requests without keys have no
//! need of it; until it is there, those with keys are refused before anything is sent (contract M6).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oneclock::Shutdown;
use oneclock_core::idempotency::{Claim, Enqueue, Enqueued, Fence, Record, Scope};
use oneclock_idempotency::{Changes, Found, Kept, Reconciler, Settle, Settled, Store, StoreError, Which};
use oneclock_postgres::tokio_postgres::error::SqlState;
use oneclock_postgres::{PgError, Pool, Rustls};
use tokio::sync::OnceCell;

use crate::StartFailed;
use crate::config::{Config, IdempotencyStore, is_over_tls};
use crate::digest::Digest;
use crate::tls::UpstreamSecured;
use crate::{table, tls};

/// How many connections a store in PostgreSQL has at most. Each step is one short transaction.
const CONNECTIONS: usize = 4;

/// How often old records are looked for, and what is unknown is told.
const PASS_EVERY: Duration = Duration::from_secs(60);

/// Whether the stores of a table are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Opens {
    /// It is run.
    #[default]
    Stores,
    /// It is looked at: no file is made, and no server asked.
    Nothing,
}

/// One store, whatever it is.
#[derive(Clone, Debug)]
pub(crate) enum KeyStore {
    Sqlite(oneclock_sqlite::IdempotencyStore),
    Postgres(Arc<Tables>),
    /// Of a table that is only looked at.
    Unopened,
}

/// The tables in a PostgreSQL database, which are made when it is first reached.
#[derive(Debug)]
pub(crate) struct Tables {
    store: oneclock_postgres::IdempotencyStore,
    ready: OnceCell<()>,
}

/// A store of a table.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    shown: Arc<str>, // without a password
    store: KeyStore,
}

/// The stores of a table, each of which is known by all that its URL says, and by what its roots were when it was opened.
pub(crate) type Stores = HashMap<(IdempotencyStore, Option<Digest>), Opened>;

/// What the files of stores that are reached over TLS said when the configuration was read.
pub(crate) type Trusted = HashMap<IdempotencyStore, UpstreamSecured>;

/// What the files of its stores say.
pub(crate) fn trusted(config: &Config) -> Result<Trusted, StartFailed> {
    let stores = config.routes.iter().filter_map(|route| Some(&route.idempotency.as_ref()?.store));
    let over_tls = stores.filter_map(|store| match store {
        IdempotencyStore::Postgres { url, ca } if is_over_tls(url) => Some((store, ca.as_deref())),
        _ => None,
    });
    let read = over_tls.map(|(store, ca)| {
        let failed = |source| StartFailed::Store { store: store.to_string(), source };
        Ok((store.clone(), tls::trusting(ca).map_err(failed)?))
    });
    read.collect()
}

// === Opened ===

impl Opened {
    /// Opens the store that is written so, over TLS where roots are known for it. A server is not asked yet.
    pub(crate) fn open(
        written: &IdempotencyStore,
        trusted: Option<&UpstreamSecured>,
        opens: Opens,
    ) -> Result<Self, StartFailed> {
        let failed = |source| StartFailed::Store { store: written.to_string(), source };
        let store = match written {
            _ if opens == Opens::Nothing => KeyStore::Unopened,
            IdempotencyStore::Sqlite(path) => {
                let store = oneclock_sqlite::IdempotencyStore::builder(path).build();
                KeyStore::Sqlite(store.map_err(|source| failed(source.into()))?)
            }
            IdempotencyStore::Postgres { url, .. } => {
                let pool = Pool::builder(url.as_str()).size(CONNECTIONS);
                let pool = match trusted {
                    Some(trusted) => pool.build_with(Rustls::new(Arc::clone(&trusted.config))),
                    None => pool.build(),
                };
                let pool = pool.map_err(|source| failed(source.into()))?;
                let store = oneclock_postgres::IdempotencyStore::builder(pool).build();
                let store = store.map_err(|source| failed(source.into()))?;
                KeyStore::Postgres(Arc::new(Tables { store, ready: OnceCell::new() }))
            }
        };
        Ok(Self { shown: written.to_string().into(), store })
    }

    pub(crate) fn store(&self) -> KeyStore {
        self.store.clone()
    }

    /// Makes a server's tables, before anything is served.
    ///
    /// # Errors
    /// [`StartFailed::Store`] if it refused. One that was not reached is told, and asked again by whoever needs it.
    pub(crate) async fn prepare(&self) -> Result<(), StartFailed> {
        let KeyStore::Postgres(tables) = &self.store else { return Ok(()) };
        match tables.ready().await {
            Ok(_) => Ok(()),
            Err(source) if is_refusal(&source) => {
                Err(StartFailed::Store { store: self.shown.to_string(), source: source.into() })
            }
            Err(source) => {
                let error = &source as &dyn std::error::Error;
                tracing::warn!(
                    store = %self.shown,
                    error,
                    "the store of idempotency keys cannot be reached: until it can, requests with a key are answered 503"
                );
                Ok(())
            }
        }
    }

    /// Removes records whose time has passed, and tells how many are unknown. Nobody is probed: what an upstream did, only
    /// its operators can find out (`oneclock idempotency`).
    async fn pass(&self) {
        match Reconciler::builder(self.store.clone()).build().pass().await {
            Ok(pass) if pass.still_unknown > 0 => {
                let (unknown, oldest) = (pass.still_unknown, pass.oldest);
                tracing::warn!(store = %self.shown, unknown, ?oldest, "what became of these operations is not known");
            }
            Ok(_) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(store = %self.shown, error, "the store of idempotency keys could not be looked through");
            }
        }
    }
}

/// Looks after the stores of whatever table holds, until `shutdown` is signalled.
pub(crate) async fn tend(table: table::Shared, shutdown: Shutdown) {
    let passes = async {
        loop {
            let stores: Vec<Opened> = table.load().stores().cloned().collect();
            for store in stores {
                store.pass().await;
            }
            tokio::time::sleep(PASS_EVERY).await;
        }
    };
    tokio::select! {
        biased;
        () = shutdown.signalled() => {}
        () = passes => {}
    }
}

/// Whether the server was there and said no, for a reason that does not go away by itself.
fn is_refusal(error: &StoreError) -> bool {
    /// Classes of what does: the connection, resources, an operator's doing (PostgreSQL, appendix A).
    const PASSING: [&str; 3] = ["08", "53", "57"];
    match pg(error) {
        Some(PgError::Pooler { .. }) => true,
        Some(error) => {
            error.database().is_some_and(|said| !PASSING.iter().any(|class| said.code().code().starts_with(class)))
        }
        None => false,
    }
}

fn pg(error: &StoreError) -> Option<&PgError> {
    match error {
        StoreError::Failed(source) => source.downcast_ref(),
        _ => None,
    }
}

// === Tables ===

impl Tables {
    /// The store, once its tables are there. They are looked for first: a role that may use them need not be allowed to make
    /// them.
    async fn ready(&self) -> Result<&oneclock_postgres::IdempotencyStore, StoreError> {
        let made = self.ready.get_or_try_init(|| async {
            match self.store.list(Which::Unknown, None, 1).await {
                Err(error) if no_tables(&error) => self.store.create().await,
                looked => looked.map(drop),
            }
        });
        made.await.map(|()| &self.store)
    }
}

fn no_tables(error: &StoreError) -> bool {
    pg(error).and_then(PgError::database).is_some_and(|said| *said.code() == SqlState::UNDEFINED_TABLE)
}

// === KeyStore ===

impl Store for KeyStore {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        match self {
            Self::Sqlite(store) => store.claim(scope, claim).await,
            Self::Postgres(tables) => tables.ready().await?.claim(scope, claim).await,
            Self::Unopened => Err(StoreError::Closed),
        }
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        match self {
            Self::Sqlite(store) => store.enqueue(scope, ask).await,
            Self::Postgres(tables) => tables.ready().await?.enqueue(scope, ask).await,
            Self::Unopened => Err(StoreError::Closed),
        }
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        match self {
            Self::Sqlite(store) => store.settle(scope, fence, settle).await,
            Self::Postgres(tables) => tables.ready().await?.settle(scope, fence, settle).await,
            Self::Unopened => Err(StoreError::Closed),
        }
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        match self {
            Self::Sqlite(store) => store.read(scope).await,
            Self::Postgres(tables) => tables.ready().await?.read(scope).await,
            Self::Unopened => Err(StoreError::Closed),
        }
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        match self {
            Self::Sqlite(store) => store.list(which, after, limit).await,
            Self::Postgres(tables) => tables.ready().await?.list(which, after, limit).await,
            Self::Unopened => Err(StoreError::Closed),
        }
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        match self {
            Self::Sqlite(store) => store.reap(limit).await,
            Self::Postgres(tables) => tables.ready().await?.reap(limit).await,
            Self::Unopened => Err(StoreError::Closed),
        }
    }

    fn changes(&self) -> Option<&Changes> {
        match self {
            Self::Sqlite(store) => store.changes(),
            Self::Postgres(tables) => tables.store.changes(),
            Self::Unopened => None,
        }
    }
}
