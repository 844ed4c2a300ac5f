//! An exchange on a connection of its own: for what goes on behind the head, when its call is over.
//!
//! A call of the client ends at its deadline, with its answer. A declared stream and an upgraded connection live on under
//! clocks of their own (contract S2), so they are no calls any more: here the call is the establishment, up to the head, by the
//! library's own rules for calls ([`Destination`]), and what follows is handed over together with the connection. It is never
//! lent again, so nothing has to be clean afterwards. How many there are at once is bounded, apart from those of the client;
//! whoever comes too late waits in stage `pool`, as there.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use oneclock::events::Target;
use oneclock::{Call, Operation, Shutdown};
use oneclock_core::effect::Seen;
use oneclock_core::{Outcome, Stage};
use oneclock_http::{BoxError, CallError, Destination, is_refused_stream};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::hop;

/// How long a connection that is given up may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// Where such connections go. Without TLS.
#[derive(Clone, Debug)]
pub(crate) struct Place(Arc<Whereabouts>);

#[derive(Debug)]
struct Whereabouts {
    authority: Authority,
    host: Box<str>,
    port: u16,
    turns: Arc<Semaphore>,
}

/// What is spoken there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http1,
    Http2,
}

/// The body of an answer, with its connection. Dropped before its end, both end: over HTTP/2 the stream is reset with
/// CANCEL, over HTTP/1.1 the connection is closed.
#[derive(Debug)]
pub(crate) struct OwnBody {
    body: Incoming,
    _lease: Lease, // after the body: that is dropped first
}

/// The connection stands as long as this does, and a little longer to say goodbye.
#[derive(Debug)]
pub(crate) struct Lease {
    _word: oneshot::Sender<()>,
    _turn: OwnedSemaphorePermit,
}

enum Sender<B> {
    Http1(http1::SendRequest<B>),
    Http2(http2::SendRequest<B>),
}

// === Place ===

impl Place {
    /// The place that `uri` names, with so many connections at once; `None` if it is one of TLS, or names none.
    pub(crate) fn of(uri: &Uri, most: usize) -> Option<Self> {
        let authority = uri.authority()?.clone();
        if uri.scheme() != Some(&Scheme::HTTP) {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').into();
        let port = authority.port_u16().unwrap_or(80);
        let turns = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Some(Self(Arc::new(Whereabouts { authority, host, port, turns })))
    }

    /// Sends `request`, whose head [`hop::pass_on`] has made ready, and waits for the head of the answer. All of that is a
    /// call to `destination`, which spends from the current operation.
    ///
    /// # Errors
    /// [`CallError`], as the client's.
    ///
    /// # Cancel safety
    /// Dropped, the connection is closed.
    pub(crate) async fn exchange<B>(
        &self,
        destination: &Destination,
        speaks: Speaks,
        request: Request<B>,
        shutdown: &Shutdown,
    ) -> Result<(Response<Incoming>, Lease), CallError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let mut call =
            destination.begin(Destination::operation_of(request.extensions()).or_else(Operation::current))?;
        let method = request.method().clone();
        call.addressed(&Target::new(method.as_str(), Some(&self.0.host), Some(self.0.port)));
        call.enter(Stage::Pool);
        let turn = match call.run(Arc::clone(&self.0.turns).acquire_owned()).await? {
            Ok(turn) => turn,
            Err(closed) => return Err(destination.failed(call, Seen::RefusedHere, closed)), // nobody closes it
        };
        let connected = match self.connect(&mut call).await? {
            Ok(connected) => connected,
            Err(error) => return Err(destination.failed(call, Seen::NoConnection, error)),
        };
        let (mut sender, lease) = match call.run(shake_hands(connected, speaks, shutdown, turn)).await? {
            Ok(stands) => stands,
            Err(error) => return Err(destination.failed(call, Seen::NoConnection, error)),
        };
        let mut request = self.addressed(request, speaks);
        if let Err(not_begun) = destination.write_head(&call, request.headers_mut()) {
            call.close(Outcome::NotSent);
            return Err(not_begun.into());
        }
        call.enter(Stage::Wait); // the upload goes on beside it
        let answered = match &mut sender {
            Sender::Http1(sender) => call.run(sender.send_request(request)).await?,
            Sender::Http2(sender) => call.run(sender.send_request(request)).await?,
        };
        match answered {
            Ok(answer) => Ok((judged(destination, call, &method, answer).await?, lease)),
            Err(error) => {
                let refused = is_refused_stream(&error);
                let seen = if refused { Seen::RefusedStream } else { Seen::CutOff { stage: Stage::Wait } };
                Err(destination.failed(call, seen, error))
            }
        }
    }

