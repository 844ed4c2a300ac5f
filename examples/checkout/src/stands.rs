//! The services of one shop, their databases, and where they are reached.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde::Serialize;
use tempfile::TempDir;

use crate::ShopClosed;
use crate::postgres::{self, Schema, Server, Table};
use crate::purchase::Service;
use crate::report::Charges;
use crate::stand::{self, Stand};
use crate::story::{Mistake, Story};
use crate::trouble::Control;
use crate::witness::Witness;

/// What the services of a shop do, and the files in which they write it down. The files go with it.
pub(crate) struct Stands {
    stands: BTreeMap<Service, Stand>,
    folder: TempDir,
    schema: Option<Schema>,
}

/// Where a service keeps its records.
pub(crate) enum Place {
    Sqlite(File),
    Postgres(Table),
}

/// A SQLite database.
pub(crate) struct File(PathBuf);

/// The base URL of each service.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Addresses(BTreeMap<Service, String>);

// === Stands ===

impl Stands {
    /// `way` tells the two shops apart on a PostgreSQL server, if there is one.
    pub(crate) async fn set_up(
        story: &Story,
        way: &str,
        postgres: Option<&Server>,
        witness: &Arc<Witness>,
    ) -> Result<Self, ShopClosed> {
        let folder = tempfile::tempdir().map_err(ShopClosed::no_folder)?;
        let stand = |service| Stand {
            service,
            control: Control::default(),
            witness: Arc::clone(witness),
            usual: Duration::from_millis((story.usual)(service)),
            deaf: story.mistake == Some(Mistake::DeafStatements),
        };
        let stands = Service::ALL.into_iter().map(|service| (service, stand(service))).collect();
        let schema = match postgres {
            Some(server) => Some(server.open_schema(way).await?),
            None => None,
        };
        let stands = Self { stands, folder, schema };
        for service in Service::ALL {
            if let Place::Sqlite(file) = stands.place(service) {
                stand::set_up(&file.connect()?).map_err(ShopClosed::no_database)?;
            }
        }
        Ok(stands)
    }

    pub(crate) fn stand(&self, service: Service) -> &Stand {
        &self.stands[&service]
    }

    pub(crate) fn place(&self, service: Service) -> Place {
        match &self.schema {
            Some(schema) if postgres::ON_POSTGRES.contains(&service) => Place::Postgres(schema.table(service)),
            _ => Place::Sqlite(File(self.folder.path().join(service.name()).with_extension("sqlite"))),
        }
    }

    /// Where payment keeps the keys of its charges.
    pub(crate) fn keys(&self) -> PathBuf {
        self.folder.path().join("keys.sqlite")
    }

    pub(crate) fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    /// What payment's records say.
    pub(crate) async fn charges(&self) -> Result<Charges, ShopClosed> {
        match (self.place(Service::Payment), &self.schema) {
            (Place::Sqlite(file), _) => stand::charges(&file.connect()?).map_err(ShopClosed::no_database),
            (Place::Postgres(_), Some(schema)) => schema.charges().await,
            (Place::Postgres(_), None) => Ok(Charges::default()),
        }
    }

    /// The files go by themselves, the schema does not.
    pub(crate) async fn close(self) -> Result<(), ShopClosed> {
        match self.schema {
            Some(schema) => schema.drop().await,
            None => Ok(()),
        }
    }
}

// === File ===

impl File {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Opened as `oneclock-sqlite` does it, so that neither way has the faster files.
    pub(crate) fn connect(&self) -> Result<Connection, ShopClosed> {
        let connection = Connection::open(self.path()).map_err(ShopClosed::no_database)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(ShopClosed::no_database)?;
        connection.pragma_update(None, "journal_mode", "wal").map_err(ShopClosed::no_database)?;
        connection.pragma_update(None, "synchronous", "normal").map_err(ShopClosed::no_database)?;
        Ok(connection)
    }
}

// === Addresses ===

impl Addresses {
    /// The URL of what `service` does for a request.
    pub fn of(&self, service: Service) -> String {
        format!("{}{}", self.base(service), service.path())
    }

    /// The URL of its control endpoint.
    pub fn control(&self, service: Service) -> String {
        format!("{}/control", self.base(service))
    }

    /// Where it is.
    pub fn base(&self, service: Service) -> &str {
        self.0.get(&service).map_or("", String::as_str)
    }

    pub(crate) fn insert(&mut self, service: Service, base: String) {
        self.0.insert(service, base);
    }
}
