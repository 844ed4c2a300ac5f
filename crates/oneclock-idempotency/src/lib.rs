//! oneclock for calls that must take effect once: a claim before the work, a replay after it.
//!
//! A caller that hears nothing sends its request again, and the charge is made twice. Here the first request with a key
//! claims it, durably, before the handler runs; the claim begins an operation of its own, which the caller's leaving does not
//! end; its answer is kept, and every later request with the key gets that. What a crash leaves behind is *unknown*, never run
//! again by itself, and a [`Reconciler`] finds out.
//!
//! ```
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use oneclock_idempotency::{Body, Idempotency, IdempotencyKey, MemoryStore};
//! use std::{convert::Infallible, time::Duration};
//! use tower::{ServiceBuilder, ServiceExt};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let once = Idempotency::builder("charge", MemoryStore::new()) // durable: `oneclock_sqlite::IdempotencyStore`
//!     .one_principal()                                          // or `.principal(|head| …)`: whose key it is
//!     .execution(Duration::from_secs(10))                       // the bound of a run, whoever waits for it
//!     .required()
//!     .build()?;
//! let service = ServiceBuilder::new().layer(once).service_fn(|_: Request<Full<bytes::Bytes>>| async {
//!     Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from("receipt 7")))
//! });
//!
//! let key = IdempotencyKey::new();
//! let attempt = || {
//!     let mut request = Request::post("/charges").body(Full::default()).unwrap();
//!     key.write(request.headers_mut());
//!     request
//! };
//! let first: Response<Body> = service.clone().oneshot(attempt()).await?;
//! let again = service.oneshot(attempt()).await?;
//! assert!(!first.headers().contains_key("idempotent-replayed"));
//! assert_eq!(again.headers()["idempotent-replayed"], "true");
//! # Ok(()) }
//! ```
//!
//! A gRPC call has its key in its metadata, and its trailers are kept with its messages: see [`Idempotency`].
//!
//! The rules are those of the contract's section 10 (M1 to M10), decided in `oneclock_core::idempotency`. This is the mode
//! with leases: the record and the effect live in different places, so that a crash between them leaves an unknown. What can
//! never be promised is "exactly once"; what is promised is at most once, and that whoever asks learns what is known.

mod accept;
mod answer;
mod any_store;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod changes;
mod endpoint;
mod fingerprint;
#[cfg(feature = "history")]
pub mod history;
mod key;
mod layer;
mod memory;
mod monitor;
pub mod names;
mod reconcile;
mod refuse;
mod request;
mod resolve;
mod rpc;
mod run;
mod runs;
mod service;
mod store;
#[cfg(feature = "tonic")]
mod tonic;

pub use accept::{Accepting, Caller, Queued};
pub use answer::Answer;
pub use any_store::AnyStore;
#[cfg(feature = "axum")]
pub use axum::NoKey;
pub use body::Body;
pub use changes::{Changes, Watch};
pub use fingerprint::{of as fingerprint, of_parts as fingerprint_of};
pub use key::{IdempotencyKey, KeyLayer, Keyed};
pub use layer::{BadIdempotency, Idempotency, IdempotencyBuilder};
pub use memory::MemoryStore;
pub use monitor::Monitor;
pub use oneclock_http::NothingHappened;
pub use reconcile::{Pass, Probed, Reconciler, ReconcilerBuilder, Unresolved};
pub use resolve::{NotResolved, Resolution, Resolved, Wanted, find, resolve};
pub use service::{Once, OnceFuture};
pub use store::{Found, Kept, Settle, Settled, Store, StoreError, Which};
#[cfg(feature = "tonic")]
pub use tonic::{GrpcLayer, GrpcOnce};

/// The guide's examples, so that they compile; one of them is for axum, one for tonic.
#[cfg(all(doctest, feature = "axum", feature = "tonic"))]
#[doc = include_str!("../../../docs/guide/idempotency.md")]
struct Guide;
