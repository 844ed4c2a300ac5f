//! oneclock for sqlx on PostgreSQL: statements that stop, connections handed back only when clean.
//!
//! Dropping a future of sqlx's stops nothing on the server: the statement runs on for nobody, and its connection waits for
//! it. Here each borrow of a connection is a call of an [`Operation`](oneclock::Operation), and ends with it: what runs is
//! cancelled, what is open is rolled back. sqlx's own functions stay as they are; what they are given is another executor.
//!
//! ```
//! use std::time::Duration;
//! use oneclock::Operation;
//! use oneclock_core::Outcome;
//! use oneclock_sqlx::{Pool, SqlxError};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::builder("postgres://postgres@127.0.0.1/postgres")
//!     .size(5)
//!     .cap("report", Duration::from_millis(100))
//!     .build()?;
//!
//! let op = Operation::begin("order", Duration::from_secs(20));
//! let n: i32 = sqlx::query_scalar("SELECT 40 + $1").bind(2).fetch_one(pool.named_in(&op, "lookup")).await?;
//! assert_eq!(n, 42);
//!
//! // A report of ten seconds, which gets 100 ms:
//! let report = sqlx::query("SELECT pg_sleep(10)").execute(pool.named_in(&op, "report")).await;
//! let error = SqlxError::from(report.unwrap_err());
//! assert!(matches!(error, SqlxError::Stopped { .. }));
//! assert_ne!(error.outcome(), Outcome::Applied); // as a rule `Rejected`: cancelled, and proven to have done nothing
//! # Ok(()) }
//! ```
//!
//! The rules are those of the contract's section 9: D1 and D2 (the server's own bound), D3 and D4 (cancels), D5 (what is
//! known of a commit), D6 (waiting for a connection), D7 (nothing of a borrower is seen by the next), D8 (poolers).

mod builder;
mod conn;
mod error;
mod guard;
mod pool;
mod pooler;
mod proven;
mod reap;
mod reserve;
mod seat;
mod self_test;
mod session;
mod transaction;
mod turn;
mod work;

pub use builder::PoolBuilder;
pub use error::{BadPool, SqlxError};
pub use guard::{Guard, Named};
pub use pool::{Pool, Status};
pub use self_test::NotReady;
pub use sqlx;
pub use transaction::Transaction;

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/sqlx.md")]
struct Guide;
