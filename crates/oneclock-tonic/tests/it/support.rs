//! A gRPC service without generated code, and an in-memory network for it: with paused time, everything that happens happens
//! at a moment that can be asserted.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use http::uri::PathAndQuery;
use http::{Request as HttpRequest, Response as HttpResponse};
use hyper_util::rt::{TokioExecutor, TokioIo};
use oneclock_core::{Policy, Trust};
use oneclock_tonic::PolicyExt as _;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, StreamingService};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};
use tower::Service;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A policy that gives whoever says nothing 10 s.
pub(crate) fn policy() -> Policy {
    Policy::named("shop").when_absent(ms(10_000)).ceiling(ms(20_000)).build().expect("limits that fit together")
}

pub(crate) fn inside() -> oneclock_tonic::ServerLayer {
    policy().grpc_layer().trust(Trust::Inside)
}

// === Messages: bytes as they are ===

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

// === The service: `/test.Peer/*`, every method a closure over streams ===

pub(crate) type Messages = BoxStream<'static, Result<Bytes, Status>>;
type Handler =
    dyn Fn(Request<Streaming<Bytes>>) -> BoxFuture<'static, Result<Response<Messages>, Status>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Peer(Arc<Handler>);

impl NamedService for Peer {
    const NAME: &'static str = "test.Peer";
}

/// A service whose every method is this.
pub(crate) fn peer<H, F>(handler: H) -> Peer
where
    H: Fn(Request<Streaming<Bytes>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Messages, Status>> + Send + 'static,
{
    Peer(Arc::new(move |request| {
        let answer = handler(request);
        Box::pin(async move { answer.await.map(Response::new) })
    }))
}

/// One message.
pub(crate) fn one(text: impl Into<Bytes>) -> Messages {
    let message = text.into();
    stream::once(async move { Ok(message) }).boxed()
}

/// One message, and then nothing more.
pub(crate) fn one_then_nothing(text: &'static str) -> Messages {
    one(text).chain(stream::pending()).boxed()
}

/// A service that never answers.
pub(crate) fn silent() -> Peer {
    peer(|_| std::future::pending())
}

impl Service<HttpRequest<Body>> for Peer {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<HttpResponse<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        struct Method(Arc<Handler>);
        impl StreamingService<Bytes> for Method {
            type Response = Bytes;
            type ResponseStream = Messages;
            type Future = BoxFuture<'static, Result<Response<Messages>, Status>>;

            fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
                (self.0)(request)
            }
        }
        let method = Method(Arc::clone(&self.0));
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).streaming(method, request).await) })
    }
}

// === The client ===

/// What a generated client is, for one method.
#[derive(Clone, Debug)]
pub(crate) struct Caller<T>(Grpc<T>);

impl<T> Caller<T>
where
    T: GrpcService<Body>,
    T::ResponseBody: Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<oneclock_http::BoxError>,
{
    pub(crate) fn new(service: T) -> Self {
        Self(Grpc::with_origin(service, http::Uri::from_static("http://peer.test")))
    }

    /// As a generated client's `new`: the service below knows where it is.
    pub(crate) fn of(service: T) -> Self {
        Self(Grpc::new(service))
    }

    pub(crate) async fn unary(&mut self, request: Request<&'static str>) -> Result<Response<Bytes>, Status> {
        self.ready().await?;
        let request = request.map(|text| Bytes::from_static(text.as_bytes()));
        self.0.unary(request, PathAndQuery::from_static("/test.Peer/Unary"), Raw).await
    }

    pub(crate) async fn stream(
        &mut self,
        request: Request<impl Stream<Item = Bytes> + Send + 'static>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.ready().await?;
        self.0.streaming(request, PathAndQuery::from_static("/test.Peer/Stream"), Raw).await
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.0.ready().await.map_err(|error| Status::from_error(error.into()))
    }
}

/// A request with this `grpc-timeout`, as it is.
pub(crate) fn with_timeout(value: &'static str) -> Request<&'static str> {
    let mut request = Request::new("hello");
    request.metadata_mut().insert("grpc-timeout", value.parse().expect("ASCII"));
    request
}

/// Messages that never come.
pub(crate) fn nothing() -> impl Stream<Item = Bytes> + Send + 'static {
    stream::pending()
}

// === The network ===

/// Where in-memory connections go.
#[derive(Clone, Debug)]
pub(crate) struct Net(mpsc::UnboundedSender<DuplexStream>);

/// The server's end of it.
pub(crate) type Incoming = BoxStream<'static, Result<DuplexStream, std::io::Error>>;

/// A network with this server: `|incoming| Server::builder()…serve_with_incoming(incoming)`.
pub(crate) fn serve<F, E>(run: impl FnOnce(Incoming) -> F) -> Net
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Send + 'static,
{
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let incoming = stream::poll_fn(move |cx| receiver.poll_recv(cx).map(|next| next.map(Ok)));
    tokio::spawn(run(incoming.boxed())); // ends with the network, which closes the stream
    Net(sender)
}

/// The server of nearly every test: tonic's own, our layer, this service.
pub(crate) fn serve_inside(service: Peer) -> Net {
    serve(|incoming| {
        tonic::transport::Server::builder().layer(inside()).add_service(service).serve_with_incoming(incoming)
    })
}

/// The same without us.
pub(crate) fn serve_plain(service: Peer) -> Net {
    serve(|incoming| tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming))
}

impl Net {
    /// tonic's channel, connected when it is first needed.
    pub(crate) fn channel(&self) -> Channel {
        self.slow_channel(Duration::ZERO)
    }

    /// The same where connecting takes this long.
    pub(crate) fn slow_channel(&self, connecting: Duration) -> Channel {
        self.of_endpoint(&Endpoint::from_static("http://peer.test"), connecting)
    }

    pub(crate) fn of_endpoint(&self, endpoint: &Endpoint, connecting: Duration) -> Channel {
        let net = self.clone();
        endpoint.connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| {
            let net = net.clone();
            async move {
                if !connecting.is_zero() {
                    tokio::time::sleep(connecting).await;
                }
                net.connect().map(TokioIo::new)
            }
        }))
    }

    fn connect(&self) -> std::io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let refused = |_| std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        self.0.send(theirs).map_err(refused)?;
        Ok(ours)
    }

    /// A connection that adds nothing and times nothing, unlike tonic's channel.
    pub(crate) async fn wire(&self) -> Wire {
        Wire::over(self.connect().expect("a server")).await
    }
}

/// See [`Net::wire`].
#[derive(Clone, Debug)]
pub(crate) struct Wire(hyper::client::conn::http2::SendRequest<Body>);

impl Wire {
    pub(crate) async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("HTTP/2");
        tokio::spawn(connection); // ends with its last sender
        Self(sender)
    }
}

impl Service<HttpRequest<Body>> for Wire {
    type Response = HttpResponse<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
