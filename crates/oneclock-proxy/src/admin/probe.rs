//! The request that a proxy sends to itself: with nothing left, through the socket of a listener, as a caller would.
//!
//! Decides what is sent; what the answers prove is `oneclock_core::readiness::judge`'s decision. It goes to a route that is there,
//! with a method that changes nothing, so that a proxy which is not as it should be does no harm with it. And it decides how
//! the listener knows it: by nothing that it says, but by the address and port that it comes from, on the one listener that
//! it was sent to. Nobody else can have these meanwhile on a listener of one address: a connection is known by its two ends.
//! On one that stands for all addresses, or that a reload is moving, a process of the same host could, by way of another
//! address; whoever comes over a network cannot make itself one that is not counted.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{HOST, HeaderName, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use oneclock::clock;
use oneclock_core::Name;
use oneclock_core::readiness::{Answer, Judged, judge, spent};
use oneclock_core::wire::Convention;
use oneclock_http::rustls::pki_types::ServerName;
use oneclock_http::rustls::{self, ClientConfig};
use oneclock_http::{BoxError, names};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::{Config, Listener, PathMatch};
use crate::control::said;
use crate::table::Shared;

/// How much of an answer is read, in bytes.
const ANSWER: usize = 16 * 1024;

const AGENT: HeaderValue = HeaderValue::from_static("oneclock-readiness");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Asks one listener.
pub(crate) struct Probe {
    listener: Name,
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    /// Whether it turns away who shows no certificate that it knows.
    asks_for_certificates: bool,
    fields: Vec<Convention>,
    table: Shared,
    probes: Probes,
}

/// The probes that are under way, by the listener that is asked and where they come from. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes(Arc<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    any: AtomicUsize,          // so that a request takes no lock
    places: Mutex<Vec<Place>>, // one or two for each listener; the same one twice where there are two such probes
}

/// One of them; over when it is dropped.
struct OnItsWay(Probes, Place);

/// The listener that is asked, and where from: the same port of ours can lead to two of them at once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    listener: Name,
    from: SocketAddr,
}

// === Probe ===

impl Probe {
    /// Of a listener that is bound to `address`, and to which this process is `tls`.
    pub(crate) fn new(
        listener: &Listener,
        address: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
        table: &Shared,
        probes: &Probes,
    ) -> Self {
        Self {
            listener: listener.name.clone(),
            address,
            tls,
            asks_for_certificates: listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
            fields: listener.reads.iter().cloned().collect(),
            table: Arc::clone(table),
            probes: probes.clone(),
        }
    }

    /// The listener.
    pub(super) const fn name(&self) -> &Name {
        &self.listener
    }

    /// Where it is.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends one request for each field that the listener reads, and says which were refused.
    ///
    /// # Errors
    /// What came back in place of that.
    pub(super) async fn run(&self) -> Result<String, NotSeen> {
        let address = reachable(self.address);
        let no = |what: &str, why: &dyn Error| NotSeen::Unclear(self.about(&format!("{what}: {}", said(why))));
        let socket = TcpStream::connect(address).await.map_err(|why| no("no connection", &why))?;
        let _ = socket.set_nodelay(true); // failing, it is only slower
        let from = socket.local_addr().map_err(|why| no("no connection", &why))?;
        let _under_way = self.probes.under_way(&self.listener, from);
        let asked = match &self.tls {
            None => self.over(socket).await,
            Some(tls) => {
                let name = ServerName::IpAddress(address.ip().into());
                match TlsConnector::from(Arc::clone(tls)).connect(name, socket).await {
                    Ok(secured) => self.over(secured).await,
                    Err(why) => Err(Asked::Failed(why.into())),
                }
            }
        };
        match asked {
            Ok(refused) if refused.is_empty() => {
                Ok(self.about("connected; none of the fields that it reads can say that nothing is left"))
            }
            Ok(refused) => Ok(self.about(&format!("refused: {}", refused.join(", ")))),
            Err(Asked::Told(not_seen)) => Err(not_seen),
            Err(Asked::Failed(why)) if self.asks_for_certificates && is_turned_away(&*why) => {
                Ok(self.about("turned away, as everybody who shows no certificate that it knows"))
            }
            Err(Asked::Failed(why)) => Err(no("no answer", &*why)),
        }
    }

