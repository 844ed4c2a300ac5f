//! What one would write without us, for the tests that have to fail there.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tonic::transport::Channel;
use tower::ServiceBuilder;
use tower_http::timeout::TimeoutLayer;

use crate::grpc;
use crate::out::reqwest;
use crate::shop::Shop;
use crate::ways::Way;

/// How long a check waits for something to end that should have ended after `budget`: ten times that.
pub(crate) const fn ten_times(budget: Duration) -> Duration {
    budget.saturating_mul(10)
}

/// `app` under tower-http's `TimeoutLayer`.
pub(crate) fn under_a_timeout_layer(app: Router, limit: Duration) -> Router {
    app.layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, limit))
}

/// `app`, one request at a time, each under tower's `Timeout`. The limit is inside of the queue, where most put it.
pub(crate) fn one_at_a_time_under_a_timeout(app: Router, limit: Duration) -> Router {
    app.layer(
        ServiceBuilder::new()
            .layer(HandleErrorLayer::new(|_: tower::BoxError| async { StatusCode::GATEWAY_TIMEOUT }))
            .layer(tower::limit::GlobalConcurrencyLimitLayer::new(1))
            .timeout(limit),
    )
}

/// A client without anything of ours: reqwest, or tonic's channel.
#[derive(Clone, Debug)]
pub(crate) enum Plain {
    Reqwest(reqwest::Client, String),
    Tonic(Channel),
}

impl Shop {
    /// A client without anything of ours, for the peer or service there.
    pub(crate) fn plain(&self, addr: SocketAddr) -> Plain {
        match self.way() {
            Way::Http1 | Way::Http2 => Plain::Reqwest(reqwest(self.way()).build().unwrap(), format!("http://{addr}")),
            Way::Grpc => Plain::Tonic(grpc::out::channel(addr, false)),
        }
    }
}

impl Plain {
    pub(crate) async fn get(&self, target: &str, timeout: Option<Duration>) -> Result<Bytes, String> {
        self.send(Method::GET, target, HeaderMap::new(), "", timeout).await
    }

    pub(crate) async fn post(
        &self,
        target: &str,
        body: &'static str,
        timeout: Option<Duration>,
    ) -> Result<Bytes, String> {
        self.send(Method::POST, target, HeaderMap::new(), body, timeout).await
    }

    /// Sends, with a timeout as this client has them, and reads the answer to its end.
    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        fields: HeaderMap,
        body: &'static str,
        timeout: Option<Duration>,
    ) -> Result<Bytes, String> {
        match self {
            Self::Reqwest(client, base) => {
                let request = client.request(method, format!("{base}{target}")).headers(fields).body(body);
                let request = timeout.into_iter().fold(request, reqwest::RequestBuilder::timeout);
                let answer = request.send().await.map_err(|error| error.to_string())?;
                answer.bytes().await.map_err(|error| error.to_string())
            }
            Self::Tonic(channel) => {
                let request = grpc::out::request(&method, fields, Bytes::from_static(body.as_bytes()));
                let request = grpc::out::within(request, timeout);
                grpc::out::unary(channel.clone(), target, request).await.map_err(|status| status.to_string())
            }
        }
    }
}
