//! A proxy before one upstream, and upstreams that say what they were asked.

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use oneclock_core::Trust;
use oneclock_http::{BoxError, serve};
use oneclock_proxy::config::{Config, Route, UpstreamProtocol};
use oneclock_proxy::{Proxy, Running};
use oneclock_test::Protocol;
use oneclock_test::caller::{H1Outcome, H2Outcome};
use tokio::net::TcpSocket;
use tokio_util::task::AbortOnDropHandle;

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// More than any exchange on the loopback interface needs.
pub(crate) const AMPLE: Duration = Duration::from_secs(10);

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// One route for everything to `upstream`, spoken to in `protocol`, for callers of ours.
pub(crate) fn config(upstream: SocketAddr, protocol: Protocol) -> Config {
    let mut config = Config::simple(loopback(), &format!("http://{upstream}")).expect("a configuration");
    config.admin = None;
    config.listeners[0].trust = Trust::Inside;
    for upstream in config.upstreams.values_mut() {
        upstream.protocol = match protocol {
            Protocol::Http1 => UpstreamProtocol::Http1,
            Protocol::Http2 => UpstreamProtocol::H2c,
        };
    }
    config
}

/// The same with its route changed.
pub(crate) fn config_with(upstream: SocketAddr, protocol: Protocol, change: impl FnOnce(&mut Route)) -> Config {
    let mut config = config(upstream, protocol);
    change(&mut config.routes[0]);
    config
}

pub(crate) async fn start(config: Config) -> Running {
    Proxy::start(config).await.expect("it starts")
}

pub(crate) fn address(proxy: &Running) -> SocketAddr {
    proxy.addresses()[0].1
}

/// An upstream made of a function. Dropped means stopped.
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    _served: AbortOnDropHandle<()>,
}

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl Upstream {
    pub(crate) async fn of<F, R>(handler: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(loopback()).expect("a port");
        let listener = socket.listen(1_024).expect("a listener"); // hundreds may come at once
        let addr = listener.local_addr().expect("an address");
        let service = tower::service_fn(move |request| {
            let answered = handler(request);
            async { Ok::<_, Infallible>(answered.await) }
        });
        let served = tokio::spawn(async move {
            let _ = serve(listener, service).max_concurrent_streams(256).await; // nobody waits for a stream
        });
        Self { addr, _served: AbortOnDropHandle::new(served) }
    }
}

pub(crate) fn body<B>(body: B) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

#[track_caller]
pub(crate) fn whole_h1(outcome: H1Outcome) -> (StatusCode, HeaderMap, Bytes) {
    match outcome {
        H1Outcome::Complete { status, headers, body } => (status, headers, body),
        other => panic!("no whole answer: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn whole_h2(outcome: H2Outcome) -> (StatusCode, HeaderMap, Bytes, Option<HeaderMap>) {
    match outcome {
        H2Outcome::Complete { status, headers, body, trailers } => (status, headers, body, trailers),
        other => panic!("no whole answer: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    let value = headers.get(name).unwrap_or_else(|| panic!("no {name} in {headers:?}"));
    value.to_str().expect("text")
}

/// What a peer was told, in milliseconds.
#[track_caller]
pub(crate) fn told(headers: &HeaderMap) -> u64 {
    text(headers, "x-remaining-ms").parse().expect("a number")
}
