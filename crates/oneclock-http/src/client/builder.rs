//! What a client is made of: its destination's limits, where it is, and how many connections it may hold.
//!
//! The limits are [`DestinationBuilder`]'s; this only checks what belongs to the wire. Everything that could fail in
//! every call fails here instead, once.

use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use oneclock::WithoutOperation;
use oneclock_core::breaker::BreakerPolicy;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::throttle::ThrottlePolicy;
use oneclock_core::wire::Conventions;
use oneclock_core::{Name, Trust};

use super::Client;
use super::head::Base;
use super::refused::NotAClient;
use super::tls::{self, Tls};
use crate::destination::{Destination, DestinationBuilder};

/// Builds a [`Client`].
#[derive(Debug)]
#[must_use = "a client is made by `build`"]
pub struct ClientBuilder {
    name: Name,
    destination: DestinationBuilder,
    uri: Result<Uri, http::Error>,
    tls: tls::Given,
    server_name: Option<String>,
    settings: Settings,
}

/// What the pool holds at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) offers: Offers,
    pub(super) max_connections: usize,
    pub(super) max_streams: usize,
    pub(super) max_idle: usize,
    pub(super) idle_timeout: Duration,
}

/// Which protocols a destination may be spoken to in. In the end: where the URI says `http` nothing can be agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offers {
    Http1,
    Http2,
    /// Whichever the two agree on in the TLS handshake (ALPN).
    Either,
}

// === Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            offers: Offers::Either,
            max_connections: 64,
            max_streams: 100,
            max_idle: 16,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

// === ClientBuilder ===

impl ClientBuilder {
    pub(super) fn new<U>(name: Name, uri: U) -> Self
    where
        U: TryInto<Uri>,
        U::Error: Into<http::Error>,
    {
        let destination = Destination::named(name.clone());
        let uri = uri.try_into().map_err(Into::into);
        Self { name, destination, uri, tls: None, server_name: None, settings: Settings::default() }
    }