    async fn connect(&self, call: &mut Call) -> Result<io::Result<TcpStream>, CallError> {
        call.enter(Stage::Resolve);
        let found = match call.run(tokio::net::lookup_host((&*self.0.host, self.0.port))).await? {
            Ok(found) => found.collect::<Vec<_>>(),
            Err(error) => return Ok(Err(error)),
        };
        call.enter(Stage::Connect);
        let connected = call.run(TcpStream::connect(&*found)).await?;
        if let Ok(connected) = &connected {
            let _ = connected.set_nodelay(true); // failing, it is only slower
        }
        Ok(connected)
    }

    /// The target as this protocol writes it.
    fn addressed<B>(&self, mut request: Request<B>, speaks: Speaks) -> Request<B> {
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        match speaks {
            Speaks::Http1 => {
                if !request.headers().contains_key(header::HOST)
                    && let Ok(host) = HeaderValue::from_str(self.0.authority.as_str())
                {
                    request.headers_mut().insert(header::HOST, host);
                }
                *request.uri_mut() = Uri::from(path);
                *request.version_mut() = Version::HTTP_11;
            }
            Speaks::Http2 => {
                let host = request.headers_mut().remove(header::HOST);
                let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
                let mut parts = http::uri::Parts::default();
                parts.scheme = Some(Scheme::HTTP);
                parts.authority = Some(host.unwrap_or_else(|| self.0.authority.clone()));
                parts.path_and_query = Some(path.clone());
                *request.uri_mut() = Uri::from_parts(parts).unwrap_or_else(|_| Uri::from(path));
                *request.version_mut() = Version::HTTP_2;
            }
        }
        request
    }
}

/// Speaks over `io`. The connection's own task ends when it does, or soon after its lease.
async fn shake_hands<B>(
    io: TcpStream,
    speaks: Speaks,
    shutdown: &Shutdown,
    turn: OwnedSemaphorePermit,
) -> hyper::Result<(Sender<B>, Lease)>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let (word, let_go) = oneshot::channel();
    let io = TokioIo::new(io);
    let sender = match speaks {
        Speaks::Http1 => {
            let (sender, connection) = http1::handshake(io).await?;
            shutdown.spawn(until_let_go(connection.with_upgrades(), let_go));
            Sender::Http1(sender)
        }
        Speaks::Http2 => {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            shutdown.spawn(until_let_go(connection, let_go));
            Sender::Http2(sender)
        }
    };
    Ok((sender, Lease { _word: word, _turn: turn }))
}

async fn until_let_go(connection: impl Future<Output = hyper::Result<()>>, let_go: oneshot::Receiver<()>) {
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = &mut connection => return said(ended),
        _ = let_go => {}
    }
    // What is to be said (RST_STREAM, GOAWAY) is said now or not at all.
    if let Ok(ended) = tokio::time::timeout(GOODBYE, connection).await {
        said(ended);
    }
}

fn said(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of its own ended");
    }
}

/// The call ends with this head. Judged as one without a body: what follows is not the call's any more.
async fn judged(
    destination: &Destination,
    call: Call,
    method: &Method,
    answer: Response<Incoming>,
) -> Result<Response<Incoming>, CallError> {
    let (mut head, body) = answer.into_parts();
    let of_the_upgrade = head.headers.get(header::UPGRADE).cloned();
    hop::strip(&mut head.headers);
    let mut once = Some((call, Response::from_parts(head, Empty::<Bytes>::new())));
    let judged = std::future::poll_fn(|cx| match once.take() {
        Some((call, answer)) => Poll::Ready(destination.answered(call, method, answer, cx)),
        None => Poll::Pending, // ready at its first poll
    });
    let mut answer = judged.await?.map(|_| body);
    if let Some(protocol) = of_the_upgrade {
        answer.extensions_mut().insert(Switched(protocol));
    }
    Ok(answer)
}

/// In the extensions of an answer: what its `upgrade` field said, which speaks of its hop only.
#[derive(Clone, Debug)]
pub(crate) struct Switched(pub(crate) HeaderValue);

// === OwnBody ===

impl OwnBody {
    pub(crate) fn new(body: Incoming, lease: Lease) -> Self {
        Self { body, _lease: lease }
    }
}

impl Body for OwnBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
