//! oneclock for SQLite: a pool of rusqlite connections on blocking threads, whose statements stop at the deadline.
//!
//! SQLite runs inside the process and blocks its thread. Dropping the future that waits for it stops nothing: the
//! statement runs on, holds its lock and its connection, and everybody else waits. Here each [`run`](Pool::run) and each
//! [`transaction`](Pool::transaction) is a call of an [`Operation`](oneclock::Operation), and ends with it.
//!
//! ```
//! use std::time::Duration;
//! use oneclock::Operation;
//! use oneclock_core::Outcome;
//! use oneclock_sqlite::Pool;
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::builder(":memory:") // or the path of a file
//!     .size(5)
//!     .cap("report", Duration::from_millis(100))
//!     .build()?;
//!
//! let op = Operation::begin("order", Duration::from_secs(2));
//! pool.run_in(&op, "schema", |conn| conn.execute_batch("CREATE TABLE charges (cents INTEGER)")).await?;
//! pool.transaction_in(&op, "charge", |tx| tx.execute("INSERT INTO charges VALUES (499)", [])).await?;
//!
//! // Counting to a billion takes a minute, and gets 100 ms:
//! let report = pool.run_in(&op, "report", |conn| {
//!     let count = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e9) SELECT count(*) FROM n";
//!     conn.query_row(count, [], |row| row.get::<_, i64>(0))
//! });
//! let error = report.await.unwrap_err();
//! assert_eq!(error.outcome(), Outcome::Rejected); // proven: nothing of it is in the database
//!
//! let sum: i64 = pool.run_in(&op, "sum", |conn| conn.query_row("SELECT sum(cents) FROM charges", [], |row| row.get(0))).await?;
//! assert_eq!(sum, 499); // the same connection, if it was the only one
//! # Ok(()) }
//! ```
//!
//! The rules are those of the contract's section 9: D5 (what is known of a commit), D6 (waiting for a connection), D7 (a
//! borrower's bound, handlers, transaction, attached databases, temporary tables and the settings that this pool decides are
//! not seen by the next), D9 (locks and interrupts). What else a borrower does to its connection stays with it: other
//! pragmas, functions and collations of its own.

mod connection;
mod errand;
mod error;
mod fence;
#[cfg(feature = "idempotency")]
mod idempotency;
mod pool;
mod transaction;

pub use connection::Synchronous;
pub use error::{BadPool, SqliteError};
#[cfg(feature = "idempotency")]
pub use idempotency::{BadStore, Commits, IdempotencyStore, IdempotencyStoreBuilder};
pub use pool::{Pool, PoolBuilder, Status};
pub use rusqlite;
pub use transaction::Decision;

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/sqlite.md")]
struct Guide;