    /// The most that one call may spend. Without a cap: what its operation leaves, and
    /// [`DEFAULT_CAP`](crate::DEFAULT_CAP) where there is none.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.destination = self.destination.cap(cap);
        self
    }

    /// What the operation keeps back from a call: for its later steps and for the way home.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.destination = self.destination.reserve(reserve);
        self
    }

    /// The least that is useful; 5 ms unless said otherwise. With less left, the call is not made.
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.destination = self.destination.min_useful(min_useful);
        self
    }

    /// The deadline fields that it understands; `x-remaining-ms` unless said otherwise (contract E7).
    pub fn tells(mut self, conventions: Conventions) -> Self {
        self.destination = self.destination.tells(conventions);
        self
    }

    /// It understands these fields too, beside those of [`tells`](Self::tells); where nothing was said with that, in place of
    /// the default.
    pub fn also_tells(mut self, conventions: &Conventions) -> Self {
        self.destination = self.destination.also_tells(conventions);
        self
    }

    /// Whether it is one of ours, so that the reasons it gives can be built on (contract R8). Outside unless said
    /// otherwise.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.destination = self.destination.trust(trust);
        self
    }

    /// Declares that it enforces idempotency keys: a call repeated with its key has its effect once (contract R7).
    pub fn enforces_keys(mut self) -> Self {
        self.destination = self.destination.enforces_keys();
        self
    }

    /// What a call does where no operation is current (contract C6).
    pub fn without_operation(mut self, without: WithoutOperation) -> Self {
        self.destination = self.destination.without_operation(without);
        self
    }

    /// How calls are tried again, each attempt as a call of its own; without a policy they are not. The cap bounds all
    /// attempts and waits of one call together.
    ///
    /// ```
    /// # use {oneclock_core::retry::RetryPolicy, oneclock_http::Client, std::time::Duration};
    /// let policy = RetryPolicy::new().attempts(3).per_try(Duration::from_millis(100)).build()?;
    /// let inventory = Client::builder("inventory", "http://inventory:8080").retry(policy).build()?;
    /// // At any time, for as long as the other side is in trouble:
    /// inventory.destination().retries().inspect(|retries| retries.switch_off());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.destination = self.destination.retry(policy);
        self
    }

    /// How calls are throttled while the destination refuses some; unless said otherwise to twice what it accepts, counted over
    /// 60 s. While it accepts more than half of them nothing is held back.
    pub fn throttle(mut self, policy: ThrottlePolicy) -> Self {
        self.destination = self.destination.throttle(policy);
        self
    }

    /// Calls are not throttled: for a test that wants to see each refusal.
    pub fn unthrottled(mut self) -> Self {
        self.destination = self.destination.unthrottled();
        self
    }

    /// The destination has a breaker: while too many calls fail, none is made but a probe now and then. Without this it has
    /// none.
    ///
    /// ```
    /// # use {oneclock_core::breaker::BreakerPolicy, oneclock_http::Client};
    /// let policy = BreakerPolicy::new().share(0.2).least(50).build()?;
    /// let inventory = Client::builder("inventory", "http://inventory:8080").breaker(policy).build()?;
    /// // At any time, should it do harm:
    /// inventory.destination().health().switch_off();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn breaker(mut self, policy: BreakerPolicy) -> Self {
        self.destination = self.destination.breaker(policy);
        self
    }

    /// How many calls are on the way at once over HTTP/1.1, each on a connection of its own; 64 unless said otherwise.
    /// A call beyond that waits, in stage `pool`, and spends its budget there. Over HTTP/2 calls share connections: there are
    /// more than one, and up to so many, only where the peer allows fewer calls on one than are on the way.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.settings.max_connections = max;
        self
    }

    /// How many calls are on the way at once over HTTP/2; 100 unless said otherwise. Where the peer allows fewer on one
    /// connection, others are opened ([`max_connections`](Self::max_connections)).
    /// A call beyond that waits, in stage `pool`, and spends its budget there. Means nothing over HTTP/1.1.
    pub fn max_streams(mut self, max: usize) -> Self {
        self.settings.max_streams = max;
        self
    }

    /// How many connections are kept for later calls over HTTP/1.1; 16 unless said otherwise. Zero keeps none.
    pub fn max_idle(mut self, max: usize) -> Self {
        self.settings.max_idle = max;
        self
    }

    /// How long a connection without a call is kept; 30 s unless said otherwise. Keep it below what the peer keeps. Zero is
    /// refused: over HTTP/1.1 a [`max_idle`](Self::max_idle) of zero says that none is kept.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.settings.idle_timeout = timeout;
        self
    }

    /// Speaks HTTP/2, over one connection, and nothing else: over `http` from the first byte ("prior knowledge"), over
    /// `https` only where the far side agrees to it (ALPN); else the call fails, not sent.
    ///
    /// Unless said so, `http` means HTTP/1.1, and over `https` the far side chooses between the two.
    pub fn http2_only(mut self) -> Self {
        self.settings.offers = Offers::Http2;
        self
    }

    /// Speaks HTTP/1.1 and nothing else, over `https` too, where the far side is then offered nothing else (ALPN).
    pub fn http1_only(mut self) -> Self {
        self.settings.offers = Offers::Http1;
        self
    }

    /// How connections to an `https` URI are secured: other roots, a certificate of our own, other versions.
    ///
    /// Without it the far side's certificate has to come from one of Mozilla's roots, as they were when this program was
    /// built. What `alpn_protocols` says is kept, as far as this client speaks it; left empty it is filled in. A call
    /// whose handshake fails is [`HandshakeFailed`](crate::HandshakeFailed).
    ///
    /// ```
    /// # fn private_ca() -> oneclock_http::rustls::pki_types::CertificateDer<'static> {
    /// #     rcgen::generate_simple_self_signed(["inventory".to_owned()]).unwrap().cert.into()
    /// # }
    /// # fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// use oneclock_http::rustls::{ClientConfig, RootCertStore};
    ///
    /// let mut roots = RootCertStore::empty();
    /// roots.add(private_ca())?;
    /// let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    /// let inventory = oneclock_http::Client::builder("inventory", "https://inventory:8443").tls(config).build()?;
    /// # Ok(()) }
    /// # f().unwrap();
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<std::sync::Arc<tokio_rustls::rustls::ClientConfig>>) -> Self {
        self.tls = Some(config.into());
        self
    }

    /// Whom the far side's certificate has to be for, where that is not the host of the URI; it is also the name that the far
    /// side is asked for (SNI). For a service that is reached by an address or over a loopback interface.
    ///
    /// ```
    /// # fn f() -> Result<(), oneclock_http::NotAClient> {
    /// let builder = oneclock_http::Client::builder("inventory", "https://127.0.0.1:8443");
    /// let inventory = builder.server_name("inventory.internal").build()?;
    /// # Ok(()) }
    /// # f().unwrap();
    /// ```
    #[cfg(feature = "tls")]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// The client. Nothing is connected yet.
    ///
    /// # Errors
    /// [`NotAClient`], if the URI or a limit is of no use.
    pub fn build(self) -> Result<Client, NotAClient> {
        let Self { name: client, destination, uri, tls, server_name, mut settings } = self;
        let uri = uri.map_err(|source| NotAClient::NotAUri { client: client.clone(), source })?;
        let base = base(&client, uri, tls, server_name.as_deref(), &mut settings)?;
        if settings.max_connections == 0 {
            return Err(NotAClient::Zero { client, setting: "max_connections" });
        }
        if settings.max_streams == 0 {
            return Err(NotAClient::Zero { client, setting: "max_streams" });
        }
        if settings.idle_timeout.is_zero() {
            return Err(NotAClient::IdleTimeout { client });
        }
        let destination = destination.build().map_err(|source| NotAClient::Limits { client, source })?;
        Ok(Client::new(destination, base, settings))
    }
}

