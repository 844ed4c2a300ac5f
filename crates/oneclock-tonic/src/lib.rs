//! oneclock for tonic: gRPC servers and clients that spend one time budget.
//!
//! - [`PolicyExt::grpc_layer`] gives every call to a server its operation: decided once, by the method, enforced on head,
//!   messages and trailers. It runs under [`oneclock_http::serve`] (recommended), `tonic::transport::Server` and
//!   `axum::serve`.
//! - [`ClientLayer`] gives every call of a generated client what its operation has left, tells the far side, and cuts the
//!   call off there, with no code in handlers. [`GrpcClient`] does the same without tonic's channel, and tells exactly what is
//!   left when the connection is there.
//! - [`status()`] and [`OrStatus`] make a [`Status`] of any error, [`problem()`] what an HTTP handler answers for a status;
//!   [`outcome()`], [`call_error`] and [`answered`] say what is known of a call that ended with one.
//!
//! ```
//! use std::time::Duration;
//! use oneclock_tonic::{
//!     ClientLayer, ClientService, Operation, OrStatus as _, Policy, PolicyExt as _, Trust, destination, outcome, serve,
//! };
//! use tonic::service::Routes;
//! use tonic::transport::{Channel, Endpoint};
//! use tonic::{Code, Request, Response, Status};
//! # use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_client::HealthClient, health_server::{Health, HealthServer}};
//! use tower::ServiceBuilder;
//! # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
//!
//! struct Pricing {
//!     stock: HealthClient<ClientService<Channel>>, // a generated client; health checks stand for any
//! }
//!
//! #[tonic::async_trait]
//! impl Health for Pricing {
//!     async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
//!         let op = oneclock_tonic::operation(&request)?; // only where the handler itself wants to know
//!         op.grant("price list").min_useful(ms(20)).remaining().or_status()?;
//!         self.stock.clone().check(HealthCheckRequest::default()).await // is told what is left, and ends with it
//!     }
//! #   type WatchStream = tonic::codegen::BoxStream<HealthCheckResponse>;
//! #   async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
//! #       Err(Status::unimplemented(""))
//! #   }
//! }
//!
//! fn client(name: &'static str, url: String) -> Result<HealthClient<ClientService<Channel>>, Box<dyn std::error::Error>> {
//!     let channel = Endpoint::from_shared(url)?.connect_lazy();
//!     let destination = destination(name).cap(ms(2_000)).trust(Trust::Inside).build()?;
//!     Ok(HealthClient::new(ServiceBuilder::new().layer(ClientLayer::new(destination)).service(channel)))
//! }
//!
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # // A far side that accepts connections and answers nothing.
//! # let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let stock = format!("http://{}", silent.local_addr()?);
//! let policy = Policy::named("pricing")
//!     .when_absent(ms(800))
//!     .ceiling(ms(2_000))
//!     // A stream, as a whole. Who says nothing gets `when_absent`, so both.
//!     .route("/grpc.health.v1.Health/Watch", |limits| limits.when_absent(ms(60_000)).ceiling(ms(60_000)))
//!     .build()?;
//! let pricing = HealthServer::new(Pricing { stock: client("stock", stock)? });
//! let router = Routes::new(pricing).into_axum_router().layer(policy.grpc_layer());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! let server = tokio::spawn(serve(listener, router).trust(Trust::Inside).into_future());
//!
//! let op = Operation::begin("order", ms(300)); // in a handler: the current one
//! let mut pricing = client("pricing", url)?;
//! let status = op.scope(pricing.check(HealthCheckRequest::default())).await.unwrap_err();
//! assert_eq!(status.code(), Code::DeadlineExceeded);
//! assert!(status.message().starts_with("order → pricing"), "{status}");
//! assert_eq!(outcome(&status).map(|outcome| outcome.as_str()), Some("unknown"));
//! # server.abort();
//! # Ok(()) }
//! ```
//!
//! # tonic's own limits
//! Everything that tonic's `Server` builds in stands outside of the layers it is given:
//!
//! | of tonic's | what it does to the budget | instead |
//! |---|---|---|
//! | `concurrency_limit`, `concurrency_limit_per_connection` | who waits there waits uncounted and uncut, and is begun although its caller has gone | [`ServerLayer::admission`]: waiting is stage `queue`, nothing begins after its end, and who would not be done in time is told at once |
//! | `load_shed` | refuses at that limit, with `RESOURCE_EXHAUSTED` | the same, which refuses by what a call has left and needs; `Settings::queue(0)` where nobody shall wait |
//! | `timeout` | `CANCELLED` when it is the smaller one; bounds the head only | the policy's `ceiling` |
//! | `grpc-timeout`, which it obeys by itself | see below | - |
//! | `Endpoint::timeout`, `connect_timeout` | bound the head only, are not told to the far side; `DEADLINE_EXCEEDED` through [`ClientLayer`] | the destination's `cap` |
//! | `Endpoint::concurrency_limit`, `rate_limit`, the buffer | counted and cut by [`ClientLayer`], stage `wait` | - |
//!
//! tonic's server answers `CANCELLED` when its own timer for `grpc-timeout` fires. That timer is made after our deadline and
//! asks our layer first, which has an answer by then, so what is answered is `DEADLINE_EXCEEDED`. The two looks at the clock
//! are not one: a thread that is suspended exactly between them, in a poll that something else caused in the last moment
//! before the deadline, would let the timer win. No layer can prevent that; under [`oneclock_http::serve`] and
//! `axum::serve` that timer does not exist.
//!
//! # Interceptors
//! On a server they run below the layer, in the operation. On a client, one around [`ClientLayer`]'s service runs once for a
//! call, and one between it and the channel once for each attempt. Neither has to copy a deadline, and none that it writes
//! above the layer is sent: it only shortens. None below may touch `grpc-timeout`.
//!
//! # grpc-web
//! `GrpcWebLayer` goes around [`ServerLayer`]: ours then answers in gRPC, which tonic-web translates, with the status in the
//! last frame of the body as browsers need it.

