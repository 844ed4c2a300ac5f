//! Our own HTTP client for one destination: the deadline is written when the connection is there.
//!
//! Decides the order of one call: begin it from its operation, wait for a turn, take a kept connection or open one, and
//! only then, right before the head is handed over, write how much is left (contract E4). Each step is a stage in the
//! ledger, spends the same budget and is cut off by it (invariant I4). What the answer or the failure means is
//! [`Destination`]'s decision. Deliberately absent: redirects. A call is tried again only by the
//! policy of its destination; hyper does not do it on its own.
//!
//! | when | what happens | outcome |
//! |---|---|---|
//! | too little time, or addressed to somebody else | no call | not sent |
//! | waiting for a turn, resolving, connecting, TLS | cut off at the deadline | not sent |
//! | the far side is not who it should be (TLS) | an error that says why | not sent |
//! | a kept connection turns out to be closed, and hyper gives the request back | once more, on a fresh one | - |
//! | `REFUSED_STREAM`, or `GOAWAY` below our stream | an error | rejected |
//! | sending, waiting for the head | HTTP/2: reset with CANCEL; HTTP/1.1: closed | unknown |
//! | reading the answer's body | the same, and the body ends with an error | unknown |
//!
//! # Differences from reqwest and hyper-util's legacy client
//! Those fix the header fields of a request before they look for a connection, so the far side is told of time that
//! waiting, connecting and TLS have already spent. Here it is told what is left when the head leaves.
//!
//! # TLS
//! With the feature `tls`, `https` in the URI means it; a [configuration](ClientBuilder::tls) of one's own is for other
//! roots than the web's and for a certificate of the client. Which protocol is spoken is agreed in the handshake (ALPN):
//! the first connection finds out, while the other calls wait for what it finds, and a later one may find differently.

mod asking;
mod builder;
mod collect;
mod connect;
mod dial;
mod head;
mod pool;
mod received;
mod refused;
mod service;
mod tasks;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
#[cfg(all(test, feature = "tls"))] // tests are run with all features, and this one is part of what they judge
#[allow(dead_code)]
mod tls_off;
mod upload;

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{Extensions, Method, Request, Response, Version};
use http_body::Body;
use hyper_util::rt::TokioIo;
use oneclock::events::Target;
use oneclock::{Call, Ended, NotBegun, Operation, clock};
use oneclock_core::effect::Seen;
use oneclock_core::retry::Attempt;
use oneclock_core::{Name, Outcome, Stage, Tick};

use crate::body::{BoundedBody, BoxError};
use crate::destination::Destination;
use crate::error::{CallError, seen_in};
use crate::hop;
use crate::retry;
use connect::Io;
use head::Base;
use pool::{Exchanged, Line, NoStream, Pool, Stream, Turn};
use upload::{Lease, Progress, Sending};

pub use asking::Asking;
pub use builder::ClientBuilder;
pub use collect::{NotCollected, NotSuccessful, collect, collect_json, successful};
#[doc(hidden)]
pub use dial::Dialed;
pub use head::NotARequest;
#[doc(hidden)]
pub use received::Arriving;
pub(crate) use received::EndedEarly;
pub use received::Received;
pub use refused::NotAClient;
pub use service::ClientFuture;
#[doc(hidden)]
pub use tasks::{Socket, Tasks};
#[cfg(feature = "tls")]
pub use tls::HandshakeFailed;

/// What a [`Client`] answers: a body that ends at the call's deadline, however slowly it comes (contract X1).
pub type Answer = Response<BoundedBody<Received>>;

/// An HTTP client for one destination. Cheap to clone; clones share their connections.
///
/// Every call spends from the current [`Operation`], or from the one it is given. It is a `tower` service as well, for layers
/// that count or repeat calls. Connections without a call close when
/// the last clone is dropped; one that still carries an answer closes when that is over, by its deadline at the latest.
///
/// ```no_run
/// use std::time::Duration;
/// use oneclock::Operation;
/// use oneclock_http::Client;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let inventory = Client::builder("inventory", "http://inventory:8080")
///     .cap(Duration::from_millis(300))
///     .max_connections(32)
///     .build()?;
///
/// let op = Operation::begin("order", Duration::from_millis(800));
/// let stock = op.run(async {
///     let answer = inventory.get("/stock/7").await?; // told: x-remaining-ms, at most 300
///     Ok::<_, Box<dyn std::error::Error>>(oneclock_http::collect(answer.into_body(), 64 * 1024).await?)
/// }).await??;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    destination: Destination,
    base: Base,
    pool: Arc<Pool>,
}

