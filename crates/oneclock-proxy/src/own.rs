//! An exchange on a connection of its own: for what goes on behind the head, when its call is over.
//!
//! A call of the client ends at its deadline, with its answer. A declared stream and an upgraded connection live on under
//! clocks of their own (contract S2), so they are no calls any more: here the call is the establishment, up to the head, by the
//! library's own rules for calls, over a connection that its [`Client`] opens and secures, and what follows is handed over
//! together with the connection. It is never lent again, so nothing has to be clean afterwards. How many there are at once is
//! bounded, apart from those of the client; whoever comes too late waits in stage `pool`, as there.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use oneclock::{Call, Shutdown};
use oneclock_core::effect::Seen;
use oneclock_core::{Outcome, Stage};
use oneclock_http::{
    Arriving, BoundedBody, BoxError, CallError, Client, Destination, Dialed, Socket, Tasks, hop, is_refused_stream,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How long a connection that is given up may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// The connections to one upstream that belong to one exchange each.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Opens those that have to speak HTTP/1.1, over TLS too: an upgrade is one from there.
    http1: Client,
    turns: Arc<Semaphore>,
}

/// The body of an answer, with its connection. Dropped before its end, both end: over HTTP/2 the stream is reset with
/// CANCEL, over HTTP/1.1 the connection is closed.
#[derive(Debug)]
pub(crate) struct OwnBody {
    body: Arriving,
    _lease: Lease, // after the body: that is dropped first
}

/// The connection stands as long as this does, and a little longer to say goodbye.
#[derive(Debug)]
pub(crate) struct Lease {
    _word: oneshot::Sender<()>,
}

/// The head of an answer is there, and its call goes on until somebody says what it is.
#[must_use = "its call is given up"]
pub(crate) struct Answered<'c> {
    destination: &'c Destination,
    call: Call,
    method: Method,
    answer: Response<Arriving>,
    lease: Lease,
}

/// What the task of one connection has, until the connection is gone.
struct Stands {
    let_go: oneshot::Receiver<()>,
    /// Of HTTP/2.
    tasks: Tasks,
    /// There is no place for another one before that.
    _turn: OwnedSemaphorePermit,
}

enum Sender<B> {
    Http1(http1::SendRequest<B>),
    Http2(http2::SendRequest<B>),
}

// === Place ===

impl Place {
    /// With so many connections at once. `http1` opens those that speak HTTP/1.1 and nothing else.
    pub(crate) fn new(http1: Client, most: usize) -> Self {
        Self { http1, turns: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))) }
    }

    /// Sends `request`, whose head [`hop::pass_on`](crate::hop::pass_on) has made ready, and waits for the head of the answer,
    /// on a connection that is opened and secured as those of `client` are and speaks what they speak. All of that is a call of
    /// `client`, which spends from the current operation.
    ///
    /// # Errors
    /// [`CallError`], as the client's.
    ///
    /// # Cancel safety
    /// Dropped, the connection is closed.
    pub(crate) async fn exchange<B>(
        &self,
        client: &Client,
        request: Request<B>,
        shutdown: &Shutdown,
    ) -> Result<(Response<Arriving>, Lease), CallError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        self.exchange_over(client, client, request, shutdown).await?.goes_on().await
    }

    /// The same over HTTP/1.1, whatever else `client` speaks, for who decides by the head what becomes of the call.
    pub(crate) async fn exchange_over_http1<'c, B>(
        &self,
        client: &'c Client,
        request: Request<B>,
        shutdown: &Shutdown,
    ) -> Result<Answered<'c>, CallError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        self.exchange_over(client, &self.http1, request, shutdown).await
    }

    async fn exchange_over<'c, B>(
        &self,
        client: &'c Client,
        dials: &Client,
        mut request: Request<B>,
        shutdown: &Shutdown,
    ) -> Result<Answered<'c>, CallError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let destination = client.destination();
        let mut call = client.begin(&request)?;
        let method = request.method().clone();
        call.enter(Stage::Pool);
        let turn = match call.run(Arc::clone(&self.turns).acquire_owned()).await? {
            Ok(turn) => turn,
            Err(closed) => return Err(destination.failed(call, Seen::RefusedHere, closed)), // nobody closes it
        };
        let connected = match dials.dial(&mut call).await? {
            Ok(connected) => connected,
            Err(error) => return Err(destination.failed(call, Seen::NoConnection, error)),
        };
        let http2 = connected.is_http2();
        let (mut sender, lease) = match call.run(shake_hands(connected, shutdown, turn)).await? {
            Ok(stands) => stands,
            Err(error) => return Err(destination.failed(call, Seen::NoConnection, error)),
        };
        client.address(&mut request, http2);
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
            Ok(answer) => {
                let answer = answer.map(|body| Arriving::new(body, http2));
                Ok(Answered { destination, call, method, answer, lease })
            }
            Err(error) => {
                let refused = is_refused_stream(&error);
                let seen = if refused { Seen::RefusedStream } else { Seen::CutOff { stage: Stage::Wait } };
                Err(destination.failed(call, seen, error))
            }
        }
    }
}

