//! The ways out: our own client, our layer over hyper-util's, our middleware for reqwest, our layer over tonic's channel.
//! Each has to keep the same invariants, as far as it can tell.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use hyper_util::client::legacy::Client as Legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use oneclock::Stopped;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::wire::{Conventions, writes};
use oneclock_core::{Outcome, Trust};
use oneclock_http::{CallError, Client, Destination, Egress, EgressLayer, Problem, collect, successful};
use oneclock_reqwest::{Budget, call_error};
use oneclock_tonic::{ClientLayer, ClientService};
use reqwest_middleware::ClientWithMiddleware;
use tonic::Status;
use tonic::transport::Channel;
use tower::{Layer as _, ServiceExt as _};

use crate::grpc;
use crate::grpc::bridge::Said;
use crate::shop::Shop;
use crate::ways::{Code, Way};

/// Which way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WayOut {
    Client,
    Layer,
    Reqwest,
    Tonic,
}

/// The limits of a destination.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) name: &'static str,
    pub(crate) cap: Option<Duration>,
    pub(crate) reserve: Duration,
    /// In place of what its protocol has for it.
    pub(crate) tells: Option<Conventions>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) enforces_keys: bool,
    /// One call at a time, by a limit of the client's own. Of [`WayOut::Client`] and [`WayOut::Tonic`] only.
    pub(crate) one_at_a_time: bool,
}

/// A way out to one destination.
#[derive(Clone)]
pub(crate) enum Out {
    Client(Client),
    Layer(Box<Egress<Legacy<HttpConnector, Full<Bytes>>>>, String),
    Reqwest(ClientWithMiddleware, String),
    Tonic(ClientService<Channel>),
}

/// What a call was answered.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: Code,
    pub(crate) body: Bytes,
    said: Option<Status>,
}

/// Why a call gave no answer. As the answer of a handler it is what that is told who called that.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) outcome: Outcome,
    pub(crate) stopped: Option<Stopped>,
    /// How often it was tried, if it is known.
    pub(crate) attempts: Option<u32>,
    pub(crate) text: String,
    answer: Box<Answer>,
}

#[derive(Debug)]
enum Answer {
    Problem(Problem),
    Status(Status),
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            name: "pricing",
            cap: None,
            reserve: Duration::ZERO,
            tells: None,
            retry: None,
            enforces_keys: false,
            one_at_a_time: false,
        }
    }
}

impl Shop {
    /// Every way out there is where this shop's protocol is spoken.
    pub(crate) fn ways_out(&self) -> &'static [WayOut] {
        match self.way() {
            Way::Http1 | Way::Http2 => &[WayOut::Client, WayOut::Layer, WayOut::Reqwest],
            Way::Grpc => &[WayOut::Tonic],
        }
    }

    /// The one that most services take.
    pub(crate) fn way_out(&self) -> WayOut {
        self.ways_out()[0]
    }

    /// A way out to the peer or service there, called `pricing` unless the terms say otherwise.
    pub(crate) fn out(&self, way: WayOut, addr: SocketAddr, terms: Terms) -> Out {
        let http2 = self.way() == Way::Http2;
        let base = format!("http://{addr}");
        let one_at_a_time = terms.one_at_a_time;
        if way == WayOut::Client {
            let builder = Client::builder(terms.name, base).reserve(terms.reserve).trust(Trust::Inside);
            let builder = builder.tells(terms.tells.unwrap_or_else(writes::plain_http));
            let builder = terms.cap.into_iter().fold(builder, oneclock_http::ClientBuilder::cap);
            let builder = terms.retry.into_iter().fold(builder, oneclock_http::ClientBuilder::retry);
            let builder = if terms.enforces_keys { builder.enforces_keys() } else { builder };
            let builder = if one_at_a_time { builder.max_connections(1).max_streams(1) } else { builder };
            let builder = if http2 { builder.http2_only() } else { builder };
            return Out::Client(builder.build().unwrap());
        }
        assert!(!one_at_a_time || way == WayOut::Tonic, "not for {way:?}");
        let destination = terms.destination(way);
        match way {
            WayOut::Client => unreachable!("made above"),
            WayOut::Layer => {
                let legacy = Legacy::builder(TokioExecutor::new()).http2_only(http2).build_http();
                Out::Layer(Box::new(EgressLayer::new(destination).layer(legacy)), base)
            }
            WayOut::Reqwest => {
                let client = reqwest(self.way()).redirect(reqwest::redirect::Policy::none()).build().unwrap();
                let budget = Budget::new(destination).follows_no_redirects();
                Out::Reqwest(reqwest_middleware::ClientBuilder::new(client).with(budget).build(), base)
            }
            WayOut::Tonic => Out::Tonic(ClientLayer::new(destination).layer(grpc::out::channel(addr, one_at_a_time))),
        }
    }
}

