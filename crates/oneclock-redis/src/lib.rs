//! oneclock for Redis: every command within the budget, nothing left behind for the next.
//!
//! Redis answers the commands of one connection in their order. So one that the server holds back (`BLPOP`) keeps everybody
//! waiting who shares its connection, a connection whose network has stalled takes each next caller's time, and a command whose
//! caller has left may still be done. Here each command is a call of an [`Operation`](oneclock::Operation), and ends with it.
//!
//! ```
//! use std::time::Duration;
//! use oneclock::Operation;
//! use oneclock_core::Outcome;
//! use oneclock_redis::{Redis, redis::{cmd, pipe}};
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let address = oneclock_redis::doc_address();
//! # let (stock, jobs) = ("oneclock-doc:lib:stock", "oneclock-doc:lib:jobs");
//! let redis = Redis::builder(address)             // "redis://127.0.0.1:6379"
//!     .cap("lookup", Duration::from_millis(500))  // the most that one call of this name may take
//!     .build()?;
//!
//! let op = Operation::begin("order", Duration::from_secs(2));
//! redis.query_in(&op, "fill", cmd("SET").arg(stock).arg(3)).await.map(|()| ())?;
//! let left: i64 = redis.query_in(&op, "lookup", cmd("GET").arg(stock)).await?;
//! assert_eq!(left, 3);
//!
//! // Both or none:
//! let both = pipe().atomic().decr(stock, 1).del(stock).ignore().to_owned();
//! let (left,): (i64,) = redis.pipeline_in(&op, "sell", &both).await?;
//! assert_eq!(left, 2);
//!
//! // Asks to wait for ever, and gets what is left. Nothing came, says the server, before the time was up:
//! let short = op.grant("next-job").cap(Duration::from_millis(100)).operation()?;
//! let job: Option<(String, String)> = redis.query_in(&short, "next-job", cmd("BLPOP").arg(jobs).arg(0)).await?;
//! assert_eq!(job, None);
//!
//! // A mistake shows, and nothing was done:
//! let error = redis.query_in::<()>(&op, "choose", cmd("SELECT").arg(1)).await.unwrap_err();
//! assert_eq!(error.outcome(), Outcome::NotSent);
//! # Ok(()) }
//! ```
//!
//! The rules are those of the contract's invariants I2 to I4 and I8, X6, and its section 8.
//!
//! What is not here: TLS, clusters and sentinels, `WATCH`. Use scripts or atomic pipelines for the last.

mod blocking;
mod builder;
mod call;
mod client;
mod command;
mod common;
mod error;
mod health;
#[cfg(feature = "idempotency")]
mod idempotency;
mod line;
mod own;
mod request;
mod self_test;
mod subscription;

pub use builder::RedisBuilder;
pub use client::{Redis, Status};
pub use error::{Access, BadRedis, RedisError};
#[cfg(feature = "idempotency")]
pub use idempotency::{BadStore, IdempotencyStore, IdempotencyStoreBuilder};
pub use redis;
pub use self_test::{SelfTest, SelfTestFailed};
pub use subscription::{Message, Subscription};

/// Where the examples of the documentation find a server.
#[doc(hidden)]
pub fn doc_address() -> String {
    std::env::var("ONECLOCK_REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned())
}

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/redis.md")]
struct Guide;
