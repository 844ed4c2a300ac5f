//! Our own client in place of tonic's channel: the deadline is written when the connection is there.
//!
//! Decides what the client must be for gRPC: HTTP/2, told `grpc-timeout`. All else is [`Client`]'s, and what came of a call
//! becomes a status as it does under [`ClientLayer`](crate::ClientLayer).

use std::task::{Context, Poll};

use http::Request;
use oneclock_core::wire::writes;
use oneclock_http::{Client, ClientBuilder, NotAClient, Received};
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
/// use oneclock_tonic::{Client, GrpcClient};
/// use tonic_health::pb::health_client::HealthClient;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pricing = GrpcClient::new(Client::builder("pricing", "http://pricing:50051").cap(Duration::from_millis(300)))?;
/// let mut client = HealthClient::new(pricing);
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// Dropping a call, or the stream of its answer, resets it with `CANCEL`, unless its upload is stuck in flow control: see
/// [`ClientLayer`](crate::ClientLayer). Such a connection gets no new call, and ends with the last of those that it carries. The
/// event is sent from a guard.
#[derive(Clone, Debug)]
pub struct GrpcClient(Client);

impl GrpcClient {
    /// Builds the client, for the `new` of a generated one. It speaks HTTP/2 only, and tells `grpc-timeout` whatever the
    /// builder was told: gRPC needs both, so neither has to be said.
    ///
    /// # Errors
    /// [`NotAClient`], as [`ClientBuilder::build`].
    pub fn new(client: ClientBuilder) -> Result<Self, NotAClient> {
        client.http2_only().also_tells(&writes::grpc()).build().map(Self)
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
