//! Where the requests of one route go.
//!
//! Decides which client asks, and what of the two heads is passed on ([`hop`](crate::hop)); nothing about time. Below it is the
//! library's own [`Client`], which begins the call from the operation of the request, writes what is left right before the head goes
//! out, in every convention that the upstream understands, in place of what came in, and cuts off at the deadline. Both bodies
//! stream, with their trailers. A caller that leaves drops the future or the answer's body, which cancels the upstream: RST_STREAM
//! with CANCEL over HTTP/2, a closed connection over HTTP/1.1.
//!
//! A declared stream (contract S2) has its upstream connection for itself ([`own`](crate::own)): it is told what the establishment
//! has left, and goes on under the clocks of its route. The deadline of a gRPC call covers its stream (S1), so routes of gRPC are
//! unary, with a ceiling that their streams fit in.
//!
//! Requests are large to move, so a head is taken apart once, and what is rare is boxed.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, Version};
use oneclock::{Operation, Shutdown, Stopped, clock};
use oneclock_core::ingress::Coverage;
use oneclock_core::{Deadline, Trust};
use oneclock_http::{
    Arrival, Arriving, CallCap, CallError, Client, NothingHappened, PassedOn, Problem, Protocol, Retry, RetryLayer,
    TlsPeer,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::access::Note;
use crate::answer::Forwarded;
use crate::failures::Failures;
use crate::forward::problem;
use crate::hop;
use crate::keyed::{self, Sent};
use crate::live::{Entry, Kind};
use crate::own::{Lease, OwnBody, Place, Switched};
use crate::upgrade::{self, TunnelLimits};

/// A request on its way to the upstream, whoever read its body meanwhile.
type Asking = Request<Sent>;

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

// === To ===

impl To {
    /// What the upstream answers, or why it does not.
    pub(crate) async fn answer(&self, request: Asking) -> Response<Forwarded> {
        let wants_websocket = upgrade::is_asked(&request);
        let (mut head, body) = request.into_parts();
        let (is_run, protocol) = (keyed::is_run(&head.extensions), Protocol::of(&head));
        let note = if is_run { Note::of(&head.extensions) } else { Note::default() };
        let entry = head.extensions.remove::<Entry>();
        let arrival = head.extensions.get::<Arrival>();
        let (peer, trust) = arrival.map_or((None, Trust::Outside), |came| (came.peer, came.trust));
        // A call ends with its operation; what outlives its call ends with this.
        let outlives = wants_websocket || self.coverage != Coverage::Unary;
        let shutdown = arrival.filter(|_| outlives).map(|came| came.shutdown.clone());
        let tls = head.extensions.get::<TlsPeer>().is_some();
        hop::pass_on(&mut head, peer, self.trust.unwrap_or(trust), tls);
        if let (Some(entry), Some(operation)) = (&entry, Operation::current()) {
            entry.is(Kind::Call, operation.deadline());
        }
        let request = Request::from_parts(head, body);
        let answered = match self.coverage {
            _ if wants_websocket => Box::pin(self.upgrade(request, shutdown.unwrap_or_default(), entry)).await,
            Coverage::Streaming { .. } => {
                Box::pin(self.stream(protocol, request, shutdown.unwrap_or_default(), entry)).await
            }
            Coverage::Unary => self.call(protocol, request, entry, is_run).await,
        };
        let mut answer = match answered {
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

    async fn call(
        &self,
        protocol: Protocol,
        mut request: Asking,
        entry: Option<Entry>,
        is_run: bool,
    ) -> Result<Response<Forwarded>, Problem> {
        let client = self.clients.of(protocol);
        let answered = match &self.attempts {
            Attempts::One => {
                self.limit(&mut request);
                client.request(request).await // a service would have to box it
            }
            Attempts::By(layer) => {
                let mut retried: Retry<Client> = layer.layer(client.clone());
                retried.call(request).await
            }
        };
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

    async fn stream(
        &self,
        protocol: Protocol,
        request: Asking,
        shutdown: Shutdown,
        entry: Option<Entry>,
    ) -> Result<Response<Forwarded>, Problem> {
        let asked = self.clients.place.exchange(self.clients.of(protocol), request, &shutdown);
        let (answer, lease) = asked.await.map_err(|error| self.told(&error))?;
        Ok(self.goes_on(answer, lease, entry))
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

    /// One exchange takes no longer than the route says.
    fn limit(&self, request: &mut Asking) {
        if let Some(limit) = self.backend_request {
            request.extensions_mut().insert(CallCap(limit));
        }
    }

    /// An answer on a connection of its own. On a declared stream it lives as long as one, whatever was asked for.
    fn goes_on(&self, answer: Response<Arriving>, lease: Lease, entry: Option<Entry>) -> Response<Forwarded> {
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
        shutdown: Shutdown,
        entry: Option<Entry>,
    ) -> Result<Response<Forwarded>, Problem> {
        let caller = hyper::upgrade::on(&mut request);
        upgrade::say(request.headers_mut());
        self.limit(&mut request);
        let asked = self.clients.place.exchange_over_http1(&self.clients.http, request, &shutdown);
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
        upgrade::tunnel(caller, upstream, limits, &shutdown, (lease, entry));
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
