//! Calls through tonic's client, over whatever service it is given: its channel under our layer, or that alone.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::uri::PathAndQuery;
use http::{Extensions, HeaderMap, Method, Uri};
use oneclock_core::Effect;
use oneclock_http::BoxError;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::{METHOD, Raw, method_of};

/// tonic's channel to the service there; if so, one call at a time by a limit of its own.
pub(crate) fn channel(addr: SocketAddr, one_at_a_time: bool) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    if one_at_a_time { endpoint.concurrency_limit(1) } else { endpoint }.connect_lazy()
}

/// A unary call of the method that stands for `target`, and the message that it was answered with.
pub(crate) async fn unary<T>(service: T, target: &str, request: Request<Bytes>) -> Result<Bytes, Status>
where
    T: GrpcService<Body>,
    T::ResponseBody: Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<BoxError>,
{
    let mut grpc = ready(service).await?;
    Ok(grpc.unary(request, path(target), Raw).await?.into_inner())
}

/// The same with messages that go out one after another.
pub(crate) async fn upload<T>(
    service: T,
    target: &str,
    messages: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Bytes, Status>
where
    T: GrpcService<Body>,
    T::ResponseBody: Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<BoxError>,
{
    let mut grpc = ready(service).await?;
    Ok(grpc.client_streaming(Request::new(messages), path(target), Raw).await?.into_inner())
}

/// What a handler sends: gRPC knows no methods that only read, so that is said beside it.
pub(crate) fn request(method: &Method, fields: HeaderMap, message: Bytes) -> Request<Bytes> {
    let mut request = Request::from_parts(MetadataMap::from_headers(fields), Extensions::new(), message);
    if method == Method::GET {
        request.metadata_mut().insert(METHOD, "GET".parse().unwrap());
        request.extensions_mut().insert(Effect::ReadOnly);
    }
    request
}

/// The same with a timeout, as one would give it without us.
pub(crate) fn within(mut request: Request<Bytes>, timeout: Option<Duration>) -> Request<Bytes> {
    if let Some(timeout) = timeout {
        request.set_timeout(timeout);
    }
    request
}

async fn ready<T: GrpcService<Body>>(service: T) -> Result<Grpc<T>, Status> {
    let mut grpc = Grpc::with_origin(service, Uri::from_static("http://test"));
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc)
}

fn path(target: &str) -> PathAndQuery {
    method_of(target).parse().expect("a path")
}