mod client;
mod details;
mod fields;
mod server;
mod status;

use oneclock_core::Name;
use oneclock_core::wire::writes;
use oneclock_http::DestinationBuilder;
use tonic::Status;

pub use client::{ClientAnswer, ClientFuture, ClientLayer, ClientService, GrpcClient};
pub use server::{GrpcAnswer, GrpcFuture, ServerLayer, TonicService};
pub use status::{Answered, OrStatus, answered, call_error, outcome, problem, status};
// What a service needs beside this crate, so that it can depend on this one alone.
pub use oneclock::{Operation, Shutdown, WithoutOperation, admission};
pub use oneclock_core::ingress::PolicyError;
pub use oneclock_core::retry::RetryPolicy;
pub use oneclock_core::{Effect, Outcome, Policy, Trust};
pub use oneclock_http::{CallError, Client, Destination, serve};

/// Makes layers of policies, for tonic.
pub trait PolicyExt {
    /// The layer that gives every call its operation. The routes of the policy are gRPC's paths, `/package.Service/Method`,
    /// else `/package.Service`. Where to put it: see [`ServerLayer`].
    ///
    /// ```
    /// use oneclock_tonic::{Policy, PolicyExt as _, Trust};
    /// # use std::time::Duration; use tonic::transport::Server;
    /// # fn main() -> Result<(), oneclock_tonic::PolicyError> {
    /// let policy = Policy::named("pricing").when_absent(Duration::from_millis(800)).build()?;
    /// // Only services of ours reach it, our gateway among them. Without this they could only shorten `when_absent`.
    /// let layer = policy.grpc_layer().trust(Trust::Inside);
    /// let server = Server::builder().layer(layer); // and `.add_service(..)`
    /// # Ok(()) }
    /// ```
    fn grpc_layer(&self) -> ServerLayer;
}

/// No layer covers this service: for the log.
#[derive(Debug, thiserror::Error)]
#[error("no operation: no layer covers this service; add `.layer(policy.grpc_layer())` to the server or the router")]
struct NoOperation;

/// Begins the destination of a gRPC client: one that is told what is left as `grpc-timeout`, in metrics and errors under this
/// name. [`DestinationBuilder`] has the rest: cap, reserve, trust, retries.
///
/// ```
/// # use std::time::Duration;
/// let pricing = oneclock_tonic::destination("pricing").cap(Duration::from_millis(300)).build()?;
/// # Ok::<(), oneclock_core::Refused>(())
/// ```
pub fn destination(name: impl Into<Name>) -> DestinationBuilder {
    Destination::named(name).tells(writes::grpc())
}

/// The operation of the request that a handler was given.
///
/// What a handler calls finds it by itself; this is for handlers that ask for grants, or what is left. It is the current
/// operation, else the one that a layer put into the request before it moved it to another task.
///
/// # Errors
/// [`Status`] `INTERNAL` where no layer covers the service: a handler that asks for its operation must not run without a
/// deadline. What is missing is logged at level error, and not told to the caller.
///
/// ```
/// # use tonic::{Request, Response, Status};
/// async fn price(request: Request<u32>) -> Result<Response<u64>, Status> {
///     let op = oneclock_tonic::operation(&request)?;
///     Ok(Response::new(op.remaining().as_secs()))
/// }
/// ```
#[allow(clippy::result_large_err, reason = "a handler's error is a status")]
pub fn operation<T>(request: &tonic::Request<T>) -> Result<Operation, Status> {
    Destination::operation_of(request.extensions()).ok_or_else(|| status(NoOperation))
}

impl PolicyExt for Policy {
    fn grpc_layer(&self) -> ServerLayer {
        ServerLayer::new(self)
    }
}

#[doc = include_str!("../../../docs/guide/grpc.md")]
#[cfg(doctest)]
struct Guide;
