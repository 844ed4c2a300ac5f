//! The service behind the ingress layer: one request goes to its upstream, and the answer comes back as it comes.
//!
//! Decides nothing about time. Below it is the library's own [`Client`], which begins the call from the operation of the
//! request, writes what is left right before the head goes out, in every convention that the upstream understands, in place
//! of what came in, and cuts off at the deadline. So what is here is which client, and what of the two heads is passed on
//! ([`hop`](crate::hop)). Both bodies stream, with their trailers. A caller that leaves drops this future or the answer's
//! body, which cancels the upstream: RST_STREAM with CANCEL over HTTP/2, a closed connection over HTTP/1.1.
//!
//! A declared stream (contract S2) has its upstream connection for itself ([`own`](crate::own)): it is told what the establishment
//! has left, and goes on under the clocks of its route. The deadline of a gRPC call covers its stream (S1), so routes of gRPC are
//! unary, with a ceiling that their streams fit in.
//!
//! What the upstream does not answer is told by [`Problem`], in the words of whoever asked: 502 where the call failed, 504 where
//! it was out of time, a status of gRPC (contract X5). Never a success that nobody gave. It is 502 also where nobody could be
//! reached and nothing was sent, which the document says to callers of ours (`outcome`): a 503 that gives none of the contract's
//! reasons is load to them, and their breakers would not count it.

use std::convert::Infallible;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use oneclock::{Operation, Shutdown, Stopped, clock};
use oneclock_core::ingress::Coverage;
use oneclock_core::{Deadline, Trust};
use oneclock_http::{
    Arrival, BoundedBody, CallCap, CallError, Client, NothingHappened, PassedOn, Problem, Protocol, Received, Retry,
    RetryLayer, TlsPeer, Upload,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::access::Note;
use crate::answer::Forwarded;
use crate::failures::Failures;
use crate::keyed::{self, Keyed, Sent};
use crate::live::{Entry, Kind};
use crate::own::{Lease, OwnBody, Place, Switched};
use crate::upgrade::{self, TunnelLimits};
use crate::{head, hop};

/// What the ingress layer hands on.
type Asked = Request<Upload<Incoming>>;

/// The same on its way to the upstream, whoever read its body meanwhile.
type Asking = Request<Sent>;

/// Forwards the requests of one route. Always ready.
#[derive(Clone, Debug)]
pub(crate) struct Forward(Arc<Way>);

#[derive(Debug)]
enum Way {
    /// No route takes it.
    Nowhere,
    To(To),
    /// Once for each idempotency key.
    Keyed(Keyed),
}

/// Where the requests of one route go, and how.
#[derive(Debug)]
pub(crate) struct To {
    pub(crate) clients: Clients,
    pub(crate) attempts: Attempts,
    /// The longest that one answer may take: of a call sent once up to its end, of an upgrade up to the head. A policy of
    /// attempts has it, too.
    pub(crate) backend_request: Option<Duration>,
    pub(crate) coverage: Coverage,
    /// Whether the upstream belongs to us.
    pub(crate) upstream: Trust,
    /// Whether peers belong to us, where the route says it and not the listener.
    pub(crate) trust: Option<Trust>,
}

/// How often one request is sent.
#[derive(Debug)]
pub(crate) enum Attempts {
    /// Once.
    One,
    /// As often as a policy says.
    By(RetryLayer),
}

/// One upstream as its callers speak to it: each protocol has a field for what is left.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub(crate) http: Client,
    pub(crate) grpc: Client,
    pub(crate) connect: Client,
    /// For what outlives its call.
    pub(crate) place: Place,
    pub(crate) failures: Arc<Failures>,
}

/// The future of [`Forward`].
#[must_use = "futures do nothing unless polled"]
pub(crate) struct ForwardFuture(Pin<Box<dyn Future<Output = Result<Response<Forwarded>, Infallible>> + Send>>);

// === Forward ===

impl Forward {
    /// To an upstream.
    pub(crate) fn to(to: To) -> Self {
        Self(Arc::new(Way::To(to)))
    }

    /// To an upstream, once for each idempotency key.
    pub(crate) fn once(keyed: Keyed) -> Self {
        Self(Arc::new(Way::Keyed(keyed)))
    }

    /// The one for requests that no route takes.
    pub(crate) fn nowhere() -> Self {
        Self(Arc::new(Way::Nowhere))
    }
}

