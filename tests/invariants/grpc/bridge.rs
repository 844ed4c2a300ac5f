//! A tonic service whose methods are the routes of a router.
//!
//! tonic reads the request and its message, and writes messages, trailers and statuses; between the two a handler of the
//! router is asked. What fails there becomes a status as it would in a handler of tonic's: by `oneclock_tonic::status`.

use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::{HeaderMap, Method, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use oneclock_http::Problem;
use tonic::metadata::MetadataMap;
use tonic::server::{NamedService, ServerStreamingService};
use tonic::service::Routes;
use tonic::{Request, Status};
use tower::{Service, ServiceExt as _};

use super::{METHOD, REPORTS, Raw, SHOP, target_of};

type Messages = BoxStream<'static, Result<Bytes, Status>>;

/// The services of tonic's that stand for this router.
pub(crate) fn routes(app: Router) -> Routes {
    Routes::new(Bridge::<false>(app.clone())).add_service(Bridge::<true>(app))
}

/// One of the two services.
#[derive(Clone, Debug)]
struct Bridge<const OF_REPORTS: bool>(Router);

/// The status that a handler answers with, on its way through the router as it is.
#[derive(Clone, Debug)]
pub(crate) struct Said(pub(crate) Status);

impl NamedService for Bridge<false> {
    const NAME: &'static str = SHOP;
}

impl NamedService for Bridge<true> {
    const NAME: &'static str = REPORTS;
}

impl<const OF_REPORTS: bool> Service<http::Request<tonic::body::Body>> for Bridge<OF_REPORTS> {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let route = Route { app: self.0.clone(), target: target_of(request.uri().path()) };
        // On the wire one message is one message: for a unary call and for a stream of one alike.
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).server_streaming(route, request).await) })
    }
}

/// A method, as tonic calls it.
struct Route {
    app: Router,
    target: String,
}

impl ServerStreamingService<Bytes> for Route {
    type Response = Bytes;
    type ResponseStream = Messages;
    type Future = BoxFuture<'static, Result<tonic::Response<Messages>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(answer(self.app.clone(), self.target.clone(), request))
    }
}

async fn answer(app: Router, target: String, request: Request<Bytes>) -> Result<tonic::Response<Messages>, Status> {
    let (metadata, extensions, message) = request.into_parts();
    let mut inner = http::Request::new(Body::from(message));
    *inner.headers_mut() = metadata.into_headers();
    *inner.method_mut() = if inner.headers().contains_key(METHOD) { Method::GET } else { Method::POST };
    *inner.uri_mut() = target.parse().expect("a target");
    *inner.extensions_mut() = extensions;

    let (mut head, body) = app.oneshot(inner).await.unwrap_or_else(|never| match never {}).into_parts();
    if let Some(Said(status)) = head.extensions.remove() {
        return Err(status);
    }
    if let Some(problem) = head.extensions.remove::<Problem>() {
        return Err(oneclock_tonic::status(problem));
    }
    if !head.status.is_success() {
        return Err(foreign(head.status, &head.headers));
    }
    for of_http in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        head.headers.remove(of_http);
    }
    let mut response = tonic::Response::new(messages(body).await?);
    *response.metadata_mut() = MetadataMap::from_headers(head.headers);
    Ok(response)
}

/// A body that is there as a whole is one message; of a stream each piece is one.
async fn messages(body: Body) -> Result<Messages, Status> {
    if body.size_hint().exact().is_some() {
        let whole = body.collect().await.map_err(oneclock_tonic::status)?.to_bytes();
        return Ok(stream::iter([Ok(whole)]).boxed());
    }
    Ok(body.into_data_stream().map(|piece| piece.map_err(oneclock_tonic::status)).boxed())
}

/// A status of HTTP that a handler chose itself, in gRPC's words.
fn foreign(status: StatusCode, headers: &HeaderMap) -> Status {
    let title = status.canonical_reason().unwrap_or_default();
    let mut said = oneclock_tonic::status(Problem::with_status(status, title));
    if let Some(seconds) = headers.get(header::RETRY_AFTER) {
        let seconds: u32 = seconds.to_str().unwrap().parse().expect("seconds");
        said.metadata_mut().insert("grpc-retry-pushback-ms", (seconds * 1_000).into());
    }
    said
}

impl IntoResponse for Said {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
