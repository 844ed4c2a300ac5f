//! The ways in: what a request comes over, and how a caller leaves there.
//!
//! Another way in is one line in [`over_every_way_in`], a variant of [`Way`], and what the compiler asks for then. The sidecar is
//! a hop in each of them (`sidecar`).
//!
//! Tests speak HTTP: of targets, statuses, problem documents. What that is over gRPC is said here and in `grpc`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use oneclock::clock;
use oneclock_core::wire::{Convention, Read, names};
use oneclock_test::caller::{Caller, H1Outcome, H2Call, H2Caller, H2Outcome, How, Sent};
use oneclock_test::peer::Leaving;
use oneclock_test::{PATIENCE, Protocol, Reason};
use serde_json::Value;
use tokio::time::Instant;

use crate::grpc;

/// Writes each test once, and runs it over every way in, in a module named after that: straight to the services, and with
/// a sidecar before each of them.
///
/// Behind `without_a_sidecar:` stands what runs straight only: naive ways, tests of clients alone, and those of documents and
/// queues inside of a service, where the sidecar may have an end of its own a moment before. Behind `only_behind_a_sidecar:`
/// stands what services that know nothing of deadlines can do with one.
macro_rules! over_every_way_in {
    (
        $($(#[$about:meta])* async fn $name:ident($shop:ident: Shop) $body:block)*
        $(without_a_sidecar: $($(#[$alone:meta])* async fn $one:ident($its:ident: Shop) $does:block)*)?
        $(only_behind_a_sidecar: $($(#[$behind:meta])* async fn $other:ident($there:ident: Shop) $is:block)*)?
    ) => {
        $($(#[$about])* async fn $name($shop: Shop) $body)*
        $($($(#[$alone])* async fn $one($its: Shop) $does)*)?
        $($($(#[$behind])* async fn $other($there: Shop) $is)*)?
        over_one! { http1 = Http1, run, $($name)* $($($one)*)? }
        over_one! { http2 = Http2, run, $($name)* $($($one)*)? }
        over_one! { grpc = Grpc, run, $($name)* $($($one)*)? }
        over_one! { sidecar_http1 = Http1, run_behind_a_sidecar, $($name)* $($($other)*)? }
        over_one! { sidecar_http2 = Http2, run_behind_a_sidecar, $($name)* $($($other)*)? }
        over_one! { sidecar_grpc = Grpc, run_behind_a_sidecar, $($name)* $($($other)*)? }
    };
}

/// The same for what only tonic does: the naive ways of gRPC.
macro_rules! over_plain_tonic {
    ($($(#[$about:meta])* async fn $name:ident($shop:ident: Shop) $body:block)*) => {
        $($(#[$about])* async fn $name($shop: Shop) $body)*
        over_one! { plain_tonic = Grpc, run, $($name)* }
    };
}

macro_rules! over_one {
    ($module:ident = $way:ident, $run:ident, $($name:ident)*) => {
        mod $module {
            $(#[test]
            fn $name() {
                $crate::shop::$run($crate::ways::Way::$way, super::$name);
            })*
        }
    };
}

/// What requests of a test come over, its own and those between the services of its shop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Http1,
    /// With prior knowledge.
    Http2,
    /// Over the same, to services of tonic's.
    Grpc,
}

/// How a caller leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// In the way its protocol foresees: closes the connection; over HTTP/2 resets the stream.
    InOrder,
    /// Resets the connection.
    Abruptly,
}

/// A request before it is sent.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is sent"]
pub(crate) struct Ask {
    way: Way,
    addr: SocketAddr,
    method: Method,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

/// A request that is out.
#[derive(Debug)]
#[must_use = "dropping it leaves"]
pub(crate) enum Asked {
    H1(Sent),
    H2(Box<H2Caller>, H2Call, Leave),
    Grpc(Box<H2Caller>, H2Call, Leave),
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) enum Got {
    Whole(Answer),
    /// Visibly not whole: truncated, reset, or the connection ended first.
    CutOff {
        /// What HTTP had said of it in the head, if that was out.
        status: Option<u16>,
        /// What was said of it behind the part that came: by gRPC, in its trailers.
        said: Option<Answer>,
    },
    /// Nothing, or nothing whole, when the patience ran out.
    StillWaiting,
}

/// A whole answer. Over gRPC its fields are those of head and trailers, its body is what its messages say; of a failure it is
/// the document that stands for its details.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: Code,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A status. It equals that of HTTP which it is, or in whose place gRPC has it (contract section 5).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Code {
    Http(u16),
    Grpc(u16),
    /// A status of HTTP that a caller of gRPC has no use for, and so equals nothing.
    NotGrpc(#[expect(dead_code, reason = "shown where a test fails")] u16),
}

/// The status and the reason of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict<'a>(Code, Option<&'a str>);

// === Way ===

impl Way {
    pub(crate) const fn protocol(self) -> Protocol {
        match self {
            Self::Http1 => Protocol::Http1,
            Self::Http2 | Self::Grpc => Protocol::Http2,
        }
    }

    /// The field in which services tell each other how much is left.
    pub(crate) const fn tells_in(self) -> &'static str {
        match self {
            Self::Http1 | Self::Http2 => names::X_REMAINING_MS,
            Self::Grpc => names::GRPC_TIMEOUT,
        }
    }

    /// How much these fields say is left: there has to be one that says so.
    #[track_caller]
    pub(crate) fn told(self, fields: &HeaderMap) -> Duration {
        let values: Vec<_> = fields.get_all(self.tells_in()).iter().collect();
        let [value] = values[..] else { panic!("{}: {values:?}", self.tells_in()) };
        self.read(value.as_bytes())
    }

    /// The same of such a field.
    #[track_caller]
    pub(crate) fn read(self, value: &[u8]) -> Duration {
        let convention = match self {
            Self::Http1 | Self::Http2 => Convention::X_REMAINING_MS,
            Self::Grpc => Convention::GRPC_TIMEOUT,
        };
        match convention.codec().parse(value, clock::wall()) {
            Read::Valid(left) => left,
            other => panic!("{other:?}: {value:?}"),
        }
    }

    /// Where a policy has the limits of this route.
    pub(crate) fn route(self, route: &str) -> String {
        match self {
            Self::Http1 | Self::Http2 => route.to_owned(),
            Self::Grpc => grpc::route_of(route),
        }
    }

    /// Whether a peer that saw this saw a call of ours being cut off: the stream reset with CANCEL, or the connection
    /// closed where it has only that.
    pub(crate) fn is_cut_off(self, how: Leaving) -> bool {
        match self {
            Self::Http1 => matches!(how, Leaving::Closed | Leaving::Reset),
            Self::Http2 | Self::Grpc => how == Leaving::StreamReset(Reason::CANCEL),
        }
    }
}

// === Ask ===

impl Ask {
    pub(crate) fn new(way: Way, addr: SocketAddr, method: Method, target: &str) -> Self {
        Self { way, addr, method, target: target.to_owned(), fields: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// How much its caller has left, as our callers say it.
    pub(crate) fn within(self, budget: Duration) -> Self {
        let millis = budget.as_millis();
        match self.way {
            Way::Http1 | Way::Http2 => self.header(names::X_REMAINING_MS, millis.to_string()),
            Way::Grpc => self.header(names::GRPC_TIMEOUT, format!("{millis}m")),
        }
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) async fn send(self) -> Asked {
        self.send_to_leave(Leave::InOrder).await
    }

    /// Sends; [`Asked::leave`] leaves in this way.
    pub(crate) async fn send_to_leave(self, leave: Leave) -> Asked {
        match self.way {
            Way::Http1 => {
                let caller =
                    Caller::h1(self.addr).post(self.target.clone(), self.body).method(self.method, self.target);
                let caller = self.fields.iter().fold(caller, |caller, (name, value)| caller.header(name, value));
                let how = match leave {
                    Leave::InOrder => How::Close,
                    Leave::Abruptly => How::Reset,
                };
                Asked::H1(caller.send(how).await.expect("it is sent"))
            }
            Way::Http2 => {
                let caller = Caller::h2(self.addr).connect().await.expect("it connects");
                let request = match self.method {
                    Method::POST => caller.post(self.target, self.body),
                    method => caller.method(method, self.target),
                };
                let request = self.fields.iter().fold(request, |request, (name, value)| request.header(name, value));
                let call = request.send().await.expect("it is sent");
                Asked::H2(Box::new(caller), call, leave)
            }
            Way::Grpc => {
                let caller = Caller::h2(self.addr).connect().await.expect("it connects");
                let request = caller.grpc(grpc::method_of(&self.target), self.body);
                let request = if self.method == Method::GET { request.header(grpc::METHOD, "GET") } else { request };
                let request = self.fields.iter().fold(request, |request, (name, value)| request.header(name, value));
                let call = request.send().await.expect("it is sent");
                Asked::Grpc(Box::new(caller), call, leave)
            }
        }
    }

    /// Sends, stays, and wants a whole answer.
    #[track_caller]
    pub(crate) fn answer(self) -> impl Future<Output = Answer> {
        let place = std::panic::Location::caller();
        async move {
            match self.send().await.got_within(PATIENCE).await {
                Got::Whole(answer) => answer,
                other => panic!("no whole answer at {place}: {other:?}"),
            }
        }
    }
}

// === Asked ===

impl Asked {
    /// Leaves. Returns when it has left.
    pub(crate) async fn leave(self) -> Instant {
        match self {
            Self::H1(sent) => sent.leave().await.expect("it leaves").at,
            Self::H2(caller, call, Leave::InOrder) | Self::Grpc(caller, call, Leave::InOrder) => {
                let at = call.reset(Reason::CANCEL);
                // The connection has to write the reset before it goes.
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(caller);
                at
            }
            Self::H2(caller, call, Leave::Abruptly) | Self::Grpc(caller, call, Leave::Abruptly) => {
                let at = caller.reset().await.expect("it leaves");
                drop(call);
                at
            }
        }
    }

    /// Waits for at most so long for a whole answer, or for an end that is none.
    pub(crate) async fn got_within(self, patience: Duration) -> Got {
        let http = |status: StatusCode, headers, body| {
            Got::Whole(Answer { status: Code::Http(status.as_u16()), headers, body })
        };
        let cut_off =
            |status: Option<StatusCode>| Got::CutOff { status: status.map(|status| status.as_u16()), said: None };
        match self {
            Self::H1(sent) => match sent.answer_within(patience).await {
                H1Outcome::Complete { status, headers, body } => http(status, headers, body),
                H1Outcome::Truncated { status, .. } => cut_off(Some(status)),
                H1Outcome::NoAnswer(_) => cut_off(None),
                _ => Got::StillWaiting,
            },
            Self::H2(_caller, call, _) => match call.answer_within(patience).await {
                H2Outcome::Complete { status, headers, body, .. } => http(status, headers, body),
                H2Outcome::Reset { status, .. } | H2Outcome::ConnectionLost { status, .. } => cut_off(status),
                _ => Got::StillWaiting,
            },
            Self::Grpc(_caller, call, _) => match call.answer_within(patience).await {
                H2Outcome::Complete { status, headers, body, trailers } => {
                    grpc::answer::of(status, headers, &body, trailers)
                }
                H2Outcome::Reset { status, .. } | H2Outcome::ConnectionLost { status, .. } => cut_off(status),
                _ => Got::StillWaiting,
            },
        }
    }

    pub(crate) async fn got(self) -> Got {
        self.got_within(PATIENCE).await
    }
}

// === Answer ===

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The reason that the answer gives, if it is one of ours.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.headers.get("oneclock-reason").map(|reason| reason.to_str().expect("text"))
    }

    /// Its status and its reason, which is what most tests want to know.
    pub(crate) fn verdict(&self) -> Verdict<'_> {
        Verdict(self.status, self.reason())
    }
}

// === Code, Verdict ===

impl PartialEq<u16> for Code {
    fn eq(&self, of_http: &u16) -> bool {
        match *self {
            Self::Http(status) => status == *of_http,
            Self::Grpc(code) => code == in_place_of(*of_http),
            Self::NotGrpc(_) => false,
        }
    }
}

/// What gRPC has where the tests expect this of HTTP.
fn in_place_of(of_http: u16) -> u16 {
    match of_http {
        200 => 0,
        499 => 1,
        504 => 4,
        400 | 500 => 13, // of a field that cannot be read INTERNAL is said as well (contract P3)
        502 | 503 => 14,
        other => panic!("not known over gRPC: {other}"),
    }
}

impl PartialEq<(u16, Option<&str>)> for Verdict<'_> {
    fn eq(&self, other: &(u16, Option<&str>)) -> bool {
        self.0 == other.0 && self.1 == other.1
    }
}
