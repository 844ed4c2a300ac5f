//! The same databases within the budget: waiting for a connection spends it, and statements end with it.

use std::sync::Arc;
use std::time::Duration;

use oneclock::Operation;
use oneclock::events::Observer;

use crate::postgres::{self, Table};
use crate::purchase::Try;
use crate::stand::Stand;
use crate::stands::Place;
use crate::trouble::Trouble;
use crate::{BoxError, ShopClosed};

/// The database of one service.
#[derive(Clone)]
pub(super) enum Database {
    Sqlite(oneclock_sqlite::Pool),
    /// One whose statements end with nothing: a mistake.
    NotTold(oneclock_sqlite::Pool, Arc<dyn Observer>),
    Postgres(oneclock_postgres::Pool, Table),
}

/// What a service's statements are called in its ledger.
const DATABASE: &str = "database";

const UNTIL_DONE: Duration = Duration::from_secs(60);

// === Database ===

impl Database {
    /// Waiting and working share one cap, if there is one, so that a queue never holds more than can be served in that time.
    pub(super) fn open(place: Place, size: usize, cap: Option<Duration>) -> Result<Self, ShopClosed> {
        match place {
            Place::Sqlite(file) => {
                let mut pool = oneclock_sqlite::Pool::builder(file.path()).size(size);
                if let Some(cap) = cap {
                    pool = pool.cap(DATABASE, cap);
                }
                Ok(Self::Sqlite(pool.build().map_err(ShopClosed::not_started)?))
            }
            Place::Postgres(table) => {
                let mut pool = oneclock_postgres::Pool::configured((*table.server).clone()).size(size);
                if let Some(cap) = cap {
                    pool = pool.cap(DATABASE, cap);
                }
                Ok(Self::Postgres(pool.build().map_err(ShopClosed::not_started)?, table))
            }
        }
    }

    /// The same database, called as if it belonged to no request.
    pub(super) fn not_told(self, observer: Arc<dyn Observer>) -> Self {
        match self {
            Self::Sqlite(pool) => Self::NotTold(pool, observer),
            other => other,
        }
    }

    /// Does what `stand` does for `of`.
    pub(super) async fn work(&self, op: &Operation, stand: &Stand, of: Try, trouble: Trouble) -> Result<(), BoxError> {
        match self {
            Self::Sqlite(pool) => Ok(pool.run_in(op, DATABASE, stand.statements(of, trouble)).await?),
            Self::NotTold(pool, observer) => {
                let own = Operation::begin(DATABASE, UNTIL_DONE).observed_by(Arc::clone(observer));
                let (pool, work) = (pool.clone(), stand.statements(of, trouble));
                Ok(tokio::spawn(async move { pool.run_in(&own, DATABASE, work).await }).await??)
            }
            Self::Postgres(pool, table) => {
                let mut client = pool.get_in(op, DATABASE).await?;
                let working = stand.witness.begins(stand.service, of);
                let takes = stand.takes(trouble);
                if !takes.is_zero() {
                    client.query_one(postgres::WORK, &[&takes.as_secs_f64()]).await?;
                }
                let [tap, visit, number, article] = of.columns();
                let there = !stand.witness.has_left(of);
                client.execute(&*table.record(), &[&tap, &visit, &number, &article, &there]).await?;
                working.finished();
                Ok(())
            }
        }
    }

    pub(super) async fn close(&self) {
        if let Self::Postgres(pool, _) = self {
            pool.close().await;
        }
    }
}
