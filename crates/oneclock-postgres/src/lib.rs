//! oneclock for PostgreSQL: the budget reaches the statement, the cancel reaches the backend.
//!
//! Dropping the future of a statement stops nothing on the server: it runs on, and its connection with it. Here each call
//! belongs to an [`Operation`](oneclock::Operation) and ends with it. A statement that runs at the deadline, or whose caller
//! leaves, is cancelled on the server; its connection serves others once the server is ready *and* the cancel is over.
//!
//! ```no_run
//! use std::time::Duration;
//! use oneclock::Operation;
//! use oneclock_core::Outcome;
//! use oneclock_postgres::Pool;
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::builder("postgres://shop@localhost/shop")
//!     .size(5)
//!     .cap("report", Duration::from_millis(100))
//!     .build()?;
//!
//! let op = Operation::begin("order", Duration::from_secs(2));
//! op.run(async {
//!     pool.execute("charge", "INSERT INTO charges VALUES ($1)", &[&499]).await?;
//!
//!     // Ten seconds of work get 100 ms:
//!     let error = pool.query("report", "SELECT pg_sleep(10)", &[]).await.unwrap_err();
//!     assert_eq!(error.outcome(), Outcome::Rejected); // proven: the server says that it was cancelled
//!     Ok::<_, oneclock_postgres::PgError>(())
//! }).await??;
//! # Ok(()) }
//! ```
//!
//! On `tokio-postgres`, with `deadpool-postgres`'s client and its cache of prepared statements. The pool is its own, since a
//! connection must not be lent again before its cancel is settled, and its queue has a bound. It differs from `oneclock-sqlite`
//! in that work is an async closure, or a borrowed [`Client`].
//!
//! The rules are those of the contract's section 9: D1 and D2 (the bound on the server), D3 (the cancel and its fence), D4
//! (whose cancel it was), D5 (what is known of a commit), D6 (waiting for a connection), D7 (nothing of a borrower is seen
//! by the next), D8 (poolers). They are decided in `oneclock_core::statement`.

mod builder;
mod commit;
mod connect;
mod error;
mod flight;
#[cfg(feature = "idempotency")]
mod idempotency;
mod link;
mod notifications;
mod pool;
#[cfg(feature = "queue")]
mod queue;
mod reaper;
mod self_test;
mod session;
mod socket;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod transaction;

pub use builder::PoolBuilder;
pub use error::{BadPool, ConnectError, PgError};
#[cfg(feature = "idempotency")]
pub use idempotency::{BadStore, IdempotencyStore, IdempotencyStoreBuilder, NotOnce, Once};
pub use link::{Query, Statement};
pub use pool::{Pool, Status};
#[cfg(feature = "queue")]
pub use queue::{
    BadQueue, BadRelay, LaneStats, Listed, PgDelivery, PgQueue, PgQueueBuilder, QueueStats, Rates, Relay, Relayed,
};
pub use self_test::{SelfTest, SelfTestFailed};
pub use session::{Client, Session};
pub use socket::Socket;
pub use stream::{CopyIn, CopyOut, Rows};
#[cfg(feature = "tls")]
pub use tls::{Rustls, RustlsStream, RustlsTo};
pub use tokio_postgres;
pub use transaction::{Decision, Transaction};

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/postgres.md")]
struct Guide;

#[cfg(all(doctest, feature = "queue"))]
#[doc = include_str!("../../../docs/guide/durable-postgres.md")]
struct GuideOfTheQueue;