/// Speaks over `io`. The connection's own task ends soon after its lease, and the connection by then.
async fn shake_hands<B>(
    io: Dialed,
    shutdown: &Shutdown,
    turn: OwnedSemaphorePermit,
) -> hyper::Result<(Sender<B>, Lease)>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let (word, let_go) = oneshot::channel();
    let http2 = io.is_http2();
    let io = TokioIo::new(io);
    let stands = Stands { let_go, tasks: Tasks::new(), _turn: turn };
    let sender = if http2 {
        let (sender, connection) = http2::handshake(stands.tasks.clone(), io).await?;
        let socket = stands.tasks.take_socket();
        shutdown.spawn(until_let_go(connection, socket, stands));
        Sender::Http2(sender)
    } else {
        let (sender, connection) = http1::handshake(io).await?;
        let socket = stands.tasks.take_socket(); // none: the connection has it
        shutdown.spawn(until_let_go(connection.with_upgrades(), socket, stands));
        Sender::Http1(sender)
    };
    Ok((sender, Lease { _word: word }))
}

async fn until_let_go(connection: impl Future<Output = hyper::Result<()>>, mut socket: Socket, stands: Stands) {
    let Stands { mut let_go, tasks, _turn } = stands;
    let _owned = tasks.owned();
    // Over HTTP/2 what hyper calls the connection ends with the head of the answer.
    let mut over = Box::pin(async {
        said(socket.behind(connection).await);
        socket.to_its_end(tasks.ended()).await;
    });
    tokio::select! {
        () = &mut over => {
            let _ = let_go.await; // an upgrade took the socket along
        }
        _ = &mut let_go => {
            // What is to be said (RST_STREAM, GOAWAY) is said now or not at all.
            let _ = tokio::time::timeout(GOODBYE, &mut over).await;
        }
    }
    drop(over);
    tasks.cut_off().await;
}

fn said(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of its own ended");
    }
}

// === Answered ===

impl Answered<'_> {
    pub(crate) fn status(&self) -> StatusCode {
        self.answer.status()
    }

    /// The call ends with this head, and its connection goes on.
    ///
    /// # Errors
    /// [`CallError`], if the head came too late.
    pub(crate) async fn goes_on(self) -> Result<(Response<Arriving>, Lease), CallError> {
        let Self { destination, call, method, answer, lease } = self;
        let (mut head, body) = answer.into_parts();
        let of_the_upgrade = head.headers.get(header::UPGRADE).cloned();
        hop::strip(&mut head.headers);
        // Judged as one without a body: what follows is not the call's any more.
        let answer = Response::from_parts(head, Empty::<Bytes>::new());
        let mut answer = judged(destination, call, &method, answer).await?.map(|_| body);
        if let Some(protocol) = of_the_upgrade {
            answer.extensions_mut().insert(Switched(protocol));
        }
        Ok((answer, lease))
    }

    /// It is an answer like any other: its body is the call's, too, and is bounded by it.
    ///
    /// # Errors
    /// [`CallError`], if it came too late.
    pub(crate) async fn ends(self) -> Result<Response<BoundedBody<OwnBody>>, CallError> {
        let Self { destination, call, method, mut answer, lease } = self;
        hop::strip(answer.headers_mut());
        judged(destination, call, &method, answer.map(|body| OwnBody::new(body, lease))).await
    }
}

async fn judged<B>(
    destination: &Destination,
    call: Call,
    method: &Method,
    answer: Response<B>,
) -> Result<Response<BoundedBody<B>>, CallError>
where
    B: Body + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut once = Some((call, answer));
    let judged = std::future::poll_fn(|cx| match once.take() {
        Some((call, answer)) => Poll::Ready(destination.answered(call, method, answer, cx)),
        None => Poll::Pending, // ready at its first poll
    });
    judged.await
}

/// In the extensions of an answer: what its `upgrade` field said, which speaks of its hop only.
#[derive(Clone, Debug)]
pub(crate) struct Switched(pub(crate) HeaderValue);

// === OwnBody ===

impl OwnBody {
    pub(crate) fn new(body: Arriving, lease: Lease) -> Self {
        Self { body, _lease: lease }
    }
}

impl Body for OwnBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