impl Terms {
    fn destination(self, way: WayOut) -> Destination {
        let builder = match way {
            WayOut::Tonic => oneclock_tonic::destination(self.name),
            _ => Destination::named(self.name),
        };
        let builder = builder.reserve(self.reserve).trust(Trust::Inside);
        let builder = self.tells.into_iter().fold(builder, oneclock_http::DestinationBuilder::tells);
        let builder = self.cap.into_iter().fold(builder, oneclock_http::DestinationBuilder::cap);
        let builder = self.retry.into_iter().fold(builder, oneclock_http::DestinationBuilder::retry);
        if self.enforces_keys { builder.enforces_keys() } else { builder }.build().unwrap()
    }
}

pub(crate) fn reqwest(way: Way) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().no_proxy();
    match way {
        Way::Http1 => builder.http1_only(),
        Way::Http2 | Way::Grpc => builder.http2_prior_knowledge(),
    }
}

impl Out {
    pub(crate) async fn get(&self, target: &str) -> Result<Bytes, Fault> {
        self.send(Method::GET, target, HeaderMap::new(), Bytes::new()).await
    }

    pub(crate) async fn post(&self, target: &str, body: impl Into<Bytes>) -> Result<Bytes, Fault> {
        self.send(Method::POST, target, HeaderMap::new(), body.into()).await
    }

    /// Sends, with these fields as whoever calls it may have copied them, and reads the answer to its end.
    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        fields: HeaderMap,
        body: Bytes,
    ) -> Result<Bytes, Fault> {
        Ok(self.ask(method, target, fields, body).await?.body)
    }

    /// The same, with the status of the answer.
    pub(crate) async fn ask(
        &self,
        method: Method,
        target: &str,
        fields: HeaderMap,
        body: Bytes,
    ) -> Result<Reply, Fault> {
        let request = |uri: String| {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = uri.parse().unwrap();
            *request.headers_mut() = fields.clone();
            request
        };
        match self {
            Self::Client(client) => {
                let answer = client.request(request(target.to_owned())).await.map_err(|error| Fault::of(&error))?;
                let status = answer.status();
                let body = collect(answer.into_body(), 64 * 1024).await.map_err(Fault::of_the_body)?;
                Ok(Reply::http(status, body))
            }
            Self::Layer(egress, base) => {
                let request = request(format!("{base}{target}"));
                let answer = Egress::clone(egress).oneshot(request).await.map_err(|error| Fault::of(&error))?;
                let status = answer.status();
                let body = collect(answer.into_body(), 64 * 1024).await.map_err(Fault::of_the_body)?;
                Ok(Reply::http(status, body))
            }
            Self::Reqwest(client, base) => {
                let request = client.request(method, format!("{base}{target}")).headers(fields).body(body);
                let answer = request.send().await.map_err(|error| match call_error(&error) {
                    Some(error) => Fault::of(error),
                    None => panic!("an error without its call: {error:?}"),
                })?;
                let status = answer.status();
                Ok(Reply::http(status, answer.bytes().await.map_err(Fault::of_the_body)?))
            }
            Self::Tonic(service) => {
                let request = grpc::out::request(&method, fields, body);
                Reply::grpc(grpc::out::unary(service.clone(), target, request).await)
            }
        }
    }

    /// Posts so many pieces of this size, one after another. Of the ways out that most services take only.
    pub(crate) async fn upload(&self, target: &str, pieces: usize, size: usize) -> Result<Reply, Fault> {
        let pieces = stream::repeat_with(move || Bytes::from(vec![b'x'; size])).take(pieces);
        match self {
            Self::Client(client) => {
                let upload = StreamBody::new(pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
                let request = Request::post(target).body(upload).unwrap();
                let answer = client.request(request).await.map_err(|error| Fault::of(&error))?;
                let status = answer.status();
                let body = collect(answer.into_body(), 64 * 1024).await.map_err(Fault::of_the_body)?;
                Ok(Reply::http(status, body))
            }
            Self::Tonic(service) => Reply::grpc(grpc::out::upload(service.clone(), target, pieces).await),
            Self::Layer(..) | Self::Reqwest(..) => panic!("not for this way out"),
        }
    }
}

