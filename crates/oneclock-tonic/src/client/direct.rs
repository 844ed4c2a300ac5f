//! Our own client in place of tonic's channel: the deadline is written when the connection is there.
//!
//! Decides nothing: [`Client`] does, and what came of a call becomes a status as it does under
//! [`ClientLayer`](crate::ClientLayer).

use std::task::{Context, Poll};

use http::{Request, Uri};
use oneclock_core::Name;
use oneclock_core::wire::writes;
use oneclock_http::{Client, ClientBuilder, Received};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use super::{Calling, ClientAnswer, ClientFuture, cap_by_timeout};

/// Calls of a generated client through [`oneclock_http::Client`]: what a channel cannot tell, this can.
///
/// `grpc-timeout` is written after waiting for a connection, resolving and connecting, and says what is left then (contract
/// E4); each of those is a stage of its own in the ledger, and a call that is cut off in one of them was not sent. Otherwise it
/// is as with [`ClientLayer`](crate::ClientLayer): a timeout of the request's own only shortens, retries are the client's
/// policy, and every error is a [`Status`].
///
/// ```
/// # use std::time::Duration;
/// use oneclock_tonic::GrpcClient;
/// use tonic_health::pb::health_client::HealthClient;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pricing = GrpcClient::builder("pricing", "http://pricing:50051").cap(Duration::from_millis(300)).build()?;
/// let mut client = HealthClient::new(GrpcClient::new(pricing));
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// Dropping a call, or the stream of its answer, resets it with `CANCEL`. Its event is sent from a guard.
#[derive(Clone, Debug)]
pub struct GrpcClient(Client);

impl GrpcClient {
    /// Begins a client that speaks HTTP/2 to the service at `uri`, and tells it `grpc-timeout`.
    pub fn builder<U>(name: impl Into<Name>, uri: U) -> ClientBuilder
    where
        U: TryInto<Uri>,
        U::Error: Into<http::Error>,
    {
        Client::builder(name, uri).http2_only().tells(writes::grpc())
    }

    /// For the `new` of a generated client.
    pub fn new(client: Client) -> Self {
        Self(client)
    }
}

impl Service<Request<Body>> for GrpcClient {
    type Response = http::Response<ClientAnswer<Received>>;
    type Error = Status;
    type Future = ClientFuture<oneclock_http::ClientFuture, Received>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        cap_by_timeout(&mut request);
        ClientFuture { call: Calling::Once { call: self.0.call(request) } }
    }
}
