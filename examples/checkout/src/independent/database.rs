//! Databases as many use them: a pool, and whoever has a connection runs its statements to their end.

use std::sync::{Arc, Mutex, PoisonError};

use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod};
use rusqlite::Connection;
use tokio::sync::Semaphore;
use tokio_postgres::NoTls;

use crate::postgres::{self, Table};
use crate::purchase::Try;
use crate::stand::Stand;
use crate::stands::Place;
use crate::trouble::Trouble;
use crate::{BoxError, ShopClosed};

/// The database of one service.
#[derive(Clone)]
pub(super) enum Database {
    /// A blocking thread for whoever has a connection.
    Sqlite { places: Arc<Semaphore>, idle: Arc<Mutex<Vec<Connection>>> },
    /// deadpool as it comes. A future that is dropped gives its connection back; the statement runs on in front of the
    /// next borrower's.
    Postgres { pool: deadpool_postgres::Pool, table: Table },
}

// === Database ===

impl Database {
    pub(super) fn open(place: Place, size: usize) -> Result<Self, ShopClosed> {
        match place {
            Place::Sqlite(file) => {
                let connections: Result<Vec<_>, _> = (0..size).map(|_| file.connect()).collect();
                Ok(Self::Sqlite { places: Arc::new(Semaphore::new(size)), idle: Arc::new(Mutex::new(connections?)) })
            }
            Place::Postgres(table) => {
                let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
                let manager = Manager::from_config((*table.server).clone(), NoTls, recycling);
                let pool = deadpool_postgres::Pool::builder(manager).max_size(size).build();
                Ok(Self::Postgres { pool: pool.map_err(ShopClosed::not_started)?, table })
            }
        }
    }

    /// Does what `stand` does for `of`.
    pub(super) async fn work(&self, stand: &Stand, of: Try, trouble: Trouble) -> Result<(), BoxError> {
        match self {
            Self::Sqlite { places, idle } => {
                let place = Arc::clone(places).acquire_owned().await?;
                let (idle, statements) = (Arc::clone(idle), stand.statements(of, trouble));
                let done = tokio::task::spawn_blocking(move || {
                    let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let mut connection = taken.ok_or("a place without a connection")?;
                    let result = statements(&mut connection);
                    idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                    drop(place);
                    result.map_err(BoxError::from)
                });
                done.await?
            }
            Self::Postgres { pool, table } => {
                let client = pool.get().await?;
                let mut working = stand.witness.begins(stand.service, of);
                let takes = stand.takes(trouble);
                if !takes.is_zero() {
                    let sleep = client.prepare_cached(postgres::WORK).await?;
                    working = working.sent_for(takes);
                    client.query_one(&sleep, &[&takes.as_secs_f64()]).await?;
                }
                let [tap, visit, number, article] = of.columns();
                let record = client.prepare_cached(&table.record()).await?;
                let there = !stand.witness.has_left(of);
                client.execute(&record, &[&tap, &visit, &number, &article, &there]).await?;
                working.finished();
                Ok(())
            }
        }
    }
}
