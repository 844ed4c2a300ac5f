//! The shop on PostgreSQL: the statements of `stand` in its words, in a schema of the shop's own, and what the server says
//! of its backends.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls};

use crate::purchase::Service;
use crate::report::Charges;
use crate::{BoxError, ShopClosed};

/// The server, and what this process has there.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    config: Config,
    schemas: Arc<Mutex<BTreeSet<String>>>,
}

/// One shop's schema, made when it opens and dropped when it closes.
pub(crate) struct Schema {
    server: Server,
    config: Arc<Config>,
    name: String,
    watcher: Watcher,
}

/// A connection beside the shop, under another name, so that it does not count itself.
struct Watcher {
    client: Client,
    connection: JoinHandle<()>,
}

/// Where a service finds its table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) server: Arc<Config>,
    name: String,
}

/// The services that keep their records there; what is not asked to last stays in SQLite.
pub(crate) const ON_POSTGRES: [Service; 3] = [Service::Inventory, Service::Order, Service::Payment];

/// A long statement that can be cancelled.
pub(crate) const WORK: &str = "SELECT pg_sleep($1)";

const AT_WORK: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state = 'active'";

// === Server ===

impl Server {
    /// Reads its address. An error says what is wrong, without the password in it.
    pub(crate) fn at(url: &str) -> Result<Self, ShopClosed> {
        let config = url.parse().map_err(|_| {
            let hint: BoxError = "write it as postgres://user:password@host:5432/database".into();
            ShopClosed { what: "the address of the PostgreSQL server is none", source: hint }
        });
        Ok(Self { config: config?, schemas: Arc::default() })
    }

    /// `way` tells the shop with independent timeouts from the one with one budget, also in `pg_stat_activity`.
    pub(crate) async fn open_schema(&self, way: &str) -> Result<Schema, ShopClosed> {
        // Others may run a demo on this server, from machines whose process ids are the same.
        let name = format!("oneclock_demo_{way}_{:08x}", rand::random::<u32>());
        let mut config = self.config.clone();
        config.application_name(&name);
        let watcher = self.watch(&name).await.map_err(ShopClosed::no_postgres)?;
        self.schemas().insert(name.clone());
        let schema = Schema { server: self.clone(), config: Arc::new(config), name, watcher };
        schema.make().await.map_err(ShopClosed::no_postgres)?;
        Ok(schema)
    }

    pub(crate) async fn sweep(&self) -> Result<(), ShopClosed> {
        let left_over: Vec<String> = self.schemas().iter().cloned().collect();
        for name in left_over {
            let watcher = self.watch(&name).await.map_err(ShopClosed::no_postgres)?;
            self.drop_schema(&name, &watcher.client).await.map_err(ShopClosed::no_postgres)?;
        }
        Ok(())
    }

    /// What is still at work in it is ended first: its locks would be waited for.
    async fn drop_schema(&self, name: &str, client: &Client) -> Result<(), tokio_postgres::Error> {
        let end = "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE application_name = $1";
        client.execute(end, &[&name]).await?;
        client.batch_execute(&format!("DROP SCHEMA IF EXISTS {name} CASCADE")).await?;
        self.schemas().remove(name);
        Ok(())
    }

    async fn watch(&self, name: &str) -> Result<Watcher, tokio_postgres::Error> {
        let mut config = self.config.clone();
        config.application_name(format!("{name}_witness")).connect_timeout(Duration::from_secs(5));
        let (client, connection) = config.connect(NoTls).await?;
        let connection = tokio::spawn(async move {
            // Its end shows at the client, with the next statement.
            let _ = connection.await;
        });
        Ok(Watcher { client, connection })
    }

    fn schemas(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.schemas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

// === Schema ===

impl Schema {
    async fn make(&self) -> Result<(), tokio_postgres::Error> {
        let name = &self.name;
        let mut sql = format!("CREATE SCHEMA {name};");
        for service in ON_POSTGRES {
            let table = self.table(service).name;
            sql.push_str(&format!(
                "CREATE TABLE {table} (tap bigint NOT NULL, visit bigint NOT NULL, try bigint NOT NULL,
                 article bigint NOT NULL, caller_there boolean NOT NULL);"
            ));
        }
        self.watcher.client.batch_execute(&sql).await
    }

    pub(crate) fn table(&self, service: Service) -> Table {
        // Quoted: `order` is a word of SQL.
        Table { server: Arc::clone(&self.config), name: format!("{}.\"{}\"", self.name, service.name()) }
    }

    /// How many of the shop's backends are at work, as the server says.
    pub(crate) async fn at_work(&self) -> Result<usize, ShopClosed> {
        let row = self.watcher.client.query_one(AT_WORK, &[&self.name]).await.map_err(ShopClosed::no_postgres)?;
        Ok(usize::try_from(row.get::<_, i64>(0)).unwrap_or(0))
    }

    pub(crate) async fn charges(&self) -> Result<Charges, ShopClosed> {
        let table = self.table(Service::Payment).name;
        let sql =
            format!("SELECT count(*) - count(DISTINCT tap), count(*) FILTER (WHERE NOT caller_there) FROM {table}");
        let row = self.watcher.client.query_one(&sql, &[]).await.map_err(ShopClosed::no_postgres)?;
        let count = |column: usize| usize::try_from(row.get::<_, i64>(column)).unwrap_or(0);
        Ok(Charges { double: count(0), for_nobody: count(1) })
    }

    pub(crate) async fn drop(self) -> Result<(), ShopClosed> {
        self.server.drop_schema(&self.name, &self.watcher.client).await.map_err(ShopClosed::no_postgres)
    }
}

// === Table ===

impl Table {
    /// Writes down what was done.
    pub(crate) fn record(&self) -> String {
        format!("INSERT INTO {} (tap, visit, try, article, caller_there) VALUES ($1, $2, $3, $4, $5)", self.name)
    }
}
