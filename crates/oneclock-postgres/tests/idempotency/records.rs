//! Stores with tables of their own.

use std::time::Duration;

use oneclock_core::idempotency::{Claim, Fingerprint, Key, Owner, Scope, Takeover};
use oneclock_postgres::tokio_postgres::Config;
use oneclock_postgres::{IdempotencyStore, IdempotencyStoreBuilder, Pool};

use crate::support::{BOUND, connect};

/// A store whose tables stand in this schema of the database.
pub(crate) fn store_in(config: &Config, schema: &str) -> IdempotencyStoreBuilder {
    let mut config = config.clone();
    config.options(format!("-c search_path={schema}"));
    let pool = Pool::configured(config).size(8).build().unwrap();
    IdempotencyStore::builder(pool).within(BOUND).wait_at_most(BOUND)
}

pub(crate) async fn make_schema(config: &Config, schema: &str) {
    connect(config).await.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    store_in(config, schema).build().unwrap().create().await.unwrap();
}

pub(crate) fn scope(key: &str) -> Scope {
    Scope { principal: "shop".into(), method: "POST".into(), route: "charge".into(), key: Key::new(key).unwrap() }
}

pub(crate) fn ask(owner: u128) -> Claim {
    Claim {
        fingerprint: Fingerprint([7; 32]),
        owner: Owner(owner),
        made: None,
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(86_400),
        takeover: Takeover::Never,
    }
}