/// A connection that is this call's.
enum Taken {
    Line(Line, Turn),
    Stream(Stream),
}

/// Why there is no answer.
enum Fault {
    /// It was cut off by our own clock.
    Ended(Ended),
    /// There was too little left to be told.
    NotBegun(NotBegun),
    /// Something failed.
    Failed(Seen, BoxError),
}

// === Client ===

impl Client {
    /// Begins a client for the destination at `uri`, under the name that ledgers, errors and metrics show.
    ///
    /// A path in `uri` is put before the path of every call.
    pub fn builder<U>(name: impl Into<Name>, uri: U) -> ClientBuilder
    where
        U: TryInto<http::Uri>,
        U::Error: Into<http::Error>,
    {
        ClientBuilder::new(name.into(), uri)
    }

    fn new(destination: Destination, base: Base, settings: builder::Settings) -> Self {
        Self(Arc::new(Inner { destination, base, pool: Pool::new(settings) }))
    }

    /// What it calls, and within which limits.
    pub fn destination(&self) -> &Destination {
        &self.0.destination
    }

    /// Makes a call that spends from the current operation, else from the one in the extensions of `request`.
    ///
    /// The request's target is a path under the base URI, or an absolute URI at this destination. Its version, `host`
    /// (unless given) and deadline fields are set here; fields that speak of one connection are removed, from the answer
    /// too. The answer's body ends at the same deadline (contract X1).
    ///
    /// # Errors
    /// [`CallError`]: stopped by our own clock or operation, or failed with time left. Its outcome says what is known of
    /// the far side. Every answer with a status is an `Ok`.
    ///
    /// # Cancel safety
    /// Dropping it cuts the call off: HTTP/2 resets the stream with CANCEL, HTTP/1.1 closes the connection, which is
    /// never used again. The far side may have acted; the call's event says [`Outcome::Unknown`] then.
    pub async fn request<B>(&self, request: Request<B>) -> Result<Answer, CallError>
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let operation = Destination::operation_of(request.extensions());
        self.0.call(operation, Ok(request)).await
    }

    /// The same, spending from `operation`.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    ///
    /// # Cancel safety
    /// As [`request`](Self::request).
    ///
    /// # Example
    /// ```no_run
    /// # use {oneclock::Operation, oneclock_http::{CallError, Client}};
    /// # async fn f(op: Operation, inventory: Client) -> Result<(), CallError> {
    /// let request = http::Request::put("/stock/7").body("12".to_owned());
    /// # let Ok(request) = request else { return Ok(()) };
    /// let answer = inventory.request_in(&op, request).await?;
    /// # Ok(()) }
    /// ```
    pub async fn request_in<B>(&self, operation: &Operation, request: Request<B>) -> Result<Answer, CallError>
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.0.call(Some(operation.clone()), Ok(request)).await
    }

    /// Gets `path`, a path under the base URI.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    ///
    /// # Cancel safety
    /// As [`request`](Self::request).
    pub async fn get(&self, path: &str) -> Result<Answer, CallError> {
        self.ask(Method::GET, path).send().await
    }

    /// The same, spending from `operation`.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    ///
    /// # Cancel safety
    /// As [`request`](Self::request).
    pub async fn get_in(&self, operation: &Operation, path: &str) -> Result<Answer, CallError> {
        self.ask(Method::GET, path).send_in(operation).await
    }

    /// Posts `body` to `path`, a path under the base URI. It says nothing of the body's type; where that matters, and for
    /// JSON, use [`ask`](Self::ask).
    ///
    /// # Errors
    /// As [`request`](Self::request).
    ///
    /// # Cancel safety
    /// As [`request`](Self::request).
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> Result<Answer, CallError> {
        self.ask(Method::POST, path).body(body).send().await
    }

    /// The same, spending from `operation`.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    ///
    /// # Cancel safety
    /// As [`request`](Self::request).
    pub async fn post_in(
        &self,
        operation: &Operation,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, CallError> {
        self.ask(Method::POST, path).body(body).send_in(operation).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { destination, base, pool } = &*self.0;
        f.debug_struct("Client")
            .field("name", destination.name())
            .field("authority", &base.authority)
            .field("pool", pool)
            .finish_non_exhaustive()
    }
}

// === Inner ===

