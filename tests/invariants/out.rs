//! The ways out: our own client, our layer over hyper-util's, our middleware for reqwest. Each has to keep the same
//! invariants, as far as it can tell.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client as Legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use oneclock::Stopped;
use oneclock_core::wire::{Conventions, writes};
use oneclock_core::{Outcome, Trust};
use oneclock_http::{CallError, Client, Destination, Egress, EgressLayer, collect};
use oneclock_reqwest::{Budget, call_error};
use reqwest_middleware::ClientWithMiddleware;
use tower::{Layer as _, ServiceExt as _};

use crate::shop::Shop;
use crate::ways::Way;

/// Which way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WayOut {
    Client,
    Layer,
    Reqwest,
}

pub(crate) const EVERY_WAY_OUT: [WayOut; 3] = [WayOut::Client, WayOut::Layer, WayOut::Reqwest];

/// The limits of a destination.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) cap: Option<Duration>,
    pub(crate) reserve: Duration,
    pub(crate) tells: Conventions,
}

/// A way out to one destination.
#[derive(Clone)]
pub(crate) enum Out {
    Client(Client),
    Layer(Box<Egress<Legacy<HttpConnector, Full<Bytes>>>>, String),
    Reqwest(ClientWithMiddleware, String),
}

/// Why a call gave no answer.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) outcome: Outcome,
    pub(crate) stopped: Option<Stopped>,
    pub(crate) text: String,
}

impl Default for Terms {
    fn default() -> Self {
        Self { cap: None, reserve: Duration::ZERO, tells: writes::plain_http() }
    }
}

impl Shop {
    /// A way out to the peer or service there, called `pricing`.
    pub(crate) fn out(&self, way: WayOut, addr: SocketAddr, terms: Terms) -> Out {
        let http2 = self.way() == Way::Http2;
        let Terms { cap, reserve, tells } = terms;
        if way == WayOut::Client {
            let builder = self.client("pricing", addr).reserve(reserve).tells(tells).trust(Trust::Inside);
            let builder = cap.into_iter().fold(builder, oneclock_http::ClientBuilder::cap);
            return Out::Client(builder.build().unwrap());
        }
        let builder = Destination::named("pricing").reserve(reserve).tells(tells).trust(Trust::Inside);
        let destination = cap.into_iter().fold(builder, oneclock_http::DestinationBuilder::cap).build().unwrap();
        let base = format!("http://{addr}");
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
        }
    }
}

/// reqwest without anything of ours.
pub(crate) fn plain_reqwest(way: Way) -> reqwest::Client {
    reqwest(way).build().unwrap()
}

fn reqwest(way: Way) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().no_proxy();
    match way {
        Way::Http1 => builder.http1_only(),
        Way::Http2 => builder.http2_prior_knowledge(),
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
                collect(answer.into_body(), 64 * 1024).await.map_err(Fault::of_the_body)
            }
            Self::Layer(egress, base) => {
                let request = request(format!("{base}{target}"));
                let answer = Egress::clone(egress).oneshot(request).await.map_err(|error| Fault::of(&error))?;
                collect(answer.into_body(), 64 * 1024).await.map_err(Fault::of_the_body)
            }
            Self::Reqwest(client, base) => {
                let request = client.request(method, format!("{base}{target}")).headers(fields).body(body);
                let answer = request.send().await.map_err(|error| match call_error(&error) {
                    Some(error) => Fault::of(error),
                    None => panic!("an error without its call: {error:?}"),
                })?;
                answer.bytes().await.map_err(Fault::of_the_body)
            }
        }
    }
}

impl Fault {
    fn of(error: &CallError) -> Self {
        Self { outcome: error.outcome(), stopped: error.stopped().cloned(), text: error.to_string() }
    }

    fn of_the_body(error: impl std::error::Error) -> Self {
        let outcome = Outcome::Unknown { stage: oneclock_core::Stage::Body };
        Self { outcome, stopped: None, text: error.to_string() }
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
