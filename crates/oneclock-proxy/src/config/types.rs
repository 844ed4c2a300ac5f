//! What a configuration says, once it is known to be right: plain values, none of which can mean "unlimited".
//!
//! Decides the defaults. How they are written is `read`'s, which of them contradict one another `check`'s.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use oneclock_core::wire::Conventions;
use oneclock_core::{Name, Trust};

use super::{AccessLog, IdempotencyStore, Match, Refused, Route};

/// What `oneclock proxy` runs with. Made by [`parse`](Self::parse) or [`simple`](Self::simple); printed, it is a file
/// that makes the same one, apart from the passwords, which are not printed.
///
/// ```
/// # use oneclock_proxy::config::Config;
/// let config = Config::parse("
/// upstreams: { app: { url: http://127.0.0.1:3000 } }
/// routes:
/// - matches: [{ path: { type: PathPrefix, value: / } }]
///   upstream: app
///   timeouts: { request: 2s, backendRequest: 500ms }
///   retry: { attempts: 2 }
/// ")?;
/// let route = config.route_for("/orders/7", &http::Method::GET).unwrap();
/// assert_eq!(route.when_absent.as_secs(), 2);
/// # Ok::<(), oneclock_proxy::config::Refused>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where requests come in. At least one, no two on one address.
    pub listeners: Vec<Listener>,
    /// Where requests go, by name.
    pub upstreams: BTreeMap<Name, Upstream>,
    /// Which request goes where, and with what limits. At least one. Their order does not matter but for printing:
    /// [`route_for`](Self::route_for) takes the one that says most about the request.
    pub routes: Vec<Route>,
    /// Where the admin pages are served; `None` serves none. [`DEFAULT_ADMIN`] unless said otherwise.
    pub admin: Option<SocketAddr>,
    /// Where `/live` and `/ready` are served, and nothing else: for who asks over a network. `None`, which is what holds unless said
    /// otherwise, serves them with the admin pages alone.
    pub probes: Option<SocketAddr>,
    /// Which requests leave a line, and where it goes.
    pub access_log: AccessLog,
    /// The most that live work gets once the proxy was told to stop. Work with an earlier deadline ends then. 10 s
    /// unless said otherwise.
    pub shutdown_grace: Duration,
}

/// One address on which requests come in, in HTTP/1.1 or in HTTP/2 by prior knowledge; over TLS as negotiated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listener {
    /// What it is called in logs, metrics and errors.
    pub name: Name,
    /// Where it listens. Port 0 takes a free one.
    pub address: SocketAddr,
    /// With TLS, if anything is written here.
    pub tls: Option<Tls>,
    /// Whether its peers are ours (contract C2). [`Trust::Outside`] unless said otherwise.
    pub trust: Trust,
    /// The deadline fields that count there (contract, section 1). The bold rows of its table unless said otherwise.
    pub reads: Conventions,
    /// How many connections are open at once. 10 000 unless said otherwise.
    pub max_connections: usize,
}

/// The files of a listener with TLS, in PEM. Not opened when the configuration is read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The certificate and those between it and a root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The roots of the peers' certificates: who shows none of them is turned away.
    pub client_ca: Option<PathBuf>,
}

/// The TLS of an upstream; its files are PEM, and are not opened when the configuration is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamTls {
    /// The roots that its certificate has to come from; `None` are Mozilla's, as they were when this program was built.
    pub ca: Option<PathBuf>,
    /// Whom its certificate has to be for; `None` is the host of the URL.
    pub server_name: Option<String>,
    /// The certificate that is shown to it, with those between it and a root, and its private key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Where requests go.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Upstream {
    /// Scheme (`http` or `https`), host and port, and nothing else: no path, and no password.
    pub url: Uri,
    /// What it is asked in.
    pub protocol: UpstreamProtocol,
    /// Over `https`: who it has to be, and who we are. As `https` means it without one, with Mozilla's roots.
    pub tls: Option<UpstreamTls>,
    /// The deadline fields that it understands; `None` is what a client of ours says by itself: `x-remaining-ms`, and
    /// `grpc-timeout` or `connect-timeout-ms` to what is a call of these.
    pub tells: Option<Conventions>,
    /// Whether it is one of ours, so that the reasons it gives are built on (contract R8). [`Trust::Outside`] unless
    /// said otherwise.
    pub trust: Trust,
    /// The most that one call may spend; `None` is what its operation has left, which is finite.
    pub cap: Option<Duration>,
    /// How many connections one pool holds at once. 64 unless said otherwise.
    ///
    /// HTTP, gRPC and Connect have a pool each, where they are told their deadlines in different fields or are spoken to
    /// in different protocols; streams and upgraded connections have one together. Routes with another `reserve`, or with
    /// a `min_useful` of less than 5 ms, have further ones. Over HTTP/2 calls share connections, and a further one is
    /// opened where the upstream allows fewer streams on one than are under way.
    pub max_connections: usize,
}