    async fn over<Io>(&self, io: Io) -> Result<Vec<String>, Asked>
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(Asked::failed)?;
        tokio::select! {
            biased;
            asked = self.ask(&mut sender) => asked,
            ended = connection => Err(Asked::Failed(match ended {
                Ok(()) => "it closed the connection".into(),
                Err(why) => why.into(),
            })),
        }
    }

    async fn ask(&self, sender: &mut SendRequest<Empty<Bytes>>) -> Result<Vec<String>, Asked> {
        let (method, path) = harmless(&self.table.load().config);
        let mut refused = Vec::new();
        for convention in &self.fields {
            let Some(value) = spent(convention.codec(), clock::wall()) else { continue };
            let field = convention.name().as_str();
            let request = Request::builder()
                .method(method.clone())
                .uri(&*path)
                .header(HOST, reachable(self.address).to_string())
                .header(USER_AGENT, AGENT)
                .header(field, &*value)
                .body(Empty::new());
            let answer = sender.send_request(request.map_err(Asked::failed)?).await.map_err(Asked::failed)?;
            let (head, body) = answer.into_parts();
            match judge(what_counts(head.status.as_u16(), &head.headers)) {
                Judged::Refused => refused.push(field.to_owned()),
                Judged::Broken(why) => {
                    return Err(Asked::Told(NotSeen::Broken(self.about(&format!("{field}: {why}")))));
                }
                Judged::Unclear(why) => {
                    return Err(Asked::Told(NotSeen::Unclear(self.about(&format!("{field}: {why}")))));
                }
            }
            let _whole = Limited::new(body, ANSWER).collect().await.map_err(Asked::Failed)?; // before the next one
        }
        Ok(refused)
    }

    /// With its name and its place.
    pub(super) fn about(&self, what: &str) -> String {
        format!("listener {} on {}: {what}", self.listener, self.address)
    }
}

/// Why a listener was not seen to refuse. Told with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotSeen {
    /// It did not.
    Broken(String),
    /// Nobody knows.
    Unclear(String),
}

enum Asked {
    /// It answered, and this is what that proves.
    Told(NotSeen),
    /// There was no answer.
    Failed(BoxError),
}

impl Asked {
    fn failed(why: impl Into<BoxError>) -> Self {
        Self::Failed(why.into())
    }
}

/// A request that a route takes and that changes nothing. Where there is no such route, one that no route takes.
fn harmless(config: &Config) -> (Method, String) {
    let matches = config.routes.iter().flat_map(|route| &route.matches);
    let mut safe = matches.filter(|one| one.method.as_ref().is_none_or(Method::is_safe)).filter_map(|one| {
        let (PathMatch::Exact(path) | PathMatch::Prefix(path)) = &one.path;
        let path = PathAndQuery::try_from(path.as_str()).ok()?; // a path that nobody can ask for is nobody's route
        Some((one.method.clone().unwrap_or(Method::OPTIONS), path.as_str().to_owned()))
    });
    safe.next().unwrap_or((Method::OPTIONS, "/".to_owned()))
}

/// What of an answer counts.
fn what_counts(status: u16, headers: &HeaderMap) -> Answer<'_> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    Answer { status, reason: text(&names::REASON), grpc_status: text(&GRPC_STATUS), connect_stream: false }
}

/// An address that stands for all of them is reached by loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Whether the far side ended TLS with an alert, which is what a certificate of nobody's gets.
fn is_turned_away(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let tls =
            error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref).and_then(|it| it.downcast_ref());
        if matches!(tls.or_else(|| error.downcast_ref()), Some(rustls::Error::AlertReceived(_))) {
            return true;
        }
        next = error.source();
    }
    false
}

// === Probes ===

impl Probes {
    /// Whether one of them is what comes to this listener from there. Read by every request.
    pub(crate) fn sent(&self, listener: &Name, peer: Option<SocketAddr>) -> bool {
        if self.0.any.load(Ordering::Acquire) == 0 {
            return false;
        }
        let Some(from) = peer.map(canonical) else { return false };
        self.lock().iter().any(|one| one.from == from && one.listener == *listener)
    }

    fn under_way(&self, listener: &Name, from: SocketAddr) -> OnItsWay {
        let place = Place { listener: listener.clone(), from: canonical(from) };
        self.lock().push(place.clone());
        self.0.any.fetch_add(1, Ordering::Release);
        OnItsWay(self.clone(), place)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket of IPv6 tells addresses of IPv4 in its own way; and a scope is no part of where it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("listener", &self.listener)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.0.any.fetch_sub(1, Ordering::Release);
        let mut places = self.0.lock();
        if let Some(at) = places.iter().position(|one| *one == self.1) {
            places.swap_remove(at); // one of those that are the same
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_known_on_its_listener_alone_and_until_the_last_such_one_is_over() {
        let (probes, http, other) = (Probes::default(), Name::from("http"), Name::from("other"));
        let from: SocketAddr = ([127, 0, 0, 1], 40_000).into();
        let mapped: SocketAddr = (Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 40_000).into();
        assert!(!probes.sent(&http, Some(from)));
        let one = probes.under_way(&http, from);
        assert!(probes.sent(&http, Some(from)) && probes.sent(&http, Some(mapped)));
        assert!(!probes.sent(&other, Some(from)), "the same port of ours, to another listener");
        assert!(!probes.sent(&http, Some(([127, 0, 0, 1], 40_001).into())) && !probes.sent(&http, None));
        let two = probes.under_way(&http, from);
        drop(one);
        assert!(probes.sent(&http, Some(from)), "there is another one");
        drop(two);
        assert!(!probes.sent(&http, Some(from)));
    }
}
