//! Why a proxy does not start, or keeps what it has: the thing, the fact, the way out.

use std::net::SocketAddr;
use std::path::PathBuf;

use oneclock_core::admission::NotSettings;
use oneclock_core::ingress::PolicyError;
use oneclock_core::retry::NotAPolicy;
use oneclock_core::{Name, Refused};
use oneclock_http::{BoxError, NotAClient};
use oneclock_idempotency::BadIdempotency;
use oneclock_telemetry::readiness::NotReadiness;

use crate::config::LogTo;

/// A configuration that cannot be run, or not here. Nothing listens then; after a reload all goes on as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartFailed {
    /// There is no listener.
    #[error("there is no listener, so no request could ever come in")]
    NoListener,
    /// It cannot listen there.
    #[error("listener {listener} cannot listen on {address}")]
    Bind {
        /// The listener.
        listener: Name,
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The admin pages cannot be served there.
    #[error(
        "the admin pages cannot be served on {address}: stop what is there already, write another address for admin, or switch \
         them off with admin: none"
    )]
    Admin {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Probes cannot be answered there.
    #[error(
        "probes cannot be answered on {address}: stop what is there already, or write another address for admin.probes"
    )]
    Probes {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be found out whether it is ready.
    #[error("nothing could be found out about the readiness of the proxy")]
    Readiness(#[from] NotReadiness),
    /// It cannot speak TLS.
    #[error("listener {listener} cannot use {}", file.display())]
    Tls {
        /// The listener.
        listener: Name,
        /// What was looked at.
        file: PathBuf,
        /// Why not.
        #[source]
        source: BoxError,
    },
    /// An upstream cannot be spoken to in TLS.
    #[error("upstream {upstream} cannot use {}", file.display())]
    UpstreamTls {
        /// The upstream.
        upstream: Name,
        /// What was looked at.
        file: PathBuf,
        /// Why not.
        #[source]
        source: BoxError,
    },
    /// A route leads to an upstream that is not there.
    #[error("route {route} leads to the upstream {upstream}, which is not declared")]
    NoUpstream {
        /// The route.
        route: Name,
        /// What it names.
        upstream: Name,
    },
    /// An upstream makes no client.
    #[error("an upstream cannot be used")]
    Upstream(#[from] NotAClient),
    /// The limits of a route contradict one another.
    #[error("route {route}: its limits contradict one another")]
    Limits {
        /// The route.
        route: Name,
        /// Which.
        #[source]
        source: PolicyError,
    },
    /// The retries of a route contradict one another.
    #[error("route {route}: its retries contradict one another")]
    Retry {
        /// The route.
        route: Name,
        /// How.
        #[source]
        source: NotAPolicy,
    },
    /// The limits of a route leave no time for an attempt.
    #[error("route {route}: its limits leave no time for an attempt")]
    NoTime {
        /// The route.
        route: Name,
        /// Why not.
        #[source]
        source: Refused,
    },
    /// The concurrency of a route is none.
    #[error("route {route}: its concurrency cannot be used")]
    Admission {
        /// The route.
        route: Name,
        /// Why not.
        #[source]
        source: NotSettings,
    },
    /// The idempotency of a route contradicts itself.
    #[error("route {route}: its idempotency contradicts itself")]
    Keys {
        /// The route.
        route: Name,
        /// How.
        #[source]
        source: BadIdempotency,
    },
    /// The store of idempotency keys cannot be opened, or refuses.
    #[error("the store of idempotency keys {store} cannot be used")]
    Store {
        /// Where it is, without a password.
        store: String,
        /// Why not.
        #[source]
        source: BoxError,
    },
    /// What the access log goes to cannot be opened.
    #[error("the access log cannot be written to {to}")]
    AccessLog {
        /// What that is.
        to: LogTo,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It is written, and not done yet. Running without it would be a promise that nobody keeps.
    #[error("{what} is not supported yet: {instead}")]
    NotYet {
        /// What.
        what: String,
        /// What to write instead.
        instead: &'static str,
    },
    /// A reload that would move the admin pages, or switch them on or off.
    #[error(
        "admin is changed, and the admin pages stay where they are until a restart: leave admin as it was, or restart the proxy"
    )]
    AdminChanged,
}
