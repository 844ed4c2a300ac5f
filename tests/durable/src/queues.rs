//! Queues of the real brokers, with names of their own, that go when a test is done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oneclock_postgres::{PgQueue, Pool};
use oneclock_queue::nats::{Nats, async_nats};
use oneclock_queue::rabbitmq::RabbitMq;

/// How long a delivery is a consumer's where the broker has leases: short, so that what a dead one had comes again soon.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// A queue of a test.
pub(crate) struct Queue<B> {
    pub(crate) broker: B,
    pub(crate) name: String,
    pub(crate) database: Database,
}

/// A database of a test's own: effects are written down here, records are kept, and one of the queues is in it.
pub(crate) struct Database(String);

pub(crate) fn name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("durable_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

pub(crate) async fn nats_named(name: &str) -> Nats {
    let address = std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let client = async_nats::connect(&address).await.unwrap_or_else(|error| panic!("no NATS at {address}: {error}"));
    Nats::builder(client, name).lease(LEASE).build().await.unwrap()
}

pub(crate) async fn rabbitmq_named(name: &str) -> RabbitMq {
    let address =
        std::env::var("ONECLOCK_RABBITMQ_URL").unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned());
    RabbitMq::builder(address, name).build().await.unwrap()
}

pub(crate) async fn postgres_named(name: &str, pool: Pool) -> PgQueue {
    let queue =
        PgQueue::builder(name.to_owned(), pool).lease(LEASE).within(Duration::from_millis(500)).build().unwrap();
    queue.create().await.unwrap();
    queue
}

pub(crate) async fn nats() -> Queue<Nats> {
    let (name, database) = (name(), Database::new().await);
    Queue { broker: nats_named(&name).await, name, database }
}

pub(crate) async fn rabbitmq() -> Queue<RabbitMq> {
    let (name, database) = (name(), Database::new().await);
    Queue { broker: rabbitmq_named(&name).await, name, database }
}

pub(crate) async fn postgres() -> Queue<PgQueue> {
    let (name, database) = (name(), Database::new().await);
    Queue { broker: postgres_named(&name, database.pool()).await, name, database }
}

// === Queue ===

impl Queue<Nats> {
    pub(crate) async fn remove(self) {
        let address = std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
        let jetstream = async_nats::jetstream::new(async_nats::connect(address).await.unwrap());
        jetstream.delete_stream(self.broker.stream()).await.unwrap();
        self.database.drop_it().await;
    }
}

impl Queue<RabbitMq> {
    pub(crate) async fn remove(self) {
        self.broker.delete().await.unwrap();
        self.database.drop_it().await;
    }
}

impl Queue<PgQueue> {
    pub(crate) async fn remove(self) {
        drop(self.broker);
        self.database.drop_it().await;
    }
}

// === Database ===

fn server() -> String {
    std::env::var("ONECLOCK_POSTGRES_URL").unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned())
}

async fn admin(sql: &str) {
    let pool = Pool::builder(server()).build().unwrap();
    pool.get("admin").await.unwrap().batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

impl Database {
    pub(crate) async fn new() -> Self {
        let name = name();
        admin(&format!("CREATE DATABASE {name} TEMPLATE template0")).await;
        let url = match server().rsplit_once('/') {
            Some((before, _)) => format!("{before}/{name}"),
            None => panic!("an address of a server with a database"),
        };
        let database = Self(url);
        let pool = database.pool();
        pool.get("effects")
            .await
            .unwrap()
            .batch_execute("CREATE TABLE effects (key text, by_pid int, at timestamptz DEFAULT clock_timestamp())")
            .await
            .unwrap();
        database
    }

    pub(crate) fn url(&self) -> &str {
        &self.0
    }

    pub(crate) fn pool(&self) -> Pool {
        Pool::builder(self.0.clone()).size(24).build().unwrap()
    }

    /// How many effects there were under each key.
    pub(crate) async fn effects_of(&self, key: &str) -> i64 {
        let row =
            self.pool().query_one("effects", "SELECT count(*) FROM effects WHERE key = $1", &[&key]).await.unwrap();
        row.get(0)
    }

    pub(crate) async fn drop_it(self) {
        let name = self.0.rsplit('/').next().unwrap();
        admin(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    }
}