fn base(
    client: &Name,
    uri: Uri,
    given: tls::Given,
    server_name: Option<&str>,
    settings: &mut Settings,
) -> Result<Base, NotAClient> {
    let parts = uri.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err(NotAClient::NoHost { client: client.clone() });
    };
    let secured = scheme == Scheme::HTTPS;
    if !secured && scheme != Scheme::HTTP {
        return Err(NotAClient::Scheme { client: client.clone(), scheme });
    }
    let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
    if path.query().is_some() || authority.as_str().contains('@') {
        return Err(NotAClient::TooMuch { client: client.clone() });
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(NotAClient::NoHost { client: client.clone() });
    }
    let tls = if secured {
        Some(Tls::new(client, server_name.unwrap_or(host), given, settings.offers)?)
    } else if given.is_some() || server_name.is_some() {
        return Err(NotAClient::TlsUnused { client: client.clone() });
    } else {
        if settings.offers == Offers::Either {
            settings.offers = Offers::Http1;
        }
        None
    };
    let default_port = default_port(&scheme);
    let (host, port) = (host.into(), authority.port_u16().unwrap_or(default_port));
    Ok(Base {
        scheme,
        host,
        port,
        tls,
        authority: without_port(authority, default_port),
        path: path.path().trim_end_matches('/').into(),
    })
}

pub(super) fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

/// `http://inventory:80` is `inventory` in a `host` field.
fn without_port(authority: Authority, port: u16) -> Authority {
    match authority.as_str().strip_suffix(&format!(":{port}")).and_then(|host| Authority::try_from(host).ok()) {
        Some(shorter) => shorter,
        None => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oneclock_core::Refused;

    #[track_caller]
    fn refuses(uri: &'static str, why: &str) {
        let refused = Client::builder("inventory", uri).build().expect_err(uri);
        assert_eq!(refused.to_string(), why, "{uri}");
    }

    #[test]
    fn what_could_never_work_is_refused_once() {
        refuses("http://exa mple", "client inventory: its uri cannot be parsed");
        refuses("/stock", "client inventory: its uri names no scheme and host; write it like http://inventory:8080");
        refuses(
            "inventory:80",
            "client inventory: its uri names no scheme and host; write it like http://inventory:8080",
        );
        refuses("ftp://inventory", "client inventory: scheme ftp is not spoken; write http or https");
        let too_much = "client inventory: its uri carries a user or a query, which no call would send; leave it out";
        refuses("http://tom:secret@inventory", too_much);
        refuses("http://inventory/?a=1", too_much);
        let zero = Client::builder("inventory", "http://inventory").max_connections(0).build().expect_err("zero");
        assert_eq!(
            zero.to_string(),
            "client inventory: max_connections = 0 would leave every call waiting until its deadline; write at least 1"
        );
        let zero = Client::builder("inventory", "http://inventory").idle_timeout(Duration::ZERO).build();
        assert_eq!(
            zero.expect_err("zero").to_string(),
            "client inventory: idle_timeout = 0 would close each connection after one call; write at least 1ms, or \
             max_idle = 0"
        );
    }

    #[test]
    fn c1_a_cap_below_the_minimum_is_refused_at_construction() {
        let builder = Client::builder("inventory", "http://inventory").cap(Duration::from_millis(1));
        assert!(matches!(builder.build(), Err(NotAClient::Limits { source: Refused::CapBelowMinimum { .. }, .. })));
    }
}
