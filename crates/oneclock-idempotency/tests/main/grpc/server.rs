//! A gRPC service without generated code, which counts how often it was begun, behind tonic's own server; and a client.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::HeaderMap;
use http::uri::PathAndQuery;
use http_body_util::BodyExt as _;
use oneclock_core::Policy;
use oneclock_idempotency::{GrpcLayer, Store};
use oneclock_tonic::PolicyExt as _;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::metadata::MetadataMap;
use tonic::server::{NamedService, ServerStreamingService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use tower::Service;

use crate::support::ms;

// === Messages: bytes as they are ===

#[derive(Clone, Copy, Debug, Default)]
struct Raw;

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

// === The service: `/shop.Bank/*`, every method one request message and a stream of answers ===

pub(crate) type Messages = BoxStream<'static, Result<Bytes, Status>>;
type Handler = dyn Fn(usize, Bytes) -> BoxFuture<'static, Result<Messages, Status>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Bank {
    handler: Arc<Handler>,
    begun: Arc<AtomicUsize>,
}

impl Bank {
    /// The handler is told how many were begun before.
    pub(crate) fn new<F>(handler: impl Fn(usize, Bytes) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Messages, Status>> + Send + 'static,
    {
        Self { handler: Arc::new(move |n, message| Box::pin(handler(n, message))), begun: Arc::default() }
    }

    /// Answers with this status the first time, and then with a receipt.
    pub(crate) fn that_fails_first(status: impl Fn() -> Status + Send + Sync + 'static) -> Self {
        Self::new(move |n, _| {
            let answer = if n == 0 { Err(status()) } else { Ok(receipt(n)) };
            async move { answer }
        })
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

pub(crate) fn receipt(n: usize) -> Messages {
    messages([format!("receipt {n}")])
}

pub(crate) fn messages(of: impl IntoIterator<Item = String>) -> Messages {
    stream::iter(of.into_iter().map(|text| Ok(Bytes::from(text))).collect::<Vec<_>>()).boxed()
}

impl NamedService for Bank {
    const NAME: &'static str = "shop.Bank";
}

impl Service<http::Request<Body>> for Bank {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        struct Method(Bank);
        impl ServerStreamingService<Bytes> for Method {
            type Response = Bytes;
            type ResponseStream = Messages;
            type Future = BoxFuture<'static, Result<Response<Messages>, Status>>;

            fn call(&mut self, request: Request<Bytes>) -> Self::Future {
                let n = self.0.begun.fetch_add(1, Ordering::SeqCst);
                let answer = (self.0.handler)(n, request.into_inner());
                Box::pin(async move { answer.await.map(Response::new) })
            }
        }
        let method = Method(self.clone());
        let begun = Arc::clone(&self.begun);
        Box::pin(async move {
            let answer = tonic::server::Grpc::new(Raw).server_streaming(method, request).await;
            // A trailer of the service's own, which says which run it is of.
            let run = begun.load(Ordering::SeqCst);
            Ok(answer.map(|body| {
                Body::new(body.map_frame(move |mut frame| {
                    if let Some(trailers) = frame.trailers_mut() {
                        trailers.insert("shop-run", http::HeaderValue::from(run));
                    }
                    frame
                }))
            }))
        })
    }
}

// === The server ===

/// How many requests came to the server, and how many of their futures are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) arrived: usize,
    pub(crate) over: usize,
}

/// A server on a socket. Ends with this.
pub(crate) struct Running {
    at: std::net::SocketAddr,
    traffic: watch::Receiver<Traffic>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// tonic's own server with a clock, and this around the service.
pub(crate) fn serve<St: Store>(once: GrpcLayer<St>, bank: &Bank) -> Running {
    serve_service(tower::Layer::layer(&once, bank.clone()))
}

/// Without a layer for keys.
pub(crate) fn serve_plain(bank: &Bank) -> Running {
    serve_service(bank.clone())
}

fn serve_service<S, A>(service: S) -> Running
where
    S: Service<http::Request<Body>, Response = http::Response<A>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
    http::Response<A>: axum::response::IntoResponse,
{
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = incoming.local_addr().unwrap();
    let (sender, traffic) = watch::channel(Traffic::default());
    let policy = Policy::named("bank").when_absent(ms(20_000)).ceiling(ms(30_000)).build().unwrap();
    let counted = tower::layer::layer_fn(move |inner| Counted { inner, traffic: sender.clone() });
    let server = Server::builder().layer(counted).layer(policy.grpc_layer()).add_service(service);
    let task = tokio::spawn(server.serve_with_incoming(incoming)).abort_handle();
    Running { at, traffic, task }
}

/// Stands outside of all layers of ours.
#[derive(Clone)]
struct Counted<S> {
    inner: S,
    traffic: watch::Sender<Traffic>,
}

impl<S, B> Service<http::Request<B>> for Counted<S>
where
    S: Service<http::Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        struct Over(watch::Sender<Traffic>);
        impl Drop for Over {
            fn drop(&mut self) {
                self.0.send_modify(|traffic| traffic.over += 1);
            }
        }
        let over = Over(self.traffic.clone());
        self.traffic.send_modify(|traffic| traffic.arrived += 1);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(over);
            answer
        })
    }
}

