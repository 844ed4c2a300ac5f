//! Why settings make no client.
//!
//! Decides the words: which client, which setting, and what to write instead.

use http::uri::Scheme;
use oneclock_core::{Name, Refused};

use crate::body::BoxError;

/// These settings make no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAClient {
    /// The URI cannot be parsed.
    #[error("client {client}: its uri cannot be parsed")]
    NotAUri {
        /// The client's name.
        client: Name,
        /// What the parser said.
        #[source]
        source: http::Error,
    },
    /// The URI names no host, or no scheme.
    #[error("client {client}: its uri names no scheme and host; write it like http://inventory:8080")]
    NoHost {
        /// The client's name.
        client: Name,
    },
    /// The scheme is none that this client speaks.
    #[error("client {client}: scheme {scheme} is not spoken; write http or https")]
    Scheme {
        /// The client's name.
        client: Name,
        /// The scheme.
        scheme: Scheme,
    },
    /// The URI says `https`, and this program was built without TLS.
    #[error(
        "client {client}: its uri says https, which needs the feature `tls` (of oneclock-http, oneclock-axum or oneclock-tonic); it is off"
    )]
    NoTls {
        /// The client's name.
        client: Name,
    },
    /// A TLS configuration is given, or whom the certificate has to be for, and the URI says `http`: nothing would be secured.
    #[error("client {client}: it is given a TLS configuration, but its uri says http; write https")]
    TlsUnused {
        /// The client's name.
        client: Name,
    },
    /// The URI's host can be in no certificate.
    #[error("client {client}: {host} is neither a DNS name nor an address, so no certificate can be for it")]
    ServerName {
        /// The client's name.
        client: Name,
        /// The host.
        host: String,
    },
    /// The TLS configuration offers protocols (ALPN), but none that this client would speak.
    #[error("client {client}: its TLS configuration offers (ALPN) none of the protocols that this client speaks")]
    Alpn {
        /// The client's name.
        client: Name,
    },
    /// There can be no TLS configuration.
    #[error("client {client}: it cannot be given TLS")]
    Tls {
        /// The client's name.
        client: Name,
        /// Why not.
        #[source]
        source: BoxError,
    },
    /// The URI carries a user or a query, which no call would send.
    #[error("client {client}: its uri carries a user or a query, which no call would send; leave it out")]
    TooMuch {
        /// The client's name.
        client: Name,
    },
    /// A limit of zero would leave every call waiting for its deadline.
    #[error("client {client}: {setting} = 0 would leave every call waiting until its deadline; write at least 1")]
    Zero {
        /// The client's name.
        client: Name,
        /// The setting.
        setting: &'static str,
    },
    /// Connections would be closed the moment they have no call, before another could use them.
    #[error(
        "client {client}: idle_timeout = 0 would close each connection after one call; write at least 1ms, or max_idle = 0"
    )]
    IdleTimeout {
        /// The client's name.
        client: Name,
    },
    /// No call could ever be made within the limits (contract C1).
    #[error("client {client}: its limits leave no time for any call")]
    Limits {
        /// The client's name.
        client: Name,
        /// Why not.
        #[source]
        source: Refused,
    },
}