/// What an upstream is asked in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamProtocol {
    /// gRPC in HTTP/2 by prior knowledge, everything else in HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1, whatever comes in.
    Http1,
    /// HTTP/2 by prior knowledge, whatever comes in.
    H2c,
}

/// Where the admin pages are, unless the file says otherwise: on loopback, one above Envoy's usual port, so that both
/// can stand on one host.
pub const DEFAULT_ADMIN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9902));

/// Where requests come in, unless the file says otherwise: on loopback.
pub const DEFAULT_LISTENER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080));

pub(super) const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
pub(super) const LISTENER_CONNECTIONS: usize = 10_000;
pub(super) const UPSTREAM_CONNECTIONS: usize = 64;

// === Config ===

impl Config {
    /// One listener, one upstream, one route for everything, and defaults: what runs without a file.
    ///
    /// Deadlines are kept (2 s where a request brings none, 10 s at most), callers are outsiders, nothing is retried,
    /// the admin pages are on loopback, and what would be refused for load is only told ([`Mode::Shadow`](oneclock_core::admission::Mode::Shadow)).
    ///
    /// # Errors
    /// [`Refused`] when `upstream` is not the URL of one; it has no place, for there is no file.
    pub fn simple(listen: SocketAddr, upstream: &str) -> Result<Self, Refused> {
        let url = super::values::upstream_url(upstream).map_err(Refused::nowhere)?;
        if super::check::clash(listen, DEFAULT_ADMIN) {
            return Err(Refused::nowhere(format!(
                "{listen} is where the admin pages are: listen on another port, or write a file that moves them"
            )));
        }
        Ok(Self {
            listeners: vec![Listener::new(Name::from("http"), listen)],
            upstreams: BTreeMap::from([(Name::from("app"), Upstream::new(url))]),
            routes: vec![Route::new(Name::from("all"), vec![Match::everything()], Name::from("app"))],
            ..Self::empty()
        })
    }

    pub(super) fn empty() -> Self {
        Self {
            listeners: Vec::new(),
            upstreams: BTreeMap::new(),
            routes: Vec::new(),
            admin: Some(DEFAULT_ADMIN),
            probes: None,
            access_log: AccessLog::default(),
            shutdown_grace: SHUTDOWN_GRACE,
        }
    }
}

// === Config: what is beside it ===

impl Config {
    /// The files of TLS that it names, each once: their content is read whenever it begins to hold.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let of_listeners = self.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let of_listeners =
            of_listeners.flat_map(|tls| [Some(&tls.certificate), Some(&tls.key), tls.client_ca.as_ref()]);
        let of_upstreams = self.upstreams.values().filter_map(|upstream| upstream.tls.as_ref());
        let of_upstreams = of_upstreams.flat_map(|UpstreamTls { ca, client, .. }| {
            let (certificate, key) = client.as_ref().map(|(certificate, key)| (certificate, key)).unzip();
            [ca.as_ref(), certificate, key]
        });
        let of_stores = self.routes.iter().filter_map(|route| match &route.idempotency.as_ref()?.store {
            IdempotencyStore::Postgres { ca, .. } => Some(ca.as_ref()),
            IdempotencyStore::Sqlite(_) => None,
        });
        let all = of_listeners.chain(of_upstreams).chain(of_stores);
        let mut files: Vec<PathBuf> = all.flatten().cloned().collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

// === Listener ===

impl Listener {
    /// A listener with defaults.
    pub fn new(name: Name, address: SocketAddr) -> Self {
        Self {
            name,
            address,
            tls: None,
            trust: Trust::Outside,
            reads: Conventions::default_set(),
            max_connections: LISTENER_CONNECTIONS,
        }
    }
}

// === Upstream ===

impl Upstream {
    /// An upstream with defaults.
    pub fn new(url: Uri) -> Self {
        Self {
            url,
            protocol: UpstreamProtocol::Auto,
            tls: None,
            tells: None,
            trust: Trust::Outside,
            cap: None,
            max_connections: UPSTREAM_CONNECTIONS,
        }
    }
}

// === UpstreamProtocol ===

impl UpstreamProtocol {
    pub(super) const ALL: [Self; 3] = [Self::Auto, Self::Http1, Self::H2c];

    /// The word for configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Http1 => "http1",
            Self::H2c => "h2c",
        }
    }
}