impl Running {
    pub(crate) fn client(&self) -> Client {
        let channel = Endpoint::from_shared(format!("http://{}", self.at)).unwrap().connect_lazy();
        Client(Grpc::new(channel))
    }

    pub(crate) async fn until(&self, seen: impl FnMut(&Traffic) -> bool) {
        let mut traffic = self.traffic.clone();
        within(traffic.wait_for(seen)).await.unwrap();
    }
}

/// Nothing here takes long; what never comes is not waited for.
pub(crate) async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("within half a minute")
}

// === The client ===

#[derive(Clone)]
pub(crate) struct Client(Grpc<Channel>);

/// What came back, in a form to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) code: Code,
    pub(crate) text: String, // of the message, or of the status
    pub(crate) details: Bytes,
    pub(crate) metadata: Vec<(String, String)>, // of head and trailers, without what is of one exchange
    pub(crate) replayed: bool,
    pub(crate) pushback: Option<String>,
}

impl Client {
    pub(crate) async fn charge(&self, key: Option<&str>, message: &str) -> Got {
        match within(self.send(key, message, "/shop.Bank/Charge")).await {
            Ok((head, body)) => Got::of(head, body).await,
            Err(status) => Got::of_status(&status, status.metadata().clone().into_headers()),
        }
    }

    /// Both a unary call and a streamed one, as HTTP/2 has them: one message up, any number down.
    async fn send(
        &self,
        key: Option<&str>,
        message: &str,
        path: &'static str,
    ) -> Result<(MetadataMap, Streaming<Bytes>), Status> {
        let mut grpc = self.0.clone();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let mut request = Request::new(Bytes::from(message.to_owned()));
        if let Some(key) = key {
            request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
        }
        let answer = grpc.server_streaming(request, PathAndQuery::from_static(path), Raw).await?;
        let (head, body, _) = answer.into_parts();
        Ok((head, body))
    }

    /// The head of the answer, and the messages as they come.
    pub(crate) async fn stream(&self, key: &str) -> Result<(MetadataMap, Streaming<Bytes>), Status> {
        within(self.send(Some(key), "499", "/shop.Bank/Statement")).await
    }
}

impl Got {
    async fn of(head: MetadataMap, mut body: Streaming<Bytes>) -> Self {
        let (mut metadata, mut text) = (head.into_headers(), String::new());
        loop {
            match within(body.message()).await {
                Ok(Some(message)) => text.push_str(std::str::from_utf8(&message).unwrap()),
                Ok(None) => break,
                Err(status) => {
                    metadata.extend(status.metadata().clone().into_headers());
                    return Self::of_status(&status, metadata);
                }
            }
        }
        if let Some(trailers) = body.trailers().await.unwrap() {
            metadata.extend(trailers.into_headers());
        }
        Self { text, ..Self::of_status(&Status::ok(""), metadata) }
    }

    fn of_status(status: &Status, headers: HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let one_exchange = ["date", "content-type", "idempotent-replayed", "grpc-retry-pushback-ms"];
        let mut metadata: Vec<_> = headers
            .iter()
            .filter(|(name, _)| !one_exchange.contains(&name.as_str()))
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        metadata.sort();
        Self {
            code: status.code(),
            text: status.message().to_owned(),
            details: Bytes::copy_from_slice(status.details()),
            replayed: text("idempotent-replayed").as_deref() == Some("true"),
            pushback: text("grpc-retry-pushback-ms"),
            metadata,
        }
    }

    /// The same but for being a replay.
    pub(crate) fn same(&self) -> Self {
        Self { replayed: false, ..self.clone() }
    }
}