impl Inner {
    async fn call<B>(
        &self,
        operation: Option<Operation>,
        request: Result<Request<B>, NotARequest>,
    ) -> Result<Answer, CallError>
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match (self.destination.retries(), request) {
            // A layer of ours around this may have begun an attempt already.
            (Some(retries), Ok(request)) if request.extensions().get::<Attempt>().is_none() => {
                let operation = self.destination.operation(operation)?;
                let by = operation.clone();
                let send = |attempt, request| self.attempt(Some(by.clone()), Some(attempt), Ok(request));
                Box::pin(retry::drive(&self.destination, retries, operation, request, send)).await
            }
            (_, request) => {
                let attempt = request.as_ref().ok().and_then(|request| request.extensions().get().copied());
                self.attempt(operation, attempt, request).await
            }
        }
    }

    /// One call, which may be one attempt of several.
    async fn attempt<B>(
        &self,
        operation: Option<Operation>,
        attempt: Option<Attempt>,
        request: Result<Request<B>, NotARequest>,
    ) -> Result<Answer, CallError>
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let nothing = Extensions::new();
        let extensions = request.as_ref().map_or(&nothing, Request::extensions);
        let mut call = self.destination.begin_for(extensions, operation, attempt)?;
        let (mut head, body) = match request {
            Ok(request) => request.into_parts(),
            Err(refused) => return Err(self.destination.failed(call, Seen::RefusedHere, refused)),
        };
        let method = head.method.clone();
        call.addressed(&Target::new(method.as_str(), Some(&self.base.host), Some(self.base.port)));
        if let Err(refused) = self.base.address(&mut head, self.pool.shares()) {
            return Err(self.destination.failed(call, Seen::RefusedHere, refused));
        }
        let (body, progress) = Sending::new(body);
        match Box::pin(self.exchange(&mut call, Request::from_parts(head, body), &progress)).await {
            Ok(response) => {
                let (mut head, body) = response.into_parts();
                hop::strip(&mut head.headers);
                let mut once = Some((call, Response::from_parts(head, body)));
                poll_fn(|cx| match once.take() {
                    Some((call, response)) => Poll::Ready(self.destination.answered(call, &method, response, cx)),
                    None => Poll::Pending, // ready at its first poll
                })
                .await
            }
            Err(Fault::Ended(ended)) => Err(ended.into()),
            Err(Fault::NotBegun(not_begun)) => {
                call.close(Outcome::NotSent);
                Err(not_begun.into())
            }
            Err(Fault::Failed(seen, source)) => Err(self.destination.failed(call, seen, source)),
        }
    }

    async fn exchange(
        &self,
        call: &mut Call,
        mut request: Request<Sending>,
        progress: &Arc<Progress>,
    ) -> Result<Response<Received>, Fault> {
        self.destination.check(call)?; // no connection for what could not be told
        let (mut kept_may_do, mut since) = (true, call.began());
        loop {
            let taken = self.take(call, kept_may_do, since).await?;
            if taken.is_http2() != (request.version() == Version::HTTP_2) {
                self.base.address_again(&mut request, taken.is_http2()); // nobody knew, or it was agreed differently
            }
            head::announce(&mut request);
            let now = clock::now();
            self.destination.write_head_at(call, request.headers_mut(), now)?;
            call.enter_at(Stage::Send, now);
            let reused = taken.is_reused();
            let mut failed = match self.send(call, taken, request, progress, now).await? {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            match failed.take_message() {
                // The connection was closed before it saw the request: nothing was sent, so this is no repetition.
                Some(unsent) if reused && kept_may_do => {
                    (kept_may_do, since) = (false, clock::now());
                    request = unsent;
                    if let Some(retries) = self.destination.retries() {
                        retries.tokens().charge(); // all the same it is one more for the far side (contract R9)
                    }
                }
                Some(_unsent) => return Err(Fault::Failed(Seen::NoConnection, failed.into_error().into())),
                None => {
                    let error = failed.into_error();
                    let seen = seen_in(&error, call.stage());
                    return Err(Fault::Failed(seen, error.into()));
                }
            }
        }
    }

    async fn send(
        &self,
        call: &mut Call,
        mut taken: Taken,
        request: Request<Sending>,
        progress: &Arc<Progress>,
        now: Tick,
    ) -> Result<Result<Response<Received>, hyper::client::conn::TrySendError<Request<Sending>>>, Fault> {
        let answer = match &mut taken {
            Taken::Line(line, _) => Either::Left(line.send(request)),
            Taken::Stream(stream) => Either::Right(stream.send(request)),
        };
        let mut answer = pin!(answer);
        let (early, now): (Option<Exchanged>, Tick) = if progress.is_over() {
            (None, now) // there is nothing to upload
        } else {
            let over = pin!(progress.over());
            let early = match call.run_at(now, select(answer.as_mut(), over)).await? {
                Either::Left((answer, _)) => Some(answer),
                Either::Right(_) => None,
            };
            (early, clock::now())
        };
        call.enter_at(Stage::Wait, now);
        let answer = match early {
            Some(answer) => answer,
            None => call.run_at(now, answer).await?,
        };
        Ok(answer.map(|response| {
            let stream = match taken {
                Taken::Line(line, turn) => {
                    line.answering(turn, call.deadline());
                    None
                }
                Taken::Stream(stream) => Some(stream),
            };
            response.map(|body| Received::new(body, Lease { progress: Arc::clone(progress), stream }))
        }))
    }

    /// A connection for this call: a kept one, or a fresh one.
    async fn take(&self, call: &mut Call, kept_may_do: bool, since: Tick) -> Result<Taken, Fault> {
        let shares = self.pool.shares();
        let mut turn = match self.pool.free_turn(shares) {
            Some(turn) => {
                call.enter_at(Stage::Pool, since);
                turn
            }
            None => {
                call.enter(Stage::Pool);
                call.run(self.pool.turn(shares)).await?
            }
        };
        loop {
            let shares = self.pool.shares();
            if !self.pool.is_turn(&turn, shares) {
                drop(turn); // what is spoken was found out meanwhile
                turn = call.run(self.pool.turn(shares)).await?;
                continue;
            }
            if !shares {
                if kept_may_do && let Some(line) = self.pool.idle() {
                    return Ok(Taken::Line(line, turn));
                }
                let io = Box::pin(self.open(call)).await?; // boxed: rare, and calls are moved about
                return Box::pin(self.taken(call, io, turn)).await;
            }
            turn = match self.pool.stream(turn) {
                Ok(stream) => return Ok(Taken::Stream(stream)),
                Err((NoStream::Full(freed), turn)) => {
                    call.run(freed).await?;
                    turn
                }
                Err((NoStream::NotConnected, turn)) => {
                    let _opening = call.run(self.pool.opening.lock()).await?;
                    // Whoever held it before us may have opened one, or found that none is shared.
                    if self.pool.shares() && self.pool.needs_another() {
                        match Box::pin(self.open(call)).await {
                            Ok(io) => return Box::pin(self.taken(call, io, turn)).await,
                            // Its peer wants no further one. Those that there are go on.
                            Err(Fault::Failed(..)) if self.pool.is_connected() => call.enter(Stage::Pool),
                            Err(fault) => return Err(fault),
                        }
                        call.run(self.pool.freed()).await?;
                    }
                    turn
                }
            };
        }
    }

    /// Resolves, connects, secures.
    async fn open(&self, call: &mut Call) -> Result<Io, Fault> {
        let addresses = match connect::literal(&self.base) {
            Some(addresses) => addresses,
            None => {
                call.enter(Stage::Resolve);
                call.run(connect::resolve(&self.base)).await?.map_err(Fault::no_connection)?
            }
        };
        call.enter(Stage::Connect);
        let within = call.remaining();
        let io = call.run(connect::connect(&self.base, addresses, within)).await?.map_err(Fault::no_connection)?;
        let Some(tls) = &self.base.tls else { return Ok(Io::Plain(io)) };
        call.enter(Stage::Tls);
        call.run(tls.secure(io)).await?.map(Io::Secured).map_err(Fault::no_connection)
    }

    /// Speaks over `io` what its two sides agreed on, else what is offered.
    async fn taken(&self, call: &mut Call, io: Io, mut turn: Turn) -> Result<Taken, Fault> {
        let shares = match io.agreed_on_http2() {
            Some(http2) => {
                self.pool.agreed(http2);
                http2
            }
            None => self.pool.shares(),
        };
        if !self.pool.is_turn(&turn, shares) {
            drop(turn);
            turn = call.run(self.pool.turn(shares)).await?;
        }
        let io = TokioIo::new(io);
        if shares {
            let stream = call.run(self.pool.share(io, turn)).await?.map_err(Fault::no_connection)?;
            return Ok(Taken::Stream(stream));
        }
        let line = call.run(self.pool.line(io)).await?.map_err(Fault::no_connection)?;
        Ok(Taken::Line(line, turn))
    }
}

// === Taken ===

impl Taken {
    fn is_http2(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    fn is_reused(&self) -> bool {
        match self {
            Self::Line(line, _) => line.reused,
            Self::Stream(stream) => stream.reused,
        }
    }
}

// === Fault ===

impl Fault {
    fn no_connection(error: impl Into<BoxError>) -> Self {
        Self::Failed(Seen::NoConnection, error.into())
    }
}

impl From<Ended> for Fault {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl From<NotBegun> for Fault {
    fn from(not_begun: NotBegun) -> Self {
        Self::NotBegun(not_begun)
    }
}