impl Service<Asked> for Forward {
    type Response = Response<Forwarded>;
    type Error = Infallible; // no answer is an answer, too: a problem
    type Future = ForwardFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Asked) -> ForwardFuture {
        let way = Arc::clone(&self.0);
        let note = Note::of(request.extensions());
        ForwardFuture(Box::pin(async move {
            let answer = match (head::refused(&request), &*way) {
                (Some(why), _) => head::last(problem(&why), request.version()),
                (None, Way::Nowhere) => problem(&nowhere(&request)),
                (None, Way::To(to)) => to.answer(request.map(Sent::from)).await,
                (None, Way::Keyed(keyed)) => Box::pin(keyed.answer(request)).await, // what is rare is boxed: futures are moved
            };
            if let Some(problem) = answer.extensions().get() {
                note.says(problem);
            }
            Ok(answer.map(|body| body.noted(note)))
        }))
    }
}

// === To ===

impl To {
    /// What the upstream answers, or why it does not.
    pub(crate) async fn answer(&self, request: Asking) -> Response<Forwarded> {
        let (head, body) = request.into_parts();
        let (is_run, protocol) = (keyed::is_run(&head.extensions), Protocol::of(&head));
        let note = if is_run { Note::of(&head.extensions) } else { Note::default() };
        let mut answer = match self.forward(Request::from_parts(head, body), protocol, is_run).await {
            Ok(answer) => answer,
            Err(why) if is_run => {
                note.says(&why);
                keyed::whole(&why, protocol) // for whoever waits for it, too
            }
            Err(why) => problem(&why),
        };
        // What the upstream speaks is its connection's business: an answer in HTTP/1.0 would close ours.
        *answer.version_mut() = Version::HTTP_11;
        answer
    }

    async fn forward(&self, request: Asking, protocol: Protocol, is_run: bool) -> Result<Response<Forwarded>, Problem> {
        let wants_websocket = upgrade::is_asked(&request);
        let (mut head, body) = request.into_parts();
        let entry = head.extensions.remove::<Entry>();
        let arrival = head.extensions.get::<Arrival>().cloned();
        let (peer, trust) = arrival.as_ref().map_or((None, Trust::Outside), |came| (came.peer, came.trust));
        let tls = head.extensions.get::<TlsPeer>().is_some();
        hop::pass_on(&mut head, peer, self.trust.unwrap_or(trust), tls);
        if let (Some(entry), Some(operation)) = (&entry, Operation::current()) {
            entry.is(Kind::Call, operation.deadline());
        }
        let request = Request::from_parts(head, body);
        let shutdown = arrival.map(|came| came.shutdown).unwrap_or_default();
        match self.coverage {
            _ if wants_websocket => Box::pin(self.upgrade(request, &shutdown, entry)).await,
            Coverage::Streaming { .. } => {
                let asked = Box::pin(self.clients.place.exchange(self.clients.of(protocol), request, &shutdown));
                let (answer, lease) = asked.await.map_err(|error| self.told(&error))?;
                Ok(self.goes_on(answer, lease, entry))
            }
            Coverage::Unary => {
                let answered = self.call(protocol, request).await;
                let answer = answered.map_err(|error| {
                    let why = self.told(&error);
                    if is_run { keyed::told(&error, why) } else { why }
                })?;
                let mut answer = answer.map(|body| Forwarded::call(body, entry));
                if is_run && keyed::says_nothing_happened(answer.status(), answer.headers(), self.upstream) {
                    answer.extensions_mut().insert(NothingHappened);
                }
                // Asked once, and one of ours: its reason is about this request. After several attempts it would be about the last.
                if self.upstream == Trust::Inside && matches!(self.attempts, Attempts::One) {
                    answer.extensions_mut().insert(PassedOn);
                }
                Ok(answer)
            }
        }
    }

    /// Why the upstream gave no answer. Written for its caller by the ingress layer.
    fn told(&self, error: &CallError) -> Problem {
        if is_of_the_upload(error) {
            let title = "the body of the request cannot be read";
            return Problem::with_status(StatusCode::BAD_REQUEST, title).insight(error.to_string());
        }
        match error {
            CallError::Stopped(Stopped::NotBegun(why)) => Problem::of_whole(why).unwrap_or_else(|| error.into()),
            _ => {
                if error.stopped().is_none() {
                    self.clients.failures.failed(error);
                }
                error.into()
            }
        }
    }

    async fn call(
        &self,
        protocol: Protocol,
        mut request: Asking,
    ) -> Result<Response<BoundedBody<Received>>, CallError> {
        let client = self.clients.of(protocol);
        match &self.attempts {
            Attempts::One => {
                self.limit(&mut request);
                client.request(request).await // a service would have to box it
            }
            Attempts::By(layer) => {
                let mut retried: Retry<Client> = layer.layer(client.clone());
                retried.call(request).await
            }
        }
    }

