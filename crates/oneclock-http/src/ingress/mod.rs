//! What arrives: one decision per request, one deadline on head and body, one answer when it cannot be kept.
//!
//! The order of the steps:
//!
//! 1. The deadline fields are read, and the policy of the matched route decides (`oneclock_core::ingress`). A refused
//!    request costs nothing: its handler never runs.
//! 2. The operation begins; it ran from when the head was read, not from now (contract K1). Fields of outsiders are
//!    stripped (C3).
//! 3. The service below becomes ready. That wait is stage `queue`: counted, and cut off like everything else.
//! 4. The handler runs in the operation's scope. It is polled before the clock is asked (X1).
//! 5. The head leaves, its body bounded by the same deadline; or the end comes first, and a
//!    [`Problem`](crate::Problem) says which bound and where.
//!
//! ```
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use oneclock_core::{Policy, Trust};
//! use oneclock_http::{BoundedBody, IngressLayer, Upload};
//! use std::{convert::Infallible, time::Duration};
//! use tower::{ServiceBuilder, ServiceExt};
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let policy = Policy::named("order").when_absent(Duration::from_millis(800)).build()?;
//! let service = ServiceBuilder::new()
//!     .layer(IngressLayer::new(policy).trust(Trust::Inside))
//!     .service_fn(|_: Request<Upload<Full<bytes::Bytes>>>| async {
//!         tokio::time::sleep(Duration::from_secs(5)).await; // far too long
//!         Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from("done")))
//!     });
//!
//! let request = Request::get("/orders").header("x-remaining-ms", "300").body(Full::default())?;
//! let response: Response<BoundedBody<_>> = service.oneshot(request).await?;
//! assert_eq!(response.status(), 504);
//! assert_eq!(response.headers()["oneclock-reason"], "deadline");
//! # Ok(()) }
//! ```

mod admission;
mod future;
mod layer;
mod service;
mod told;

pub use future::{IngressFuture, PassedOn};
pub use layer::{IngressLayer, Route};
pub use service::Ingress;
pub(crate) use told::Lent;