// === Reply ===

impl Reply {
    fn http(status: StatusCode, body: Bytes) -> Self {
        Self { status: Code::Http(status.as_u16()), body, said: None }
    }

    fn grpc(result: Result<Bytes, Status>) -> Result<Self, Fault> {
        match result {
            Ok(body) => Ok(Self { status: Code::Grpc(0), body, said: None }),
            Err(status) if oneclock_tonic::answered(&status).is_some() => {
                let code = i32::from(status.code()).try_into().unwrap();
                Ok(Self { status: Code::Grpc(code), body: Bytes::new(), said: Some(status) })
            }
            Err(status) => Err(Fault::of_status(status)),
        }
    }

    /// The body of an answer that is no failure.
    pub(crate) fn successful(self) -> Result<Bytes, Fault> {
        match (self.status, self.said) {
            (_, Some(status)) => Err(Fault::of_status(status)),
            (Code::Http(status), None) => {
                let answer = http::Response::builder().status(status).body(()).unwrap();
                match successful(answer) {
                    Ok(_) => Ok(self.body),
                    Err(error) => Err(Fault::saying(error.to_string(), Outcome::Failed, error.into())),
                }
            }
            (_, None) => Ok(self.body),
        }
    }
}

/// Handed on as it is.
impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        match (self.status, self.said) {
            (_, Some(status)) => Said(status).into_response(),
            (Code::Http(status), None) => (StatusCode::from_u16(status).unwrap(), self.body).into_response(),
            (_, None) => self.body.into_response(),
        }
    }
}

// === Fault ===

impl Fault {
    fn of(error: &CallError) -> Self {
        let attempts = match error {
            CallError::GaveUp(gave_up) => Some(gave_up.attempts),
            _ => None,
        };
        let stopped = error.stopped().cloned();
        Self { stopped, attempts, ..Self::saying(error.to_string(), error.outcome(), error.into()) }
    }

    fn of_the_body(error: impl std::error::Error) -> Self {
        let outcome = Outcome::Unknown { stage: oneclock_core::Stage::Body };
        Self::saying(error.to_string(), outcome, Problem::call_failed())
    }

    fn saying(text: String, outcome: Outcome, problem: Problem) -> Self {
        Self { outcome, stopped: None, attempts: None, text, answer: Box::new(Answer::Problem(problem)) }
    }

    fn of_status(status: Status) -> Self {
        let Some(outcome) = oneclock_tonic::outcome(&status) else { panic!("a status without its call: {status:?}") };
        let fault = match oneclock_tonic::call_error(&status) {
            Some(error) => Self::of(error),
            None => Self::saying(status.to_string(), outcome, Problem::call_failed()),
        };
        Self { answer: Box::new(Answer::Status(status)), ..fault }
    }

    /// The end that stopped it.
    #[track_caller]
    pub(crate) fn ended(&self) -> &oneclock::Ended {
        match &self.stopped {
            Some(Stopped::Ended(ended)) => ended,
            other => panic!("not cut off: {other:?}: {}", self.text),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        match *self.answer {
            Answer::Problem(problem) => oneclock_axum::Problem(problem).into_response(),
            Answer::Status(status) => Said(status).into_response(),
        }
    }
}