    /// One exchange takes no longer than the route says.
    fn limit(&self, request: &mut Asking) {
        if let Some(limit) = self.backend_request {
            request.extensions_mut().insert(CallCap(limit));
        }
    }

    /// An answer on a connection of its own. On a declared stream it lives as long as one, whatever was asked for.
    fn goes_on(&self, answer: Response<Incoming>, lease: Lease, entry: Option<Entry>) -> Response<Forwarded> {
        if let (Some(entry), Coverage::Streaming { total, .. }) = (&entry, self.coverage) {
            entry.is(Kind::Stream, Deadline::after(clock::now(), total)); // by then in any case
        }
        answer.map(|body| Forwarded::stream(OwnBody::new(body, lease), entry))
    }

    /// Asks the upstream for a WebSocket. If it agrees the operation ends, and the bytes go both ways; if not, its answer is one
    /// like any other.
    async fn upgrade(
        &self,
        mut request: Asking,
        shutdown: &Shutdown,
        entry: Option<Entry>,
    ) -> Result<Response<Forwarded>, Problem> {
        let caller = hyper::upgrade::on(&mut request);
        upgrade::say(request.headers_mut());
        self.limit(&mut request);
        let asked = self.clients.place.exchange_over_http1(&self.clients.http, request, shutdown);
        let answered = asked.await.map_err(|error| self.told(&error))?;
        let switches = answered.status() == StatusCode::SWITCHING_PROTOCOLS;
        if !switches && self.coverage == Coverage::Unary {
            let answer = answered.ends().await.map_err(|error| self.told(&error))?;
            return Ok(answer.map(|body| Forwarded::own_call(body, entry)));
        }
        let (mut answer, lease) = answered.goes_on().await.map_err(|error| self.told(&error))?;
        if !switches {
            return Ok(self.goes_on(answer, lease, entry));
        }
        let agreed = answer.extensions_mut().remove::<Switched>();
        if !agreed.is_some_and(|Switched(protocol)| upgrade::is_websocket(&protocol)) {
            return Err(Problem::call_failed().insight("it switched to a protocol that nobody asked for"));
        }
        let upstream = hyper::upgrade::on(&mut answer);
        let limits = match self.coverage {
            Coverage::Streaming { idle, total } => TunnelLimits { idle, total },
            Coverage::Unary => TunnelLimits::default(),
        };
        if let Some(entry) = &entry {
            entry.is(Kind::Tunnel, Deadline::after(clock::now(), limits.total));
        }
        upgrade::tunnel(caller, upstream, limits, shutdown, (lease, entry));
        upgrade::say(answer.headers_mut());
        Ok(answer.map(|_| Forwarded::nothing()))
    }
}

// === Clients ===

impl Clients {
    fn of(&self, protocol: Protocol) -> &Client {
        match protocol {
            Protocol::Grpc => &self.grpc,
            Protocol::ConnectUnary | Protocol::ConnectStream(_) => &self.connect,
            _ => &self.http,
        }
    }
}

/// Whether what failed came from the caller: behind the error of the upstream's connection stands one of the caller's.
fn is_of_the_upload(error: &CallError) -> bool {
    let chain = std::iter::successors(error.source(), |&error| error.source());
    let mut of_hyper = chain.filter_map(|error| error.downcast_ref::<hyper::Error>());
    of_hyper.next().is_some_and(hyper::Error::is_user) && of_hyper.next().is_some()
}

/// A gRPC client takes "not found" for an answer of the method: that there is no such method has a status of its own.
fn nowhere(request: &Asked) -> Problem {
    const UNIMPLEMENTED: u8 = 12;
    let problem = Problem::with_status(StatusCode::NOT_FOUND, "no route takes this request");
    problem.typed("no_route", UNIMPLEMENTED).detail(format!("{} {}", request.method(), request.uri().path()))
}

fn problem(problem: &Problem) -> Response<Forwarded> {
    let (mut head, _) = problem.to_response(Trust::Outside).into_parts();
    head.extensions.insert(problem.clone()); // the ingress layer writes the body
    Response::from_parts(head, Forwarded::nothing())
}

// === ForwardFuture ===

impl Future for ForwardFuture {
    type Output = Result<Response<Forwarded>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl std::fmt::Debug for ForwardFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardFuture").finish_non_exhaustive()
    }
}
