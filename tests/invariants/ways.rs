//! The ways in: what a request comes over, and how a caller leaves there.
//!
//! Another way in is one line in [`over_every_way_in`], a variant of [`Way`], and what the compiler asks for then.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use oneclock_test::caller::{Caller, H1Outcome, H2Call, H2Caller, H2Outcome, How, Sent};
use oneclock_test::peer::Leaving;
use oneclock_test::{PATIENCE, Protocol, Reason};
use serde_json::Value;
use tokio::time::Instant;

/// Writes each test once, and runs it over every way in, in a module named after that.
macro_rules! over_every_way_in {
    ($($tests:tt)*) => {
        each_once! { $($tests)* }
        over_one! { http1 = Http1, $($tests)* }
        over_one! { http2 = Http2, $($tests)* }
    };
}

macro_rules! each_once {
    ($($(#[$about:meta])* async fn $name:ident($shop:ident: Shop) $body:block)*) => {
        $($(#[$about])* async fn $name($shop: Shop) $body)*
    };
}

macro_rules! over_one {
    ($module:ident = $way:ident, $($(#[$about:meta])* async fn $name:ident($shop:ident: Shop) $body:block)*) => {
        mod $module {
            $(#[test]
            fn $name() {
                $crate::shop::run($crate::ways::Way::$way, super::$name);
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
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) enum Got {
    Whole(Answer),
    /// Visibly not whole: truncated, reset, or the connection ended first.
    CutOff {
        status: Option<u16>,
    },
    /// Nothing, or nothing whole, when the patience ran out.
    StillWaiting,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

// === Way ===

impl Way {
    pub(crate) const fn protocol(self) -> Protocol {
        match self {
            Self::Http1 => Protocol::Http1,
            Self::Http2 => Protocol::Http2,
        }
    }

    /// Whether a peer that saw this saw a call of ours being cut off: the stream reset with CANCEL, or the connection
    /// closed where it has only that.
    pub(crate) fn is_cut_off(self, how: Leaving) -> bool {
        match self {
            Self::Http1 => matches!(how, Leaving::Closed | Leaving::Reset),
            Self::Http2 => how == Leaving::StreamReset(Reason::CANCEL),
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
        self.header("x-remaining-ms", budget.as_millis().to_string())
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
            Self::H2(caller, call, Leave::InOrder) => {
                let at = call.reset(Reason::CANCEL);
                // The connection has to write the reset before it goes.
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(caller);
                at
            }
            Self::H2(caller, call, Leave::Abruptly) => {
                let at = caller.reset().await.expect("it leaves");
                drop(call);
                at
            }
        }
    }

    /// Waits for at most so long for a whole answer, or for an end that is none.
    pub(crate) async fn got_within(self, patience: Duration) -> Got {
        match self {
            Self::H1(sent) => match sent.answer_within(patience).await {
                H1Outcome::Complete { status, headers, body } => {
                    Got::Whole(Answer { status: status.as_u16(), headers, body })
                }
                H1Outcome::Truncated { status, .. } => Got::CutOff { status: Some(status.as_u16()) },
                H1Outcome::NoAnswer(_) => Got::CutOff { status: None },
                _ => Got::StillWaiting,
            },
            Self::H2(_caller, call, _) => match call.answer_within(patience).await {
                H2Outcome::Complete { status, headers, body, .. } => {
                    Got::Whole(Answer { status: status.as_u16(), headers, body })
                }
                H2Outcome::Reset { status, .. } | H2Outcome::ConnectionLost { status, .. } => {
                    Got::CutOff { status: status.map(|status| status.as_u16()) }
                }
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
    pub(crate) fn verdict(&self) -> (u16, Option<&str>) {
        (self.status, self.reason())
    }
}
